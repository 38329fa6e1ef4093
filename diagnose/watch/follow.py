"""All files of a job as they grow: new ones, rotated ones, those of new attempts; standard input.

Which files to look at is told by what grew lately, by events of the file system, and every few
seconds by looking at all: on NFS and Lustre no event tells what another machine wrote. Logs are
rotated in two ways. Renamed, the old file is read to its end before the new one of that
name is opened. Copied and truncated, it begins again, which shows in its size or, where it has
grown past the old size since, in the last bytes that were read.
"""

from __future__ import annotations

import os
import queue
import re
import resource
import stat
import tempfile
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from diagnose.ingest.chunks import without_escapes
from diagnose.ingest.names import ARCHIVE_NAME, MAX_DEPTH, PACKED, is_no_log, printable
from diagnose.ingest.place import LocalPlace, walk
from diagnose.ingest.sniff import sniff
from diagnose.parse.path import PathHints, read_path
from diagnose.watch.notice import Memory

MAX_FILES = 4096  # followed at once
ALL_S, WALK_S, NEW_S = 2.0, 5.0, 1.0  # between looks at all files, and for new ones
_SELDOM = 50  # times as long as it takes to look for new files, that is not done
ACTIVE_S = 60.0  # a file that grew so lately is looked at each time
GONE_S = 60.0  # after which a file that was deleted is forgotten
# Of what files held before the watch began so much is read, of all together and of each.
HISTORY, LEAST, MOST = 16 << 20, 64 << 10, 2 << 20
_ROTATED = re.compile(r"[.-](?:\d{1,10}|old|bak|prev)\Z")
_TEXT = frozenset({"text", "error_json", "empty"})
HEAD, TAIL = 4 << 20, 16 << 20  # bytes that are kept of standard input, in memory
NAME = "<stdin>"
_PIECE, _WAITING = 64 << 10, 64  # bytes of it read at once; pieces that wait
READ = 1 << 20  # bytes read of a file at once
MAX_UNREAD = 4 << 20  # bytes that a file may be ahead; of more only the last READ are read
_MARK = 32  # of the last bytes read, to know the place again
_HEAD = 256  # of the first bytes, to know a copy of the file
LIMIT = 64 << 10  # bytes kept of a line; longer ones are cut, however they arrive
_BREAK = re.compile(rb"[\r\n]")


@dataclass(slots=True)
class Lines:
    """Joins pieces to lines. A line ends at a newline or, as a bar does, at a carriage return.

    The lines are the same for any cuts between pieces. What is not ended yet is kept, also while
    its file is rotated: the rest of the line then comes from the next one. At most LIMIT bytes of
    it stay in memory.
    """

    pending: bytes = b""
    skipping: bool = False  # until the end of the line: it is too long, or its start is not known

    def feed(self, data: bytes) -> bytes:
        """The lines that `data` ends, in one block without escape codes; empty if it ends none."""
        if self.skipping:
            found = _BREAK.search(data)
            if found is None:
                return b""
            data, self.skipping = data[found.start() :], False
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not cut:
            self._keep(self.pending + data)
            return b""
        block = self.pending + data[:cut]
        self._keep(data[cut:])
        if len(block) > LIMIT:
            block = b"".join(map(_cut, block.splitlines(keepends=True)))
        return without_escapes(block) if b"\x1b" in block else block

    def skip(self) -> None:
        """The next bytes are not those that follow: begin with the line behind them."""
        self.pending, self.skipping = b"", True

    def _keep(self, rest: bytes) -> None:
        self.skipping = len(rest) > LIMIT
        self.pending = rest[:LIMIT]


def _cut(line: bytes) -> bytes:
    """A line with its end, cut to LIMIT if it is longer."""
    if len(line) <= LIMIT:
        return line
    text = line.rstrip(b"\r\n")
    return text[:LIMIT] + line[len(text) :]


