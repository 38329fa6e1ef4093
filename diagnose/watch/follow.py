"""All files of a job as they grow: new ones, rotated ones, those of new attempts.

Which files to look at is told by what grew lately, by events of the file system, and every few
seconds by looking at all: on NFS and Lustre no event tells what another machine wrote.
"""

from __future__ import annotations

import os
import re
import resource
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from diagnose.ingest.names import ARCHIVE_NAME, MAX_DEPTH, MAX_ENTRIES, PACKED, is_no_log, printable
from diagnose.ingest.sniff import sniff
from diagnose.parse.path import read_path
from diagnose.watch.notice import Memory
from diagnose.watch.tail import READ, Lines, Tail


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file: its name below what all given paths share, its path, its `stat`."""

    name: str
    path: str
    status: os.stat_result


def logs(paths: Sequence[str]) -> Iterator[Found]:
    """Files given, and those inside of folders given that may be logs; each file once.

    Hidden ones, packed ones, files that are no logs by their names and what symbolic links lead to
    are left out inside of folders. What cannot be read, or is not there yet, is passed over.
    """
    seen: set[tuple[int, int]] = set()
    folders = [path if os.path.isdir(path) else os.path.dirname(path) for path in paths]  # noqa: PTH112, PTH120
    base = os.path.commonpath([os.path.abspath(folder) for folder in folders]) if paths else "."  # noqa: PTH100
    for path in paths:
        found = _below(path, 0) if os.path.isdir(path) else _one(path)  # noqa: PTH112
        for place, status in found:
            key = status.st_dev, status.st_ino
            if key not in seen:
                seen.add(key)
                yield Found(printable(os.path.relpath(place, base)), place, status)


def _one(path: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return
    if stat.S_ISREG(status.st_mode):
        yield path, status


def _below(folder: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    try:
        with os.scandir(folder) as entries:
            inside = sorted(
                (entry for entry, _ in zip(entries, range(MAX_ENTRIES), strict=False)),
                key=lambda entry: entry.name,
            )
    except OSError:
        return
    for entry in inside:
        if entry.name.startswith("."):
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH:
                    yield from _below(entry.path, depth + 1)
            elif entry.is_file(follow_symlinks=False) and may_be_log(entry.name):
                yield entry.path, entry.stat(follow_symlinks=False)
        except OSError:
            continue


def may_be_log(name: str) -> bool:
    """Whether a file inside of a folder may be a log that grows, by its name."""
    packed = name.lower().endswith(PACKED) or ARCHIVE_NAME.search(name)
    return not packed and not is_no_log(name)


MAX_FILES = 4096  # followed at once
ALL_S, WALK_S, NEW_S = 2.0, 5.0, 1.0  # between looks at all files, and for new ones
_SELDOM = 50  # times as long as it takes to look for new files, that is not done
ACTIVE_S = 60.0  # a file that grew so lately is looked at each time
GONE_S = 60.0  # after which a file that was deleted is forgotten
# Of what files held before the watch began so much is read, of all together and of each.
HISTORY, LEAST, MOST = 16 << 20, 64 << 10, 2 << 20
_ROTATED = re.compile(r"[.-](?:\d{1,10}|old|bak|prev)\Z")
_TEXT = frozenset({"text", "error_json", "empty"})


@dataclass(slots=True, eq=False)
class Stream:
    """One file, or standard input: what is remembered of it, and its lines so far.

    `grew` is when bytes came last, `mtime` when its file was written before the watch began.
    """

    memory: Memory
    lines: Lines = field(default_factory=Lines)
    grew: float = 0.0
    mtime: float | None = None


@dataclass(slots=True, eq=False)
class _File:
    stream: Stream
    tail: Tail
    seen: float
    sniffed: bool = False


@dataclass(slots=True)
class Follow:
    """The files below `paths`. Times are those of one clock that never goes back."""

    paths: Sequence[str]
    notes: list[str] = field(default_factory=list)
    _files: dict[str, _File] = field(default_factory=dict)
    _no_logs: dict[str, tuple[int, int]] = field(default_factory=dict)
    _all: float = -1e9
    _walked: float = -1e9
    _took: float = 0.0  # seconds, for the last look for new files

    def __len__(self) -> int:
        return len(self._files)

    def history(self, now: float) -> Iterator[tuple[Stream, bytes]]:
        """The ends of the files that are there already, as blocks of whole lines."""
        _many_files()
        found = list(logs(self.paths))
        keep = min(MOST, max(LEAST, HISTORY // max(1, len(found))))
        for one in found:
            file = self._take(one, now)
            if file is None:
                continue
            file.stream.mtime = one.status.st_mtime
            try:
                file.tail.start(keep)
            except OSError as error:
                self._note(f"{one.name}: {error.strerror}")
                continue
            if file.tail.offset:
                file.stream.lines.skip()
            while block := self._read(file, now):
                yield file.stream, block
        self._walked = self._all = now

    def look(self, now: float, changed: Collection[str] = ()) -> Iterator[tuple[Stream, bytes]]:
        """What came since the last look, as blocks of whole lines; `changed` are paths."""
        new = any(
            path not in self._files and path not in self._no_logs and may_be_log(path)
            for path in changed
        )
        if now - self._walked >= max(NEW_S if new else WALK_S, _SELDOM * self._took):
            self._walk(now)
        every = now - self._all >= ALL_S
        if every:
            self._all = now
        for path, file in list(self._files.items()):
            if not every and now - file.stream.grew > ACTIVE_S and path not in changed:
                continue
            if file.tail.grown():
                file.seen = now
                yield from self._blocks(file, now)
            elif every:
                self._forget_gone(path, file, now)

    def streams(self) -> list[Stream]:
        """Those that are followed now."""
        return [file.stream for file in self._files.values()]

    def missed(self) -> int:
        """Bytes that came too fast to be read."""
        return sum(file.tail.missed for file in self._files.values())

    def close(self) -> None:
        """Let go of all files."""
        for file in self._files.values():
            file.tail.close()

    def _blocks(self, file: _File, now: float) -> Iterator[tuple[Stream, bytes]]:
        block = self._read(file, now)
        if block:
            yield file.stream, block

    def _read(self, file: _File, now: float) -> bytes:
        """The lines that ended since, empty where none did."""
        while True:
            try:
                data, skipped = file.tail.read()
            except OSError as error:
                self._note(f"{file.stream.memory.name}: {error.strerror}")
                return b""
            if not data:
                return b""
            if not file.sniffed:
                file.sniffed = True
                if sniff(file.tail.head, file.stream.memory.name) not in _TEXT:
                    self._drop(file)
                    return b""
            file.stream.grew = now
            if skipped:
                file.stream.lines.skip()
            block = file.stream.lines.feed(data)
            if block or len(data) < READ:
                return block

    def _walk(self, now: float) -> None:
        begin, self._walked = time.monotonic(), now
        self._find(now)
        self._took = time.monotonic() - begin

    def _find(self, now: float) -> None:
        """Look for new files."""
        known = {file.tail.identity() for file in self._files.values()}
        for one in logs(self.paths):
            key = one.status.st_dev, one.status.st_ino
            if one.path in self._files or key in known:
                continue  # the second: a file we follow was renamed
            if self._no_logs.get(one.path) == key:
                continue
            file = self._take(one, now)
            if file is not None:
                with suppress(OSError):  # read() opens it when it can
                    file.tail.start(0 if self._is_old(one, key) else one.status.st_size)

    def _take(self, one: Found, now: float) -> _File | None:
        if len(self._files) >= MAX_FILES:
            self._note(f"more than {MAX_FILES} files: those that grew least lately are left out")
            oldest = min(self._files, key=lambda path: self._files[path].stream.grew)
            self._files.pop(oldest).tail.close()
        file = _File(Stream(Memory(one.name, read_path(one.name)), grew=now), Tail(one.path), now)
        self._files[one.path] = file
        return file

    def _is_old(self, one: Found, key: tuple[int, int]) -> bool:
        """Whether it was read already: what rotation made of a file, or the copy of one."""
        heads = [file.tail.former[1] for file in self._files.values() if file.tail.former[0] == key]
        base = self._files.get(_ROTATED.sub("", one.path))
        if base is not None and _ROTATED.search(one.path) is not None:
            heads.append(base.tail.head)
        with suppress(OSError), open(one.path, "rb") as file:  # noqa: PTH123
            begin = file.read(max(map(len, heads), default=0))
            return any(head and begin.startswith(head) for head in heads)
        return False

    def _drop(self, file: _File) -> None:
        key = file.tail.identity()
        file.tail.close()
        self._files.pop(file.tail.path, None)
        if key is not None and len(self._no_logs) < MAX_FILES:
            self._no_logs[file.tail.path] = key

    def _forget_gone(self, path: str, file: _File, now: float) -> None:
        if now - file.seen > GONE_S and not os.path.exists(path):  # noqa: PTH110
            file.tail.close()
            del self._files[path]

    def _note(self, text: str) -> None:
        if text not in self.notes and len(self.notes) < 100:
            self.notes.append(text)


def _many_files() -> None:
    """Let this process open as many files as it may."""
    with suppress(OSError, ValueError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 2 * MAX_FILES), hard), hard))
