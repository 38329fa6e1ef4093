"""A sample of HangBench: all tracks, made, answered by diagnose and scored, within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.hangbench.bounds import broken, read_bounds
from benchmarks.hangbench.case import TRACKS, Track, read_cases
from benchmarks.hangbench.make import Wanted, make
from benchmarks.hangbench.report import report
from benchmarks.hangbench.run import Settings, run

BOUNDS = Path(__file__).with_name("bounds.json")
SAMPLE: dict[Track, Wanted] = {
    "sim": Wanted(24, 2_000, ranks=32),
    "silent": Wanted(6, 2_000),
    "calm": Wanted(6, 2_000),
    "real": Wanted(6, 0),
    "numeric": Wanted(20, 2_000),
    "slow": Wanted(6, 0),
}


@pytest.mark.slow
def test_diagnose_keeps_its_bounds_on_a_sample(tmp_path: Path) -> None:
    folder = tmp_path / "cases"
    for track, wanted in SAMPLE.items():
        assert make(folder, [track], wanted, add=True) == {track: wanted.cases}
    cases = read_cases(folder)
    run(folder, cases, "diagnose", Settings(fast=True, workers=1))
    found = report([folder], ["diagnose"])
    assert {half.track for half in found.halves} == {*TRACKS}
    assert [*broken(found, read_bounds(BOUNDS))] == []


@pytest.mark.parametrize("track", TRACKS)
def test_every_track_is_bounded(track: Track) -> None:
    assert "verdict" in read_bounds(BOUNDS)[track]
