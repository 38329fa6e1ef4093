"""Sources of the members of tar and zip archives, read where they are; nothing is unpacked.

Members of a zip and of an uncompressed tar are stretches of the archive, read when needed. A
compressed tar can only be read forward: in one pass its logs are kept, in memory as long as they
are small and few, then in one nameless temporary file; other members are passed over. An archive
inside an archive is opened, one level deep. What is odd about an archive or a member becomes a
note that names both, and the rest is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from diagnose.ingest.archive_feeds import ReaderFeed, StreamFeed
from diagnose.ingest.archive_form import archive_form, form_of
from diagnose.ingest.archive_level import Level
from diagnose.ingest.archive_names import Entry, Names
from diagnose.ingest.archive_stores import Keeper, SliceStore
from diagnose.ingest.archive_tar import BLOCK, tar_entries
from diagnose.ingest.archive_zip import zip_members
from diagnose.ingest.compress import DEFAULT_LIMITS, Codec, Limits, codec_of, decompress
from diagnose.ingest.file_names import ARCHIVE_NAME, printable
from diagnose.ingest.quota import Meter, Quota
from diagnose.ingest.raw import BytesStore, Reader, Store, reason
from diagnose.ingest.read import look
from diagnose.ingest.recognise import HOLD_MEMBERS, may_be_archive, nothing, source_of
from diagnose.ingest.sniff import HEAD
from diagnose.ingest.source import TEXT_KINDS, Source, is_document
from diagnose.parse.path import PathHints, read_path

_READ_WHOLE = 1 << 20  # members up to this size are read before they are looked at


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """Bounds on one archive with all archives inside it.

    `members`: files that become sources; `headers`: what is looked at to find them. `total`: bytes
    that all members together may become, and `ratio` how many times the archive's own size beyond
    `ratio_floor`. `memory` and `spool`: bytes kept of a compressed tar, in memory and in a
    temporary file.
    """

    members: int = 50_000
    headers: int = 200_000
    total: int = 64 << 30
    ratio: int = 1000
    ratio_floor: int = 1 << 30
    memory: int = 64 << 20
    spool: int = 8 << 30


DEFAULT_ARCHIVE_LIMITS = ArchiveLimits()


def archive_sources(
    store: Store,
    name: str,
    limits: ArchiveLimits = DEFAULT_ARCHIVE_LIMITS,
    *,
    inside: str = "",
) -> list[Source]:
    """The sources of one archive, sorted by name, as `find_sources` gives them for its folder.

    `name` is what notes call the archive. Members are named by their path in it, behind `inside`
    (such as `logs.tar!` for an archive that is one of several inputs), and those of an archive
    inside it `inner.zip!path`. Members left out are named `archive!member`, and so is the archive
    itself for what concerns all of it. What is no archive gives itself as the one source, with a
    note if its name promises an archive. Never raises OSError.
    """
    job = _Archive(limits)
    name = printable(name)
    job.open(store, name, inside, nested=False)
    return sorted(job.sources, key=lambda source: source.name)


@dataclass(slots=True)
class _Archive:
    """The sources of an archive and of those inside it, within common bounds."""

    limits: ArchiveLimits
    sources: list[Source] = field(default_factory=list)
    keeper: Keeper = field(init=False)
    quota: Quota | None = None
    members_left: int = field(init=False)

    def __post_init__(self) -> None:
        self.keeper = Keeper(self.limits.memory, self.limits.spool)
        self.members_left = self.limits.members

    def open(self, store: Store, name: str, inside: str, *, nested: bool) -> None:
        """Add the sources of an archive, then those of the archives inside it."""
        level: Level | None = None
        try:
            with store.open() as reader:
                if self.quota is None:
                    floor = self.limits.ratio_floor
                    by_ratio = max(floor, reader.size * self.limits.ratio)
                    self.quota = Quota(min(self.limits.total, by_ratio))
                level = Level(name, inside, Names(self.members_left), self.quota)
                is_archive = self._read(store, reader, level, nested=nested)
        except OSError as error:
            level = level or Level(name, inside, Names(0), Quota(0))
            level.remarks.cut(f"reading stopped: {reason(error)}")
            is_archive = True
        if not is_archive:
            self.sources.append(_as_it_is(store, name, nested=nested))
            return
        self.members_left -= len(level.names.copies)
        self.sources += level.sources(self.limits.members)
        for inner, place in level.inner.items():
            if nested:
                why = "archive inside an archive inside an archive: not read"
                self.sources.append(nothing(f"{name}!{inner}", "skipped", why, unread=True))
            else:
                self.open(place, f"{name}!{inner}", f"{inside}{inner}!", nested=True)

    def _read(self, store: Store, reader: Reader, level: Level, *, nested: bool) -> bool:
        """Read all members; False if the store is no archive."""
        head = reader.read_at(0, BLOCK)
        codec = codec_of(head)
        if codec is None:
            form = form_of(head, None, level.name)
            if form == "tar":
                self._tar(store, ReaderFeed(reader), level)
            elif form == "zip":
                self._zip(store, reader, level)
            return form is not None
        bounds = Limits(self.limits.total, self.limits.ratio, self.limits.ratio_floor)
        blocks = decompress(reader, codec, level.remarks.cut, bounds)
        if nested:  # of which there may be thousands
            blocks = Meter(level.quota).bounded(blocks, level.remarks.cut)
        feed = StreamFeed(blocks)
        if form_of(feed.peek(BLOCK), codec, level.name) is None:
            return nested  # it is one, but the quota is used up
        self._packed_tar(feed, level)
        return True

    def _tar(self, store: Store, feed: ReaderFeed, level: Level) -> None:
        for entry in tar_entries(feed, level.remarks.cut, self.limits.headers):
            member = level.names.admit(entry)
            if member is None:
                continue
            there = min(entry.size, feed.reader.size - feed.position)
            place = SliceStore(store, feed.position, there)
            self._add(level, member, entry, place, _cut_note(there, entry.size))

    def _packed_tar(self, feed: StreamFeed, level: Level) -> None:
        def cut(text: str) -> None:
            if not level.remarks.notes:  # damage of the compression explains what is odd behind it
                level.remarks.cut(text)

        for entry in tar_entries(feed, cut, self.limits.headers):
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

    def _zip(self, store: Store, reader: Reader, level: Level) -> None:
        for zipped in zip_members(store, reader, level.remarks.cut, self.limits.headers):
            member = level.names.admit(zipped.entry)
            if member is None or zipped.store is None:
                continue
            place, codec, limits = zipped.store, zipped.codec, zipped.limits
            meter = Meter(level.quota)
            source = _member(level, member, zipped.entry, place, limits, meter=meter)
            if codec is None or not may_be_archive(source):
                _put(level, member, place, source)
                continue
            # Packed twice, or an archive: it has to be read at places, or by another codec.
            cuts: list[str] = []
            blocks = meter.bounded(_unpacked(place, codec, cuts.append, limits), cuts.append)
            kept, _, problem = self.keeper.keep(blocks, zipped.entry.size)
            if kept is None:
                level.names.refuse(zipped.entry.name, problem)
            else:
                self._add(level, member, zipped.entry, kept, "; ".join(cuts))

    def _add(self, level: Level, member: str, entry: Entry, place: Store, cut: str) -> None:
        meter = Meter(level.quota)
        _put(level, member, place, _member(level, member, entry, place, DEFAULT_LIMITS, cut, meter))


def _member(
    level: Level,
    member: str,
    entry: Entry,
    place: Store,
    limits: Limits,
    cut: str = "",
    meter: Meter | None = None,
) -> Source:
    name, hints = level.inside + member, _hints(level.inside, member)
    return source_of(place, name, entry.size, limits, cut, meter, entry.mtime, hints)


def _put(level: Level, member: str, place: Store, source: Source) -> None:
    """Take in the source of a member, or put the member aside if it is an archive."""
    nested = may_be_archive(source) and archive_form(place, member) is not None
    level.put(member, place if nested else source)


def _as_it_is(store: Store, name: str, *, nested: bool) -> Source:
    source = source_of(store, name, 0, DEFAULT_LIMITS, hints=_hints("", name))
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


def _unpacked(
    place: Store, codec: Codec, cut: Callable[[str], None], limits: Limits
) -> Iterator[bytes]:
    with place.open() as reader:
        yield from decompress(reader, codec, cut, limits)


def _cut_note(there: int, size: int) -> str:
    return f"cut short: {there} of {size} bytes are there" if there < size else ""
