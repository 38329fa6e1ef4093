"""What a worker makes of a job, in the test's own process."""

from __future__ import annotations

import gzip
import importlib
import io
import sys
import tarfile
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard

import diagnose
from diagnose.redact.redactor import Redactor
from diagnose.serve import desk, model, work
from diagnose.serve.model import MASKED, PASTE, TYPES, Done, Failed, Progress, Task
from diagnose.serve.work import kept_logs, kept_text

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
    monkeypatch.setattr(work, "KEPT_EACH", 50)
    monkeypatch.setattr(work, "KEPT", 80)
    assert kept_logs(job.sources, None) == (
        "==> rank0.log <==\n" + "one line\n" * 5 + "[the rest of this log is not kept]\n\n"
        "==> rank1.log <==\n" + "one line\n" * 4 + "[the rest of this log is not kept]\n\n"
        "==> rank2.log <==\n\n[the rest of this log is not kept]\n"
    )  # fmt: skip
    monkeypatch.setattr(work, "KEPT_EACH", 90)
    monkeypatch.setattr(work, "KEPT", 90)
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
    tmp_path: Path, content: bytes, kind: model.Kind, error: str
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
    monkeypatch.setattr(work, "PERIOD", 0.0)
    told: list[Progress] = []
    result = work.attempt(Task(str(folder), "files", ("page", "input")), told.append)
    assert isinstance(result, Done)
    stages = [one.stage for one in told]
    assert "Reading" not in stages[stages.index("Diagnosing") :]  # evidence is read again, silently
    return [(one.done, one.read, one.size) for one in told if one.size]


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_patterns_are_checked_before_the_server_starts(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("signatures: [{id: broken}]")
    with pytest.raises(diagnose.InputError, match=r"x\.yaml"):
        desk.check((str(tmp_path),), tmp_path)


@pytest.mark.slow
def test_what_workers_are_copies_of_has_done_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc.freeze", lambda: None)
    monkeypatch.setattr("gc.set_threshold", lambda *_: None)
    asked: list[Task] = []
    monkeypatch.setattr(work, "attempt", lambda made, _: asked.append(made))
    monkeypatch.delitem(sys.modules, "diagnose.serve.warm", raising=False)
    importlib.import_module("diagnose.serve.warm")
    assert [made.wanted for made in asked] == [tuple(TYPES)]
