"""No diagnosis says what another of its fields, or the log beside it, refutes."""

from pathlib import Path

import pytest

import diagnose
from benchmarks.hangbench.__main__ import main as hangbench
from tests.contradictions import contradictions

FIXTURES = sorted(
    path for path in (Path(__file__).parent.parent / "fixtures").iterdir() if path.is_dir()
)


def found(path: Path) -> list[str]:
    job = diagnose.load(path)
    return [*contradictions(job, diagnose.diagnose(job))]


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
def test_fixtures(path: Path) -> None:
    assert found(path) == []


@pytest.mark.slow
def test_real_runs(tmp_path: Path) -> None:
    assert hangbench(["make", str(tmp_path), "--track", "real", "--cases", "100"]) == 0
    cases = sorted((tmp_path / "cases").iterdir())
    assert {path.name: wrong for path in cases if (wrong := found(path))} == {}
