"""The watch as a whole: real files, a real hook, real verdicts; looks come faster than usual."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from diagnose.cli import main as cli
from diagnose.watch import follow, pulse, run
from diagnose.watch.run import Options, Outcome, Watch
from tests.watch.test_alert import TOKEN
from tests.watch.test_webhook import Chat, chat

__all__ = ["chat"]  # a fixture

DONE = "Training completed. Do not forget to share your model on huggingface.co/models =)"
LIMIT_S = 180.0  # of a busy machine that compiles the catalog first


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "PERIODS", ((16, 0.05), (64, 0.05)))
    monkeypatch.setattr(follow, "WALK_S", 0.3)
    monkeypatch.setattr(pulse, "QUIET_S", 0.5)
    monkeypatch.setattr(run, "GIVEN_UP_S", 0.5)


class Running:
    """A watch in a thread of its own."""

    def __init__(self, *paths: Path, stdin: int | None = None, **options: object) -> None:
        self.said: list[str] = []
        self.notes: list[str] = []
        given = Options(**{"min_silence": 0.0} | options)  # type: ignore[arg-type]
        self.watch = Watch(
            [str(p) for p in paths], given, self.said.append, self.notes.append, stdin
        )
        self.outcome: Outcome | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        self.until(lambda: "Watching" in self.text)

    def _run(self) -> None:
        self.outcome = self.watch.run()

    @property
    def text(self) -> str:
        return "".join(self.said)

    def until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT_S
        while not done():
            assert time.monotonic() < end, (self.said, self.notes)
            time.sleep(0.02)

    def ended(self) -> Outcome:
        self.thread.join(LIMIT_S)
        assert self.outcome is not None, (self.said, self.notes)
        return self.outcome

    def stop(self) -> None:
        self.watch.stop()
        assert self.ended() == Outcome(interrupted=True)


@pytest.fixture
def stopping() -> Iterator[list[Running]]:
    """Watches that are stopped whatever becomes of the test."""
    started: list[Running] = []
    yield started
    for one in started:
        if one.thread.is_alive():
            one.watch.stop()
            one.thread.join(LIMIT_S)


def say(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def steps(path: Path, first: int, last: int, extra: str = "") -> None:
    for step in range(first, last + 1):
        say(path, f"[rank0]: step {step} loss 0.{step}{extra}", f"[rank1]: step {step} loss 1")
        time.sleep(0.06)


def noted(path: Path) -> list[dict[str, Any]]:
    """What the hook was given, once a line."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def test_a_path_that_does_not_exist_is_named_and_waited_for(
    tmp_path: Path, stopping: list[Running]
) -> None:
    log = tmp_path / "late.log"
    job = Running(log)
    stopping.append(job)
    assert job.notes == [f"{log}: does not exist; waiting until it appears"]
    say(log, "[rank0]: step 1 loss 1")
    job.until(lambda: job.watch._live)


@pytest.mark.slow
def test_a_job_stalls_recovers_and_ends(
    tmp_path: Path, chat: Chat, stopping: list[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "QUIET_S", 2.0)
    log, hooked = tmp_path / "logs" / "job.log", tmp_path / "hook.json"
    log.parent.mkdir()
    job = Running(
        log.parent,
        on_stall=f'echo "$DIAGNOSE_STALL_JSON" >> {hooked}; echo from the hook',
        webhook=f"http://127.0.0.1:{chat.server_port}/x",
        metrics="127.0.0.1:0",
    )
    stopping.append(job)
    steps(log, 1, 30)
    say(log, f"[rank0]: step 31 loss 1 token={TOKEN} ann@example.org")
    # A busy machine may keep the job from writing, and make a stall of its own.
    job.until(lambda: any(one["step"] == 31 for one in noted(hooked)))
    job.until(lambda: job.notes.count("on-stall: from the hook") == len(noted(hooked)))
    metrics = job.watch._metrics
    assert metrics is not None
    with urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=20) as answer:
        shown = answer.read().decode()
    assert 'diagnose_watch_state{state="stalled"} 1.0' in shown
    assert "diagnose_watch_step 31.0" in shown
    assert 'diagnose_watch_rank_progress_age_seconds{rank="rank 1"}' in shown
    for step in range(32, 1000):
        steps(log, step, step)
        if job.text.count("The job makes progress again") == len(noted(hooked)):
            break
    say(log, "[rank0]: " + DONE, "[rank1]: " + DONE)
    outcome = job.ended()
    assert outcome.verdict is not None
    assert outcome.verdict.verdict in ("healthy", "running")
    number, told = next(at for at in enumerate(noted(hooked), 1) if at[1]["step"] == 31)
    assert (told["event"], told["number"], told["first"]) == ("stalled", number, ["rank 1"])
    assert told["phase"] == "training"
    assert {one["name"] for one in told["ranks"]} == {"rank 0", "rank 1"}
    titles = [body["text"] for _, body in chat.got]
    short = [title.partition(" (")[0].partition(" since")[0] for title in titles]
    stalled = ["No progress", "The job makes progress again"] * len(titles)
    assert short[:-1] == stalled[: len(titles) - 1]
    assert titles[-1].startswith("The job ended: ")
    everything = job.text + hooked.read_text() + json.dumps(chat.got)
    assert TOKEN not in everything
    assert "ann@example.org" not in json.dumps(chat.got)


