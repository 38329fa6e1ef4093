"""The library as the README shows it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import diagnose
from diagnose.catalog.schema import Run
from diagnose.checkpoint.find import inspect
from diagnose.diagnosis import Diagnosis
from diagnose.errors import CatalogError, InputError
from tests.checkpoint.make import hf
from tests.own import LINE, README_ENTRY

LOG = """\
[rank0]: ***** Running training *****
[rank0]:[E602 08:25:12.1234567 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective \
operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1000, NumelOut=1000, \
Timeout(ms)=600000) ran for 600001 milliseconds before timing out.
[rank0]:[E602 08:25:12.1234567 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 0] \
Exception (either an error or timeout) detected by watchdog at work: 7, last enqueued NCCL work: \
9, last completed NCCL work: 6.
[rank1]: ValueError: bad batch
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    logs = tmp_path / "logs"
    logs.mkdir()
    for rank in (0, 1):
        lines = [line for line in LOG.splitlines(True) if line.startswith(f"[rank{rank}]")]
        (logs / f"rank_{rank}.log").write_text("".join(lines))
    return logs


@pytest.mark.parametrize(
    "paths",
    [
        lambda folder: folder,
        str,
        lambda folder: [folder / "rank_0.log", str(folder / "rank_1.log")],
        lambda folder: iter([folder]),
    ],
    ids=["path", "str", "list", "iterator"],
)
def test_load_takes_paths_in_any_form(folder: Path, paths: Callable[[Path], object]) -> None:
    job = diagnose.load(paths(folder))  # type: ignore[arg-type]
    assert [source.name for source in job.sources] == ["rank_0.log", "rank_1.log"]
    assert diagnose.diagnose(job).culprits.ranks == [1]


def test_the_readme_facade(folder: Path) -> None:
    job = diagnose.load(folder)
    assert isinstance(job, diagnose.Job)
    assert isinstance(job.timeline, pd.DataFrame)
    assert job.timeline is job.timeline, "built once"
    result = diagnose.diagnose(job)
    assert isinstance(result, Diagnosis)
    assert result.root_cause.cause == "crash.exception"
    assert '"schema": "diagnose/2"' in result.to_json()
    assert result == diagnose.diagnose(job)


def test_text_is_one_source() -> None:
    job = diagnose.load_text(LOG)
    assert [source.name for source in job.sources] == ["<paste>"]
    assert diagnose.diagnose(job).culprits.ranks == [1]


# --------------------------------------------------------------------------- what cannot be read


def test_no_path() -> None:
    with pytest.raises(InputError, match=r"\Ano path given\Z"):
        diagnose.load([])


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        diagnose.load(tmp_path / "nothing.log")
    assert "nothing.log" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "\n \n\n", "\r\n"])
def test_an_empty_paste(text: str) -> None:
    with pytest.raises(InputError):
        diagnose.load_text(text)


def test_a_folder_without_logs(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        diagnose.load(tmp_path)


def test_only_a_binary(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(bytes(range(256)) * 64)
    with pytest.raises(InputError, match=r"\Ano log to read: model\.bin: "):
        diagnose.load(tmp_path / "model.bin")


def test_a_bad_source_beside_a_good_one_is_a_note(folder: Path) -> None:
    (folder / "core.123").write_bytes(bytes(range(256)) * 64)
    job = diagnose.load(folder)
    assert [note.partition(":")[0] for note in job.notes] == ["core.123"]
    assert diagnose.diagnose(job).notes == job.notes


# --------------------------------------------------------------------------- own entries


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(str, marks=pytest.mark.slow),
        lambda path: path,
        pytest.param(lambda path: path / "acme.yaml", marks=pytest.mark.slow),
    ],
)
def test_an_own_signature(tmp_path: Path, given: Callable[[Path], str | Path]) -> None:
    (tmp_path / "acme.yaml").write_text(README_ENTRY)
    result = diagnose.diagnose(diagnose.load_text(LINE, patterns=[given(tmp_path)]))
    assert (result.verdict, result.root_cause.cause) == ("failed", "slow.storage")
    assert result.root_cause.signature == "acme.tokens.not-mounted"
    assert (result.culprits.ranks, result.restart.advice) == ([3], "fix_first")
    assert result.remedies[0].run == [Run("shell", ["mount /tokens"])]
    assert diagnose.diagnose(diagnose.load_text(LINE)).root_cause.cause == "unknown"


