"""The published table and the page that holds it."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from benchmarks.hangbench.__main__ import main
from benchmarks.hangbench.case import Answer, Case, Truth, write_answers, write_case
from benchmarks.hangbench.report import BEGIN, END, as_table, refresh, report

DAY = date(2026, 11, 28)


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """Two open cases and a sealed one of track sim, one of calm; two tools."""
    folder = tmp_path / "bench"
    truth = Truth(("hung",), ("stall.host",), (3,), suspects=(3,))
    calm = Truth(("running",), determines="none")
    cases = [
        Case("sim-1", "sim", 1, False, "console", 8, truth),
        Case("sim-2", "sim", 2, False, "dumps", 8, truth),
        Case("sim-3", "sim", 3, True, "console", 8, truth),
        Case("calm-1", "calm", 1, False, "console", 8, calm, {"lines": "4"}),
        Case("calm-2", "calm", 2, False, "console", 8, calm, {"lines": "1"}),
    ]
    for number, case in enumerate(cases):
        write_case(folder, replace(case, shape=str(number)), {"job.log": b"step 1\n"})
    right = Answer("sim-1", "diagnose", "2", "hung", "stall.host", "high", (3,), cpu_s=1.25,
                   peak_mib=50.0)  # fmt: skip
    write_answers(folder, "diagnose", [
        right,
        replace(right, case="sim-2", ranks=(5,), cpu_s=2.25, peak_mib=60.0),
        replace(right, case="sim-3", ranks=()),
        replace(right, case="calm-1", verdict="failed", cause="unknown", ranks=()),
        replace(right, case="calm-2", verdict="running", cause="none", ranks=()),
    ])  # fmt: skip
    write_answers(folder, "baseline", [Answer("sim-1", "baseline", "1", "hung", None, None, (3,))])
    return folder


def rows(table: str, tool: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.startswith(f"| {tool} ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_a_block_a_track_and_a_row_for_a_tool_and_half(bench: Path) -> None:
    table = as_table(report([bench], ["diagnose", "baseline"], ["lines", "ending"]), DAY)
    assert "2026-11-28" in table
    assert "### Track sim: 2 open, 1 sealed cases (0 near-duplicates left out)" in table
    assert "### Track calm: 2 open cases" in table
    opened, sealed, calm = rows(table, "diagnose")
    assert opened[:2] == ["diagnose 2", "open"]
    assert sealed[:2] == ["diagnose 2", "sealed"]
    heads = next(line for line in table.splitlines() if line.startswith("| tool"))
    names = [cell.strip() for cell in heads.strip("|").split("|")]
    assert opened[names.index("culprit exact")] == "1/2, 50 % (9–91)"
    assert sealed[names.index("culprit exact")] == "0/1, 0 % (0–79)"
    assert opened[names.index("innocents named")] == "1/2, 50 % (9–91)"
    assert opened[names.index("CPU s")] == "1.75 (most 2.25)"
    assert opened[names.index("MiB")] == "55 (most 60)"
    assert "1/2, 50 % (9–91)" in calm  # alarms
    ((tool, half, *_),) = rows(table, "baseline")
    assert (tool, half) == ("baseline 1", "open")


def test_the_slices_of_a_track(bench: Path) -> None:
    table = as_table(report([bench], ["diagnose"], ["lines", "ending"]), DAY)
    (console,) = rows(table, "console")
    assert console == ["console", "1/1 100 % · 0/1 0 %", "0/1 0 % · 0/1 0 %"]
    (dumps,) = rows(table, "dumps")
    assert dumps == ["dumps", "0/1 0 % · 1/1 100 %", "– · –"]
    ((_, four),) = rows(table, "4")
    ((_, one),) = rows(table, "1")
    assert (four, one) == ("– · 1/1 100 %", "– · 0/1 0 %")


def test_a_case_in_two_folders_counts_once(bench: Path) -> None:
    once, twice = (as_table(report(folders, ["diagnose"], ["lines", "ending"]), DAY)
                   for folders in ([bench], [bench, bench]))  # fmt: skip
    assert once == twice


def test_the_page_keeps_what_is_around_the_table(bench: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    assert main(["table", str(bench), "--out", str(page), "--date", "2026-11-28"]) == 0
    text = page.read_text()
    assert text.startswith(f"# Before\n\n{BEGIN}\n\nHangBench 1, 2026-11-28.")
    assert text.endswith(f"\n{END}\n\nafter\n")
    assert "old" not in text
    refresh(page, "new\n")
    assert page.read_text() == f"# Before\n\n{BEGIN}\n\nnew\n\n{END}\n\nafter\n"


def test_a_tool_without_an_adapter_takes_part(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_answers(bench, "theirs", [Answer("sim-1", "theirs", "9", "hung")])
    assert main(["table", str(bench)]) == 0
    ((tool, half, verdict, *_),) = rows(capsys.readouterr().out, "theirs")
    assert (tool, half, verdict) == ("theirs 9", "open", "1/2, 50 % (9–91)")


def test_errors_of_table_say_what_to_do(
    bench: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("no marks\n")
    assert main(["table", str(bench), "--out", str(page)]) == 2
    assert f"has no lines {BEGIN} and {END}" in capsys.readouterr().err
    for path in (bench / "answers").iterdir():
        path.unlink()
    assert main(["table", str(bench)]) == 2
    assert "`run` asks them" in capsys.readouterr().err