@pytest.mark.slow
def test_a_crash_is_an_end(tmp_path: Path, stopping: list[Running]) -> None:
    log = tmp_path / "job.log"
    say(log, "[rank0]: step 1 loss 1")
    job = Running(tmp_path)
    stopping.append(job)
    say(
        log,
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "/job/train.py", line 7, in <module>',
        "[rank1]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "E0602 08:25:12.125000 1 torch/distributed/elastic/multiprocessing/api.py:869] failed "
        "(exitcode: 1) local_rank: 1 (pid: 4711) of binary: /usr/bin/python",
    )
    outcome = job.ended()
    assert outcome.verdict is not None
    assert (outcome.verdict.verdict, outcome.verdict.cause) == ("failed", "crash.gpu_oom")
    assert "The job ended: FAILED" in job.text
    assert "No progress" not in job.text


@pytest.mark.slow
def test_a_log_on_standard_input(stopping: list[Running]) -> None:
    read, write = os.pipe()
    job = Running(stdin=read)
    stopping.append(job)
    os.write(write, b"step 1 loss 2\nstep 2 loss 1\nValueError: bad ba")
    os.write(write, b"tch")
    os.close(write)
    outcome = job.ended()
    os.close(read)
    assert outcome.verdict is not None
    assert outcome.verdict.verdict == "failed"
    assert "Watching standard input" in job.text


def test_what_is_old_is_no_news(tmp_path: Path, chat: Chat, stopping: list[Running]) -> None:
    log, hooked = tmp_path / "logs" / "job.log", tmp_path / "hooked"
    log.parent.mkdir()
    for step in range(40):
        say(log, f"2026-01-01 10:00:{step:02d} step {step} loss 1")
    old = time.time() - 3600
    os.utime(log, (old, old))
    job = Running(
        log.parent,
        on_stall=f"touch {hooked}",
        webhook=f"http://127.0.0.1:{chat.server_port}/x",
    )
    stopping.append(job)
    job.until(lambda: "before the watch began" in job.text)
    assert "written last 1 h ago" in job.text
    assert "heartbeat   1 s; silence of 6 s is allowed here" in job.text
    say(log, "2026-01-01 11:00:00 step 41 loss 1")
    job.until(lambda: "The job makes progress again" in job.text)
    assert not hooked.exists()
    job.stop()


def test_a_new_attempt(tmp_path: Path, stopping: list[Running]) -> None:
    for attempt in (0, 1):
        (tmp_path / f"attempt_{attempt}" / "0").mkdir(parents=True)
    say(tmp_path / "attempt_0" / "0" / "stdout.log", "step 1 loss 1")
    job = Running(tmp_path)
    stopping.append(job)
    say(tmp_path / "attempt_1" / "0" / "stdout.log", "step 1 loss 1")
    job.until(lambda: "A new attempt started" in job.text)
    job.stop()


@pytest.mark.slow
def test_stop_ends_a_hook(
    tmp_path: Path, stopping: list[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "STOP_S", 0.2)
    job = Running(tmp_path, on_stall="sleep 100", grace=1.0)
    stopping.append(job)
    job.until(lambda: "No progress" in job.text)
    job.stop()
    assert "on-stall: ended: the watch is over" in job.notes


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "diagnose", "watch", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watch:
        assert watch.stdout is not None
        assert watch.stderr is not None
        assert "Watching 0 files" in watch.stdout.readline()
        time.sleep(0.2)
        watch.send_signal(number)
        try:
            assert watch.wait(timeout=LIMIT_S) == 130
        finally:
            watch.kill()
        assert watch.stderr.read() == ""


@pytest.mark.slow
def test_the_command_and_its_exit_status(tmp_path: Path) -> None:
    log = b"[rank0]: step 10\n[rank1]: ValueError: bad batch\n"
    command = [sys.executable, "-m", "diagnose", "watch", "--exit-code"]
    done = subprocess.run(command, input=log, capture_output=True, check=False, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (1, b"")
    assert b"The job ended: FAILED" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["watch", ""], "diagnose: one of the paths is empty"),
        (["watch", ".", "--webhook", "x"], "diagnose: --webhook: a URL that begins with"),
        (["watch", ".", "--metrics", "x"], "diagnose: --metrics x: an address such as"),
        (["watch", ".", "--heartbeats", "1"], "diagnose: Invalid value for '--heartbeats'"),
    ],
)
def test_what_cannot_be_used(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    assert capsys.readouterr().err.startswith(message)