@dataclass(slots=True)
class Tail:
    """A file by its path, the place up to which it was read, and when it was written last.

    `missed` counts bytes that were skipped because the file grew too fast to be read whole.
    """

    path: str
    descriptor: int = -1
    offset: int = 0
    mark: bytes = b""
    head: bytes = b""
    former: tuple[tuple[int, int] | None, bytes] = (None, b"")  # identity and head before rotation
    missed: int = 0
    written: int = -1  # when the file was, at the last look, in nanoseconds since 1970

    def close(self) -> None:
        """Let go of the file."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def start(self, keep: int) -> None:
        """Begin `keep` bytes before the end of the file. Raises OSError."""
        self._open()
        size = os.fstat(self.descriptor).st_size
        self.head = os.pread(self.descriptor, _HEAD, 0)
        self.offset = max(0, size - keep)
        self.mark = b""

    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the open file."""
        if self.descriptor < 0:
            return None
        status = os.fstat(self.descriptor)
        return status.st_dev, status.st_ino

    def grown(self) -> bool:
        """Whether there may be anything to read, in this file or in another of its name."""
        try:
            status = os.stat(self.path)  # noqa: PTH116  a thousand of them a second
        except OSError:
            return False
        if status.st_size != self.offset or status.st_mtime_ns != self.written:
            return True
        return (status.st_dev, status.st_ino) != self.identity()

    def read(self) -> tuple[bytes, bool]:
        """What came since, at most READ bytes, and whether bytes before it were skipped.

        A file that is gone, or may not be read, has nothing to say. Raises OSError for a disk that
        fails.
        """
        if self.descriptor < 0:
            try:
                self._open()
            except OSError:
                return b"", False
            self.offset, self.mark = 0, b""
        data, skipped = self._more()
        if not data and self._replaced():
            self.former = self.identity(), self.head
            self.close()
            with suppress(OSError):
                self._open()
                self.offset, self.mark, self.head = 0, b"", b""
                data, skipped = self._more()
        return data, skipped

    def _open(self) -> None:
        self.descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def _replaced(self) -> bool:
        """Whether the name belongs to another file now."""
        try:
            status = os.stat(self.path)  # noqa: PTH116
        except OSError:
            return False
        return (status.st_dev, status.st_ino) != self.identity()

    def _more(self) -> tuple[bytes, bool]:
        status = os.fstat(self.descriptor)
        size, skipped = status.st_size, False
        touched, self.written = status.st_mtime_ns != self.written, status.st_mtime_ns
        if size < self.offset or (touched and not self._same()):
            self.offset, self.mark, self.head = 0, b"", b""
        if size - self.offset > MAX_UNREAD:
            self.missed += size - READ - self.offset
            self.offset, skipped = size - READ, True
        if size == self.offset:
            return b"", skipped
        data = os.pread(self.descriptor, READ, self.offset)
        if not self.head:
            self.head = data[:_HEAD] if not self.offset else os.pread(self.descriptor, _HEAD, 0)
        self.offset += len(data)
        self.mark = (self.mark + data)[-_MARK:]
        return data, skipped

    def _same(self) -> bool:
        """Whether what stands before the place is what was read there.

        A hole there is no other file: a writer that does not append leaves it when its file is
        truncated, and goes on behind it.
        """
        if not self.mark:
            return True
        found = os.pread(self.descriptor, len(self.mark), self.offset - len(self.mark))
        return found == self.mark or not found.strip(b"\0")


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
        inside = os.path.isdir(path)  # noqa: PTH112
        files = (file.path for file in walk(LocalPlace(), path, MAX_DEPTH)) if inside else [path]
        for place in files:
            if inside and not may_be_log(place.rpartition("/")[2]):
                continue
            with suppress(OSError):
                status = os.stat(place, follow_symlinks=not inside)  # noqa: PTH116
                key = status.st_dev, status.st_ino
                if stat.S_ISREG(status.st_mode) and key not in seen:
                    seen.add(key)
                    yield Found(printable(os.path.relpath(place, base)), place, status)


def may_be_log(name: str) -> bool:
    """Whether a file inside of a folder may be a log that grows, by its name."""
    packed = name.lower().endswith(PACKED) or ARCHIVE_NAME.search(name)
    return not packed and not is_no_log(name)


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
        with suppress(OSError, ValueError):  # as many open files as it may
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            most = min(max(soft, 2 * MAX_FILES), hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
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
            begin, self._walked = time.monotonic(), now
            self._find(now)
            self._took = time.monotonic() - begin
        every = now - self._all >= ALL_S
        if every:
            self._all = now
        for path, file in list(self._files.items()):
            if not every and now - file.stream.grew > ACTIVE_S and path not in changed:
                continue
            if file.tail.grown():
                file.seen = now
                if block := self._read(file, now):
                    yield file.stream, block
            elif every and now - file.seen > GONE_S and not os.path.exists(path):  # noqa: PTH110
                file.tail.close()
                del self._files[path]

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

    def _note(self, text: str) -> None:
        if text not in self.notes and len(self.notes) < 100:
            self.notes.append(text)


class Spool:
    """Keeps the first HEAD bytes of a stream and about the last TAIL, in memory.

    `file` writes them to `path`, in a folder of its own for temporary files, which `close` removes.
    """

    def __init__(self, head: int = HEAD, tail: int = TAIL) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="diagnose-watch-")
        self.path = os.path.join(self._folder.name, "stdin.log")  # noqa: PTH118
        self._room, self._most = head, tail
        self._first: list[bytes] = []
        self._last: deque[bytes] = deque()
        self._size = 0  # of the last
        self._dropped = False

    def add(self, data: bytes) -> None:
        """Keep these bytes, which come next."""
        if self._room:
            self._first.append(data[: self._room])
            data = data[self._room :]
            self._room -= len(self._first[-1])
        if data:
            self._last.append(data)
            self._size += len(data)
        while self._size > self._most and self._size - len(self._last[0]) >= self._most:
            self._size -= len(self._last.popleft())
            self._dropped = True

    def file(self) -> str:
        """One log of all that is kept; a line says where something is left out."""
        with open(self.path, "wb") as whole:  # noqa: PTH123
            whole.writelines([*self._first, b"\n[...]\n" * self._dropped, *self._last])
        return self.path

    def close(self) -> None:
        """Remove it all."""
        self._folder.cleanup()


class Stdin:
    """Reads a descriptor in a thread, which waits when nobody takes what it read."""

    def __init__(self, descriptor: int) -> None:
        self.stream = Stream(Memory(NAME, PathHints()))
        self.spool = Spool()
        self.ended = False
        self._pieces: queue.Queue[bytes] = queue.Queue(_WAITING)
        threading.Thread(target=self._read, args=(descriptor,), daemon=True).start()

    def look(self, now: float) -> bytes:
        """The lines that ended since the last look; at the end of input also one that did not."""
        blocks = []
        while True:
            try:
                piece = self._pieces.get_nowait()
            except queue.Empty:
                break
            self.stream.grew = now
            if not piece:
                self.ended = True
                piece = b"\n"
            else:
                self.spool.add(piece)
            blocks.append(self.stream.lines.feed(piece))
        return b"".join(blocks)

    def _read(self, descriptor: int) -> None:
        while True:
            try:
                piece = os.read(descriptor, _PIECE)
            except BlockingIOError:
                time.sleep(0.1)
                continue
            except OSError:
                piece = b""
            self._pieces.put(piece)
            if not piece:
                return
