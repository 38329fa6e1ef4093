"""What a worker makes of a job, in the test's own process."""

from __future__ import annotations

import gzip
import importlib
import io
import os
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable
from itertools import pairwise
from multiprocessing import Pipe
from pathlib import Path

import pytest
import zstandard

import diagnose
from diagnose.redact.redactor import Redactor
from diagnose.serve import crew, masking, progress, task, work
from diagnose.serve.masking import kept_logs, kept_text
from diagnose.serve.task import MASKED, PASTE, TYPES, Done, Failed, Progress, Task

from .running import LOG, ROOT

FIXTURES = ROOT / "fixtures"
SECRET = "hf" + "_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"


def done(made: Task) -> tuple[Done, dict[str, str]]:
    result = work.attempt(made, lambda _: None)
    assert isinstance(result, Done), result
    unpack = zstandard.ZstdDecompressor().decompress
    return result, {name: unpack(data).decode() for name, data in result.outputs.items()}


def test_all_outputs_of_a_paste(tmp_path: Path) -> None:
    (tmp_path / PASTE).write_text(f"{LOG}\ntoken {SECRET}\n")
    result, outputs = done(Task(str(tmp_path), "text", tuple(TYPES), title="job 7"))
    assert list(outputs) == list(TYPES)
    assert SECRET not in "".join(outputs.values())
    assert "token [hf-token-1]\n" in outputs["input"]
    assert result.summary.headline == "A rank never reached the collective (reason not logged)"
    assert result.summary.who == "Rank 5: never reached the collective"
    assert result.summary.words.startswith("job 7 hung desync.missing_rank ")
    again = tmp_path / "again"
    again.mkdir()
    (again / MASKED).write_text(outputs["input"])
    _, later = done(Task(str(again), "masked", ("page", "markdown", "json"), title="job 7"))
    assert {name: later[name] for name in later} == {name: outputs[name] for name in later}


def test_without_masking_the_text_stays(tmp_path: Path) -> None:
    (tmp_path / PASTE).write_text(f"{LOG}\ntoken {SECRET}\n")
    made = Task(str(tmp_path), "text", ("input",), redact=False)
    assert f"token {SECRET}\n" in done(made)[1]["input"]


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.iterdir()))
def test_masking_changes_no_verdict(name: str) -> None:
    logs = [
        path for path in sorted((FIXTURES / name).rglob("*")) if path.suffix in (".log", ".txt")
    ]
    if not logs:
        pytest.skip("no text")
    text = "\n".join(path.read_text(errors="replace") for path in logs)
    plain = diagnose.diagnose(diagnose.load_text(text))
    masked = diagnose.diagnose(diagnose.load_text(kept_text(text, Redactor())))
    for one in ("verdict", "culprits", "phase", "collective", "onset"):
        assert getattr(masked, one) == getattr(plain, one)
    assert masked.root_cause.cause == plain.root_cause.cause


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\tb  c\n  d", "a\tb  c\n  d"),
        ("\x1b[31mred\x1b[0m x", "red x"),
        ("bar 1%\rbar 2%\r\nnext", "bar 1%\rbar 2%\nnext"),
        ("a\u2028b\x00c\n\n", "a bc\n\n"),
        ("x" * 70_000, "x" * 64_000),
        ("é\n", "é\n"),
    ],
)
def test_text_is_kept_at_its_line(text: str, kept: str) -> None:
    assert kept_text(text, None) == kept
    assert kept_text(kept, Redactor()) == kept


def test_logs_are_kept_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(3):
        (tmp_path / f"rank{rank}.log").write_text("one line\n" * 10)
    job = diagnose.load(tmp_path)
    monkeypatch.setattr(masking, "KEPT_EACH", 50)
    monkeypatch.setattr(masking, "KEPT", 80)
    assert kept_logs(job.sources, None) == (
        "==> rank0.log <==\n" + "one line\n" * 5 + "[the rest of this log is not kept]\n\n"
        "==> rank1.log <==\n" + "one line\n" * 4 + "[the rest of this log is not kept]\n\n"
        "==> rank2.log <==\n\n[the rest of this log is not kept]\n"
    )  # fmt: skip
    monkeypatch.setattr(masking, "KEPT_EACH", 90)
    monkeypatch.setattr(masking, "KEPT", 90)
    assert kept_logs(job.sources, None) == (
        "==> rank0.log <==\n" + "one line\n" * 10 + "\n[further logs are not kept]\n"
    )


