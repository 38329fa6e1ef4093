"""NCCL's call lines and RAS counts as dumps: the judge finds who holds up the job, or nobody."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from diagnose.infer.collectives.analyze import judge
from diagnose.infer.collectives.from_counters import dumps_of
from diagnose.infer.collectives.table import table
from diagnose.infer.judge.verdict import Verdict
from diagnose.ingest.source import Chunk, Source
from diagnose.parse.comm_rank import CollCall, CommRank
from diagnose.parse.nccl_calls import CallReader

WORLD, TENSOR = 8, 2
Made = tuple[str, str, int]  # kind of communicator, operation, elements
Program = list[Made]


def step(number: int) -> Program:
    calls: Program = [("tp", "AllGather", 64), ("tp", "AllReduce", 128), ("dp", "AllReduce", 4096)]
    return [*calls, ("world", "AllReduce", 1)] if number % 3 == 2 else calls


def program(steps: int) -> Program:
    return [made for number in range(steps) for made in step(number)]


def place(kind: str, rank: int) -> tuple[str, int, int]:
    """The id of a rank's communicator of a kind, its number in it, and the size."""
    if kind == "world":
        return "0xaa", rank, WORLD
    if kind == "tp":
        return f"0xb{rank // TENSOR}", rank % TENSOR, TENSOR
    return f"0xc{rank % TENSOR}", rank // TENSOR, WORLD // TENSOR


def log(rank: int, calls: Program, inits: bool = True, prefix: str = "", pid: int = 100,
        kinds: tuple[str, ...] = ("world", "tp", "dp")) -> list[str]:  # fmt: skip
    """The lines of one rank; two hosts of four GPUs."""
    ahead = f"{prefix}n{rank // 4}:{pid + rank}:{900 + rank} [{rank % 4}] NCCL INFO "
    lines, counts = [], {}
    for number, kind in enumerate(kinds):
        name, own, size = place(kind, rank)
        counts[kind] = 0
        if inits:
            lines.append(
                f"{ahead}ncclCommInitRank comm 0x{number + 1}0{rank} rank {own} nranks {size} "
                f"cudaDev {rank % 4} nvmlDev {rank % 4} busId {rank % 4}a000 commId {name} "
                "- Init COMPLETE"
            )
    for kind, op, elements in calls:
        _, _, size = place(kind, rank)
        lines.append(
            f"{ahead}{op}: opCount {counts[kind]:x} sendbuff 0x7f00 recvbuff 0x7f10 count "
            f"{elements} datatype 7 op 0 root 0 comm 0x{kinds.index(kind) + 1}0{rank} "
            f"[nranks={size}] stream 0x5500"
        )
        counts[kind] += 1
    return lines


def read(lines: list[str], name: str = "job.log") -> list[CommRank]:
    reader = CallReader(Source(name, "text", 0, lambda: iter(())))
    reader.feed(Chunk(("\n".join(lines) + "\n").encode(), 0, 1))
    return reader.result()


def mixed(logs: dict[int, list[str]], seed: int = 0) -> list[str]:
    """Lines of all ranks in one file, each rank's in order."""
    rng, lines = random.Random(seed), []
    queues = {rank: [*reversed(own)] for rank, own in logs.items()}
    while any(queues.values()):
        own = queues[rng.choice([rank for rank, queue in queues.items() if queue])]
        lines.append(own.pop())
    return lines


def verdict(ranks: list[CommRank], notes: list[str] | None = None) -> Verdict | None:
    found = judge(table(dumps_of(ranks, notes)))
    again = judge(table(dumps_of([*reversed(ranks)])))
    assert found == again, "the order of files must not matter"
    return found


def culprits(found: Verdict | None) -> tuple[str, tuple[int, ...]]:
    assert found is not None
    return found.kind, found.ranks


def job(calls: Callable[[int], Program]) -> dict[int, list[str]]:
    return {rank: log(rank, calls(rank)) for rank in range(WORLD)}


def stuck(culprit: int, whole: int = 40, left: int = 7) -> Callable[[int], Program]:
    """All run ahead of `culprit` as far as they can without it, its tensor group less."""

    def calls(rank: int) -> Program:
        if rank == culprit:
            return program(whole)[:-left]
        return (
            program(whole)[: -left + 2] if rank // TENSOR == culprit // TENSOR else program(whole)
        )

    return calls


