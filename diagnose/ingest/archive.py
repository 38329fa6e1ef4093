"""Sources of the members of tar and zip archives, read where they are; nothing is unpacked.

Members of a zip and of an uncompressed tar are stretches of the archive, read when needed. A
compressed tar can only be read forward: in one pass its logs are kept, in memory as long as they
are small and few, then in one nameless temporary file; other members are passed over. An archive
inside an archive is opened, one level deep. What is odd about an archive or a member becomes a
note that names both, and the rest is read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from diagnose.ingest.archive_formats import (
    BLOCK,
    NAME_LIMIT,
    SHOWN,
    Entry,
    ReaderFeed,
    StreamFeed,
    is_tar,
    is_zip,
    short,
    tar_entries,
    zip_members,
)
from diagnose.ingest.compress import Codec, codec_of, decompress
from diagnose.ingest.names import (
    ARCHIVE_NAME,
    MAX_DEPTH,
    is_no_log,
    left_out,
    printable,
    some_of,
)
from diagnose.ingest.raw import BytesStore, Keeper, Reader, SliceStore, Store, reason
from diagnose.ingest.read import look
from diagnose.ingest.recognise import HOLD_MEMBERS, may_be_archive, nothing, source_of
from diagnose.ingest.sniff import HEAD
from diagnose.ingest.source import TEXT_KINDS, Budget, Source, is_document
from diagnose.parse.path import PathHints, read_path
from diagnose.text.ranks import counted

PART_LIMIT = 255  # of a part of it: no file system in use has longer ones
NAMED = 20  # refused members of one archive that get a note each

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


@dataclass(slots=True)
class Names:
    """Which members of one archive are read; counts and names those which are not."""

    members: int
    place: str = ""  # what stands before the names of those
    refused: list[Source] = field(default_factory=list)  # the first NAMED
    more_refused: int = 0
    more_unread: bool = False  # of these
    hidden: set[str] = field(default_factory=set)
    no_logs: set[str] = field(default_factory=set)
    copies: Counter[str] = field(default_factory=Counter)
    taken: dict[str, str] = field(default_factory=dict)  # printable name -> name
    used: int = 0  # of `members`; a long name counts more than once
    beyond: int = 0  # members after the first `members`

    def admit(self, entry: Entry) -> str | None:
        """The printable name, unique in this archive, under which a member is read, if it is.

        The same name again means the same member again: its last copy counts, as when unpacked.
        """
        if entry.folder:
            return None
        name, problem = _clean(entry.name)
        if problem or entry.refused:
            no_log = entry.special or is_no_log(entry.name.rpartition("/")[2])
            self.refuse(entry.name, problem or entry.refused, unread=not no_log)
            return None
        parts = name.split("/")
        for depth, part in enumerate(parts):
            if part.startswith("."):
                self.hidden.add(printable("/".join(parts[: depth + 1]))[:SHOWN])
                return None
        if is_no_log(parts[-1]):
            self.no_logs.add(printable(name)[:SHOWN])
            return None
        return self._unique(name)

    def refuse(self, name: str, why: str, *, unread: bool = True) -> None:
        """Note that a member is not read, and whether a log may be missed by that."""
        if len(self.refused) < NAMED:
            shown = f"{self.place}{short(name)}"
            self.refused.append(nothing(shown, "skipped", why, unread=unread))
        else:
            self.more_refused += 1
            self.more_unread |= unread

    def _unique(self, name: str) -> str | None:
        shown = printable(name)
        # Names which differ only in bytes that cannot be printed.
        for count in range(2, 100):
            if self.taken.get(shown, name) == name:
                break
            shown = f"{printable(name)} ({count})"
        if shown not in self.copies:
            cost = 1 + len(shown) // SHOWN
            if self.used + cost > self.members:
                self.beyond += 1
                return None
            self.used += cost
            self.taken.setdefault(shown, name)
        self.copies[shown] += 1
        return shown


def _clean(raw: str) -> tuple[str, str]:
    """The path without empty and `.` parts, and why the member must not be read, if so."""
    if len(raw) > NAME_LIMIT:
        return raw, f"name of more than {NAME_LIMIT} characters: not read"
    if raw.startswith(("/", "\\\\")) or _DRIVE.match(raw):
        return raw, "absolute path: not read"
    parts = [part for part in raw.split("/") if part not in ("", ".")]
    if ".." in parts:
        return raw, "path leads out of the archive: not read"
    if not parts:
        return raw, "no name: not read"
    if any(len(part) > PART_LIMIT for part in parts):
        return raw, f"part of its path longer than {PART_LIMIT} characters: not read"
    if len(parts) > MAX_DEPTH + 1:
        return raw, f"more than {MAX_DEPTH} folders deep: not read"
    return "/".join(parts), ""


Form = Literal["tar", "zip"]

# Logs of a job do not all repeat themselves: its archive grows less than one log may.
_RATIO = 100
_READ_WHOLE = 1 << 20  # members up to this size are read before they are looked at
_TAR_SUFFIX = re.compile(
    r"\.(?:tar|tar\.(?:gz|bz2|xz|zst|Z)|tgz|taz|tbz2?|tb2|txz|tzst)\Z", re.IGNORECASE
)


def archive_form(store: Store, name: str) -> Form | None:
    """Whether a store is an archive, by its content. Raises OSError.

    The name decides only where an archive is so damaged that its content does not tell.
    """
    with store.open() as reader:
        head = reader.read_at(0, BLOCK)
        codec = codec_of(head)
        if codec is not None:
            head = StreamFeed(decompress(reader, codec, Budget())).peek(BLOCK)
        return _form_of(head, codec, name)


def _form_of(head: bytes, codec: Codec | None, name: str) -> Form | None:
    """The form of an archive that starts with `head`, after decompression if there is a codec."""
    if codec is None and is_zip(head):
        return None if b"/data.pkl" in head[:300] or b"/.format_version" in head[:300] else "zip"
    if is_tar(head) or (len(head) == BLOCK and head[257:262] == b"ustar"):
        return "tar"
    # An archive of nothing, or cut within its first header.
    is_rest = not head.strip(b"\0") or (len(head) < BLOCK and b"\0" in head)
    return "tar" if head and is_rest and _TAR_SUFFIX.search(name) else None


def archive_sources(
    store: Store, name: str, budget: Budget | None = None, *, inside: str = ""
) -> list[Source]:
    """The sources of one archive, sorted by name, as `find_sources` gives them for its folder.

    `name` is what notes call the archive, `budget` bounds it with all archives inside it. Members
    are named by their path in it, behind `inside` (such as `logs.tar!` for an archive that is one
    of several inputs), and those of an archive inside it `inner.zip!path`. Members left out are
    named `archive!member`, and so is the archive itself for what concerns all of it. What is no
    archive gives itself as the one source, with a note if its name promises an archive. Never
    raises OSError.
    """
    job = _Archive(budget or Budget())
    name = printable(name)
    job.open(store, name, inside, nested=False)
    return sorted(job.sources, key=lambda source: source.name)


@dataclass(slots=True)
class _Level:
    """One archive while it is read: the outer one, or one inside it.

    `budget` is its own, `of_all` that of the outer one, from which all members take.
    """

    name: str
    inside: str
    names: Names
    budget: Budget
    of_all: Budget
    found: dict[str, Source] = field(default_factory=dict)
    inner: dict[str, Store] = field(default_factory=dict)

    def put(self, member: str, source: Source, place: Store | None = None) -> None:
        """Take in the source of a member, or its place if it is an archive.

        The last one of a name stays.
        """
        self.found.pop(member, None)
        self.inner.pop(member, None)
        if place and may_be_archive(source) and archive_form(place, member):
            self.inner[member] = place
        else:
            self.found[member] = source

    def sources(self, most: int) -> list[Source]:
        """Those of the members, of members left out, and of what there is to say of the archive.

        `most`: members that may be read of this archive and all inside each other.
        """
        names, budget = self.names, self.budget
        found = [*self.found.values(), *names.refused]
        if names.more_refused:
            tell = budget.cut if names.more_unread else budget.note
            tell(f"{counted(names.more_refused, 'more member')} not read")
        if names.beyond:
            budget.cut(f"only the first {most} members were read")
        if twice := [short(member) for member, count in names.copies.items() if count > 1]:
            what = some_of(twice)
            budget.note(f"several members have the same name; the last one is read: {what}")
        on_purpose = [*left_out(sorted(names.no_logs), sorted(names.hidden))]
        for text in on_purpose:
            budget.note(text)
        nothing_read = not self.found and not self.inner
        if budget.notes:
            kind = "unreadable" if nothing_read else "skipped"
            source = nothing(self.name, kind, "; ".join(budget.notes))
            found.append(replace(source, unread=budget.unread, left_out=on_purpose))
        elif nothing_read and not names.refused:
            found.append(nothing(self.name, "empty", "no files in this archive"))
        return found


@dataclass(slots=True)
class _Archive:
    """The sources of an archive and of those inside it, within common bounds."""

    budget: Budget
    sources: list[Source] = field(default_factory=list)
    keeper: Keeper = field(init=False)
    of_all: Budget | None = None
    members_left: int = field(init=False)

    def __post_init__(self) -> None:
        self.budget = self.budget.apart()
        self.budget.ratio = min(self.budget.ratio, _RATIO)
        self.keeper = Keeper(self.budget)
        self.members_left = self.budget.members

    def open(self, store: Store, name: str, inside: str, *, nested: bool) -> None:
        """Add the sources of an archive, then those of the archives inside it."""
        budget, names = self.budget.apart(), Names(self.members_left, f"{name}!")
        level = _Level(name, inside, names, budget, self.of_all or Budget())
        try:
            with store.open() as reader:
                self.of_all = level.of_all = self.of_all or self.budget.of_archive(reader.size)
                budget.archive = self.of_all if nested else None
                is_archive = self._read(store, reader, level, nested=nested)
        except OSError as error:
            budget.cut(f"reading stopped: {reason(error)}")
            is_archive = True
        self.budget.headers = budget.headers
        if not is_archive:
            self.sources.append(_as_it_is(store, name, nested=nested))
            return
        self.members_left -= level.names.used
        self.sources += level.sources(self.budget.members)
        for inner, place in level.inner.items():
            if nested:
                why = "archive inside an archive inside an archive: not read"
                self.sources.append(nothing(f"{name}!{inner}", "skipped", why, unread=True))
            else:
                self.open(place, f"{name}!{inner}", f"{inside}{inner}!", nested=True)

    def _read(self, store: Store, reader: Reader, level: _Level, *, nested: bool) -> bool:
        """Read all members; False if the store is no archive."""
        head = reader.read_at(0, BLOCK)
        codec = codec_of(head)
        if codec is None:
            form = _form_of(head, None, level.name)
            if form == "tar":
                self._tar(store, ReaderFeed(reader), level)
            elif form == "zip":
                self._zip(store, reader, level)
            return form is not None
        feed = StreamFeed(decompress(reader, codec, level.budget))
        if _form_of(feed.peek(BLOCK), codec, level.name) is None:
            return nested  # it is one, but the quota is used up
        self._packed_tar(feed, level)
        return True

    def _tar(self, store: Store, feed: ReaderFeed, level: _Level) -> None:
        for entry in tar_entries(feed, level.budget):
            member = level.names.admit(entry)
            if member is None:
                continue
            there = min(entry.size, feed.reader.size - feed.position)
            place = SliceStore(store, feed.position, there)
            self._add(level, member, entry, place, _cut_note(there, entry.size))

    def _packed_tar(self, feed: StreamFeed, level: _Level) -> None:
        odd = level.budget.apart()
        for entry in tar_entries(feed, odd):
            member = level.names.admit(entry)
            if member is None:
                continue
            if entry.size > _READ_WHOLE:
                head = feed.peek(HEAD)
                seen = look(BytesStore(head), member)
                is_hole = not head.strip(b"\0")  # what it is, only its end can tell
                kept = seen.kind in TEXT_KINDS or is_document(seen.kind)
                if not kept and not is_hole and seen.container not in HOLD_MEMBERS:
                    missed = seen.container is not None or seen.kind == "unreadable"
                    source = nothing(level.inside + member, seen.kind, seen.note, unread=missed)
                    level.put(member, replace(source, size=entry.size, mtime=entry.mtime))
                    continue
            place, size, problem = self.keeper.keep(feed.pieces(entry.size), entry.size)
            if place is None:
                level.names.refuse(entry.name, problem)
                continue
            self._add(level, member, entry, place, _cut_note(size, entry.size))
        level.budget.headers = odd.headers
        if not level.budget.notes:  # damage of the compression explains what is odd behind it
            for text in odd.notes:
                level.budget.cut(text)

    def _zip(self, store: Store, reader: Reader, level: _Level) -> None:
        for zipped in zip_members(store, reader, level.budget):
            member = level.names.admit(zipped.entry)
            if member is None or zipped.store is None:
                continue
            place, codec, entry = zipped.store, zipped.codec, zipped.entry
            # What is packed becomes no larger than the directory says.
            budget = level.of_all.member(entry.size if codec else None)
            source = _member(level, member, entry, place, budget)
            if codec is None or not may_be_archive(source):
                level.put(member, source, place)
                continue
            # Packed twice, or an archive: it has to be read at places, or by another codec.
            budget = budget.apart()
            kept, _, problem = self.keeper.keep(_unpacked(place, codec, budget), entry.size)
            if kept is None:
                level.names.refuse(entry.name, problem)
            else:
                self._add(level, member, entry, kept, "; ".join(budget.notes))

    def _add(self, level: _Level, member: str, entry: Entry, place: Store, cut: str) -> None:
        budget = level.of_all.member()
        level.put(member, _member(level, member, entry, place, budget, cut), place)


def _member(
    level: _Level, member: str, entry: Entry, place: Store, budget: Budget, cut: str = ""
) -> Source:
    hints = _hints(level.inside, member)
    return source_of(place, level.inside + member, entry.size, budget, cut, entry.mtime, hints)


def _as_it_is(store: Store, name: str, *, nested: bool) -> Source:
    source = source_of(store, name, 0, hints=_hints("", name))
    try:
        with store.open() as reader:
            source = replace(source, size=reader.size)
    except OSError:
        pass
    if not nested and ARCHIVE_NAME.search(name) and source.kind in TEXT_KINDS:
        note = "named like an archive but is not one: read as text"
        source = replace(source, note="; ".join(part for part in (source.note, note) if part))
    elif ARCHIVE_NAME.search(name) and source.kind == "binary" and not source.unread:
        source.unread.append(source.note)  # an archive, so damaged that nothing tells its form
    return source


def _hints(inside: str, member: str) -> PathHints:
    """What the path tells; an archive inside another counts as a folder of its name."""
    outer = "".join(ARCHIVE_NAME.sub("", part) + "/" for part in inside.split("!")[:-1])
    return read_path(outer + member)


def _unpacked(place: Store, codec: Codec, budget: Budget) -> Iterator[bytes]:
    with place.open() as reader:
        yield from decompress(reader, codec, budget)


def _cut_note(there: int, size: int) -> str:
    return f"cut short: {there} of {size} bytes are there" if there < size else ""
