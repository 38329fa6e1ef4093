"""What shows a failure; errors in words that no entry knows keep a job from being healthy."""

from __future__ import annotations

import re
from typing import Any

import pytest

import diagnose
from diagnose.diagnosis import WELL, Diagnosis
from diagnose.infer.events.failures import failures, unexplained, unfinished_gathering, went_on

from ..rows import Row, ended, finished, matched, signature, step, stories_of, wait

STEPS = [f"2026-06-02 08:15:0{n},100 INFO step {n} loss 2.{n}" for n in range(6)]
FURTHER = [f"2026-06-02 08:16:{n},100 INFO step {n} loss 1.{n}" for n in range(10, 20)]
LAST_WORDS = (
    "ERROR: job failed with exit code 137",
    "container exited with code 139",
    "Killed by signal 9.",
    "FATAL: no way on",
    "CRITICAL: the store is gone",
    "F0602 08:15:11.184123    12 trainer.cc:12] Check failed: loss == loss",
    "E0602 08:15:11.184123    12 trainer.cc:12] no way on",
    "2026-06-02 08:15:09,100 ERROR trainer no way on",
    '{"level": "error", "msg": "the trainer is gone"}',
    "[worker] process died unexpectedly, exit code: -11",
    "##[error]Process completed with exit code 137.",
    "panic: runtime error: index out of range",
    "slurmstepd: error: *** JOB 7 ON g12 CANCELLED AT 2024-08-08T13:01:55 DUE TO SOMETHING NEW ***",
    "slurmstepd: error: *** JOB 7 ON g12 CANCELLED AT 2024-08-08T13:01:55 DUE TO PREE",
    "srun: error: No",
    "Received SIGTERM, exiting",
    "loss became NaN, aborting",
    "[Rank 0] Watchdog caught collective operation timeout",
    '    raise ValueError("x',
    "Traceback (most recent call last):",
    "Pod evicted",
    "ray.exceptions.OutOfMemoryError: of a kind not seen before",
)


def verdict(*lines: str) -> Diagnosis:
    return diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))


@pytest.mark.parametrize("words", LAST_WORDS)
def test_a_job_that_ends_in_an_error_is_not_healthy(words: str) -> None:
    result = verdict(*STEPS, words)
    assert result.verdict not in WELL
    assert result.root_cause.confidence != "high"
    assert [evidence.text for evidence in result.evidence] == [" ".join(words.split())]


@pytest.mark.parametrize("words", LAST_WORDS[:2] + LAST_WORDS[3:9])
def test_an_error_that_was_survived_is_no_alarm(words: str) -> None:
    assert verdict(*STEPS, words, *FURTHER).verdict == "running"


def test_the_unknown_error_is_told() -> None:
    result = verdict(*STEPS, "FATAL: no way on")
    assert result.verdict == "unknown"
    assert result.root_cause.summary.endswith(
        "The log contains an error that the catalog does not recognise: FATAL: no way on"
    )


def test_a_death_among_other_ranks_steps_is_not_survived_by_them() -> None:
    lines = [f"[rank{r}]: step {n} loss 1" for n in range(30) for r in range(4) if r != 2 or n < 5]
    lines.insert(40, "[rank2]: worker exited with code 139")
    assert verdict(*lines).verdict == "unknown"


def test_a_line_that_another_entry_knows_is_no_trouble() -> None:
    known = "ERROR:root:Unable to import wandb. falling back to the console"
    assert verdict(*STEPS, known, *FURTHER).verdict == "running"


WAITING = ("server not ready, wait 3 sec to retry...", "not ready endpoints:['10.0.0.3:6171']")


def test_a_wait_that_is_told_again_and_again_counts_as_the_last_word() -> None:
    assert verdict(*WAITING, *WAITING).root_cause.cause == "rendezvous.timeout"
    assert verdict(*WAITING, *STEPS).verdict == "running"
    calm = verdict(*WAITING, "reading parameters", "two subgraphs", "the table is ready")
    assert (calm.verdict, calm.root_cause.cause) == ("unknown", "unknown")


def test_a_wait_that_ended_is_no_cause_of_what_came_later() -> None:
    """The rank that waited signs its steps, and began something else below."""
    steps = [f"[rank{rank}]: step {n} loss 1" for n in range(4) for rank in range(2)]
    began = [
        "[rank0]: Loading checkpoint shards:  25%|██▌       | 1/4 [00:02<00:06,  2.00s/it]",
        *[f"[rank0]: {n}" for n in "abc"],
    ]
    died = (
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "train.py", line 3, in <module>',
        "[rank1]: ValueError: shape [512, 3], got [513, 3]",
    )
    result = verdict(*steps, *(f"[rank0]: {line}" for line in WAITING), *began, *died)
    assert (result.root_cause.cause, result.culprits.ranks) == ("crash.exception", [1])


