"""The two things ingest hands on: sources (where bytes come from) and chunks (the bytes)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field

from diagnose import plugins
from diagnose.ingest.budget import Budget
from diagnose.ingest.sniff import Container
from diagnose.lazy import dataclass
from diagnose.parse.chunk import Chunk

__all__ = ["DOCUMENT_KINDS", "TEXT_KINDS", "Chunk", "Source", "is_document"]

# Kinds whose lines go through the catalog, and kinds that a reader of their own takes as a whole.
TEXT_KINDS = frozenset({"text", "error_json", "ras", "stacks", "inspector"})
DOCUMENT_KINDS = frozenset({"fr_dump", "ras", "stacks", "inspector", "probe"})


def is_document(kind: str) -> bool:
    """Whether a reader, ours or a plug-in's, takes sources of this kind as a whole."""
    return kind in DOCUMENT_KINDS or kind in plugins.loaded(plugins.READERS).found


@dataclass(frozen=True, slots=True)
class Source:
    """One file, stream or archive member of a job.

    `name` is what reports print: the path relative to the job's folder, or `<stdin>`. `kind` says
    which reader it needs: `text` (logs of any kind, also JSON lines and CRI), `error_json`
    (torch elastic error file), `fr_dump` (Flight Recorder), `ras` (ncclras), `inspector` (NCCL
    Inspector), `stacks` (stack dumps), `probe` (of a bundle of ours), or why there is nothing to
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
