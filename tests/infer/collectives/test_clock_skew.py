from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from random import Random

import pytest

from diagnose.infer.collectives.clock_fit import ClockFit
from diagnose.infer.collectives.clock_skew import MIN_MATCHED, align
from diagnose.infer.collectives.table import Table, table
from diagnose.parse.flight_recorder import read_dump

BEGIN = 1_790_000_000_000_000_000
MS = 1_000_000
SECOND = 1000 * MS

HOSTS = {rank: f"node{rank // 2}" for rank in range(8)}
CLOCKS = {"node0": 0, "node1": 7 * SECOND, "node2": -3600 * SECOND, "node3": 12 * MS}
WORLD = {"0": [*range(8)]}


def job(
    groups: dict[str, list[int]],
    late: Callable[[int, int], int],
    clocks: dict[str, int] = CLOCKS,
    calls: int = 50,
    op: str = "all_reduce",
    order: Iterable[int] | None = None,
) -> Table:
    """Dumps of a job that makes a call every 100 ms.

    `late(rank, seq)`: ns after the common time at which the rank enters it.
    """
    dumps = []
    ranks = sorted({rank for members in groups.values() for rank in members})
    for rank in order or ranks:
        entries = [
            {
                "record_id": seq,
                "process_group": [name, "undefined"],
                "collective_seq_id": seq,
                "p2p_seq_id": seq,
                "profiling_name": f"nccl:{op}",
                "time_created_ns": BEGIN + seq * 100 * MS + late(rank, seq) + clocks[HOSTS[rank]],
                "input_sizes": [[8]],
                "output_sizes": [[8]],
                "state": "completed",
                "timeout_ms": 7_200_000,  # clocks that lie apart by more look like a restart
                "is_p2p": op.startswith("send"),
            }
            for seq in range(1, calls + 1)
            for name, members in groups.items()
            if rank in members
        ]
        config = {n: {"name": n, "desc": "", "ranks": str(m)} for n, m in groups.items()}
        dump = {"version": "2.10", "pg_config": config, "entries": entries}
        dumps.append(read_dump(json.dumps(dump).encode(), f"rank_{rank}.json"))
    return table(dumps)


def jitter(most: int, seed: int = 1) -> Callable[[int, int], int]:
    random = Random(seed)
    drawn = {(rank, seq): random.randrange(most) for rank in range(8) for seq in range(1, 200)}
    return lambda rank, seq: drawn[rank, seq]


def errors(fit: ClockFit) -> dict[str, int]:
    """How far the fit is off the clocks of the simulation."""
    base = CLOCKS[fit.reference or ""]
    return {host: abs(fit.offset[host] + base - CLOCKS[host]) for host in fit.offset}


def test_offsets_within_residuals() -> None:
    fit = align(job(WORLD, jitter(20 * MS)), HOSTS)
    assert fit.reference == "node0"
    assert fit.residual["node0"] == 0
    for host, off in errors(fit).items():
        residual = fit.residual[host]
        assert residual is not None
        assert off <= residual < 125 * MS
    assert max(errors(fit).values()) < 5 * MS  # the median itself is better than what is claimed


def test_order_of_moments() -> None:
    fit = align(job(WORLD, jitter(20 * MS)), HOSTS)
    unsure = fit.uncertain("node1", "node2")
    assert unsure is not None
    assert 20 * MS < unsure < 2 * SECOND
    assert fit.uncertain("node2", "node1") == unsure


def test_exact_without_jitter() -> None:
    fit = align(job(WORLD, lambda rank, seq: 0), HOSTS)
    assert fit.offset == CLOCKS
    assert fit.residual == {"node0": 0, "node1": 100 * MS, "node2": 100 * MS, "node3": 100 * MS}
    assert fit.uncertain("node1", "node2") == 200 * MS


def test_always_late_is_inside_the_residual() -> None:
    fit = align(job(WORLD, lambda rank, seq: 60 * MS if HOSTS[rank] == "node3" else 0), HOSTS)
    assert errors(fit)["node3"] == 60 * MS
    assert fit.residual["node3"] == 100 * MS
    assert fit.uncertain("node0", "node3") == 100 * MS


def test_outliers_do_not_count() -> None:
    def late(rank: int, seq: int) -> int:
        return 1800 * SECOND if rank in (2, 3) and seq > 46 else 0

    fit = align(job(WORLD, late), HOSTS)
    assert fit.offset == CLOCKS
    assert fit.residual["node1"] == 100 * MS


def test_uneven_progress_widens_the_residual() -> None:
    fit = align(job(WORLD, jitter(20 * SECOND, seed=3)), HOSTS)
    for host in ("node1", "node2", "node3"):
        residual = fit.residual[host]
        assert residual is not None
        assert residual > 5 * SECOND
        assert errors(fit)[host] <= residual


def test_by_way_of_others_or_left_out() -> None:
    groups = {"1": [0, 2], "2": [3, 4], "3": [6, 7]}
    fit = align(job(groups, lambda rank, seq: 0), HOSTS)
    assert fit.reference == "node1"  # shares with node0 and node2
    assert fit.offset == {
        "node0": -7 * SECOND,
        "node1": 0,
        "node2": -3607 * SECOND,
    }
    assert fit.residual == {
        "node0": 100 * MS,
        "node1": 0,
        "node2": 100 * MS,
        "node3": None,
    }
    assert fit.uncertain("node0", "node3") is None


def test_residuals_add_up() -> None:
    groups = {"1": [0, 2], "2": [3, 4], "3": [5, 6]}
    fit = align(job(groups, lambda rank, seq: 0), HOSTS)
    assert fit.reference == "node1"
    assert fit.residual["node3"] == 200 * MS
    assert fit.offset["node3"] == CLOCKS["node3"] - CLOCKS["node1"]


@pytest.mark.parametrize(("calls", "known"), [(MIN_MATCHED - 1, False), (MIN_MATCHED, True)])
def test_few_matches(calls: int, known: bool) -> None:
    fit = align(job(WORLD, lambda rank, seq: 0, calls=calls), HOSTS)
    assert (fit.residual["node1"] is not None) is known
    assert (fit.reference is not None) is known


def test_one_host_needs_no_fit() -> None:
    assert ClockFit().uncertain("node0", "node0") == 0
    assert ClockFit().uncertain("node0", "node1") is None


def test_sends_are_no_collectives() -> None:
    fit = align(job({"0": [0, 2]}, lambda rank, seq: 0, op="send 0->1"), HOSTS)
    assert fit.residual == dict.fromkeys(sorted(set(HOSTS.values())))


def test_order_of_input_is_nothing() -> None:
    late = jitter(20 * MS)
    one = align(job(WORLD, late), HOSTS)
    turned = {rank: HOSTS[rank] for rank in reversed(range(8))}
    assert align(job(WORLD, late, order=[5, 2, 7, 0, 1, 6, 4, 3]), turned) == one


def test_unknown_hosts() -> None:
    made = job(WORLD, lambda rank, seq: 0)
    assert align(made, {}) == ClockFit()
    fit = align(made, {0: "node0", 2: "node1", 99: "other"})
    assert fit.offset == {"node0": 0, "node1": 7 * SECOND}
    assert fit.residual == {"node0": 0, "node1": 100 * MS, "other": None}