SERVER = (
    "INFO:     Application startup complete.",
    'INFO:     10.0.0.1:5000 - "POST /v1/completions HTTP/1.1" 200 OK',
    "INFO:     Shutting down",
    "INFO:     Waiting for application shutdown.",
    "INFO:     Application shutdown complete.",
    "INFO:     Finished server process [7]",
)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (SERVER, "healthy"),
        (SERVER[:2], "running"),
        (SERVER[:3], "unknown"),  # it did not get to the end of shutting down
        (SERVER[2:], "unknown"),  # it never served
        (
            (*SERVER[:2], "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an "
             "issue. See stack trace (above) for the root cause.", *SERVER[2:]),
            "failed",
        ),
        ((*SERVER[:2], "FATAL: no way on", *SERVER[2:]), "unknown"),
    ],
)  # fmt: skip
def test_a_server_that_shuts_down_in_order_did_not_fail(lines: list[str], said: str) -> None:
    assert verdict(*lines).verdict == said


def test_a_server_that_was_not_ready_yet_is_no_failure() -> None:
    busy = 'INFO:     10.0.0.1:5000 - "GET /health HTTP/1.1" 503 Service Unavailable'
    work = [
        f"[2026-01-04 04:42:5{n} TP{n}] Decode batch, #running-req: 1, #token: 7{n}"
        for n in range(3)
    ]
    assert verdict(SERVER[0], busy, *work).verdict == "running"
    assert verdict(SERVER[0], *work, busy).verdict == "failed"


def test_what_was_not_read_to_its_end_is_not_healthy() -> None:
    job = diagnose.load_text("\n".join(STEPS))
    assert diagnose.diagnose(job).verdict == "running"
    job.unread.append("a.log.gz: the stream is cut")
    result = diagnose.diagnose(job)
    assert (result.verdict, result.root_cause.confidence) == ("unknown", "low")
    assert result.root_cause.summary == (
        "No failure found, but the input was not read to its end: a.log.gz: the stream is cut."
    )


# --------------------------------------------------------------------------- events


ERROR = signature("t.error")
SYMPTOM = matched(signature("t.symptom", "", role="effect"))
SERVED = [{"kind": "progress", "phase": "inference", "text": f"answer {n}"} for n in range(3)]
HINT = signature("t.hint", strength="weak")
AFTER = matched(signature("t.after", "", role="aftermath"))


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        ([step(1), matched(ERROR), wait(0), AFTER], [1, 2]),
        ([ended(0, exitcode="0"), ended(1, exitcode="1")], [1]),
        ([ended(0, exitcode="0", signal="SIGKILL")], [0]),
        ([step(1), matched(ERROR), step(2), step(3), step(4)], []),  # survived
        # A symptom passes where the job ends well, works on for long or answers; not what waited.
        ([step(1), SYMPTOM, step(2), step(3), step(4)], [1]),
        ([step(1), SYMPTOM, *(step(n) for n in range(2, 13))], []),
        ([step(1), SYMPTOM, {"signal": "finished"}], []),
        ([step(1), matched(ERROR), SYMPTOM, *(step(n) for n in range(2, 13))], []),
        ([*SERVED, SYMPTOM, *SERVED], []),
        ([*SERVED, SYMPTOM, *SERVED[:2]], [3]),
        ([step(1), wait(0), *(step(n) for n in range(2, 13))], [1]),
        ([step(1), ended(0, exitcode="1"), *(step(n) for n in range(2, 13))], [1]),
        # Hints, and what follows an abort, count only where nothing better does.
        ([matched(HINT), AFTER], [0, 1]),
        ([matched(HINT), matched(ERROR)], [1]),
        ([matched(HINT), step(1)], []),
        ([{"signal": "complaint"}, AFTER], [0]),
        # Sockets that close after the end.
        ([{"kind": "phase", "phase": "shutdown"}, {"signal": "notified"}], []),
        ([{"kind": "phase", "phase": "shutdown"}, {"signal": "notified"}, wait(0)], [1, 2]),
    ],
)
def test_which_events_show_a_failure(make: Any, rows: list[Row], shown: list[int]) -> None:
    assert [event.index for event in failures(stories_of(make(*rows))).counted] == shown