@pytest.mark.parametrize(
    ("content", "kind", "error"),
    [
        (b"", "text", "no log to read: <paste>: empty"),
        (b"\x7fELF" + bytes(1000), "files", "no log to read: paste.txt: "),
    ],
)
def test_what_is_no_log_fails_in_a_line(
    tmp_path: Path, content: bytes, kind: task.Kind, error: str
) -> None:
    (tmp_path / PASTE).write_bytes(content)
    result = work.attempt(Task(str(tmp_path), kind, ("json",)), lambda _: None)
    assert isinstance(result, Failed)
    assert result.error.startswith(error)
    assert str(tmp_path) not in result.error


def test_an_error_names_a_url_as_it_is(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9/rank0.log"
    wanted = Task(str(tmp_path), "urls", ("json",), urls=(url,), allowed=("http://127.0.0.1:9/",))
    result = work.attempt(wanted, lambda _: None)
    assert isinstance(result, Failed)
    assert result.error.startswith(f"{url} cannot be fetched: ")


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (MemoryError(), "needs more than the 64 MiB of memory that a job may use"),
        (OSError(28, "No space left on device"), "no space left on device"),
        (KeyError("x"), "internal error, please report it: KeyError: 'x'"),
    ],
)
def test_whatever_goes_wrong_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, error: str
) -> None:
    def fail(*_: object) -> None:
        raise raised

    monkeypatch.setattr(work, "perform", fail)
    before = tempfile.tempdir
    result = work.attempt(Task(str(tmp_path), "text", (), memory=64 << 20), lambda _: None)
    assert result == Failed(error)
    assert tempfile.tempdir == before


