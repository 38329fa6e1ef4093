"""Logs that end inside a line: what is not there may be lost, and accuses nobody."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import diagnose
from benchmarks.hangbench.case import Case, Files
from benchmarks.hangbench.sim import draw
from diagnose.ingest.find import text_source
from diagnose.job.load import load
from diagnose.match.compile import compile_matcher
from diagnose.match.scanner import scan_source

WATCHDOG = (
    "[rank{rank}]:[E203 04:15:00.1 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, "
    "Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
)
CALL = (
    "n{node}:{pid}:{pid} [{dev}] NCCL INFO AllReduce: opCount {count:x} sendbuff 0x7f1 recvbuff "
    "0x7f2 count 64 datatype 7 op 0 root 0 comm 0x56{rank} [nranks=4] stream 0x55\n"
)
INIT = (
    "n{node}:{pid}:{pid} [{dev}] NCCL INFO ncclCommInitRank comm 0x56{rank} rank {rank} nranks 4 "
    "cudaDev {dev} nvmlDev {dev} busId {dev}a000 commId 0xaa - Init COMPLETE\n"
)


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())
    return folder


def judged(folder: Path, files: dict[str, str]) -> diagnose.Diagnosis:
    return diagnose.diagnose(diagnose.load(write(folder, files)))


def calls(rank: int, count: int) -> str:
    who = {"rank": rank, "node": rank // 2, "pid": 100 + rank, "dev": rank % 2}
    return INIT.format(**who) + "".join(CALL.format(count=n, **who) for n in range(count))


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("a line\nanother li", True),
        ("a line\n", False),
        ("a line\n\n  ", False),
        ("a line\n\r 10%|#\r 20%|##", False),  # a bar is drawn again where its line begins
        ("", False),
    ],
)
def test_a_log_that_ends_inside_a_line_is_truncated(tmp_path: Path, text: str, cut: bool) -> None:
    job = load([write(tmp_path / "logs", {"a.log": text, "b.log": "b\n"})])
    assert [scan.source.name for scan in job.scans if scan.truncated] == ["a.log"] * cut
    assert job.events.truncated == {*["a.log"] * cut}
    assert job.events.with_events([]).truncated == job.events.truncated


def test_of_a_paste_nobody_knows_where_it_was_cut() -> None:
    job = diagnose.load_text("one line\nanother li")
    assert not scan_source(text_source("one\ntwo"), compile_matcher(job.catalog)).truncated
    assert not job.events.truncated


def test_counts_of_a_log_that_was_cut_are_the_least(tmp_path: Path) -> None:
    """Rank 2 lags by seven calls, unless its log only lost them."""
    files = {f"rank{rank}.log": calls(rank, 20) for rank in range(4)}
    files["rank2.log"] = calls(2, 13)
    whole = judged(tmp_path / "whole", files)
    assert (whole.root_cause.cause, whole.culprits.ranks) == ("desync.missing_rank", [2])
    files["rank2.log"] += calls(2, 20)[-200:-80]
    cut = judged(tmp_path / "cut", files)
    assert cut.culprits.ranks == []


def test_a_lag_that_no_rank_can_have_is_one_of_its_log(tmp_path: Path) -> None:
    files = {f"rank{rank}.log": calls(rank, 1_300) for rank in range(4)}
    files["rank2.log"] = calls(2, 13)
    assert judged(tmp_path / "logs", files).culprits.ranks == []


def test_a_rank_whose_log_was_cut_may_have_printed_its_timeout(tmp_path: Path) -> None:
    start = "world_size: 4\n"
    files = {f"rank{r}.log": start + WATCHDOG.format(rank=r) for r in (0, 1, 3)}
    quiet = files | {"rank2.log": "[rank2]: step 5\n"}
    assert judged(tmp_path / "quiet", quiet).culprits.ranks == [2]
    cut = files | {"rank2.log": "[rank2]: step 5\n[rank2]:[E203 04:1"}
    assert judged(tmp_path / "cut", cut).culprits.ranks == []
    died = "srun: error: n1: task 2: Segmentation fault\n"
    shown = judged(tmp_path / "died", {**cut, "srun.log": died})
    assert shown.culprits.ranks == [2]


def test_where_a_log_was_cut_who_left_no_log_is_as_likely(tmp_path: Path) -> None:
    start = "world_size: 4\n"
    files = {f"rank{r}.log": start + WATCHDOG.format(rank=r) for r in (1, 3)}
    files["rank0.log"] = "[rank0]: step 5\n[rank0]:[E203 04:1"
    assert judged(tmp_path / "logs", files).culprits.ranks == []


DYING = (
    "[rank{rank}]:[E203 04:15:00.2 ProcessGroupNCCL.cpp:621] [Rank {rank}] Some NCCL operations "
    "have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU "
    "operations might run on corrupted/incomplete data.\n"
)


def test_a_console_that_ends_amid_the_ends_of_its_ranks_lost_the_rest(tmp_path: Path) -> None:
    """Rank 2 is the last to print its timeout, in what was cut off between two lines."""
    console = "world_size: 4\n" + "".join(WATCHDOG.format(rank=rank) for rank in (0, 1, 3))
    assert judged(tmp_path / "none", {"job.log": console}).culprits.ranks == [2]
    every = console + "".join(DYING.format(rank=rank) for rank in (0, 1, 3))
    assert judged(tmp_path / "all", {"job.log": every}).culprits.ranks == [2]
    some = console + "".join(DYING.format(rank=rank) for rank in (0, 1))
    assert judged(tmp_path / "some", {"job.log": some}).culprits.ranks == []
    over = some + "srun: error: n1: task 0: Aborted\n"
    assert judged(tmp_path / "over", {"job.log": over}).culprits.ranks == [2]


def test_a_console_that_begins_amid_the_ends_of_its_ranks_lost_what_was_before(
    tmp_path: Path,
) -> None:
    console = "".join(WATCHDOG.format(rank=r) + DYING.format(rank=r) for r in (0, 1, 3))
    others = {"launcher.log": "world_size: 4\n"}
    assert judged(tmp_path / "entire", {"job.log": console, **others}).culprits.ranks == [2]
    tail = DYING.format(rank=0) + console
    assert judged(tmp_path / "tail", {"job.log": tail, **others}).culprits.ranks == []


def test_a_word_that_was_cut_is_no_other_word(tmp_path: Path) -> None:
    """`OpType=ALL` at the end of a log is no operation that differs from ALLREDUCE."""
    log = "world_size: 4\n" + "".join(WATCHDOG.format(rank=rank) for rank in range(4))
    cut = log[: log.rindex("REDUCE")]
    result = judged(tmp_path / "logs", {"job.log": cut})
    assert result.root_cause.cause != "desync.mismatch"
    assert result.culprits.ranks == []


def test_a_stack_that_was_cut_tells_nothing_of_its_rank(tmp_path: Path) -> None:
    stack = (
        "Thread 0x00007f000a0006c0 (most recent call first):\n"
        '  File "/usr/lib/python3.12/threading.py", line 331 in wait\n'
        '  File "/usr/lib/python3.12/site-packages/tqdm/_monitor.py", line 60 in run\n'
        '  File "/usr/lib/python3.12/threading.py", line 1002 in _bootstrap\n\n'
        "Current thread 0x00007f000a400740 (most recent call first):\n"
        '  File "/opt/torch/distributed/distributed_c10d.py", line 3709 in all_reduce\n'
        '  File "/workspace/train.py", line 131 in train_step\n'
        '  File "/workspace/train.py", line 241 in <module>\n'
    )
    lines = stack.splitlines(keepends=True)
    for number, end in enumerate((2, 3, 5, 7)):
        files = {f"stacks_rank{rank}.txt": stack for rank in range(6)}
        files["stacks_rank4.txt"] = "".join(lines[:end])
        assert judged(tmp_path / str(number), files).culprits.ranks == []
    for begin in (1, 2, 6, 7):
        files["stacks_rank4.txt"] = "".join(lines[begin:])
        assert judged(tmp_path / f"from-{begin}", files).culprits.ranks == []
        files["stacks_rank4.txt"] = "".join(lines[begin:])[9:]
        assert judged(tmp_path / f"amid-{begin}", files).culprits.ranks == []


def test_a_log_that_ends_while_ranks_call_one_after_the_other_shows_no_hang(
    tmp_path: Path,
) -> None:
    def lines(count: int, ranks: Sequence[int]) -> list[str]:
        return [
            CALL.format(node=0, pid=100 + rank, dev=rank, count=count, rank=rank).replace(
                "nranks=4", "nranks=8"
            )
            for rank in ranks
        ]

    inits = [
        INIT.format(node=0, pid=100 + rank, dev=rank, rank=rank).replace("nranks 4", "nranks 8")
        for rank in range(8)
    ]
    order = [3, 1, 0, 2, 7, 5, 4, 6]
    rounds = [line for count in range(6) for line in lines(count, order)]
    for last, hangs in (
        (order[:3], False), (order[:6], False), (order, False),
        (order[:7], True), (order[1:7], True), (order[3:6], True),
    ):  # fmt: skip
        text = "".join([*inits, *rounds, *lines(6, last)])
        found = judged(tmp_path / "-".join(map(str, last)), {"job.log": text})
        assert (found.verdict == "hung") is hangs, last
        assert bool(found.culprits.ranks) is hangs, last
    for last in (order[1:4], order[4:], [order[-1], order[0]]):
        cut = "".join([*inits, *rounds, *lines(6, last)])[:-40]
        found = judged(tmp_path / f"cut-{last[0]}", {"job.log": cut})
        assert (found.verdict, found.culprits.ranks) == ("unknown", []), last
    ends = "".join([*inits, *rounds, *lines(6, order[:6])])
    for many, named in ((8, []), (9, [4, 6])):  # what a monitor prints while all wait
        log = ends + "all processes are alive\n" * many
        assert judged(tmp_path / f"alive-{many}", {"job.log": log}).culprits.ranks == named, many


def test_a_log_whose_steps_end_where_all_others_went_on_accuses_no_rank(tmp_path: Path) -> None:
    def log(rank: int, steps: int, *, waits: bool) -> str:
        lines = [
            f"[2026-03-02 10:{step:02}:00] iteration {10 * step}/ 1000 | elapsed time per "
            f"iteration (ms): 6000.0 | lm loss: {3 - step / 50:.3f} |\n"
            for step in range(1, steps + 1)
        ]
        return "".join(lines) + (WATCHDOG.format(rank=rank) if waits else "")

    files = {f"rank_{rank}.log": log(rank, 20, waits=True) for rank in range(8)}
    for steps, named in ((20, [5]), (19, [5]), (16, []), (9, [])):
        files["rank_5.log"] = log(5, steps, waits=False)
        assert judged(tmp_path / str(steps), files).culprits.ranks == named, steps
    whole = log(5, 20, waits=False).splitlines(keepends=True)
    rotated = {"rank_5.log.1": "".join(whole[:12]), "rank_5.log": "".join(whole[12:])}
    assert judged(tmp_path / "rotated", files | rotated).culprits.ranks == [5]


@pytest.mark.parametrize("work", ["tokenizing shard: step", "rollout: step", "step"])
def test_a_rank_that_stops_in_work_of_its_own_is_missing(tmp_path: Path, work: str) -> None:
    def log(rank: int, steps: int) -> str:
        end = WATCHDOG.format(rank=rank) if steps == 20 else ""
        lines = (f"2026-03-02 10:{at:02}:00 {work} {10 * at} done\n" for at in range(1, steps + 1))
        return "".join(lines) + end

    files = {f"rank_{rank}.log": log(rank, 9 if rank == 5 else 20) for rank in range(8)}
    assert judged(tmp_path / "logs", files).culprits.ranks == [5]


@pytest.mark.slow
def test_a_dump_cut_inside_a_line_shows_no_place(tmp_path: Path) -> None:
    """Python prints the main thread last: what is left may show a helper of it alone."""
    helper = (
        "Thread 0x00007f000a0006c0 (most recent call first):\n"
        '  File "/usr/lib/python3.12/threading.py", line 331 in wait\n'
        '  File "/usr/lib/python3.12/threading.py", line 629 in wait\n'
        '  File "/usr/lib/python3.12/site-packages/tqdm/_monitor.py", line 60 in run\n'
        '  File "/usr/lib/python3.12/threading.py", line 1002 in _bootstrap\n\n'
    )
    stack = (
        f"{helper}Current thread 0x00007f000a400740 (most recent call first):\n"
        '  File "/workspace/metrics.py", line 31 in log_step\n'
        '  File "/workspace/train.py", line 241 in <module>\n'
    )
    files = {f"stacks_rank{rank}.txt": stack for rank in range(6)}
    for at in range(90, len(stack) - 60, 7):
        files["stacks_rank4.txt"] = stack[:at]
        assert judged(tmp_path / str(at), files).culprits.ranks == [], at


def test_lines_that_end_with_carriage_returns_are_lines(tmp_path: Path) -> None:
    log = "world_size: 4\n" + "".join(WATCHDOG.format(rank=rank) for rank in (0, 1, 3))
    files = {"a.log": log.replace("\n", "\r")}
    result = judged(tmp_path / "returns", files)
    assert result.culprits.ranks == [2]
    assert {one.line for one in result.evidence} <= {1, 2, 3, 4}
    (source,) = load([tmp_path / "returns"]).sources
    assert len(b"".join(chunk.data for chunk in source.chunks()).splitlines()) == 4


def cases(count: int, seed: int) -> list[tuple[Case, Files]]:
    """Simulated jobs of up to 64 ranks that left a log or a stack of each rank."""
    found: list[tuple[Case, Files]] = []
    while len(found) < count:
        seed += 1
        made = draw.make(seed) if draw.ranks(seed) <= 64 else None
        if made is not None and made[0].form in ("calls", "rank-files", "torchrun-dir", "stacks"):
            found.append(made)
    return found


def innocents(case: Case, result: diagnose.Diagnosis) -> set[int]:
    truth = case.truth
    guilty = {*truth.culprits, *truth.suspects}.union(*truth.accepted)
    return {*result.culprits.ranks} - guilty


@pytest.mark.parametrize(
    "count", [pytest.param(6, id="few"), pytest.param(60, id="many", marks=pytest.mark.slow)]
)
def test_cutting_the_log_of_any_rank_accuses_no_innocent(tmp_path: Path, count: int) -> None:
    rng = random.Random(count)
    for number, (case, files) in enumerate(cases(count, 52_000)):
        texts = {name: data.decode("utf-8", "replace") for name, data in files.items()}
        flat = {name.replace("/", "_"): text for name, text in texts.items()}
        whole = judged(tmp_path / f"{number}", flat)
        name = rng.choice([name for name, text in flat.items() if len(text) > 200])
        at = rng.randrange(100, len(flat[name]))
        at -= flat[name][at - 1] == "\n"  # inside a line
        cut = judged(tmp_path / f"{number}-cut", flat | {name: flat[name][:at]})
        new = innocents(case, cut) - {*whole.culprits.ranks}
        assert not new, (case.id, name, at)


def test_a_log_without_calls_that_others_saw_complete_accuses_no_rank(tmp_path: Path) -> None:
    """The others wait in call 15 (`SeqNum` 16): whoever made fewer than 15 lost lines."""
    wait = WATCHDOG.replace("SeqNum=7", "SeqNum=16").replace("NumelIn=8", "NumelIn=64")
    files = {f"rank{r}.log": calls(r, 18) + wait.format(rank=r) for r in (0, 1, 3)}
    for made, named in ((15, [2]), (13, []), (4, [])):
        files["rank2.log"] = calls(2, made)
        assert judged(tmp_path / str(made), files).culprits.ranks == named, made
    files["rank2.log"] = calls(2, 13)
    other = {name: text.replace("SeqNum=16", "SeqNum=99") for name, text in files.items()}
    assert judged(tmp_path / "other-call", other).culprits.ranks == [2]


def test_a_process_that_calls_to_the_end_of_a_log_is_not_idle(tmp_path: Path) -> None:
    """Logs one behind the other in one file, which ends amid the last of them."""
    whole = "".join(calls(rank, 9) for rank in range(3))
    for made in (3, 8):
        found = judged(tmp_path / str(made), {"job.log": whole + calls(3, made)})
        assert (found.verdict, found.culprits.ranks) == ("unknown", []), made


def test_a_log_that_ends_long_before_the_others_wait_accuses_no_rank(tmp_path: Path) -> None:
    def log(last: str) -> str:
        hour, minute = map(int, last.split(":"))
        times = [divmod(60 * hour + minute - 2 * n, 60) for n in range(8)]
        return "".join(
            f"[2026-02-03 {at:02}:{past:02}:00,100] [INFO] [logging.py:96:log_dist] [Rank 0] "
            f"step={8 - n}, skipped=0, lr=[1e-05], mom=[(0.9, 0.95)]\n"
            for n, (at, past) in reversed([*enumerate(times)])
        )

    wait = WATCHDOG.replace("04:15:00.1 ", "04:15:00.100000001 ")  # they wait from 04:05 on
    files = {f"rank{r}.log": wait.format(rank=r) for r in (1, 2, 3)}
    for last, named in (("04:04", [0]), ("03:50", [0]), ("03:30", [])):
        files["rank0.log"] = log(last)
        assert judged(tmp_path / last, files).culprits.ranks == named, last


def test_a_report_of_a_launcher_that_was_cut_says_nothing_of_others(tmp_path: Path) -> None:
    def item(rank: int, pid: int) -> str:
        return (
            "  time      : 2026-02-03_04:15:01\n  host      : n0\n"
            f"  rank      : {rank} (local_rank: {rank})\n"
            f"  exitcode  : -6 (pid: {pid})\n  error_file: <N/A>\n"
            f"  traceback : Signal 6 (SIGABRT) received by PID {pid}\n"
        )

    begin = (
        "world_size: 4\nE0203 04:15:01.000000 8 "
        "torch/distributed/elastic/multiprocessing/api.py:874] "
        "failed (exitcode: -6) local_rank: 0 (pid: 100) of binary: /usr/bin/python3.12\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \ntrain.py FAILED\n"
        "Failures:\n[1]:\n"
    )
    end = f"{item(1, 101)}{{}}Root Cause (first observed failure):\n[0]:\n{item(0, 100)}====\n"
    files = {f"rank{r}.log": WATCHDOG.format(rank=r) for r in (0, 1)}
    both = begin + end.format("[2]:\n" + item(3, 103))
    assert judged(tmp_path / "whole", {**files, "n0.log": both}).culprits.ranks == [2]
    cut = {**files, "rank3.log": WATCHDOG.format(rank=3), "n0.log": begin + "  time      : 2026\n"}
    assert judged(tmp_path / "cut", cut).culprits.ranks == []
    cut["n0.log"] = begin + end.format("")
    assert judged(tmp_path / "listed", cut).culprits.ranks == [2]


SUPPRESSED = "systemd-journald[412]: Suppressed 2 messages from job.service\n"


@pytest.mark.slow
def test_stacks_that_lost_lines_show_no_place(tmp_path: Path) -> None:
    helper = (
        "Thread 0x00007f000a0006c0 (most recent call first):\n"
        '  File "/usr/lib/python3.12/threading.py", line 331 in wait\n'
        '  File "/usr/lib/python3.12/threading.py", line 629 in wait\n'
        '  File "/usr/lib/python3.12/site-packages/tqdm/_monitor.py", line 60 in run\n'
        '  File "/usr/lib/python3.12/threading.py", line 1045 in _bootstrap_inner\n'
        '  File "/usr/lib/python3.12/threading.py", line 1002 in _bootstrap\n\n'
    )
    stack = (
        f"{helper}Current thread 0x00007f000a400740 (most recent call first):\n"
        '  File "/workspace/metrics.py", line 31 in log_step\n'
        '  File "/workspace/train.py", line 131 in train_step\n'
        '  File "/workspace/train.py", line 208 in main\n'
        '  File "/workspace/train.py", line 241 in <module>\n'
    )
    lines = stack.splitlines(keepends=True)
    files = {f"stacks_rank{rank}.txt": stack for rank in range(6)}
    for begin in range(1, len(lines) - 1):
        for end in range(begin + 1, len(lines)):
            # Where it parts a log, and the heading of the main thread is lost, nothing shows it.
            for note in ("", SUPPRESSED)[: 1 + (begin >= 8 or end <= 7)]:
                files["stacks_rank4.txt"] = "".join([*lines[:begin], note, *lines[end:]])
                found = judged(tmp_path / f"{begin}-{end}-{bool(note)}", files)
                assert found.culprits.ranks == [], (begin, end, note)
