"""Collects the threads of one process dump after another, and tells which is the main thread."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from diagnose.parse.tracebacks import STACK_FRAMES, Frame, Kind, Stack

MAX_STACKS = 100_000


@dataclass(frozen=True, slots=True)
class Where:
    """Whose lines these are, as far as told. `task` is a launcher's number of the process."""

    rank: int | None = None
    host: str | None = None
    pid: int | None = None
    local_rank: int | None = None
    task: int | None = None

    def over(self, other: Where) -> Where:
        """What is known here, and what `other` knows besides."""
        return Where(
            self.rank if self.rank is not None else other.rank,
            self.host if self.host is not None else other.host,
            self.pid if self.pid is not None else other.pid,
            self.local_rank if self.local_rank is not None else other.local_rank,
            self.task if self.task is not None else other.task,
        )


@dataclass(slots=True)
class _Thread:
    line: int
    tid: str
    name: str
    status: str
    first: bool
    frames: list[Frame] = field(default_factory=list)
    outermost: Frame | None = None
    indent: int = 0


@dataclass(slots=True)
class _Block:
    """One dump of one process."""

    where: Where
    kind: Kind | None
    debug: bool
    parent: int | None = None
    threads: list[_Thread] = field(default_factory=list)
    tids: set[str] = field(default_factory=set)