@pytest.mark.parametrize(
    ("lines", "verdict", "late"),
    [
        (("[rank{0-3}]: Training finished in 12 s",), "healthy", ""),
        (("[rank3]: Loading the model", "[rank{0-2}]: Training finished in 12 s"), "unknown", "3"),
        (("[rank{0-2}]: Training finished in 12 s",), "unknown", "3"),
        (("[rank{1-2}]: Loading", "[rank0]: Training finished in 12 s"), "unknown", "3"),
        (("[rank{0-3}]: step 5/9", "[rank{0-2}]: Training finished"), "unknown", "3"),
        # What rank 0 says may be of all, as may what nobody signs; of most ranks it is another log.
        (("[rank{1-3}]: Loading", "[rank0]: Training finished in 12 s"), "healthy", ""),
        (("[rank0]: Training finished in 12 s",), "healthy", ""),
        (("[rank{1-2}]: Loading", "Training finished in 12 s"), "healthy", ""),
    ],
)
def test_a_rank_that_finished_does_not_speak_for_one_that_is_missing(
    lines: tuple[str, ...], verdict: str, late: str
) -> None:
    several = re.compile(r"\{(\d)-(\d)\}")
    text = "[rank0]: world_size=4\n"
    for line in lines:
        found = several.search(line)
        ranks = range(int(found[1]), int(found[2]) + 1) if found else [0]
        text += "".join(f"{several.sub(str(rank), line)}\n" for rank in ranks)
    result = diagnose.diagnose(diagnose.load_text(text))
    assert (result.verdict, result.culprits.ranks) == (verdict, [])
    said = f"but only some ranks say that they finished, not rank {late}."
    assert (said in result.root_cause.summary) == bool(late)
    assert [one.predicate for one in result.reasons if one.step == "verdict"] == (
        ["others_not_ended"] if late else ["done"]
    )


def came(joined: int, world: int = 4) -> Row:
    return {"fields": {"joined": str(joined), "world_size": str(world)}}


@pytest.mark.parametrize(
    ("rows", "index"),
    [
        ([step(1)], None),
        ([came(3)], 0),
        ([came(3), came(4)], None),
        ([came(4), came(6)], 1),
        ([came(3), step(1)], 0),
        ([came(3), step(1), step(2)], None),  # it went on, so it was complete
        ([came(1), {"kind": "collective", "seq": 4, "rank": 2}], None),  # ranks call each other
    ],
)
def test_a_gathering_to_which_not_all_came(make: Any, rows: list[Row], index: int | None) -> None:
    timeline = make(*rows)
    found = unfinished_gathering(timeline)
    assert found == (None if index is None else timeline.at(index))
    assert failures(stories_of(timeline)).counted == ([] if found is None else [found])


def test_an_unknown_error_is_told_once_per_line(make: Any) -> None:
    trouble = {"signal": "trouble", "signature": "t.trouble", "strength": "weak"}
    edge = {"kind": "edge", "severity": "error", "role": None}
    known = matched(ERROR, line=5)
    timeline = make(trouble, edge | {"line": 1}, edge | {"line": 5}, known)
    assert unexplained(stories_of(timeline)).counted == [timeline.at(0)]
    assert unexplained(stories_of(make(trouble, step(1)))).counted == [], (
        "answered by work below it"
    )


def test_a_complaint_is_answered_by_steps_behind_it(make: Any) -> None:
    complaint = {"signal": "complaint"}
    assert went_on(stories_of(make(complaint, step(1))))
    assert not went_on(stories_of(make(step(1), complaint)))
    assert not went_on(stories_of(make(complaint, step(1, phase="inference")))), (
        "a server that answers"
    )


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ("My training hangs. Here is the log:\n", "", "hung"),
        ("", "and then it gets stuck, no more output\n", "hung"),
        ("", "", "running"),
        ("It used to hang, which is fixed now:\n", "", "running"),
        ("My training hangs. Here is the log:\n", "Training completed\n", "healthy"),
        ("WARNING: this may hang on some systems\n", "", "running"),
    ],
)
def test_a_job_of_which_the_user_says_that_it_hangs(before: str, after: str, verdict: str) -> None:
    steps = "".join(f"{{'loss': 2.{step}, 'epoch': 0.{step}}}\n" for step in range(5))
    result = diagnose.diagnose(diagnose.load_text(before + steps + after))
    assert result.verdict == verdict
    assert result.root_cause.confidence != "high"


def test_amid_the_steps_or_in_a_long_log_nobody_says_that_it_hangs() -> None:
    steps = [f"{{'loss': 2.{n}, 'epoch': 0.{n}}}" for n in range(9)]
    sample = "The train got stuck at the station."
    amid = [*steps[:4], sample, *steps[4:]]
    long = [*(f"line {n}" for n in range(500)), *steps, sample]
    for lines in (amid, long):
        text = "\n".join(lines) + "\n"
        assert diagnose.diagnose(diagnose.load_text(text)).verdict == "running"


