"""What ingest hands on, sources and chunks, and what reading a source may cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from diagnose import plugins
from diagnose.ingest.sniff import Container
from diagnose.parse.chunk import Chunk


@dataclass(slots=True)
class Budget:
    """Bounds on one source, or on one archive with all in it, and what is used of them.

    `total`: bytes that it may become once decompressed, before any cleaning; `ratio` how many times
    its stored size, looked at only beyond `ratio_floor` bytes, because a log that repeats itself
    shrinks a lot too. Of an archive: `members` are files that become sources, `headers` what may
    still be looked at to find them; `memory` and `spool` are bytes kept of what cannot be read
    again where it is, in memory and in a temporary file; `left` are bytes that its members may
    still become.

    `archive` is the budget that a member takes its bytes from, `used` how many it took.
    `notes` are for people, `unread` says why not all was read; each text is there once.
    """

    total: int = 64 << 30
    ratio: int = 1000
    ratio_floor: int = 1 << 30
    members: int = 50_000
    headers: int = 200_000
    memory: int = 64 << 20
    spool: int = 8 << 30
    left: int = 0
    archive: Budget | None = None
    used: int = 0
    notes: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def of_archive(self, size: int) -> Budget:
        """The same bounds for an archive of `size` stored bytes, whose members take from them."""
        total = min(self.total, max(self.ratio_floor, size * self.ratio))
        return replace(self, total=total, left=total, notes=[], unread=[])

    def member(self, most: int | None = None) -> Budget:
        """That of one member, which becomes `most` bytes at most."""
        bounds = Budget() if most is None else Budget(total=min(most, Budget().total))
        bounds.archive = self
        return bounds

    def apart(self) -> Budget:
        """The same bounds, with nothing used and nothing noted."""
        return replace(self, used=0, notes=[], unread=[])

    def note(self, text: str) -> None:
        """Note something about what was read."""
        if text not in self.notes:
            self.notes.append(text)

    def cut(self, text: str) -> None:
        """Note why not all was read."""
        self.note(text)
        if text not in self.unread:
            self.unread.append(text)

    def allows(self, seen: int) -> bool:
        """Whether a member may give `seen` bytes from its start on; takes them if so.

        Reading it once more is free: what it gave counts once.
        """
        if self.archive is not None and seen - self.used > self.archive.left:
            self.cut(f"the archive's members become more than {self.archive.total} bytes: cut")
            return False
        self.charge(seen)
        return True

    def charge(self, seen: int) -> None:
        """Take what a member has given, here or in another process."""
        if self.archive is not None and seen > self.used:
            self.archive.left -= seen - self.used
            self.used = seen


__all__ = ["DOCUMENT_KINDS", "TEXT_KINDS", "Chunk", "Source", "is_document"]

# Kinds whose lines go through the catalog, and kinds that a reader of their own takes as a whole.
TEXT_KINDS = frozenset({"text", "error_json", "ras", "stacks", "inspector"})
DOCUMENT_KINDS = frozenset(
    {"fr_dump", "ras", "stacks", "inspector", "probe", "detector", "recorder"}
)


def is_document(kind: str) -> bool:
    """Whether a reader, ours or a plug-in's, takes sources of this kind as a whole."""
    return kind in DOCUMENT_KINDS or kind in plugins.loaded(plugins.READERS).found


@dataclass(frozen=True, slots=True)
class Source:
    """One file, stream or archive member of a job.

    `name` is what reports print: the path relative to the job's folder, or `<stdin>`. `kind` says
    which reader it needs: `text` (logs of any kind, also JSON lines and CRI), `error_json`
    (torch elastic error file), `fr_dump` (Flight Recorder), `ras` (ncclras), `inspector` (NCCL
    Inspector), `stacks` (stack dumps), `detector` (what another one concluded), `recorder` (calls
    that others recorded), `probe` (of a bundle of ours), or why there is nothing to
    read: `empty`, `binary`, `unreadable` (an error) or `skipped` (on purpose). `size` is in bytes
    as stored, so of the compressed file. `rank`, `local_rank`, `task`, `node`, `host`, `attempt`
    and `pid` are what the file's name or folder says, if anything; `pod`: the host is a pod's name.

    `chunks` opens the source anew at each call, never raises, and yields nothing for kinds that are
    no text (TEXT_KINDS). `content` gives a document (DOCUMENT_KINDS) as a whole, decompressed and
    bounded; of other kinds nothing. `note` tells what was known when the source was found;
    `notes` grows while it is read (truncated stream, bound reached, file vanished), each text
    once. `unread` says why not all of it was read, and is empty as long as nothing was missed; it
    grows like `notes`. What is left out because it is no log is not unread: `left_out` are the
    parts of `note` that only say so. `container` says in what form a `binary` source may hold
    logs. A source pickled to another process has its own `notes` and `unread` there: see
    `take_back`. `budget` is that of a member of an archive, which takes from the archive's.
    """

    name: str
    kind: str
    size: int
    chunks: Callable[[], Iterator[Chunk]] = field(repr=False, compare=False)
    content: Callable[[], bytes] = field(default=bytes, repr=False, compare=False)
    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    node: int | None = None
    host: str | None = None
    attempt: int | None = None
    pid: int | None = None
    pod: bool = False
    mtime: float | None = None
    note: str = ""
    notes: list[str] = field(default_factory=list, compare=False)
    unread: list[str] = field(default_factory=list, compare=False)
    left_out: list[str] = field(default_factory=list, compare=False)
    container: Container | None = None
    budget: Budget | None = field(default=None, repr=False, compare=False)

    def take_back(self, copy: Source) -> None:
        """Take over what a copy of this source told in the process in which it was read."""
        self.notes[:] = copy.notes
        self.unread[:] = copy.unread
        if self.budget is not None and copy.budget is not None:
            self.budget.charge(copy.budget.used)
