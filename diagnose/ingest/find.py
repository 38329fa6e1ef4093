"""The sources of a job: in files, folders and archives; standard input and pasted text."""

from __future__ import annotations

import os
import shutil
import stat
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import IO, BinaryIO

from diagnose.ingest.chunks import is_zeros
from diagnose.ingest.names import (
    ARCHIVE_NAME,
    MAX_DEPTH,
    MAX_ENTRIES,
    RESULTS_NOTE,
    is_no_log,
    is_results,
    left_out,
    printable,
    why_special,
    why_unreadable,
)
from diagnose.ingest.raw import BytesStore, FileStore, Store, reason, spooled
from diagnose.ingest.read import ZEROS_LIMIT, look
from diagnose.ingest.recognise import may_be_archive, nothing, source_of
from diagnose.ingest.sniff import is_log_name
from diagnose.ingest.source import Source
from diagnose.lazy import expression
from diagnose.parse.path import PathHints, read_path

MAX_FILES = 50_000  # of one job
_ATTEMPT = expression(r"attempt_\d+")


def find_sources(
    paths: Sequence[Path],
    *,
    opened: Callable[[Path], Store] = FileStore,
) -> list[Source]:
    """The sources of one job, sorted by name; files and folders given, folders with all inside.

    Names are relative to the given folder, or to the folder which all given paths have in common;
    a given path with nothing to read keeps the name that it was given by.
    Archives are read where they lie (see `diagnose.ingest.archive`): members of the only path
    given are named as in their folder, those of one among others `archive.tar!path`.
    Inside a given folder hidden files and folders are left out, and so are files that by their name
    are no logs, and what a symbolic link leads to outside of it. Whatever cannot be read or is left
    out (pipes, devices, bounds reached) is in the list too, with its kind and a note. `opened`
    gives the bytes of a file. Never raises OSError.
    """
    typed = {Path(os.path.abspath(path)): path for path in paths}  # noqa: PTH100
    given = list(typed)
    if not given:
        return []
    folders = [path if os.path.isdir(path) else path.parent for path in given]  # noqa: PTH112
    base = Path(os.path.commonpath(folders))  # to which names are relative
    walk = _Walk(base, typed)
    for path in sorted(given, key=os.path.isdir):  # a file that is named is read in any case
        walk.add(path)
    alone = len(walk.files) == 1 and not os.path.isdir(given[0])  # noqa: PTH112
    attempt = _attempt(base)
    sources = [
        source
        for name, path, status in sorted(walk.files, key=itemgetter(0, 1))
        for source in store_sources(
            opened(path),
            name,
            status.st_size,
            status.st_mtime,
            read_path(attempt + name),
            alone=alone,
        )
    ]
    sources += walk.others
    return sorted(sources, key=lambda source: source.name)


@dataclass(slots=True)
class _Walk:
    """Collects the regular files below the given paths by name, and what else is there."""

    base: Path
    given: Mapping[Path, Path]  # as they were typed, by what they lead to
    files: list[tuple[str, Path, os.stat_result]] = field(default_factory=list)
    others: list[Source] = field(default_factory=list)
    met: int = 0  # entries that are neither folders nor hidden
    full: bool = False
    links: deque[Path] = field(default_factory=deque)
    seen: set[str] = field(default_factory=set)  # real paths of files and folders
    hidden: list[str] = field(default_factory=list)
    no_logs: list[str] = field(default_factory=list)

    def add(self, path: Path) -> None:
        """Add a given path and all below it."""
        try:
            status = path.stat()
        except OSError as error:
            self._other(path, "unreadable", why_unreadable(self.given[path], error), asked=True)
            return
        root = os.path.realpath(path)
        if not stat.S_ISDIR(status.st_mode):
            self._file(path, root, status, asked=True)
            return
        self.hidden, self.no_logs = [], []
        before = self.met + len(self.others)
        self._folder(path, root, 0)
        # Links last: what they lead to inside the folder mostly has been seen under its own name.
        while self.links:
            self._link(self.links.popleft(), root)
        for note in left_out(self.no_logs, self.hidden):
            self._other(path, "skipped", note, left_out=True)
        if self.met + len(self.others) == before:
            self._other(path, "empty", "no files in this folder", asked=True)

    def _folder(self, path: Path, real: str, depth: int) -> None:
        if real in self.seen:
            return
        self.seen.add(real)
        if depth > MAX_DEPTH:
            self._other(path, "skipped", f"more than {MAX_DEPTH} folders deep", unread=True)
            return
        for entry in self._entries(path):
            if self.full:
                return
            place, real_place = path / entry.name, os.path.join(real, entry.name)  # noqa: PTH118
            if entry.name.startswith("."):
                self.hidden.append(self._name(place))
                continue
            try:
                if entry.is_symlink():
                    self.links.append(place)
                elif entry.is_dir():
                    self._folder(place, real_place, depth + 1)
                elif not self._no_log(place, real_place):
                    self._file(place, real_place, entry.stat())
            except OSError as error:
                self._other(place, "unreadable", reason(error))

    def _entries(self, path: Path) -> list[os.DirEntry[str]]:
        """What is in a folder, by name; nothing where it holds the results of a scan."""
        try:
            with os.scandir(path) as entries:
                inside = list(islice(entries, MAX_ENTRIES))
                if next(entries, None) is not None:
                    note = f"only {MAX_ENTRIES} of its entries were looked at"
                    self._other(path, "skipped", note, unread=True)
        except OSError as error:
            self._other(path, "unreadable", reason(error))
            return []
        if is_results(entry.name for entry in inside):
            self._other(path, "skipped", RESULTS_NOTE, asked=True, left_out=True)
            return []
        return sorted(inside, key=lambda entry: entry.name)

    def _link(self, link: Path, root: str) -> None:
        self.met += 1
        try:
            real = os.path.realpath(link, strict=True)
            status = link.stat()
        except OSError as error:
            note = f"symbolic link: {reason(error)}"
            self._other(link, "unreadable", note, unread=is_log_name(link.name))
            return
        if os.path.commonpath([real, root]) != root:
            note = "symbolic link that leaves the folder"
            self._other(link, "skipped", note, unread=is_log_name(link.name))
        elif stat.S_ISDIR(status.st_mode):
            self._folder(link, real, len(link.parts) - len(self.base.parts))
        elif not self._no_log(link, real):
            self._file(link, real, status)

    def _no_log(self, path: Path, real: str) -> bool:
        """Whether a file inside a given folder is no log by its name; counted then."""
        if not is_no_log(path.name):
            return False
        if real not in self.seen:
            self.no_logs.append(self._name(path))
        return True

    def _file(self, path: Path, real: str, status: os.stat_result, *, asked: bool = False) -> None:
        """Take in a file; one that was asked for is missed where it cannot be read."""
        self.met += 1
        if note := why_special(status.st_mode):
            note += "; give it as standard input" * stat.S_ISFIFO(status.st_mode)
            self._other(path, "skipped", note, unread=asked, asked=asked)
            return
        if real in self.seen or self.full:
            return
        if len(self.files) >= MAX_FILES:
            self.full = True
            note = f"only the first {MAX_FILES} files were looked at"
            self._other(self.base, "skipped", note, unread=True)
            return
        self.seen.add(real)
        self.files.append((self._name(path), path, status))

    def _other(
        self,
        path: Path,
        kind: str,
        note: str,
        *,
        unread: bool | None = None,
        asked: bool = False,
        left_out: bool = False,
    ) -> None:
        """Take in that there is nothing to read; what was asked for keeps the name it was given."""
        typed = self.given.get(path) if asked else None
        name = printable(str(typed)) if typed else self._name(path)
        source = nothing(name, kind, note, unread=unread)
        self.others.append(replace(source, left_out=[note] * left_out))

    def _name(self, path: Path) -> str:
        name = path.relative_to(self.base).as_posix()
        return printable((path.name or "/") if name == "." else name)


