"""Bounds of figures: what breaks one is said, and a file that names nothing is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.hangbench.bounds import broken, read_bounds
from benchmarks.hangbench.case import Answer, Case, Truth, write_answers, write_case
from benchmarks.hangbench.report import report


def folder(path: Path, *verdicts: str | None) -> Path:
    for seed in range(len(verdicts)):
        name = f"sim-{seed:07d}"
        case = Case(name, "sim", seed, False, "console", 4, Truth(("hung",)), shape=name)
        write_case(path, case, {"job.log": b"x\n"})
    answers = [
        Answer(f"sim-{seed:07d}", "mine", "1", verdict, error=None if verdict else "no answer")
        for seed, verdict in enumerate(verdicts)
    ]
    write_answers(path, "mine", answers)
    return path


def test_a_figure_below_or_above_its_bound_is_said(tmp_path: Path) -> None:
    found = report([folder(tmp_path, "hung", "hung", "hung", "running")], ["mine"])
    assert not [*broken(found, {"sim": {"verdict": {"at_least": 0.75}}})]
    assert not [*broken(found, {"calm": {"verdict": {"at_least": 1.0}}})]
    bounds = {"sim": {"verdict": {"at_least": 0.8}, "missed": {"at_most": 0.2}}}
    assert [*broken(found, bounds)] == [
        "mine, sim, open cases: verdict is 0.750, below 0.8",
        "mine, sim, open cases: missed is 0.250, above 0.2",
    ]


def test_a_case_without_an_answer_breaks_every_bound(tmp_path: Path) -> None:
    found = report([folder(tmp_path, "hung", None)], ["mine"])
    assert [*broken(found, {})] == ["mine, sim, open cases: 1 without an answer"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"dream": {}}', "no track dream"),
        ('{"sim": {"luck": {}}}', "no figure luck"),
        ('{"sim": {"verdict": {"exactly": 1}}}', "at_least or at_most"),
    ],
)
def test_a_file_that_bounds_nothing_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bounds.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        read_bounds(path)