def test_a_wrong_entry_is_told(tmp_path: Path) -> None:
    (tmp_path / "acme.yaml").write_text(README_ENTRY.replace("culprit:", "culprits:"))
    with pytest.raises(CatalogError, match="culprits"):
        diagnose.load_text("x", patterns=[tmp_path])


def test_an_unknown_attribute_of_the_package() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = diagnose.nothing


@pytest.mark.parametrize(
    "data",
    [
        b"\n" * 9000 + b"x" * 9000 + b" torch.OutOfMemoryError: CUDA out of memory.\n",
        bytes(100_000) + b"torch.OutOfMemoryError: CUDA out of memory.\n" + bytes(100_000),
        b" \n" * 9000 + b"torch.OutOfMemoryError: CUDA out of memory.\n" + b" \n" * 9000,
    ],
    ids=["behind blanks and a long line", "between holes", "between blanks"],
)
def test_a_fatal_line_that_hardly_anything_stands_beside(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(data)
    assert diagnose.diagnose(diagnose.load(tmp_path)).root_cause.cause == "crash.gpu_oom"


@pytest.mark.parametrize("absurd", [2**63 - 1, -(2**63), 10**30])
def test_one_absurd_dump_does_not_end_the_triage(absurd: int, tmp_path: Path) -> None:
    job = Path(__file__).parents[2] / "fixtures" / "flight-recorder-mismatch"
    for file in job.glob("nccl_trace_rank_*"):
        data = file.read_bytes()
        if file.name.endswith("_0"):
            data = re.sub(rb'("time_created_ns": ?)\d+', rb"\g<1>%d" % absurd, data)
        (tmp_path / file.name).write_bytes(data)
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert (found.verdict, found.root_cause.cause) == ("hung", "desync.mismatch")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (IndexError("no such column"), "IndexError: no such column"),
        (MemoryError(), "it needs more memory than there is"),
    ],
)
def test_a_document_that_breaks_its_reader_is_a_note(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    def broken(_data: bytes, _name: str) -> None:
        raise error

    monkeypatch.setattr("diagnose.readers.read_dump", broken)
    (folder / "nccl_trace_rank_0.json").write_text('{"pg_config": {}}')
    job = diagnose.load(folder)
    assert job.unread == [f"nccl_trace_rank_0.json: not read: {told}"]
    assert job.notes == job.unread
    assert diagnose.diagnose(job).culprits.ranks == [1]


# --------------------------------------------------------------------------- checkpoints


def saved(folder: Path) -> Path:
    """A folder with one checkpoint, and the path of a log beside it."""
    hf.MAKERS["hf-trainer"](folder / "out/checkpoint-100", step=100, world=4, start=1_700_000_000.0)
    (folder / "a.log").write_text(LOG)
    return folder / "a.log"


def test_checkpoints_may_lie_elsewhere(tmp_path: Path) -> None:
    log = saved(tmp_path)
    assert diagnose.load(log).checkpoints is None
    job = diagnose.load(log, checkpoints=[tmp_path / "out"])
    assert job.checkpoints == inspect([str(tmp_path / "out")])
    assert job.checkpoints.checkpoints


def test_a_folder_that_is_given_is_searched_for_checkpoints(tmp_path: Path) -> None:
    saved(tmp_path)
    found = diagnose.load(tmp_path).checkpoints
    assert found is not None
    assert [one.step for one in found.checkpoints] == [100]


def test_a_folder_for_checkpoints_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    log = saved(tmp_path)
    with pytest.raises(InputError, match=r"gone: no such file"):
        diagnose.load(log, checkpoints=[tmp_path / "gone"])
