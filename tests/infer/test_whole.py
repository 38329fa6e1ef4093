"""From text to verdict: the one odd rank is found, whichever it is and however the log came."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import diagnose
from diagnose.diagnosis import Diagnosis
from diagnose.ingest import text_source
from diagnose.job.load import read
from tests.sizes import few

INIT = (
    "node1:{pid}:{pid} [{rank}] NCCL INFO ncclCommInitRank comm 0x5581 rank {rank} nranks {size} "
    "cudaDev {rank} nvmlDev {rank} busId {rank}b000 commId 0x77 - Init COMPLETE"
)
STEP = "2026-06-02 08:1{step}:00 [rank{rank}]: iteration {step}/ 100 | loss: 1.0"
WATCHDOG = (
    "[rank{rank}]:[E602 08:25:1{late}.1234567 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog "
    "caught collective operation timeout: WorkNCCL(SeqNum=77, OpType={op}, NumelIn=1000, "
    "NumelOut=1000, Timeout(ms)=600000) ran for 60{late}000 milliseconds before timing out."
)


def start(rank: int, size: int) -> list[str]:
    """The first lines of a rank: it joins, and trains a little."""
    steps = [STEP.format(rank=rank, step=step) for step in (1, 2)]
    return [f"[rank{rank}]: {INIT.format(pid=500 + rank, rank=rank, size=size)}", *steps]


def timeout(rank: int, op: str = "ALLREDUCE") -> str:
    return WATCHDOG.format(rank=rank, op=op, late=rank % 5)


def without(rank: int, size: int) -> list[list[str]]:
    """The logs of a job in which `rank` of `size` never joins."""
    return [start(r, size) + [timeout(r)] * (r != rank) for r in range(size)]


def different(rank: int, size: int) -> list[list[str]]:
    """The logs of a job in which `rank` of `size` calls another collective."""
    ops = ["BROADCAST" if r == rank else "ALLREDUCE" for r in range(size)]
    return [[*start(r, size), timeout(r, op)] for r, op in enumerate(ops)]


def verdict(*texts: list[str]) -> tuple[object, ...]:
    """What must not depend on how the lines are spread over files, nor on the files' order."""
    sources = [
        text_source("\n".join(text) + "\n", f"part-{number}.txt")
        for number, text in enumerate(texts)
    ]
    return told(diagnose.diagnose(read(sources)))


def told(result: Diagnosis) -> tuple[object, ...]:
    root, culprits = result.root_cause, result.culprits
    return (
        result.verdict, root.cause, root.confidence, culprits.ranks, culprits.kind, result.phase,
        result.onset.time,
    )  # fmt: skip


def missing(rank: int) -> tuple[object, ...]:
    begun = "2026-06-02T08:15:10"
    return ("hung", "desync.missing_rank", "medium", [rank], "missing", "training", begun)


def mixed(logs: list[list[str]], random_: random.Random) -> list[str]:
    """One log of all ranks: the lines of each in their order, otherwise in any."""
    queues = [list(log) for log in logs]
    lines = []
    while any(queues):
        lines.append(random_.choice([queue for queue in queues if queue]).pop(0))
    return lines


@dataclass(frozen=True)
class Hang:
    rank: int
    size: int


hangs = st.integers(2, 9).flatmap(
    lambda size: st.integers(0, size - 1).map(lambda rank: Hang(rank, size))
)


@settings(max_examples=8)
@given(hangs, st.randoms(use_true_random=False))
def test_the_missing_rank_is_found_however_the_log_came(hang: Hang, rnd: random.Random) -> None:
    logs = without(hang.rank, hang.size)
    whole = verdict(mixed(logs, rnd))
    assert whole == missing(hang.rank)
    assert verdict(*logs) == whole
    assert verdict(*rnd.sample(logs, len(logs))) == whole


@settings(max_examples=8)
@given(hangs.filter(lambda hang: hang.size > 2), st.randoms(use_true_random=False))
def test_the_odd_rank_is_found_however_the_log_came(hang: Hang, rnd: random.Random) -> None:
    logs = different(hang.rank, hang.size)
    whole = verdict(mixed(logs, rnd))
    assert whole[:5] == ("hung", "desync.mismatch", "high", [hang.rank], "mismatched")
    assert verdict(*rnd.sample(logs, len(logs))) == whole


@pytest.mark.parametrize("rank", few(range(8), 3))
def test_any_of_eight_may_be_missing(rank: int) -> None:
    logs = without(rank, 8)
    for seed in range(2):
        assert verdict(*random.Random(seed).sample(logs, 8)) == missing(rank)


