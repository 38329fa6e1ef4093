"""Dumps of some ranks and lines of the others: one standing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diagnose.infer.collectives.analyze import (
    Lines,
    combined,
    compared,
    judge,
    lines_beside,
    settled,
)
from diagnose.infer.collectives.table import Table
from diagnose.infer.judge.lines import stalls
from diagnose.infer.judge.verdict import Op, Verdict
from tests.infer.dump_jobs import CRASH, HOST, Call, Job, grid, of, tables

from ..rows import wait

WORLD = 8
GROUPS = grid(WORLD, 2)
DATA = of(GROUPS, "DATA_GROUP", 3)  # ranks 1, 3, 5, 7


def dumped(*lost: int, culprit: int = 3, fault: Call = CRASH) -> Table:
    """Dumps of a job in which all others wait for `culprit` in their third step."""

    def program(rank: int) -> list[Call]:
        step = [Call(of(GROUPS, f"{kind}_GROUP", rank), "all_reduce", size)
                for kind, size in (("TENSOR", 32), ("DATA", 64))]  # fmt: skip
        return [*step, *step, *([fault] if rank == culprit else []), *step]

    files = Job(GROUPS, program).files()
    return tables((name, data) for name, data in files.items() if int(name[6:]) not in lost)


def waits(rank: int, seq: int = 3, size: int = 64, group: str | None = None) -> Op:
    return Op(rank, seq, "ALLREDUCE", size, size, 600_000, 600_000, rank, group)


def lines(*own: Op, silent: tuple[int, ...] = ()) -> Lines:
    by_rank: dict[int, list[Op]] = {}
    for one in own:
        by_rank.setdefault(one.rank, []).append(one)
    places = {one.row: ("train.log", one.row + 1) for one in own}
    silence = Verdict("missing", silent, why="these printed no timeout", sure=True)
    return Lines(by_rank, {}, places, [silence] * bool(silent))


def judged(table: Table, own: Lines, *, alive: bool = True) -> tuple[object, ...]:
    found = judge(table, own, alive=alive)
    assert found is not None
    return found.ranks, found.suspects


def test_a_rank_without_a_dump_that_prints_a_timeout_is_not_missing() -> None:
    assert judged(dumped(3, 5), Lines()) == ((), (3, 5))
    assert judged(dumped(3, 5), lines(waits(5))) == ((3,), ())
    assert judged(dumped(3, 4, 5), lines(waits(5))) == ((), (3,)), "nothing is known of rank 4"


def test_it_waits_where_ranks_with_a_dump_are_in_the_same_call() -> None:
    found = judge(dumped(3, 5), lines(waits(5)))
    assert found is not None
    assert found.roles[5] == "waiting"
    assert (5, 3, f"all_reduce seq 3 of DATA_GROUP ({DATA})") in found.edges
    assert found.joined == (1, 5, 7)


@pytest.mark.parametrize(
    ("own", "group"),
    [
        ([waits(5)], DATA),
        ([waits(5, size=32)], None),  # its fellow in the tensor group has made that call
        ([waits(5, seq=9)], None),
        ([waits(5, seq=9, group=DATA)], DATA),  # a line that names it needs no fellow
        ([waits(5, size=1, group=DATA)], None),  # another call than its fellows'
        ([waits(5), waits(5, seq=9)], None),  # which of the two it stands in nobody knows
    ],
    ids=["alike", "of no group", "no such number", "named", "named, unlike", "two"],
)
def test_whose_group_is_not_sure_waits_elsewhere(own: list[Op], group: str | None) -> None:
    standing = combined(dumped(3, 5), lines(*own), alive=True)
    assert [op.group for op in standing.pending.get(5, [])] == [group] * bool(group)
    assert (5 in standing.elsewhere) is (group is None)
    assert 5 in standing.known


def test_a_line_is_quoted_where_it_stands() -> None:
    own = lines(*(waits(rank, group=DATA)._replace(row=rank) for rank in (5, 7)))
    found = judge(dumped(3, 5, 7), own)
    assert found is not None
    assert found.joined == (1, 5, 7)
    quoted = {(one.file, one.line, one.rank) for one in found.evidence}
    assert ("train.log", 6, 5) in quoted


def test_nobody_is_named_where_all_waits_end_at_one_that_waits_elsewhere() -> None:
    idle = dumped(3, culprit=3)
    found = judge(idle, lines(waits(3, seq=9)))
    assert found is not None
    assert (found.ranks, found.suspects, found.tie) == ((), (3,), True)
    assert "whose own wait no dump shows" in found.why
    assert found.roles[3] == "waiting"


def test_whom_dumps_show_idle_its_own_lines_do_not_excuse() -> None:
    idle = dumped(culprit=3, fault=HOST)
    for own in (lines(waits(3, seq=9)), lines(waits(3, seq=9), silent=(6,))):
        assert judged(idle, own) == ((3,), ())


def test_whom_counters_show_idle_its_own_watchdog_knows_better() -> None:
    idle = dumped(culprit=3, fault=HOST)
    assert judged(idle, lines(waits(3, seq=9)), alive=False) == ((3,), ()), "for nobody known"
    assert judged(idle, lines(waits(3, seq=9), silent=(6,)), alive=False) == ((6,), ())
    assert judged(idle, lines(silent=(6,)), alive=False) == ((3,), ()), "it does not wait"


VERDICT = Verdict("missing", (2,), "dp", "all_reduce", 7, (0, 1), (2,), "why", sure=True)
OPEN = replace(VERDICT, ranks=(), suspects=(2, 3, 5))


@pytest.mark.parametrize(
    ("verdict", "own", "alive", "ranks"),
    [
        (OPEN, lines(silent=(3,)), True, (3,)),
        (OPEN, lines(), True, ()),
        (OPEN, lines(silent=(4,)), True, ()),
        (OPEN, lines(waits(3), waits(5), silent=(2, 4)), True, (2, 4)),
        (OPEN, lines(waits(3), silent=(2, 4)), True, ()),
        (OPEN, lines(waits(3), waits(5), silent=(2, 0)), True, ()),
        (OPEN, lines(silent=(2, 3, 4, 5)), True, (2, 3, 4, 5)),
        (VERDICT, lines(silent=(2, 3)), True, (2,)),
        (VERDICT, lines(silent=(2, 3)), False, (2, 3)),
        (VERDICT, lines(silent=(4,)), False, (2,)),
    ],
    ids=[
        "one of those without a dump", "nobody is silent", "none of them",
        "those left open wait", "one left open does not", "one silent rank left a dump",
        "the node of those left open", "dumps know", "counters tell who stopped first",
        "nothing shows that it waits",
    ],
)  # fmt: skip
def test_silence_settles_what_dumps_and_counters_leave_open(
    verdict: Verdict, own: Lines, alive: bool, ranks: tuple[int, ...]
) -> None:
    standing = combined(dumped(2, 3, 4, 5), own, alive=alive)
    found = settled(standing, own, verdict, alive=alive)
    assert found.ranks == ranks
    assert found.tie is (verdict.tie and not ranks)


@pytest.mark.parametrize(
    ("left", "alive", "ranks"), [((2, 7), False, (2,)), ((2, 7), True, ()), ((2, 3), False, ())]
)
def test_whom_neither_counters_nor_timeouts_show_to_wait_is_missing(
    left: tuple[int, ...], alive: bool, ranks: tuple[int, ...]
) -> None:
    """Rank 7 printed no timeout, but its counters show a call that it waits in."""
    unproven = Verdict("missing", suspects=left, missing=left, why="these printed no timeout")
    own = replace(lines(), verdicts=[unproven])
    standing = combined(dumped(2, 3), own, alive=alive)
    found = settled(standing, own, replace(OPEN, suspects=(2,)), alive=alive)
    assert found.ranks == ranks


def test_what_lines_tell_beside_dumps(make: Any) -> None:
    timeline = make(*(wait(rank, group="dp") for rank in (0, 1, 3)))
    found = lines_beside(timeline, stalls(timeline, 4))
    assert {rank: own[0].group for rank, own in found.waits.items()} == dict.fromkeys(
        (0, 1, 3), "dp"
    )
    assert found.silence.ranks == (2,)
    assert "printed no timeout" in found.silence.why
    assert found.places[0] == timeline.at(0).place


IDLE = replace(VERDICT, kind="stuck_host", sure=False, rows=(9,))
ODD = replace(IDLE, kind="mismatched")


@pytest.mark.parametrize(
    ("verdict", "by_lines", "kind", "sure"),
    [
        (IDLE, Verdict("missing", (2,), sure=True), "missing", True),
        (ODD, Verdict("mismatched", (2,), sure=True), "mismatched", True),
        (ODD, Verdict("conditional", (2,), sure=True), "mismatched", True),
        (IDLE, Verdict("missing", suspects=(2,)), "stuck_host", False),
        (IDLE, Verdict("missing", (2, 3), sure=True), "stuck_host", False),
        (IDLE, Verdict("missing", sure=True), "stuck_host", False),
        (IDLE, Verdict("mismatched", (2,), sure=True), "stuck_host", False),
    ],
    ids=["the same", "odd too", "a branch", "a guess", "others too", "nobody", "in another way"],
)
def test_dumps_are_surer_of_what_lines_prove_too(
    verdict: Verdict, by_lines: Verdict, kind: str, sure: bool
) -> None:
    lines = Lines(verdicts=[replace(by_lines, rows=(4, 5))])
    found = compared(verdict, lines, alive=False)
    assert (found.kind, found.ranks, found.sure) == (kind, (2,), sure)
    assert found.rows == ((4, 5, 9) if sure else (9,)), "the lines first, which people can read"
    assert found.notes == ()
    alive = compared(verdict, lines, alive=True)
    assert alive == replace(found, kind=verdict.kind), "who wrote a dump was there"


def test_a_conflict_is_noted_only_where_the_logs_prove_others() -> None:
    other = Verdict("missing", (5,), why="the log names rank 5", sure=True)
    assert compared(VERDICT, Lines(verdicts=[other]), alive=True).notes == (
        "the logs and the dumps disagree: according to the logs, the log names rank 5; "
        "according to the dumps, why",
    )
    some = replace(other, ranks=(2, 3))
    guess = replace(other, ranks=(), suspects=(5,), sure=False)
    assert compared(VERDICT, Lines(verdicts=[some, guess]), alive=True).notes == ()