def test_progress_is_told(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.log").write_text(LOG)
    told: list[Progress] = []
    work.attempt(Task(str(tmp_path), "files", ("json", "input")), told.append)
    assert [(one.stage, one.done, one.total) for one in told] == [
        ("Reading", 0, 0), ("Reading", 0, 2), ("Reading", 1, 2), ("Looking for checkpoints", 0, 0),
        ("Diagnosing", 0, 0), ("Writing the report", 0, 0),
    ]  # fmt: skip


LARGE = LOG.encode() + b"nothing of note\n" * 1_000_000  # several blocks of what is read at once


def _bytes_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    monkeypatch.setattr(progress, "PERIOD", 0.0)
    told: list[Progress] = []
    result = work.attempt(Task(str(folder), "files", ("page", "input")), told.append)
    assert isinstance(result, Done)
    stages = [one.stage for one in told]
    assert "Reading" not in stages[stages.index("Diagnosing") :]  # evidence is read again, silently
    return [(one.done, one.read, one.size) for one in told if one.size]


def test_the_bytes_of_one_large_log_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = (tmp_path / "rank0.log").write_bytes(LARGE)
    told = _bytes_told(tmp_path, monkeypatch)
    assert len(told) > 3
    assert {of for _, _, of in told} == {size}
    reading = [read for _, read, _ in told]
    begins = [at for at, (a, b) in enumerate(pairwise(reading)) if b < a]
    assert len(begins) <= 1  # a look at the file, then the log
    assert reading[-1] == size


@pytest.mark.slow
def test_the_bytes_of_packed_logs_are_those_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = gzip.compress(LARGE)
    (tmp_path / "rank0.log.gz").write_bytes(data)
    assert _bytes_told(tmp_path, monkeypatch)[-1] == (0, len(data), len(data))


def test_the_bytes_of_an_archive_are_told_while_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = io.BytesIO(LOG.encode() * 40)
    entry = tarfile.TarInfo("rank0.log")
    entry.size = len(log.getvalue())
    with tarfile.open(tmp_path / "job.tar.gz", "w:gz") as archive:
        archive.addfile(entry, log)
    packed = (tmp_path / "job.tar.gz").stat().st_size
    told = _bytes_told(tmp_path, monkeypatch)
    assert (0, packed, packed) in told
    assert told[-1] == (0, entry.size, entry.size)


def test_messages_survive_the_way() -> None:
    ours, theirs = Pipe()
    summary = task.Summary("hung", "a", "high", "h", "s", "w", 3, "words")
    for message in (
        Progress("x", 1, 2, 3, 4),
        Failed("no"),
        Done(summary, {"json": b"1", "page": b"2"}),
    ):
        task.send(theirs, message)
        assert task.receive(ours) == message
    made = Task("f", "urls", ("json",), urls=("a",), allowed=("b",), patterns=("c",))
    assert task.decoded(task.encoded(made)) == made


@pytest.mark.parametrize("data", [b"[]", b"{}", b"x", b'{"summary": {}, "outputs": []}'])
def test_nonsense_of_a_worker_is_no_result(data: bytes) -> None:
    ours, theirs = Pipe()
    theirs.send_bytes(data)
    with pytest.raises(ValueError, match=r"."):
        task.receive(ours)


@pytest.fixture(scope="module")
def worker() -> crew.Worker:
    return crew.Worker(crew.context())


def test_a_worker_does_one_job_after_the_other(
    worker: crew.Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "JOBS", 2)
    (tmp_path / PASTE).write_text(LOG)
    made = Task(str(tmp_path), "text", ("json",))
    for _ in range(3):
        assert isinstance(worker.run(made, 60, lambda _: None, lambda: False), Done)
    assert worker.replaced == 0
    worker.close()


def _ending(worker: crew.Worker, act: Callable[[], None]) -> Callable[[Progress], None]:
    """Does something as soon as the worker works."""
    return lambda _: act()


def test_a_worker_that_dies_is_replaced(worker: crew.Worker, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(LOG * 200)
    made = Task(str(tmp_path), "files", ("json",))
    worker.start()
    process = worker._process
    assert process is not None
    assert process.pid is not None
    pid = process.pid
    result = worker.run(made, 60, _ending(worker, lambda: os.kill(pid, 9)), lambda: False)
    assert result == Failed("its worker process died, probably for lack of memory")
    assert isinstance(worker.run(made, 60, lambda _: None, lambda: False), Done)
    worker.close()


def test_a_job_ends_in_time_or_when_it_is_cancelled(worker: crew.Worker, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(LOG * 2000)
    made = Task(str(tmp_path), "files", ("json",))
    late = worker.run(made, 0.01, lambda _: None, lambda: False)
    assert late == Failed("took longer than the 0.01 s that a job may take")
    with pytest.raises(crew.Stopped):
        worker.run(made, 60, lambda _: None, lambda: True)
    worker.close()


def test_a_worker_that_cannot_start_is_no_end(
    worker: crew.Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    with monkeypatch.context() as patch:
        patch.setattr(worker._context, "Process", refuse)
        result = worker.run(Task(str(tmp_path), "check", ()), 60, lambda _: None, lambda: False)
    assert result == Failed("its worker process died, probably for lack of memory")
    assert worker.run(
        Task(str(tmp_path), "check", ()), 60, lambda _: None, lambda: False
    ) == Failed("")
    worker.close()


def test_patterns_are_checked_before_the_server_starts(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("signatures: [{id: broken}]")
    with pytest.raises(diagnose.InputError, match=r"x\.yaml"):
        crew.check(crew.context(), (str(tmp_path),), tmp_path)


def test_a_worker_answers_until_it_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds: list[object] = []
    monkeypatch.setattr(work.resource, "setrlimit", lambda *given: bounds.append(given))
    (tmp_path / PASTE).write_text(LOG)
    ours, theirs = Pipe()
    for kind in ("check", "text"):
        ours.send_bytes(task.encoded(Task(str(tmp_path), kind, ("json",))))  # type: ignore[arg-type]
    thread = threading.Thread(target=work.serve, args=(theirs,))
    thread.start()
    told = [task.receive(ours) for _ in range(4)]
    ours.close()
    thread.join(30)
    assert not thread.is_alive()
    assert told[0] == Failed("")
    assert isinstance(told[3], Done)
    assert bounds == [(work.resource.RLIMIT_FSIZE, (4 << 30, 4 << 30))]


def test_what_workers_are_copies_of_has_done_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc.freeze", lambda: None)
    monkeypatch.setattr("gc.set_threshold", lambda *_: None)
    asked: list[Task] = []
    monkeypatch.setattr(work, "attempt", lambda made, _: asked.append(made))
    monkeypatch.delitem(sys.modules, "diagnose.serve.warm", raising=False)
    importlib.import_module("diagnose.serve.warm")
    assert [made.wanted for made in asked] == [tuple(TYPES)]