@pytest.mark.parametrize("culprit", range(WORLD))
@pytest.mark.parametrize("files", ["one", "many"])
def test_a_stuck_rank(culprit: int, files: str) -> None:
    logs = job(stuck(culprit))
    if files == "one":
        ranks = read(mixed(logs))
    else:
        ranks = [one for rank, own in logs.items() for one in read(own, f"n.{rank}.log")]
    assert culprits(verdict(ranks)) == ("stuck_host", (culprit,))


def test_the_numbers_and_lines_are_those_of_the_log() -> None:
    def calls(rank: int) -> Program:
        return [("world", "AllReduce", 5)] * (29 if rank == 3 else 31)

    logs = {rank: log(rank, calls(rank), kinds=("world",)) for rank in range(WORLD)}
    ranks = [one for rank, own in logs.items() for one in read(own, f"n.{rank}.log")]
    found = verdict(ranks)
    assert found is not None
    assert (found.kind, found.ranks) == ("stuck_host", (3,))
    assert (found.group, found.op, found.seq) == ("world (0xaa)", "all_reduce", 0x1D)
    assert found.joined == (0, 1, 2, 4, 5, 6, 7)
    assert found.missing == (3,)
    assert found.evidence[1].file == "n.0.log"
    dump = dumps_of(ranks)[0]
    assert dump.lines is not None
    assert dump.lines.tolist() == list(range(2, 33))
    assert dump.state.tolist() == [2] * 29 + [0] * 2


@pytest.mark.parametrize("culprit", [0, 5])
def test_another_call_at_the_same_number(culprit: int) -> None:
    def calls(rank: int) -> Program:
        own = program(12)
        if rank == culprit:
            return [*own[:-2], ("dp", "Broadcast", 4096)]
        return own[:-1]

    found = verdict(read(mixed(job(calls))))
    assert culprits(found) == ("mismatched", (culprit,))
    assert found is not None
    assert (found.group, found.seq) == (f"communicator of 4 (0xc{culprit % 2})", 11)


def test_another_size_at_the_same_number() -> None:
    def calls(rank: int) -> Program:
        return [*program(6)[:-1], ("world", "AllReduce", 2 if rank == 6 else 1)]

    assert culprits(verdict(read(mixed(job(calls))))) == ("mismatched", (6,))


def test_two_sides_of_a_mismatch_are_a_tie() -> None:
    def calls(rank: int) -> Program:
        own = program(6)[:-2]
        return (
            [*own, ("tp", "AllGather" if rank == 2 else "AllReduce", 7)] if rank in (2, 3) else own
        )

    found = verdict(read(mixed(job(calls))))
    assert found is not None
    assert (found.kind, found.ranks, found.tie) == ("mismatched", (), True)
    assert found.suspects == (2, 3)


def test_a_call_too_many() -> None:
    def calls(rank: int) -> Program:
        return program(9) + ([("world", "AllReduce", 1)] if rank == 4 else [])

    assert culprits(verdict(read(mixed(job(calls))))) == ("mismatched", (4,))


def test_a_call_too_many_in_the_middle_shifts_all_others() -> None:
    def calls(rank: int) -> Program:
        own = program(9)
        if rank != 1:
            return [made for made in own if made[0] != "dp"]
        own[10:10] = [("tp", "AllGather", 99)]
        return [made for made in own[:13] if made[0] != "dp"]

    found = verdict(read(mixed(job(calls))))
    assert found is not None
    assert found.kind == "mismatched"
    assert set(found.ranks or found.suspects) <= {0, 1}


def test_a_rank_without_any_line() -> None:
    logs = job(lambda rank: program(9))
    del logs[5]
    assert culprits(verdict(read(mixed(logs)))) == ("missing", (5,))


def test_most_ranks_without_any_line_are_no_culprits() -> None:
    logs = job(lambda rank: program(9))
    assert verdict(read(logs[0])) is None
    assert verdict(read(mixed({0: logs[0], 1: logs[1], 2: logs[2]}))) is None


def test_who_stands_behind_is_blamed_before_who_left_no_line() -> None:
    logs = job(stuck(2))
    del logs[5]
    assert culprits(verdict(read(mixed(logs)))) == ("stuck_host", (2,))


def test_all_equal_is_no_verdict() -> None:
    assert verdict(read(mixed(job(lambda rank: program(20))))) is None