def store_sources(
    store: Store,
    name: str,
    size: int,
    mtime: float | None,
    hints: PathHints,
    *,
    alone: bool = False,
) -> list[Source]:
    """The source of one stored file with what its path tells, or the sources of an archive.

    `alone`: the archive is all there is, so that its members need no `archive!` in their names.
    """
    source = None
    if not ARCHIVE_NAME.search(name):
        source = source_of(store, name, size, mtime=mtime, hints=hints)
    if source is None or may_be_archive(source):
        from diagnose.ingest.archive import archive_sources  # noqa: PLC0415  archives are seldom

        members = archive_sources(store, name, inside="" if alone else f"{name}!")
        return [replace(m, mtime=mtime) if m.mtime is None else m for m in members]
    return [source]


def _attempt(base: Path) -> str:
    """What names lose where the folder of the job lies inside torchrun's attempt_<n>."""
    parts = base.parts
    attempts = [index for index, part in enumerate(parts) if _ATTEMPT.fullmatch(part)]
    return "".join(f"{part}/" for part in parts[attempts[-1] :]) if attempts else ""


STDIN_MEMORY = 32 << 20  # bytes of standard input kept in memory
STDIN_LIMIT = 8 << 30  # bytes of standard input kept at all
_BLOCK = 1 << 20


def stdin_source(stream: BinaryIO) -> Source:
    """Read a stream to its end, into memory or beyond STDIN_MEMORY into a temporary file.

    What an error or a bound cuts off is named in the note. The temporary file goes with the source.
    """
    import tempfile  # noqa: PLC0415  not for files

    spool = tempfile.SpooledTemporaryFile(max_size=STDIN_MEMORY)  # noqa: SIM115
    try:
        cut = _spool(stream, spool)
    except (OSError, ValueError) as error:
        cut = f"reading stopped: {reason(error)}"
    size = spool.tell()
    return source_of(spooled(spool, size, STDIN_MEMORY), "<stdin>", size, cut=cut)


def _spool(stream: BinaryIO, spool: IO[bytes]) -> str:
    """Copy a stream into a file; says why not all of it.

    What is no log is left where that is seen, and long runs of NULs are not kept. A temporary file
    takes half of the room that there is at most.
    """
    import tempfile  # noqa: PLC0415

    size = zeros = 0
    most, spilled, packed = STDIN_LIMIT, False, False
    while block := stream.read(_BLOCK):
        if not packed and len(block) == _BLOCK and block[:1] == b"\0" and is_zeros(block):
            zeros += len(block)
            if not size and zeros >= ZEROS_LIMIT:
                return f"reading stopped: nothing but NUL bytes in the first {zeros} bytes"
            continue
        if not size:
            opened = look(BytesStore(block), "<stdin>")
            packed = opened.codec is not None
            if opened.kind == "binary":
                spool.write(block)
                return ""
        if not spilled and size + len(block) > STDIN_MEMORY:
            spilled = True
            most = min(most, size + shutil.disk_usage(tempfile.gettempdir()).free // 2)
        kept = block[: most - size]
        size += spool.write(kept)
        if len(kept) < len(block):
            return f"only the first {size} bytes were read: give the file itself"
    return ""


PASTED = ("<paste>", "<stdin>")  # names of text that may be any part of a log


def text_source(text: str, name: str = "<paste>") -> Source:
    """A source of text in memory, such as a paste; lone surrogates become question marks."""
    data = text.encode(errors="replace")
    return source_of(BytesStore(data), name, len(data))
