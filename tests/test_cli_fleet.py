"""The commands about many jobs, run as a user runs them."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pandas as pd
import pytest

import diagnose
from diagnose.cli import run
from diagnose.cli_fleet import seconds_of
from diagnose.errors import InputError

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
JOBS = ("torchrun-missing-rank", "flight-recorder-stuck-rank", "axolotl-kto-freeze")


def test_scan_resume_and_fleet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs, results = tmp_path / "jobs", tmp_path / "results"
    for name in JOBS:
        shutil.make_archive(str(jobs / name), "gztar", FIXTURES / name)
    (jobs / "broken.tar.gz").write_bytes(b"\x1f\x8b\x08\x00garbage")
    assert run(["scan", str(jobs), "-o", str(results), "--workers", "1"]) == 0
    table = pd.read_parquet(results / "jobs.parquet").set_index("job")
    assert dict(table["class"].dropna()) == {
        "torchrun-missing-rank": "desync.missing_rank",
        "flight-recorder-stuck-rank": "stall.host",
        "axolotl-kto-freeze": "data.preparation",
    }
    assert table.loc["broken", "error"]
    assert run(["scan", str(jobs), "-o", str(results)]) == 2  # results are there
    assert "--resume" in capsys.readouterr().err
    assert run(["scan", str(jobs), "-o", str(results), "--resume", "--workers", "1"]) == 0
    assert "4 unchanged" in capsys.readouterr().err
    assert run(["fleet", str(results), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "diagnose-fleet/1"
    page = tmp_path / "fleet.html"
    assert run(["fleet", str(results), "--html", str(page), "--reports", "2"]) == 0
    assert len(list((results / "reports").glob("*.html"))) == 2
    assert "results/reports/" in page.read_text(encoding="utf-8")


def test_results_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", str(tmp_path)]) == 2
    assert "diagnose scan" in capsys.readouterr().err


def test_since() -> None:
    assert seconds_of("2d", 1_000_000.0) == 1_000_000 - 172_800
    assert seconds_of("90m", 1_000_000.0) == 1_000_000 - 5400
    assert seconds_of("2026-11-01T00:00:00+00:00", 0.0) == 1_793_491_200
    with pytest.raises(InputError, match="neither a date"):
        seconds_of("yesterday", 0.0)


def test_sources_scanned_in_other_processes_give_the_same(tmp_path: Path) -> None:
    folder = FIXTURES / "torchrun-missing-rank"
    for number in range(3):
        shutil.copy(folder / "console.log", tmp_path / f"rank_{number}.log")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        spread = diagnose.load(tmp_path, executor=pool)
    alone = diagnose.load(tmp_path)
    assert spread.timeline.equals(alone.timeline)
    assert diagnose.diagnose(spread) == diagnose.diagnose(alone)
