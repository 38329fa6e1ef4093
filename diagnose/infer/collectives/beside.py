"""What lines tell beside dumps: ranks that wait by their own watchdog, and ranks that are silent.

A rank without a dump that prints its timeouts is not missing: it waits, in a call of a group that
its dumped fellows know. So its waits are entered into the one standing, with gaps where its lines
tell nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from diagnose.infer.collectives.progress import Op, Standing
from diagnose.infer.collectives.table import Table
from diagnose.infer.collectives.verdict import DumpVerdict
from diagnose.infer.judge.stall import Stall, Wait
from diagnose.infer.judge.witnesses import Frontier, witnessed
from diagnose.parse.flight_recorder import Call, Sizes
from diagnose.timeline.event import Timeline

_Kind = tuple[str, int | None, int | None]  # operation, elements in and out
# By group and number what ranks with a dump call there.
_Called = Mapping[tuple[str, int | None], set[_Kind]]


@dataclass(frozen=True, slots=True)
class Lines:
    """What lines tell.

    `waits` are those that each rank may really stand in, `frontiers` how far it got by rank and
    name of the group, `places` where the lines of the waits are, by row. `silent` are the ranks of
    which lines prove that they wait nowhere, and `why`.
    """

    waits: Mapping[int, Sequence[Wait]] = field(default_factory=dict)
    frontiers: Mapping[tuple[int, str | None], Frontier] = field(default_factory=dict)
    places: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    silent: frozenset[int] = frozenset()
    why: str = ""


NO_LINES = Lines()


def lines_beside(timeline: Timeline, stalls: Sequence[Stall]) -> Lines:
    """What the lines of a job tell that has dumps too; `stalls` are how it stands by lines."""
    found = witnessed(timeline)
    heads = found.heads()
    proven = next((s for s in stalls if s.proven and s.shape == "missing"), None)
    return Lines(
        heads,
        found.frontiers,
        {wait.row: timeline.at(wait.row).place for waits in heads.values() for wait in waits},
        frozenset(proven.missing if proven else ()),
        proven.why if proven else "",
    )


def standing_of(table: Table, lines: Lines, *, alive: bool) -> Standing:
    """Where all ranks stand, by dumps and lines.

    Who writes a dump was there to write it. Counters (`alive` is False) are the last that is told
    of a rank: where lines prove who is silent, whose own watchdog prints a timeout is not idle.
    Their numbers are not those of the lines.
    """
    standing = Standing(table)
    own: dict[int, dict[str, str]] = {rank: {} for rank in lines.waits}
    for key, group in table.groups.items() if own else ():
        for rank in own.keys() & set(group.members):
            own[rank][group.name] = key
    called = _called(standing) if alive else {}
    for rank in lines.waits:
        if rank not in table.files and 0 <= rank < table.world:
            _enter(standing, lines, rank, own[rank], called)
        elif not alive and lines.silent and rank not in standing.pending:
            standing.elsewhere.add(rank)
    return standing


def _called(standing: Standing) -> _Called:
    found: dict[tuple[str, int | None], set[_Kind]] = defaultdict(set)
    for op in (op for ops in standing.pending.values() for op in ops if not op.p2p):
        call = standing.calls[op.call]
        found[op.group, op.seq].add((call.op, _elements(call.size_in), _elements(call.size_out)))
    return found


def _elements(sizes: Sizes) -> int | None:
    return sum(prod(size) for size in sizes) if sizes else None


def _enter(
    standing: Standing, lines: Lines, rank: int, own: Mapping[str, str], called: _Called
) -> None:
    """Enter one rank without a dump; `own`: its groups by name."""
    standing.known.add(rank)
    standing.partial.add(rank)
    for name, key in own.items():
        status = lines.frontiers.get((rank, name))
        if status is not None and key not in standing.mixed:
            standing.enqueued[rank, key, False] = status.enqueued
            standing.last_completed[rank, key] = status.completed
    waits = lines.waits[rank]
    fits = [(wait, *fit) for wait in waits for fit in _fits(wait, own, called)]
    if len(fits) == len(waits) == 1:
        op = _op(standing, lines, *fits[0])
        standing.pending[rank] = [op]
        last = standing.enqueued.get((rank, op.group, False), -1)
        standing.enqueued[rank, op.group, False] = max(last, op.seq)
    else:
        standing.elsewhere.add(rank)
    standing.unknown |= {
        (rank, key) for key in own.values() if (rank, key, False) not in standing.enqueued
    }


def _fits(wait: Wait, own: Mapping[str, str], called: _Called) -> list[tuple[str, str]]:
    """The groups of its rank that a line can be of, each with the name of the operation there.

    Those in which ranks with a dump are in the same call; where a line names the group, it may be
    that none of its members left a dump.
    """
    fits = []
    for name, key in own.items() if wait.seq is not None and not wait.p2p else ():
        alike = called.get((key, wait.seq), set()) if wait.group in (None, name) else None
        same = sorted(kind[0] for kind in alike or () if _agree(wait, kind))
        if same or (alike == set() and wait.group and called):
            fits.append((key, [*same, (wait.op or "").lower()][0]))
    return fits


def _agree(wait: Wait, kind: _Kind) -> bool:
    """Whether a line and a dump tell of one call: `ALLREDUCE` is `all_reduce`."""
    op = None if wait.op is None else wait.op.lower().replace("_", "")
    return all(
        printed is None or recorded is None or printed == recorded
        for printed, recorded in zip(
            (op, wait.size_in, wait.size_out), (kind[0].replace("_", ""), *kind[1:]), strict=True
        )
    )


def _op(standing: Standing, lines: Lines, wait: Wait, group: str, op: str) -> Op:
    """The operation that a line tells."""
    sizes: list[Sizes] = [
        ((size,),) if size is not None else () for size in (wait.size_in, wait.size_out)
    ]
    standing.calls.append(Call(op, "nccl", sizes[0], sizes[1], "", None))
    source, line = lines.places[wait.row]
    return Op(
        wait.rank, group, wait.seq or 0, False, op, -1, 0, True, wait.began or 0,
        len(standing.calls) - 1, "", line, source=source,
    )  # fmt: skip


def with_silent(
    standing: Standing, lines: Lines, verdict: DumpVerdict, *, alive: bool
) -> DumpVerdict:
    """The verdict with the ranks that lines prove silent, where dumps choose among several.

    Of a node that is gone counters tell which ranks stopped first, and lines that all of it is.
    """
    silent, open_to = lines.silent, set(verdict.suspects) if verdict.tie else set()
    blamed = set() if alive else open_to or set(verdict.ranks)
    others_wait = verdict.tie and open_to - silent <= lines.waits.keys()
    lost = others_wait and (not alive or silent.isdisjoint(standing.known))
    if not silent or not (silent <= open_to or silent > blamed > set() or lost):
        return verdict
    why = f"{lines.why}, and by the calls {verdict.why}"
    ranks = tuple(sorted(silent))
    return replace(verdict, kind="missing", ranks=ranks, suspects=(), tie=False, why=why)