def test_a_rank_that_made_no_call_of_a_communicator() -> None:
    def calls(rank: int) -> Program:
        return [] if rank == 7 else program(1)[: 1 if rank == 6 else 3]

    assert culprits(verdict(read(mixed(job(calls))))) == ("stuck_host", (7,))


def test_without_init_lines_ranks_come_from_the_launcher() -> None:
    logs = {
        rank: log(rank, [("world", "AllReduce", 1)] * (8 - (rank == 3)), False, f"[rank{rank}]:")
        for rank in range(WORLD)
    }
    assert culprits(verdict(read(mixed(logs)))) == ("stuck_host", (3,))


def test_without_init_lines_the_devices_of_a_single_host_are_the_ranks() -> None:
    lines = [
        f"box:{pid}:{pid} [{dev}] NCCL INFO AllReduce: opCount {n:x} sendbuff 0x1 recvbuff 0x1 "
        f"count 1 datatype 7 op 0 root 0 comm 0x{pid} [nranks=4] stream 0x1"
        for dev, pid in enumerate([40, 30, 20, 10])
        for n in range(20 - (dev == 2))
    ]
    assert culprits(verdict(read(lines))) == ("stuck_host", (2,))


def test_without_init_lines_groups_cannot_be_told_and_nobody_is_blamed() -> None:
    logs = {rank: log(rank, stuck(3)(rank), False, f"[rank{rank}]:") for rank in range(WORLD)}
    logs = {rank: [x for x in own if "nranks=8" not in x] for rank, own in logs.items()}
    notes: list[str] = []
    assert verdict(read(mixed(logs)), notes) is None
    assert "without commId" in notes[0]


def test_who_waits_in_a_group_that_cannot_be_told_is_no_culprit() -> None:
    """The world is told, tensor groups are not: rank 2 may well wait for rank 3 in theirs."""
    logs = {rank: log(rank, stuck(3)(rank), False, f"[rank{rank}]:") for rank in range(WORLD)}
    logs = {rank: [x for x in own if "nranks=4" not in x] for rank, own in logs.items()}
    found = verdict(read(mixed(logs)))
    assert found is not None
    assert (found.ranks, found.suspects) == ((), (2, 3))


def test_one_rank_of_a_file_that_all_share_is_not_taken() -> None:
    """`srun -l` in front of a launcher of four: the task is the node's."""
    logs = {rank: [f"{rank // 4}: {line}" for line in own] for rank, own in job(stuck(6)).items()}
    assert culprits(verdict(read(mixed(logs)))) == ("stuck_host", (6,))


def test_the_rank_of_the_lines_wins() -> None:
    logs = {r: [f"[rank{r + 100}]: {x}" for x in own] for r, own in job(stuck(3)).items()}
    assert culprits(verdict(read(mixed(logs)))) == ("stuck_host", (103,))


def test_an_earlier_attempt_is_left_out() -> None:
    old = mixed({rank: log(rank, stuck(1)(rank), pid=100) for rank in range(WORLD)})
    old = [line.replace("commId 0x", "commId 0xdead") for line in old]
    new = mixed({rank: log(rank, stuck(6)(rank), pid=300) for rank in range(WORLD)})
    notes: list[str] = []
    assert culprits(verdict(read([*old, *new]), notes)) == ("stuck_host", (6,))
    assert notes == ["NCCL: 8 processes of an earlier attempt ignored"]


def test_groups_beside_each_other_are_not_the_world() -> None:
    logs = {
        rank: log(rank, [made for made in stuck(3)(rank) if made[0] == "tp"], kinds=("tp",))
        for rank in range(WORLD)
    }
    notes: list[str] = []
    assert verdict(read(mixed(logs)), notes) is None
    assert notes == [
        "NCCL: several processes are rank 0 of their communicators",
        "NCCL: 8 processes of unknown rank ignored",
    ]


def test_an_init_that_some_ranks_never_began() -> None:
    def lines(rank: int) -> list[str]:
        own = log(rank, program(4))
        late = f"n{rank // 4}:{100 + rank}:7 [0] NCCL INFO ncclCommInitRank comm 0x90{rank} rank "
        late += f"{rank} nranks 8 cudaDev 0 nvmlDev 0 busId 1a000 commId 0xee - Init START"
        return own if rank == 4 else [*own, late]

    found = verdict(read(mixed({rank: lines(rank) for rank in range(WORLD)})))
    assert culprits(found) == ("stuck_host", (4,))
    assert found is not None
    assert (found.op, found.group) == ("init", "init of world (init of 0xee)")


