"""A real job is killed in the midst of saving: the last good step is named, the cut-off one told.

Some ten seconds for every case; on request only: `pytest -m lab tests/lab/checkpoint`.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from launch_dcp import run_job

from diagnose.checkpoint.find import inspect
from diagnose.checkpoint.model import Checkpoint, Inspection

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(find_spec("torch") is None, reason="needs torch"),
]

_NEVER = ".metadata: missing: it is written last, so this save never finished"


@pytest.fixture(autouse=True)
def on_request_only(request: pytest.FixtureRequest) -> None:
    """Skip unless the marker was asked for: a plain run of the tests starts no jobs."""
    if "lab" not in request.config.getoption("-m"):
        pytest.skip("starts real jobs; run with -m lab")


def judge(run: Path) -> tuple[Inspection, dict[str, Checkpoint]]:
    found = inspect([str(run)])
    return found, {Path(one.path).name: one for one in found.checkpoints}


@pytest.mark.parametrize(
    ("fault", "reasons", "notes"),
    [
        (
            "before_data",
            [_NEVER, "__2_0.distcp: missing: step-20 has it"],
            ["no data file of rank 2"],
        ),
        ("in_data", [_NEVER, "__1_0.distcp: has 9,000 bytes, and "], []),
        ("before_metadata", [_NEVER], []),
        (
            "in_metadata",
            [
                ".metadata.tmp: a temporary file of a save that was killed before committing its"
                " files",
                _NEVER,
            ],
            [],
        ),
    ],
)
def test_killed_in_a_save(fault: str, reasons: list[str], notes: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert run_job(run, f"--fault={fault}") != 0
    found, states = judge(run)
    assert {name: one.state for name, one in states.items()} == {
        "step-10": "whole", "step-20": "whole", "step-30": "partial",
    }  # fmt: skip
    assert states["step-30"].notes == notes
    told = states["step-30"].reasons
    assert len(told) == len(reasons), told
    assert all(map(str.startswith, told, reasons)), told
    assert found.resume is not None
    assert (found.resume.path, found.resume.step) == (str(run / "step-20"), 20)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose saves all ended."""
    run = tmp_path_factory.mktemp("job") / "run"
    assert run_job(run) == 0
    return run


def test_a_job_that_ended(finished: Path) -> None:
    found, states = judge(finished)
    assert {one.state for one in states.values()} == {"whole"}
    assert found.resume is not None
    assert found.resume.step == 30


@pytest.mark.parametrize("rank", range(4))
def test_the_file_of_one_rank_lost_its_end(finished: Path, rank: int) -> None:
    name = f"__{rank}_0.distcp"
    path = finished / "step-30" / name
    whole, times = path.read_bytes(), path.stat()
    try:
        for size in (len(whole) - 1, len(whole) // 2, 0):
            os.truncate(path, size)
            found, states = judge(finished)
            assert states["step-30"].state == "partial"
            assert states["step-30"].reasons == [f"{name}: has {size:,} of {len(whole):,} bytes"]
            assert found.resume is not None
            assert found.resume.step == 20
    finally:
        path.write_bytes(whole)
        os.utime(path, (times.st_atime, times.st_mtime))


@pytest.mark.parametrize("fault", ["before_data", "in_data", "before_metadata"])
def test_killed_while_overwriting(fault: str, tmp_path: Path) -> None:
    """The metadata of the save before is there, and no longer fits."""
    run = tmp_path / "run"
    assert run_job(run, f"--fault={fault}", "--same-folder") != 0
    found, states = judge(run)
    assert list(states) == ["latest"]
    assert states["latest"].state in ("partial", "corrupt")
    assert found.resume is None
    assert any("did not finish" in why for why in states["latest"].reasons)
