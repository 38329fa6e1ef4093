"""A log whose regular lines stopped long before somebody ended the job."""

from __future__ import annotations

from pathlib import Path

import pytest

import diagnose
from diagnose.diagnosis import Diagnosis

STEP = (
    "[2026-11-27 04:{:02}:{:02},451] [INFO] train: step {}/1000 loss 7.0395 lr 1.00e-03 time 9s\n"
)
SAVING = "[2026-11-27 04:13:40,817] [INFO] train: Saving checkpoint to /out/checkpoint-8\n"
EVENT = "W1127 {}.943000 458 torch/distributed/elastic/agent/server/api.py:739] "
ENDED = (
    EVENT + "Received 15 death signal, shutting down workers\n"
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 458 got signal: 15\n"
)
LIMIT = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-27T{} DUE TO TIME LIMIT ***\n"
ALIVE = "heartbeat: process is alive, last step 19 was {} s ago\n"
RANKED = "[rank{}]: [2026-11-27 04:{:02}:{:02},451] [INFO] train: step {}/1000 loss 7.0395\n"


def steps() -> list[str]:
    """Twenty lines, ten seconds apart, the last one at 04:13:20."""
    return [STEP.format(10 + n // 6, n % 6 * 10 + 10 * (n > 99), n) for n in range(20)]


def verdict(folder: Path, *lines: str) -> Diagnosis:
    (folder / "console.log").write_text("".join(lines))
    return diagnose.diagnose(diagnose.load(folder))


def test_what_it_had_begun_is_a_lead(tmp_path: Path) -> None:
    found = verdict(tmp_path, *steps(), SAVING, ENDED.format("04:45:05"))
    assert (found.verdict, found.root_cause.cause) == ("hung", "slow.checkpoint")
    assert "fell silent while it was saving a checkpoint for 31 min" in found.root_cause.summary


@pytest.mark.parametrize("ended", [ENDED.format("05:26:55"), LIMIT.format("05:26:55")])
def test_whoever_ended_it_is_aftermath(tmp_path: Path, ended: str) -> None:
    found = verdict(tmp_path, *steps(), ended)
    assert (found.verdict, found.root_cause.cause) == ("hung", "unknown")
    assert found.onset.time is not None
    assert found.onset.time.startswith("2026-11-27T04:13:10")
    assert "Whoever ended it then is not the cause" in found.root_cause.summary
    (lost,) = [one for one in found.reasons if one.step == "rival" and one.outcome == "lost"]
    assert lost.beaten_by == "unknown"
    assert lost.predicate.startswith("explained")  # by a general statement: classes that end a job
    (won,) = [one for one in found.reasons if one.outcome == "won"]
    assert (won.rule, won.tier) == ("silence", "strong")
    (decided,) = [one for one in found.reasons if one.outcome == "decided"]
    assert decided.predicate == "fell_silent"


def test_who_watches_it_shows_that_it_hangs(tmp_path: Path) -> None:
    found = verdict(tmp_path, *steps(), *(ALIVE.format(n) for n in range(60, 1800, 60)))
    assert (found.verdict, found.root_cause.cause) == ("hung", "unknown")
    assert "look at it while it hangs" in found.root_cause.summary
    short = verdict(tmp_path, *steps(), ALIVE.format(60))
    assert short.verdict == "running"


@pytest.mark.parametrize(
    "lines",
    [
        (ENDED.format("04:13:23"),),  # amid the steps
        (*["something else was written\n"] * 20, ENDED.format("05:26:55")),
    ],
)
def test_a_job_at_work_that_was_ended_did_not_hang(tmp_path: Path, lines: tuple[str, ...]) -> None:
    found = verdict(tmp_path, *steps(), *lines)
    assert (found.verdict, found.root_cause.cause) == ("failed", "scheduler.preempted")


def ranked(stop: int) -> list[str]:
    """Thirty steps of four ranks, of which rank 2 makes only some."""
    return [
        RANKED.format(rank, 10 + n // 6, n % 6 * 10, n)
        for n in range(30)
        for rank in range(4)
        if rank != 2 or n < stop
    ]


def test_the_rank_that_fell_silent_first_is_named(tmp_path: Path) -> None:
    found = verdict(tmp_path, *ranked(28), LIMIT.format("06:00:00"))
    assert (found.verdict, found.culprits.ranks) == ("hung", [2])
    assert found.onset.time is not None
    assert found.onset.time.startswith("2026-11-27T04:14:30")


RAISED = (
    "[rank2]: Traceback (most recent call last):\n"
    '[rank2]:   File "train.py", line 137, in train\n'
    "[rank2]:     batch = reader.read(shard)\n"
    "[rank2]: RuntimeError: shard 415 holds 4095 samples, index says 4096\n"
)


def test_who_died_when_the_job_fell_silent_is_the_cause(tmp_path: Path) -> None:
    found = verdict(tmp_path, *ranked(30), RAISED, LIMIT.format("06:00:00"))
    assert (found.verdict, found.root_cause.cause) == ("failed", "crash.exception")
    assert found.culprits.ranks == [2]
    (dropped,) = [one for one in found.reasons if one.predicate == "silent_since_trouble"]
    assert (dropped.rule, dropped.outcome) == ("silence", "dropped")
    (lost,) = [one for one in found.reasons if one.step == "rival" and one.outcome == "lost"]
    assert (lost.subject, lost.predicate) == ("scheduler.limit", "ended_a_hang")


def test_what_is_raised_at_the_end_of_a_silence_did_not_begin_it(tmp_path: Path) -> None:
    late = "2026-11-27 05:59:50,451 [ERROR] train: [rank2] giving up\n"
    timed = RAISED.replace("[rank2]: Trace", "2026-11-27 05:59:51,451 [rank2]: Trace")
    found = verdict(tmp_path, *ranked(30), late, timed, LIMIT.format("06:00:00"))
    assert (found.verdict, found.root_cause.cause) == ("hung", "unknown")


def test_who_alone_wrote_something_else_last_is_named(tmp_path: Path) -> None:
    own = "[rank{}]: [2026-11-27 04:15:02,451] [INFO] train: the copy is stale, fetching it anew\n"
    found = verdict(tmp_path, *ranked(30), own.format(2), LIMIT.format("06:00:00"))
    assert (found.verdict, found.culprits.ranks) == ("hung", [2])
    assert found.culprits.why == "it alone wrote something else last than all others"
    assert "the copy is stale" in found.evidence[0].text
    # Rank 0 writes alone what it does for all.
    found = verdict(tmp_path, *ranked(30), own.format(0), LIMIT.format("06:00:00"))
    assert (found.verdict, found.culprits.ranks) == ("hung", [])


def test_nobody_is_named_where_all_fall_silent_at_once(tmp_path: Path) -> None:
    found = verdict(tmp_path, *ranked(30), LIMIT.format("06:00:00"))
    assert (found.verdict, found.culprits.ranks) == ("hung", [])


STANDS = (
    "[rank{0}]: Traceback (most recent call last):\n"
    '[rank{0}]:   File "/srv/train.py", line 70, in <module>\n'
    "[rank{0}]:     main()\n"
    '[rank{0}]:   File "/srv/train.py", line {1}, in main\n'
    "[rank{0}]:     {2}\n"
    "{3}[rank{0}]: KeyboardInterrupt\n"
)
AT_STEP = 40, "loss.backward()", ""
READER = (
    '[rank2]:   File "/srv/reader.py", line 8, in __next__\n[rank2]:     return self.buffer.pop()\n'
)


def test_where_a_rank_stood_alone_when_a_silent_job_was_ended_says_more(tmp_path: Path) -> None:
    stacks = [
        STANDS.format(rank, *((31, "batch = next(batches)", READER) if rank == 2 else AT_STEP))
        for rank in range(4)
    ]
    found = verdict(tmp_path, *ranked(30), "step 29 was the last\n", ALIVE.format(4000), *stacks)
    assert (found.verdict, found.culprits.ranks) == ("hung", [2])
    assert found.onset.time is not None
    assert found.onset.time.startswith("2026-11-27T04:14:50")
    (won,) = [one for one in found.reasons if one.outcome == "won"]
    assert won.rule == "stacks"


def test_where_one_process_stood_that_fell_silent_alone_shows_no_failure(tmp_path: Path) -> None:
    stacks = [
        STANDS.format(rank, *((31, "batch = next(batches)", READER) if rank == 2 else AT_STEP))
        for rank in range(4)
    ]
    found = verdict(tmp_path, *ranked(12), *stacks)
    assert (found.verdict, found.culprits.ranks) == ("unknown", [2])


def test_others_that_go_on_need_not_hang(tmp_path: Path) -> None:
    found = verdict(tmp_path, *ranked(12))
    assert (found.verdict, found.culprits.ranks) == ("unknown", [2])
    assert found.root_cause.confidence == "low"
    assert "it hangs, or only its output is lost" in found.root_cause.summary
    assert verdict(tmp_path, *ranked(28)).verdict == "running"
    gone = "[rank2]: ValueError: no more data\n"
    assert verdict(tmp_path, *ranked(12), gone).root_cause.cause == "crash.exception"
