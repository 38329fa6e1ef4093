"""From stored bytes to a source: its kind told by its start, its note by what is odd about it."""

from __future__ import annotations

from diagnose.ingest.budget import Budget
from diagnose.ingest.raw import Store, reason
from diagnose.ingest.read import Content, Opened, TextChunks, look, no_chunks
from diagnose.ingest.sniff import Container
from diagnose.ingest.source import TEXT_KINDS, Source, is_document
from diagnose.parse.path import PathHints

_NO_HINTS = PathHints()
HOLD_MEMBERS = frozenset({Container.ARCHIVE, Container.TWICE})  # perhaps: a tar, compressed


def source_of(
    store: Store,
    name: str,
    size: int,
    budget: Budget | None = None,
    cut: str = "",
    mtime: float | None = None,
    hints: PathHints = _NO_HINTS,
) -> Source:
    """A source of stored bytes, told by their start; what cannot be read is `unreadable`.

    `budget` bounds it, from now on as its own. `cut` says why these are not all bytes that there
    should be, `hints` are what the path tells.
    """
    budget = budget or Budget()
    try:
        opened = look(store, name, budget)
    except OSError as error:
        opened = Opened("unreadable", reason(error), None, "utf-8", 0)
    as_text, whole = opened.kind in TEXT_KINDS, is_document(opened.kind)
    missed = opened.kind == "unreadable" or (opened.container is not None and not as_text)
    budget.unread += [part for part in (opened.note if missed else "", cut) if part]
    return Source(
        name=name,
        kind=opened.kind,
        size=size,
        chunks=TextChunks(store, opened, budget) if as_text else no_chunks,
        content=Content(store, opened, budget) if whole else bytes,
        rank=hints.rank,
        local_rank=hints.local_rank,
        task=hints.task,
        node=hints.node,
        host=hints.host,
        attempt=hints.attempt,
        pid=hints.pid,
        pod=hints.pod,
        mtime=mtime,
        note="; ".join(part for part in (opened.note, cut) if part),
        notes=budget.notes,
        unread=budget.unread,
        container=opened.container,
        budget=budget if budget.archive else None,
    )


def nothing(name: str, kind: str, note: str, *, unread: bool | None = None) -> Source:
    """A source with nothing to read; `kind` and `note` say why.

    `unread`: whether there may be a log in it nevertheless; by default if it is `unreadable`.
    """
    missed = kind == "unreadable" if unread is None else unread
    return Source(name, kind, 0, no_chunks, note=note, unread=[note] if missed else [])


def may_be_archive(source: Source) -> bool:
    """Whether a look at its start leaves open that a source is an archive."""
    return source.container in HOLD_MEMBERS
