"""Ranks that leave the way of the others, told by the order of calls over all groups."""

from __future__ import annotations

import pytest

from diagnose.infer.collectives.divergence import Stray, strays
from tests.infer.dump_jobs import SYNC, Call, Job, grid, of, tables

GROUPS = grid(8, 2)
STEPS, AT, ODD = 6, 2, 5


def steps(change: str, odd: int = ODD) -> Job:
    """Steps of three calls; `odd` changes the second of step `AT`."""

    def program(rank: int) -> list[Call]:
        tensor, data = of(GROUPS, "TENSOR_GROUP", rank), of(GROUPS, "DATA_GROUP", rank)
        calls = []
        for step in range(STEPS):
            usual = [Call(tensor, line=10), Call(tensor, line=11), Call(data, line=12), SYNC]
            if (rank, step) == (odd, AT):
                usual = {
                    "skipped": [usual[0], *usual[2:]],
                    "extra": [*usual[:2], *usual[1:]],
                    "swapped": [usual[0], usual[2], usual[1], SYNC],
                    "none": usual,
                }[change]
            calls += usual
        return calls

    return Job(GROUPS, program)


def told(job: Job, *lost: int) -> list[tuple[int, str, str, str, int]]:
    """Rank, and `kind of group:number` of the call before, its own and the usual one; votes."""
    table = tables((n, d) for n, d in job.files().items() if int(n[6:]) not in lost)

    def call(place: int) -> str:
        group = [*table.groups.values()][table.columns["group"][place]]
        return f"{group.desc[0]}{table.columns['seq'][place]}"

    return [(s.rank, call(s.before), call(s.own), call(s.usual), s.votes) for s in strays(table)]


@pytest.mark.parametrize(
    ("change", "before", "own", "usual"),
    [("skipped", "T5", "D3", "T6"), ("extra", "T6", "T7", "D3")],
)
def test_calls_that_all_look_alike(change: str, before: str, own: str, usual: str) -> None:
    assert told(steps(change)) == [(ODD, before, own, usual, 7)]
    assert told(steps(change), 1, 3, 4) == [(ODD, before, own, usual, 4)]


def test_two_calls_swapped() -> None:
    """The two groups share one rank only: the swap does no harm, all are in step again."""
    assert told(steps("swapped")) == []


def test_a_swap_that_stops_the_job() -> None:
    groups = {"0": ("default_pg", [0, 1, 2, 3]), "1": ("A", [0, 1, 2, 3])}

    def program(rank: int) -> list[Call]:
        pair = [Call("0"), Call("1")]
        return pair * 4 + [call for c in (pair if rank != 2 else pair[::-1]) for call in (c, SYNC)]

    assert told(Job(groups, program)) == [(2, "A4", "A5", "d5", 3)]


def test_a_job_without_a_stray() -> None:
    assert told(steps("none")) == []
    assert strays(tables([])) == []


@pytest.mark.slow
def test_one_against_one_is_no_majority() -> None:
    assert told(steps("skipped"), 0, 1, 2, 3, 6, 7) == []


def test_stages_of_a_pipeline_have_programs_of_their_own() -> None:
    """Three stages of two ranks: the first sends where all others receive."""
    groups = {"0": ("default_pg", list(range(6)))}
    groups |= {str(1 + n): ("TENSOR", [2 * n, 2 * n + 1]) for n in range(3)}
    groups |= {str(4 + n): ("PIPE", [n, n + 2, n + 4]) for n in range(2)}

    def program(rank: int) -> list[Call]:
        tensor, pipe = str(1 + rank // 2), str(4 + rank % 2)
        calls = []
        for _ in range(4):
            calls += [Call(tensor)] * 6
            calls += [Call(pipe, "recv", peer=rank - 2)] if rank > 1 else []
            calls += [Call(pipe, "send", peer=rank + 2)] if rank < 4 else []
        return calls

    assert told(Job(groups, program)) == []


def test_what_a_stray_holds() -> None:
    table = tables(steps("skipped").files().items())
    (found,) = strays(table)
    assert found == Stray(ODD, found.before, found.own, found.usual, 7, True)
    assert table.columns["rank"][[found.before, found.own]].tolist() == [ODD, ODD]
    assert table.columns["rank"][found.usual] != ODD