@pytest.mark.parametrize("rank", few(range(8), 3))
def test_any_of_eight_may_differ(rank: int) -> None:
    logs = different(rank, 8)
    verdicts = [verdict(*random.Random(seed).sample(logs, 8)) for seed in range(2)]
    assert {repr(v) for v in verdicts} == {repr(verdicts[0])}
    assert verdicts[0][1:4] == ("desync.mismatch", "high", [rank])


@pytest.mark.parametrize("order", few(map(list, itertools.permutations(range(4))), 5))
def test_every_order_of_four_files_gives_the_same_verdict(order: list[int]) -> None:
    logs = without(2, 4)
    assert verdict(*(logs[rank] for rank in order)) == missing(2)


def test_a_folder_of_ranks_is_the_same_as_one_paste(tmp_path: Path) -> None:
    logs = without(5, 8)
    for rank, log in enumerate(logs):
        (tmp_path / f"rank_{rank}.log").write_text("\n".join(log) + "\n")
    folder = diagnose.diagnose(diagnose.load(tmp_path))
    paste = diagnose.diagnose(diagnose.load_text("\n".join(itertools.chain(*logs)) + "\n"))
    assert told(folder) == told(paste)
    assert folder.collective is not None
    assert (folder.collective.seq, folder.collective.missing) == (77, [5])
    assert folder.job.world_size == 8


def test_a_crash_before_the_wait_explains_it() -> None:
    logs = without(3, 4)
    logs[3].append("2026-06-02 08:14:00 [rank3]: ValueError: could not broadcast input array")
    got = verdict(*logs)
    assert (got[1], got[3], got[4]) == ("crash.exception", [3], "crashed")


def test_a_rank_that_saves_is_slow() -> None:
    logs = without(0, 4)
    logs[0].append("2026-06-02 08:15:00 [rank0]: Saving model checkpoint to /data/checkpoint-500")
    got = verdict(*logs)
    assert (got[1], got[3], got[4], got[5]) == ("slow.checkpoint", [0], "slow", "checkpoint")


def test_a_job_at_work_is_running() -> None:
    result = diagnose.diagnose(diagnose.load_text("\n".join(start(0, 2) + start(1, 2)) + "\n"))
    assert (result.verdict, result.root_cause.cause, result.evidence) == ("running", "none", [])


def test_of_a_job_whose_log_just_ends_it_says_how_to_see_whether_it_hangs() -> None:
    steps = [f"[rank{rank}]: step {n} loss 2.{n}" for n in range(9) for rank in range(4)]
    behind = [line for line in steps if line[5] != "3" or "step 8" not in line]
    done = [*steps, *(f"[rank{rank}]: Training complete." for rank in range(4))]
    said = {}
    for name, lines in (("even", steps), ("behind", behind), ("done", done)):
        result = diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))
        said[name] = (result.verdict, [step.do for step in result.remedies])
    collect = (
        "If it runs and makes no more steps, it hangs; collect the stacks of its ranks before "
        "ending it."
    )
    rank = "See whether it still makes steps, rank 3 first, whose last step is lower than that of "
    assert said == {
        "even": ("running", ["See whether it still makes steps.", collect]),
        "behind": ("running", [f"{rank}its peers.", collect]),
        "done": ("healthy", []),
    }


def test_an_unknown_text_is_unknown() -> None:
    result = diagnose.diagnose(diagnose.load_text("lorem ipsum\ndolor sit amet\n"))
    assert (result.verdict, result.root_cause.confidence) == ("unknown", "low")
    assert result.missing_evidence, "it says what would help"


# --------------------------------------------------------------------------- what comes after


