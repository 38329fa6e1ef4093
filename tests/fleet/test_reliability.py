"""MTBF, goodput and ETTR: by hand on a few jobs, and as planted in a large fleet."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.make_fleet import SHAPES, plant, write
from diagnose.catalog.load import load_catalog
from diagnose.fleet import read
from diagnose.fleet.grouping import Filter, chosen
from diagnose.fleet.reliability import Reliability, reliability
from diagnose.report.fleet.words import goodput

from .frames import BEGIN, failed, frame, row, typed

CATALOG = load_catalog()
GPU = {"class": "hw.gpu"}


def hour(at: float) -> str:
    return str(np.datetime64(BEGIN.replace(tzinfo=None)) + np.timedelta64(round(at * 3600), "s"))


def span(start: float, end: float, onset: float | None = None, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"started": hour(start), "ended": hour(end), "ranks": 16}
    if onset is not None:
        lost = (end - onset) * 3600
        found |= {"onset": hour(onset), "duration_hung_s": lost, "gpu_hours_lost": lost * 16 / 3600}
    return found | more


def measure(*rows: dict[str, Any], checkpoint_h: float = 1.0) -> Reliability:
    jobs = typed(frame(*rows))
    return reliability(jobs, CATALOG.external_ends, CATALOG.node_causes, checkpoint_h)


def test_by_hand() -> None:
    found = measure(
        row("well", **span(0, 10)),
        failed("bad", **GPU, **span(0, 6, onset=5)),
        failed("own", **span(0, 0.25, onset=0.2)),
        failed("stopped", **{"class": "scheduler.preempted"}, **span(0, 4, onset=4)),
        row("no ranks", **span(0, 10, ranks=None)),
        failed("no onset", **span(0, 10)),
    )
    assert (found.jobs, found.unmeasured) == (4, 2)
    assert found.gpu_hours == pytest.approx(16 * 20.25)
    assert found.gpu_hours_lost == pytest.approx(16 * 1.05, abs=0.1)
    assert found.gpu_hours_rework == pytest.approx(16 * (0.5 + 0.2 + 0.5), abs=0.1)
    assert found.goodput == pytest.approx(1 - 2.25 / 20.25, abs=1e-4)
    # Preemption ends the time at risk of a job, and is no failure.
    assert found.mtbf_gpu.failures == 2
    assert found.mtbf_gpu.hours == pytest.approx(16 * 19.2 / 2, rel=1e-4)
    assert found.mtbf_gpu_node.failures == 1
    [size] = found.sizes
    assert (size.gpus, size.jobs) == ("9-16", 4)
    assert size.mtbf.hours == pytest.approx(9.6, rel=1e-4)
    assert size.mtbf.low < 9.6 < (size.mtbf.high or 0)


def test_without_failures_there_is_a_bound_only() -> None:
    found = measure(row("a", **span(0, 100)))
    assert found.mtbf_gpu.hours is None
    assert found.mtbf_gpu.high is None
    assert found.mtbf_gpu.low == pytest.approx(1600 / 3.69, rel=0.02)  # 95 %: fewer than 3.69
    assert found.goodput == 1.0
    assert found.projections[0].ettr is None
    nothing = measure(row("a"))
    assert (nothing.jobs, nothing.goodput, nothing.ettr, nothing.sizes) == (0, None, None, [])


def test_a_run_is_from_its_first_start_to_its_last_end() -> None:
    """Two hours between its jobs, one between failure and end, half of one for the checkpoint."""
    run = {"labels": {"run": "llama"}}
    found = measure(
        failed("1", **GPU, **span(0, 6, onset=5), **run), row("2", **span(8, 20), **run)
    )
    assert found.runs == 1
    assert found.ettr == pytest.approx((4.5 + 12) / 20, abs=1e-4)
    alone = measure(failed("1", **GPU, **span(0, 6, onset=5)), row("2", **span(8, 20)))
    assert alone.runs == 2
    assert alone.ettr == pytest.approx((4.5 + 12) / 18, abs=1e-4)


def test_jobs_of_a_run_at_the_same_time_are_not_more_than_all_of_it() -> None:
    run = {"labels": {"run": "sweep"}}
    found = measure(row("1", **span(0, 10), **run), row("2", **span(0, 10), **run))
    assert (found.ettr, [size.ettr for size in found.sizes]) == (1.0, [1.0])


def test_jobs_of_one_moment_ran_for_no_time() -> None:
    found = measure(failed("1", **GPU, **span(1, 1, onset=1)))
    assert (found.mtbf_gpu_node.hours, found.goodput, found.ettr) == (0.0, None, None)
    assert {one.ettr for one in found.projections} == {None}


def test_what_other_causes_lost_counts_as_work() -> None:
    rows = [failed("gpu", **GPU, **span(0, 6, onset=5)), failed("own", **span(0, 4, onset=2))]
    jobs = chosen(typed(frame(*rows)), Filter(causes=("hw",)))
    found = reliability(jobs, CATALOG.external_ends, CATALOG.node_causes, 0)
    assert (found.others, found.gpu_hours_lost, found.mtbf_gpu.failures) == (1, 16, 1)
    assert found.goodput == pytest.approx(9 / 10)
    assert goodput(found).endswith("; what 1 job lost by other causes counts as work")
    assert measure(*rows, checkpoint_h=0).others == 0
    assert measure(*rows, checkpoint_h=0).goodput == pytest.approx(7 / 10)


def test_the_interval_of_checkpoints_is_of_the_caller() -> None:
    job = failed("1", **GPU, **span(0, 6, onset=5))
    assert measure(job, checkpoint_h=0).gpu_hours_rework == 0
    assert measure(job, checkpoint_h=4).gpu_hours_rework == 32
    assert measure(job, checkpoint_h=40).gpu_hours_rework == 80  # at most what it ran


def test_clocks_that_cannot_be_are_not_measured() -> None:
    found = measure(
        row("back", **span(5, 1)), row("long", **span(0, 24 * 400)),
        failed("longer than itself", **span(0, 1, duration_hung_s=7200.0)),
    )  # fmt: skip
    assert (found.jobs, found.unmeasured) == (0, 3)


@pytest.mark.parametrize(("shape", "hours"), [("training", 5_000), ("acme", 500)])
@pytest.mark.slow
def test_what_was_planted_is_found(tmp_path: Path, shape: str, hours: float) -> None:
    rng = np.random.default_rng(7)
    planted = plant(rng, "none", 1, hours, 20_000, 256)
    write(rng, tmp_path / "r", planted, SHAPES[shape], 256)
    truth = json.loads((tmp_path / "r" / "truth.json").read_text())
    found = reliability(read(tmp_path / "r"), CATALOG.external_ends, CATALOG.node_causes)
    assert found.mtbf_gpu.hours == pytest.approx(hours, rel=0.1)
    assert found.goodput is not None
    assert 1 - found.goodput == pytest.approx(1 - truth["goodput"], rel=0.1)
    assert 0.9 < found.jobs / 20_000 < 0.97  # the others lack a time or their ranks
