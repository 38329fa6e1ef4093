"""The commands about many jobs, run as a user runs them."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path

import pandas as pd
import pytest

from diagnose.cli.main import run
from diagnose.ingest.names import RESULTS
from tests.batch.fleet import OOM, Inline
from tests.fleet import samples
from tests.fleet.frames import failed, keep

FIXTURES = Path(__file__).parents[2] / "fixtures"
JOBS = ("torchrun-missing-rank", "flight-recorder-stuck-rank", "axolotl-kto-freeze")


@pytest.mark.slow
def test_scan_resume_and_fleet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs, results = tmp_path / "jobs", tmp_path / "results"
    for name in JOBS:
        shutil.make_archive(str(jobs / name), "gztar", FIXTURES / name)
    (jobs / "broken.tar.gz").write_bytes(b"\x1f\x8b\x08\x00garbage")
    assert run(["scan", str(jobs), "-o", str(results), "--workers", "1"]) == 0
    exported = tmp_path / "jobs.parquet"
    assert run(["fleet", str(results), "--table", str(exported), "--format", "csv"]) == 0
    table = pd.read_parquet(exported).set_index("job")
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


def test_names_of_any_bytes_and_damage_are_told_on_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two folders of one name, one that is no UTF-8, a long one; then a part is cut."""
    monkeypatch.setattr("diagnose.batch.run.local", lambda _: Inline)
    names = [b"a/j", b"b/j", b"b/x\xff", b"b/" + b"n" * 253]
    for rank, name in enumerate(names):
        folder = tmp_path / os.fsdecode(name)
        folder.mkdir(parents=True)
        (folder / "train.log").write_text(OOM.format(rank=rank))
    results, page = tmp_path / "results", tmp_path / "fleet.html"
    arguments = ["scan", str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(results)]
    arguments += ["--label", "/(?P<team>[^/]+)$"]
    assert run(["fleet", str(results)]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert run(arguments) == 0
    for unchanged in (4, 0, 4):
        if not unchanged:
            (results / RESULTS).write_bytes(b"noise" * 1000)
            assert run(["fleet", str(results)]) == 2
            assert "move it away to start without results" in capsys.readouterr().err
            (results / RESULTS).unlink()
        capsys.readouterr()
        assert run([*arguments, "--resume"]) == 0
        told = capsys.readouterr().err.splitlines()
        assert f"done: {4 - unchanged} of {4 - unchanged} jobs" in told[-2]
    for form in ("terminal", "json", "csv", "slurm-exclude"):
        assert run(["fleet", str(results), "--by", "team", "--format", form]) == 0
        assert (r"x\udcff" in capsys.readouterr().out.replace(r"\\", "\\")) == (
            form != "slurm-exclude"
        )
    assert run(["fleet", str(results), "--reports", "9", "--html", str(page)]) == 0
    assert "4 post-mortems in " in capsys.readouterr().err
    linked = set(re.findall(r'href="results/(reports/[^"]+)"', page.read_text("utf-8")))
    assert {f"reports/{path.name}" for path in (results / "reports").iterdir()} == linked
    assert len(linked) == 4


def test_filters_lists_and_a_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = samples.small().to_dict("records")
    keep(tmp_path / "r", *rows)
    command = ["fleet", str(tmp_path / "r")]

    def out(*options: str) -> str:
        assert run([*command, *options]) == 0
        return capsys.readouterr().out

    text = out("--label", "user=alice", "--class", "hw", "--until", "2025-06-16", "--gpu-hour", "2")
    assert "only        until 2025-06-16; hw; user=alice" in " ".join(text.split("\n"))
    listed = json.loads(out("--class", "hw", "--jobs", "--format", "json"))
    assert len(listed) == 18
    assert {one["class"] for one in listed} == {"hw.gpu"}
    assert listed == sorted(listed, key=lambda one: one["time"], reverse=True)
    found = json.loads(out("--class", "hw", "--by", "user", "--format", "json"))
    assert sum(group["hung"] for group in found["groups"]) == 18
    assert sum(group["jobs"] for group in found["groups"]) == 119
    lines = out("--jobs", "--format", "csv", "--top", "3").splitlines()
    assert lines[0] == "job,time,verdict,class,title,gpu_hours_lost,culprit_hosts,labels,source"
    assert len(lines) == 4
    assert "… and 25 more with --all" in out("--jobs", "--top", "3")
    assert "more with --all" not in out("--jobs", "--all")
    assert "(468 at 2.00 each)" in out("--gpu-hour", "2")
    out("--jobs", "--html", str(tmp_path / "fleet.html"))
    assert (tmp_path / "fleet.html").exists()
    for wrong, why in (
        (["--label", "team"], "is no NAME=VALUE"),
        (["--label", "team=x"], "cannot group by 'team'"),
        (["--since", "soon"], "--since 'soon' is neither a date"),
        (["--until", "late"], "--until 'late' is neither a date"),
        (["--since", "2030-01-01"], "no job passes these filters"),
        (["--class", "nett"], "no job has the class nett"),
        (["--jobs", "--format", "slurm-exclude"], "--jobs is printed as"),
        (["--gpu-hour", "nan"], "nan is no number from 0 on"),
        (["--checkpoint-every", "inf"], "inf is no number from 0 on"),
        (["--checkpoint-every", "-1"], "-1 is no number from 0 on"),
    ):
        assert run([*command, *wrong]) == 2
        assert why in capsys.readouterr().err


def test_dates_of_filters_are_utc_as_those_of_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = "2025-06-02T0{}:00:00"
    keep(tmp_path / "r", *(failed(f"j{n}", ended=ended.format(n)) for n in range(3)))
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    try:
        command = ["fleet", str(tmp_path / "r"), "--jobs", "--format", "json"]
        assert run([*command, "--since", "2025-06-02", "--until", "2025-06-02T02:00"]) == 0
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [one["job"] for one in json.loads(capsys.readouterr().out)] == ["j1", "j0"]


def test_results_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", str(tmp_path)]) == 2
    assert "diagnose scan" in capsys.readouterr().err
