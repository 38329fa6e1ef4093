"""Times of steps in lines: the samples of their rows, units, and what is none."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.formats import table
from diagnose.parse.pace import Clock, Extreme, columns_of, may_tell, row_of, times_in

ROWS = table.written(table.PACE)
NAMED = [
    (row, sample) for row in ROWS if "phase" in row and "names" in row for sample in row["samples"]
]
FORMS = [(row, sample) for row in ROWS if "form" in row for sample in row["samples"]]


@pytest.mark.parametrize(("row", "sample"), NAMED, ids=[sample for _, sample in NAMED])
def test_a_sample_of_a_part_is_read_as_this_part(row: dict[str, Any], sample: str) -> None:
    found = times_in(sample)
    assert found is not None
    assert [*found.phases] == [row["phase"]]
    assert may_tell(sample.encode())


@pytest.mark.parametrize(("row", "sample"), FORMS, ids=[sample for _, sample in FORMS])
def test_a_sample_of_a_form_is_read_by_it(row: dict[str, Any], sample: str) -> None:
    found = times_in(sample)
    form = row["form"]
    if form == "other":
        assert found is None
        return
    assert found is not None
    assert may_tell(sample.encode())
    shown = {
        "step": found.step, "heading": found.heading, "ranked": found.rank,
        "extreme": [one.phase for one in found.extremes] == [row.get("phase")] or None,
    }  # fmt: skip
    assert shown.get(form, found.phases.get("total")) not in (None, "")


@pytest.mark.parametrize(
    ("line", "step", "phases"),
    [
        ("step 40/120 data_time=0.012 fwd=0.02", 40, {"data": 0.012, "forward": 0.02}),
        ("step 40 | data 12.0ms | forward 20.0ms", 40, {"data": 0.012, "forward": 0.02}),
        ("iteration       10/     100 | elapsed time per iteration (ms): 123.0 |", 10,
         {"total": 0.123}),
        # DeepSpeed's backward holds the exchange too, and each micro step has a line of its own.
        ("time (ms) | fwd: 12.0 | bwd: 200.0 | bwd_inner: 190.0 | bwd_allreduce: 10.0", None,
         {"forward": 0.012, "backward": 0.19, "wait": 0.01}),
        ("time (ms) | fwd_microstep: 12.0 | bwd_microstep: 200.0", None, None),
        ("42%|####    | 42/100 [00:04<00:06,  4.00it/s]", 42, {"total": 0.25}),
        ("42%|####    | 42/100 [00:04<00:06,  4.00s/it]", 42, {"total": 4.0}),
        ("Epoch: [0][ 10/100]\tTime  0.060 ( 0.061)\tData  0.010 ( 0.011)\tLoss 6.9 (6.9)", 10,
         {"total": 0.06, "data": 0.01}),
        ("train/step_time_ms: 12.0", None, {"total": 0.012}),
        ("Loading data from 4 shards", None, None),
        ("total params: 1234", None, None),
        ("Evaluating: 40%|####| 40/100 [00:04<00:06, 3.2it/s]", None, None),
    ],
)  # fmt: skip
def test_names_numbers_and_units(
    line: str, step: int | None, phases: dict[str, float] | None
) -> None:
    found = times_in(line)
    if phases is None:
        assert found is None or not {*found.phases} - {"total", "data"}
        return
    assert found is not None
    assert found.step == step
    assert found.phases == pytest.approx(phases)


def test_a_detector_names_the_slowest_rank_of_two_parts() -> None:
    found = times_in(
        "| MnRtt/Rnk: 10.00ms/8 | MxRtt/Rnk: 20.00ms/3 | MnDRtt/Rnk: 1.00ms/2 "
        "| MxDRtt/Rnk: 2.00ms/5 | MnEtpt/Rnk: 296.02TF/0"
    )
    assert found is not None
    assert found.extremes == [
        Extreme("forward", 0.01, 8, 0.02, 3), Extreme("data", 0.001, 2, 0.002, 5)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "| MnRtt/Rnk: 10.00ms/8 | MxRtt/Rnk: 20.00ms/9999999 | MnPwr/Rnk: 1.0W/8",
        "| MnRtt/Rnk: 10.00ms/9999999 | MxRtt/Rnk: 20.00ms/3 | MnPwr/Rnk: 1.0W/8",
        "     rank 9999999: 12.34",
    ],
)
def test_numbers_that_no_job_has_are_no_ranks(line: str) -> None:
    assert times_in(line) is None


HEAD = (
    "timestamp, index, name, clocks.current.sm [MHz], clocks_event_reasons.hw_slowdown, "
    "utilization.gpu [%]"
)


def test_a_table_of_gpus_says_clock_and_throttling() -> None:
    columns = columns_of(HEAD)
    assert columns is not None
    row = row_of("2026/11/30 02:30:00.123, 3, NVIDIA H100, 792 MHz, Active, 98 %", columns)
    assert row == Clock(None, 3, 792.0, True, 98.0)
    calm = row_of("2026/11/30 02:30:00.123, 3, NVIDIA H100, 1980 MHz, Not Active, 98 %", columns)
    assert calm is not None
    assert not calm.throttled


def test_a_software_power_cap_is_no_throttling() -> None:
    columns = columns_of("index, clocks.sm, clocks_throttle_reasons.active")
    assert columns is not None
    capped, hot = (row_of(f"0, 1500, {mask}", columns) for mask in ("0x0000000000000004", "0x48"))
    assert capped is not None
    assert hot is not None
    assert (capped.throttled, hot.throttled) == (False, True)


@pytest.mark.parametrize(
    "line", ["clock skew, 3 s", "a, b, c", "0, x, y, z", "", "-1, 900", f"{10**400}, 900"]
)
def test_what_is_no_table_of_gpus_is_none(line: str) -> None:
    assert columns_of(line) is None
    assert row_of(line, {"index": [0], "clock": [1]}) is None