def test_a_server_that_shut_down_in_order_need_not_have_failed() -> None:
    text = "[2025-05-01 10:00:00 +0000] [17] [INFO] Shutting down: Master\n"
    assert diagnose.diagnose(diagnose.load_text(text)).verdict == "unknown"


def test_a_rank_that_made_steps_and_then_waits_has_not_gone_on() -> None:
    steps = [f"[rank{rank}]: iteration {n}/ 90 | loss: 1.0" for n in range(4) for rank in (0, 1)]
    waits = "[rank1]: not ready endpoints:['10.0.0.1:6070']"
    others = [f"[rank0]: iteration {n}/ 90 | loss: 1.0" for n in range(4, 9)]
    for before, verdicts in ((steps, {"hung", "failed"}), ([], {"running"})):
        text = "\n".join([*before, waits, *others])
        assert diagnose.diagnose(diagnose.load_text(text)).verdict in verdicts


@pytest.mark.parametrize(("total", "left"), [("9", True), ("5", False), ("", False)])
def test_symptoms_of_a_rank_with_steps_to_go_are_no_aftermath_of_ones_end(
    make: Any, total: str, left: bool
) -> None:
    own = step(5, rank=0) | {"fields": {"step": "5", "total": total}}
    gone = {"role": "effect", "kind": "signature", "signal": "peer_gone", "rank": 0}
    found = failures(stories_of(make(own, finished(1), gone)))
    assert [event.index for event in found.counted] == ([2] if left else [])


def test_what_mpirun_wraps_after_exited_on_is_one_statement() -> None:
    result = verdict(
        "[1,3]<stdout>:step 300 loss 1.93",
        "prterun noticed that process rank 3 with PID 22871 on node cn0412 exited on",
        "signal 9 (Killed).",
    )
    assert (result.verdict, result.root_cause.cause) == ("failed", "crash.killed")
    assert (result.culprits.ranks, result.culprits.hosts) == ([3], ["cn0412"])


@pytest.mark.parametrize(
    "line",
    [
        "TimeoutError: RPC call to sample_tokens timed out.",
        "Timed out waiting for the first rpc of the peer",
        "redis: Failed to connect to server 10.0.0.3:6379",
    ],
)
def test_words_that_many_programs_use_are_not_read_as_a_graph_trainers(line: str) -> None:
    result = verdict(*STEPS, line)
    assert "DGL" not in result.root_cause.summary + result.root_cause.title


def test_a_step_that_torchft_drops_is_no_failure_of_a_job_that_goes_on() -> None:
    name = "INFO:torchft.manager:[ddp_0/0 - step"
    lost = (
        f"{name} 311] should_commit=True enough_replicas=True, errored=None",
        "WARNING:torchft.manager:[ddp_0/0 - step 312] got exception in all reduce -- skipping "
        "remaining: Connection closed by peer [10.0.0.9]:4411",
        f"{name} 312] should_commit=False enough_replicas=True, "
        "errored=RuntimeError('Connection closed by peer')",
    )
    further = f"{name} 313] should_commit=True enough_replicas=True, errored=None"
    assert verdict(*lost, further).verdict == "running"
    assert verdict(*lost).verdict == "failed"


def test_a_server_of_which_one_rank_alone_prints_no_watchdog_timeout_hung() -> None:
    at = "[2026-11-28 01:1"
    batch = "Decode batch, #running-req: 64, #token: 81233, gen throughput (token/s): 5121.33"
    result = verdict(
        f"{at}0:22 TP0] {batch}",
        f"{at}0:25 TP0] {batch}, #queue-req: 12",
        *(f"{at}5:27 TP{rank}] Watchdog timeout (self.watchdog_timeout=300)" for rank in (2, 1, 3)),
        f"{at}5:32] Received sigquit from a child process. It usually means the child failed.",
        "Killed",
    )
    assert (result.verdict, result.root_cause.cause) == ("hung", "desync.missing_rank")
    assert result.culprits.ranks == [0]


def test_the_traceback_of_an_exception_that_passed_ends_no_log() -> None:
    died = (
        "Traceback (most recent call last):",
        '  File "/env/site-packages/torch/utils/data/dataloader.py", line 1, in __del__',
        '  File "/env/site-packages/torch/utils/data/_utils/handling.py", line 73, in handler',
        "RuntimeError: DataLoader worker (pid 563735) is killed by signal: Killed.",
    )
    steps = tuple(f"(TaskRunner pid=525716) step:{n} - actor/pg_loss:0.2" for n in range(40))
    signed = tuple(f"(TaskRunner pid=525716) {line}" for line in died)
    assert verdict(*steps, *signed).verdict == "failed"
    assert verdict(*steps[:36], *signed, *steps[36:]).verdict == "unknown"