def test_an_init_that_some_ranks_never_finished_blames_no_device() -> None:
    def lines(rank: int) -> list[str]:
        head = f"n{rank // 4}:{100 + rank}:7 [0] NCCL INFO ncclCommInitRank comm 0x90{rank} rank "
        head += f"{rank} nranks 8 cudaDev 0 nvmlDev 0 busId 1a000 commId 0xee - Init "
        ended = [] if rank in (1, 5) else [f"{head}COMPLETE"]
        return [*log(rank, program(4)), f"{head}START", *ended]

    found = verdict(read(mixed({rank: lines(rank) for rank in range(WORLD)})))
    assert found is not None
    assert (found.kind, found.ranks, found.suspects) == ("network", (), (1, 5))
    assert "check the network" in found.why


def pipeline(stopped: int, lost: int = 0) -> list[CommRank]:
    """Four stages pass 20 activations on; stage `stopped` stops, and those behind it wait.

    The world's AllReduce came before. `lost` lines of the first stage's sends are not there.
    """
    ranks = []
    for rank in range(4):
        calls = [CollCall(0, "all_reduce", 1, "Float", 10)]
        done = 20 if rank <= stopped else 13
        for n in range(done + (rank > stopped)):
            if rank > 0:
                calls.append(CollCall(n, f"recv {rank}<-{rank - 1}", 64, "Half", 20 + 2 * n))
            if rank < 3 and (n < 13 if rank == stopped else n < done) and n >= lost * (rank == 0):
                calls.append(
                    CollCall(
                        n - lost * (rank == 0), f"send {rank}->{rank + 1}", 64, "Half", 21 + 2 * n
                    )
                )
        ranks.append(
            CommRank("pp.log", 90, "0xdd", rank, 4, None, "n", rank + 1, rank, None, calls, 0)
        )
    return ranks


def test_a_stage_that_sends_no_more() -> None:
    found = verdict(pipeline(1))
    assert culprits(found) == ("stuck_host", (1,))
    assert found is not None
    assert (found.op, found.seq, found.group) == ("recv", 13, "world (0xdd 1->2)")


def test_receives_that_miss_many_sends_are_lost_lines() -> None:
    notes: list[str] = []
    found = verdict(pipeline(3, lost=9), notes)
    assert found is None
    assert notes == [
        "NCCL: sends and receives of 1 pairs of ranks of 0xdd do not match by far: lines are "
        "missing, they are left out"
    ]


def ras(counts: list[int | None], gone: tuple[int, ...] = ()) -> list[CommRank]:
    return [
        CommRank("ras.txt", 5, "cf26", rank, len(counts), host="10.0.0.1", pid=rank + 1,
                 launched=count, gone=rank in gone)
        for rank, count in enumerate(counts)
    ]  # fmt: skip


def test_counts_alone() -> None:
    found = verdict(ras([6650, 6650, 6649, 6650]))
    assert culprits(found) == ("stuck_host", (2,))
    assert found is not None
    assert (found.op, found.seq) == ("collective", 6650)


def test_equal_counts_are_no_verdict() -> None:
    assert verdict(ras([6650] * 4)) is None
    assert verdict(ras([6650, 6650, None, 6650])) is None


def test_a_rank_that_tells_nothing_is_not_blamed_with_the_one_behind() -> None:
    assert culprits(verdict(ras([6650, 6650, None, 6649]))) == ("stuck_host", (3,))


def test_a_process_that_is_gone() -> None:
    assert culprits(verdict(ras([6650, 6650, None, 6650], gone=(2,)))) == ("missing", (2,))


def inspector(counts: list[int]) -> list[CommRank]:
    return [replace(one, launched=None, completed=one.launched) for one in ras([*counts])]


def test_what_completed_on_all_others() -> None:
    assert culprits(verdict(inspector([70, 70, 69, 70]))) == ("stuck_device", (2,))


def test_completions_that_differ_by_more_are_unfinished_files() -> None:
    assert verdict(inspector([70, 70, 40, 70])) is None
    assert verdict(inspector([70, 70, 69, 69])) is None