AGENT = (
    "W0602 08:25:30.331000 911 torch/distributed/elastic/multiprocessing/api.py:897] Sending "
    "process 50{rank} closing signal SIGTERM"
)
TABLE = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-06-02_08:25:40
  host      : node1
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: 50{rank})
  error_file: <N/A>"""


def launcher(rank: int, code: int) -> list[str]:
    """torchrun stops all but `rank`, which it calls the root cause."""
    return [AGENT.format(rank=r) for r in range(8) if r != rank] + TABLE.format(
        rank=rank, code=code
    ).splitlines()


@pytest.mark.parametrize("first", [True, False], ids=["launcher-first", "launcher-last"])
def test_the_first_exit_of_a_victim_is_no_cause(first: bool) -> None:
    logs, agent = without(3, 8), launcher(rank=4, code=-6)
    assert verdict(*([agent, *logs] if first else [*logs, agent])) == missing(3)


def test_the_missing_rank_that_was_killed_is_the_cause() -> None:
    got = verdict(*without(3, 8), launcher(rank=3, code=-9))
    assert got[:5] == ("failed", "crash.killed", "medium", [3], "crashed")


def test_nothing_shows_who_is_missing_among_unknown_ranks() -> None:
    only_timeouts = [[log[-1]] for log in without(3, 8) if "Watchdog" in log[-1]]
    got = verdict(*only_timeouts[:4])
    assert (got[1], got[2], got[3]) == ("desync.missing_rank", "low", [])


@pytest.mark.parametrize("layout", ["rank_{}.log", "run/attempt_0/{}/stderr.log"])
@pytest.mark.parametrize("rank", [0, 5])
def test_file_names_stand_in_for_prefixes(tmp_path: Path, layout: str, rank: int) -> None:
    for number, log in enumerate(different(rank, 8)):
        path = tmp_path / layout.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        bare = [line.replace(f"[rank{number}]:", "") for line in log]
        path.write_text("\n".join(line.replace(f"[Rank {number}] ", "") for line in bare) + "\n")
    got = told(diagnose.diagnose(diagnose.load(tmp_path)))
    assert got[1:5] == ("desync.mismatch", "high", [rank], "mismatched")


RESTART = (
    "W0602 08:30:00.331000 911 torch/distributed/elastic/agent/server/api.py:900] [default] Worker "
    "group FAILED. 3/3 attempts left; will restart worker group"
)


def test_the_last_attempt_is_diagnosed_and_the_earlier_ones_noted() -> None:
    lines = [
        "[rank1]: ValueError: bad batch",
        RESTART,
        "[rank2]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
    ]
    result = diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))
    assert (result.root_cause.cause, result.culprits.ranks) == ("crash.gpu_oom", [2])
    assert result.job.attempts == 2
    (note,) = result.notes
    assert note.startswith("attempt 0 ended with: ")
    assert note.endswith(" (rank 1)")


def test_of_a_job_that_ended_well_the_earlier_attempts_are_noted() -> None:
    lines = [
        "step 100 loss 2.0",
        "[rank3]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2370, "
        "remote process exited or there was a network error, NCCL version 2.28.9",
        RESTART,
        *("step 100 loss 2.0", "step 110 loss 1.9", "step 120 loss 1.9"),
        "Training finished, saved to /out/final",
    ]
    result = diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))
    assert (result.verdict, result.job.attempts) == ("healthy", 2)
    assert result.root_cause.summary == (
        "The job says that it ended well, and no failure was found. That is so of the last of its "
        "2 attempts only."
    )
    assert result.notes == [
        "attempt 0 ended with: NCCL lost the connection to another rank (rank 3)"
    ]


def test_of_many_attempts_the_first_are_noted() -> None:
    attempts = ["[rank1]: ValueError: bad batch", RESTART] * 30
    result = diagnose.diagnose(diagnose.load_text("\n".join([*attempts, LOADER]) + "\n"))
    assert (result.root_cause.cause, result.job.attempts) == ("net.shm", 31)
    assert [note.partition(" ended")[0] for note in result.notes] == [
        *(f"attempt {number}" for number in range(20)),
        "and 10 more attempts",
    ]


STEPS = [f"{{'loss': 1.{9 - i}, 'learning_rate': 1e-05, 'epoch': 0.{i}}}" for i in range(1, 4)]
LOADER = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. "


@pytest.mark.parametrize(
    ("lines", "phase"),
    [
        # What happens only in set-up says so, whatever another rank printed before.
        (
            [*STEPS, "n1:5:5 [0] misc/socket.cc:484 NCCL WARN Net : Connect to 172.17.0.1<47117> "
             "failed : Connection refused"],
            "init",
        ),
        # A loader belongs to training, unless the log shows that it was evaluation's.
        ([LOADER], "training"),
        (["***** Running Evaluation *****", LOADER], "evaluation"),
        # A completed request: connections stood, so data flowed.
        (
            ["n1:5:5 [0] transport/net_ib.cc:95 NCCL WARN NET/IB : Got completion from peer "
             "10.0.0.2<5> with status=12 opcode=0 len=0 vendor err 129 (Send)"],
            "training",
        ),
        # A stack in the agent's exit barrier.
        (
            ["Fatal Python error: Segmentation fault",
             '  File "/opt/torch/distributed/elastic/agent/api.py", line 906 in _exit_barrier'],
            "shutdown",
        ),
        # A marker behind a bar on one line came later.
        (
            ["Loading checkpoint shards:  50%|#####     | 1/2 [00:07<00:07,  7.61s/it]"
             "***** Running training *****", "ValueError: bad batch"],
            "training",
        ),
    ],
)  # fmt: skip
def test_the_phase_of_the_trouble(lines: list[str], phase: str) -> None:
    assert diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n")).phase == phase
