"""Who wrote a line: the rank where it is known, else whatever the line or its source gives."""

from __future__ import annotations

from typing import Literal, NamedTuple

from diagnose.timeline.event import Event

# From the one that names a process in the whole job to the one that may hold many.
AuthorKind = Literal["rank", "process", "task", "local_rank", "host", "source"]


class Author(NamedTuple):
    """Who wrote lines.

    `kind` is what it is known by, `name` what tells it from others of the kind: the rank; host and
    pid; source and task of a launcher; host and local rank; the host, pod or container that a
    prefix names; or only the source, in which several processes may write.
    """

    kind: AuthorKind
    name: tuple[str | int | None, ...]

    @property
    def shown(self) -> str:
        """`rank 3`, `worker-4`, `node7 pid 812`, `console.log task 2`, `a.log`: for people."""
        first, *rest = (str(part) for part in self.name if part is not None)
        if self.kind == "rank":
            return f"rank {first}"
        what = {"process": "pid", "task": "task", "local_rank": "local rank"}.get(self.kind)
        return " ".join([first, *([what] if what and rest else []), *rest])

    @property
    def rank(self) -> int | None:
        """The global rank; None where it is not known."""
        number = self.name[0]
        return number if self.kind == "rank" and isinstance(number, int) else None


def author_of(event: Event) -> Author:
    """The author of an event."""
    if event.rank is not None:
        return Author("rank", (event.rank,))
    if event.pid is not None:
        return Author("process", (event.host, event.pid))
    if event.task is not None:
        return Author("task", (event.source, event.task))
    if event.local_rank is not None:
        return Author("local_rank", (event.host or event.source, event.local_rank))
    if event.host is not None:
        return Author("host", (event.host,))
    return Author("source", (event.source,))