class Blocks:
    """Builds the stacks of a source from its lines, told one at a time."""

    def __init__(self, source: str, file: Where) -> None:
        self._source, self._file = source, file
        self._blocks: list[_Block] = []
        self._ranks: dict[int, Where] = {}
        self._count = 0
        self.headings = 0  # taken so far; readers bound it
        self._block: _Block | None = None
        self._thread: _Thread | None = None
        self._of_block = False  # variables told below a process are still being read
        self.begin(Where())

    @property
    def full(self) -> bool:
        """No more stacks are taken."""
        return self._count >= MAX_STACKS

    @property
    def begun(self) -> bool:
        """A stack was found."""
        return self._count > 0

    @property
    def open_kind(self) -> Kind | None:
        """The format of the thread being read, if any."""
        return self._block.kind if self._thread is not None and self._block is not None else None

    def begin(self, writer: Where) -> None:
        """The lines of another writer follow."""
        self._base = writer.over(self._file)
        self._where, self._used, self._debug = Where(), False, False
        self._close()

    def section(self, where: Where, *, debug: bool = False) -> None:
        """A heading. Host, rank and pid nest: a host holds until another one is told."""
        host = where.host or self._where.host
        if debug or self._used:
            self._where = Where()
        merged = where.over(self._where)
        self._where = replace(merged, host=host)
        self._used, self._debug = False, debug
        self._close()

    def environment(self, where: Where) -> None:
        """A variable of the process above, if that is nobody's yet; else of the one below."""
        block = self._block
        if where == Where():
            return
        if block is not None and (self._of_block or block.where.rank is None):
            block.where = where.over(block.where)
            self._of_block = True
        else:
            self.section(where)

    def process(self, where: Where) -> None:
        """A process begins; a heading holds for the first process below it."""
        if self._used and not self._debug:
            self._where = Where(host=self._where.host)
        self._new(where.over(self._where))

    def parent(self, pid: int) -> None:
        """The process that began last was started by `pid`, whose rank it shares."""
        if self._block is not None:
            self._block.parent = pid
            self._block.where = self._block.where.over(self._ranks.get(pid, Where()))

    def end_of_process(self, pid: int | None) -> None:
        """What follows belongs to another dump; gdb names the process at its end."""
        if pid is not None and self._block is not None:
            self._block.where = Where(pid=pid).over(self._block.where)
        self._close()

    def no_answer(self, line: int, status: str) -> bool:
        """The debug server says that it got no stacks of this rank; False outside its sections."""
        if not self._debug or self._block is not None:
            return False
        block = self._new(self._where)
        block.threads.append(_Thread(line, "", "", status, first=True))
        self._count += 1
        self._close()
        return True

    def thread(
        self, kind: Kind, line: int, tid: str, name: str, status: str, *, first: bool = False
    ) -> None:
        """A thread begins. One seen already in this process begins another dump of it."""
        block = self._block
        if block is None or block.kind not in (None, kind):
            block = self._new(self._where)
        elif tid in block.tids:
            block = self._new(block.where)
        block.kind = kind
        block.tids.add(tid)
        self._thread, self._of_block = None, False
        if not self.full:
            self._thread = _Thread(line, tid, name, status, first)
            block.threads.append(self._thread)
            self._count += 1

    def add(self, frame: Frame) -> None:
        """A frame of the thread that began last, further out than those before."""
        if self._thread is not None:
            if len(self._thread.frames) < STACK_FRAMES:
                self._thread.frames.append(frame)
            self._thread.outermost = frame

    def headless(self, kind: Kind, line: int, tid: str) -> None:
        """A stack without a heading begins, another thread of the process above if of this kind."""
        if self.open_kind != kind or self._thread is None or self._thread.frames:
            own = self._block is not None and self._block.kind == kind
            self.thread(kind, line, tid or f"#{self._count}", "", "", first=not own)

    def place(self, file: str, line: int | None) -> None:
        """File and line of the frame that was added last, unless it had them."""
        frames = self._thread.frames if self._thread is not None else []
        if frames and frames[-1].native and not frames[-1].file:
            frames[-1] = frames[-1]._replace(file=file, line=line)

    def deeper(self, indent: int) -> bool:
        """Whether a line is further in than the first frame of its thread."""
        if self._thread is None:
            return False
        self._thread.indent = self._thread.indent or indent
        return indent > self._thread.indent

    def stacks(self) -> list[Stack]:
        """All stacks by line, with ranks from launcher tasks where a task is one process."""
        roots: dict[int, set[int | None]] = {}
        for block in self._blocks:
            if block.where.task is not None and block.parent is None:
                roots.setdefault(block.where.task, set()).add(block.where.pid)
        found: list[Stack] = []
        for number, block in enumerate(block for block in self._blocks if block.threads):
            where, main = block.where, _main(block)
            rank = where.rank
            if rank is None and where.task is not None and len(roots.get(where.task, ())) <= 1:
                rank = where.task
            found += (
                Stack(
                    self._source, thread.line, rank, where.host, where.pid,
                    thread.name or thread.tid, thread is main, thread.status,
                    "gil" in thread.status, tuple(thread.frames),
                    "debug-server" if block.debug else block.kind or "py-spy",
                    where.local_rank, number, block.parent,
                )
                for thread in block.threads
            )  # fmt: skip
        return sorted(found, key=lambda stack: stack.line)

    def _new(self, where: Where) -> _Block:
        where = where.over(self._base)
        self._block = _Block(where, None, self._debug)
        self._blocks.append(self._block)
        if where.pid is not None:
            self._ranks[where.pid] = Where(where.rank, local_rank=where.local_rank)
        self._used, self._thread = True, None
        return self._block

    def _close(self) -> None:
        self._block = None
        self._thread = None
        self._of_block = False


def _main(block: _Block) -> _Thread | None:
    """The main thread: by name, by id, by gdb's number, or the last that no thread started.

    faulthandler tells no names before Python 3.14, but prints the newest thread first; all
    threads of `threading` end in its `_bootstrap`.
    """
    for thread in block.threads:
        if thread.name in ("MainThread", "pt_main_thread"):
            return thread
    for thread in block.threads:
        if thread.tid and thread.tid == str(block.where.pid):
            return thread
    if block.kind in ("gdb", "eu-stack"):
        numbered = [t for t in block.threads if t.tid.isdecimal()]
        first = next((t for t in block.threads if t.first), None)
        return first or min(numbered, key=lambda t: int(t.tid), default=None)
    if len(block.threads) == 1 and block.threads[0].status.startswith("error "):
        return block.threads[0]
    own = [t for t in block.threads if t.outermost is not None and not _bootstrapped(t.outermost)]
    modules = [t for t in own if t.outermost is not None and t.outermost.func == "<module>"]
    candidates = modules or own
    return candidates[-1] if candidates else None


def _bootstrapped(frame: Frame) -> bool:
    return frame.func.endswith("_bootstrap") and frame.file.endswith("threading.py")
