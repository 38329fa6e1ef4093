"""Each figure, on cases and answers made by hand."""

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.hangbench.case import Answer, Case, Truth, is_sealed, seeds
from benchmarks.hangbench.score import (
    Rate,
    abstention,
    calibration_error,
    distinct,
    figures,
    gives,
    level,
    marks,
)
from benchmarks.hangbench.shape import shape_of

ALL = frozenset({"verdict", "class", "confidence", "ranks", "onset"})
TRUTH = Truth(
    ("hung",), ("desync.missing_rank", "stall.host"), (3,), ((5,),), (3, 4), hosts=("node-0",)
)


def case(number: int = 0, truth: Truth = TRUTH, **changes: Any) -> Case:
    made = Case(f"sim-{number:07}", "sim", number, is_sealed(number), "console", 16, truth)
    return replace(made, **changes)


def answer(number: int = 0, **said: Any) -> Answer:
    return Answer(f"sim-{number:07}", "some", "1", **said)


def marked(truth: Truth = TRUTH, track: Any = "sim", **said: Any) -> Any:
    return marks(case(truth=truth, track=track), answer(**said))


# ------------------------------------------------------------------ verdict and class


def test_a_verdict_is_right_if_it_is_one_of_the_right_ones() -> None:
    either = replace(TRUTH, verdicts=("hung", "failed"))
    assert marked(either, verdict="failed").verdict
    assert not marked(either, verdict="running").verdict
    assert marked(verdict=None).verdict is False


def test_a_class_counts_where_the_truth_has_one() -> None:
    assert marked(cause="stall.host").cause
    assert marked(cause="crash.exception").cause is False
    assert marked(cause=None).cause is False
    assert marked(replace(TRUTH, classes=()), cause="stall.host").cause is None


def test_only_a_class_that_is_named_can_be_wrong() -> None:
    assert marked(cause="crash.exception").cause_named is False
    assert marked(cause="unknown").cause_named is None
    assert marked(cause="NCCL communication error").cause_named is None
    assert marked(cause=None).cause_named is None


# ------------------------------------------------------------------ blame


@pytest.mark.parametrize(
    ("ranks", "exact", "innocent"),
    [((3,), True, False), ((5,), True, False), ((3, 4), False, False), ((4,), False, False),
     ((3, 5), False, False), ((3, 6), False, True), ((6,), False, True), ((), False, False)],
)  # fmt: skip
def test_culprits_and_innocents(ranks: tuple[int, ...], exact: bool, innocent: bool) -> None:
    found = marked(ranks=ranks, confidence="medium")
    assert (found.exact, found.innocent, found.innocent_high) == (exact, innocent, False)
    assert marked(ranks=ranks, confidence="high").innocent_high == innocent


def test_where_nobody_can_be_told_naming_nobody_or_suspects_is_right() -> None:
    group = replace(TRUTH, determines="group", accepted=())
    assert marked(group, ranks=()).withheld
    assert marked(group, ranks=(4,)).withheld
    assert marked(group, ranks=(7,)).withheld is False
    assert marked(group, ranks=(3,)).exact is None
    assert marked(group, ranks=(3,)).level is None
    assert marked(ranks=(3,)).withheld is None


@pytest.mark.parametrize(
    ("said", "expected"),
    [({"ranks": (3,)}, "rank"), ({"ranks": (5,)}, "rank"), ({}, "none"),
     ({"hosts": ("node-0",)}, "node"), ({"hosts": ("node-1",)}, "wrong"),
     ({"hosts": ("node-0",), "ranks": tuple(range(16))}, "node"),
     ({"hosts": ("node-0",), "ranks": (9,)}, "wrong"),
     ({"hosts": ("node-0", "node-1")}, "wrong"),
     ({"ranks": (2, 3)}, "group"), ({"ranks": tuple(range(8))}, "group"),
     ({"ranks": tuple(range(9))}, "wrong"), ({"ranks": (9,)}, "wrong")],
)  # fmt: skip
def test_level_reached(said: dict[str, Any], expected: str) -> None:
    assert level(TRUTH, answer(**said)) == expected


def test_a_group_may_be_as_large_as_the_suspects() -> None:
    many = replace(TRUTH, suspects=tuple(range(12)))
    assert level(many, answer(ranks=tuple(range(12)))) == "group"
    assert level(many, answer(ranks=tuple(range(13)))) == "wrong"


# ------------------------------------------------------------------ time, calm, silent


def test_an_onset_is_right_within_its_tolerance_in_the_clock_of_the_job() -> None:
    timed = replace(TRUTH, onset="2026-01-01T12:00:00", onset_tolerance_s=10.0)
    assert marked(timed, onset="2026-01-01T12:00:10+01:00").onset
    assert marked(timed, onset="2026-01-01T11:59:49").onset is False
    assert marked(timed, onset="2026-01-01T11:59:49").onset_error_s == 11
    assert marked(timed, onset=None).onset is False
    assert marked(timed, onset="yesterday").onset_error_s is None
    assert marked(onset="2026-01-01T12:00:00").onset is None


@pytest.mark.parametrize(
    ("verdicts", "said", "missed", "alarm"),
    [(("failed",), "running", True, None), (("failed", "hung"), "healthy", True, None),
     (("failed",), "unknown", False, None), (("failed", "unknown"), "running", None, None),
     (("running",), "failed", None, True), (("healthy", "running"), "unknown", None, False)],
)  # fmt: skip
def test_calm_jobs(verdicts: Any, said: str, missed: bool | None, alarm: bool | None) -> None:
    found = marked(replace(TRUTH, verdicts=verdicts), "calm", verdict=said)
    assert (found.missed, found.alarm) == (missed, alarm)


def test_a_silent_job_hung_and_its_onset_is_known() -> None:
    timed = replace(TRUTH, onset="2026-01-01T12:00:00", onset_tolerance_s=10.0)
    right = {"verdict": "hung", "onset": "2026-01-01T12:00:03"}
    assert marked(timed, "silent", **right).silent
    assert marked(timed, "silent", **right).control is None
    assert not marked(timed, "silent", **(right | {"onset": None})).silent
    assert not marked(timed, "silent", **(right | {"verdict": "failed"})).silent
    assert marked(TRUTH, "silent", verdict="hung").silent
    control = replace(TRUTH, verdicts=("failed", "running"))
    assert marked(control, "silent", verdict="running").control
    assert not marked(control, "silent", verdict="hung").control
    assert marked(timed, "sim", **right).silent is None


# ------------------------------------------------------------------ calibration


def test_an_answer_is_right_if_nothing_it_says_is_wrong() -> None:
    assert marked(verdict="hung").right
    assert marked(verdict="hung", cause="unknown").right
    assert marked(verdict="hung", cause="its own word", ranks=(3,)).right
    assert marked(ranks=(3,)).right
    assert not marked(verdict="failed").right
    assert not marked(verdict="hung", cause="crash.exception").right
    assert not marked(verdict="hung", ranks=(3, 9)).right


def test_unknown_is_an_abstention() -> None:
    assert not marked(verdict="hung", cause="unknown").claims
    assert not marked().claims
    assert not marked(verdict="unknown").claims
    assert marked(verdict="unknown", cause="stall.host").claims
    assert marked(verdict="hung").claims
    assert marked(ranks=(3,)).claims


def some_marks() -> list[Any]:
    """Two at high, one of them right; one at medium, right; an abstention."""
    return [
        marked(verdict="hung", cause="stall.host", confidence="high"),
        marked(verdict="failed", cause="stall.host", confidence="high"),
        marked(verdict="hung", cause="stall.host", confidence="medium"),
        marked(verdict="hung", cause="unknown", confidence="low"),
    ]


def test_calibration_error() -> None:
    # |1 - 2 * 0.98| + |1 - 0.90| over three answers
    assert calibration_error(some_marks()) == pytest.approx((0.96 + 0.10) / 3)
    assert calibration_error([marked(verdict="hung")]) is None


def test_the_curve_of_abstention() -> None:
    curve = abstention(some_marks())
    assert [point.confidence for point in curve] == ["high", "medium", "low"]
    assert [point.coverage for point in curve] == [Rate(2, 4), Rate(3, 4), Rate(3, 4)]
    assert [point.correct for point in curve] == [Rate(1, 2), Rate(2, 3), Rate(2, 3)]
    assert abstention([marked(verdict="hung")]) == ()


def test_wilson_interval() -> None:
    low, high = Rate(8, 10).interval or (0.0, 0.0)
    assert (low, high) == (pytest.approx(0.490, abs=1e-3), pytest.approx(0.943, abs=1e-3))
    assert Rate(0, 0).interval is None
    assert Rate(0, 10).interval == (0.0, pytest.approx(0.278, abs=1e-3))


# ------------------------------------------------------------------ sums


def test_figures_count_every_case_also_those_without_an_answer() -> None:
    cases = [case(number) for number in range(4)]
    answers = {
        "sim-0000000": answer(0, verdict="hung", ranks=(3,), cpu_s=1.0, peak_mib=50.0),
        "sim-0000001": answer(1, verdict="hung", ranks=(9,), cpu_s=3.0, peak_mib=70.0),
        "sim-0000002": answer(2, error="CommandError: no answer", cpu_s=2.0, peak_mib=90.0),
    }
    found = figures(cases, answers, "some", ALL)
    assert found.cases == 4
    assert found.errors == 1
    assert found.rates["verdict"] == Rate(2, 4)
    assert found.rates["exact"] == Rate(1, 4)
    assert found.rates["innocent"] == Rate(1, 4)
    assert found.rates["answered"] == Rate(2, 4)
    assert found.level == {"rank": 1, "node": 0, "group": 0, "none": 2, "wrong": 1}
    assert found.cpu_s == (2.0, 3.0)
    assert found.peak_mib == (70.0, 90.0)


def test_the_onset_error_is_a_median() -> None:
    timed = replace(TRUTH, onset="2026-01-01T12:00:00", onset_tolerance_s=5.0)
    cases = [case(number, timed) for number in range(4)]
    answers = {
        f"sim-{number:07}": answer(number, verdict="hung", onset=f"2026-01-01T12:00:{second}")
        for number, second in enumerate(("01", "04", "59"))
    }
    found = figures(cases, answers, "some", ALL)
    assert found.onset_error_s == 4
    assert found.rates["onset"] == Rate(2, 4)


def test_no_figure_of_what_a_tool_cannot_say() -> None:
    found = figures([case()], {}, "some", frozenset({"ranks"}))
    assert set(found.rates) == {"right", "exact", "innocent", "answered"}
    assert gives([answer(verdict="hung"), answer(cause="its own word", ranks=(1,))]) == {
        "verdict",
        "ranks",
    }


# ------------------------------------------------------------------ near-duplicates and seeds


def test_cases_of_one_shape_count_once_in_a_track() -> None:
    cases = [case(0, shape="a"), case(1, shape="b"), case(2, shape="a"), case(3), case(4),
             case(5, shape="a", track="calm")]  # fmt: skip
    kept, dropped = distinct(cases)
    assert [one.seed for one in kept] == [0, 1, 3, 4, 5]
    assert dropped == 1


def test_a_shape_is_blind_for_numbers_and_for_whose_file_it_is() -> None:
    one = {"rank_0.log": b"step 12 loss 0.5\n", "rank_1.log": b"RuntimeError 0x7f3a\n"}
    other = {"rank_7.log": b"RuntimeError 0x11b\n", "rank_10.log": b"step 999 loss 1.25\n"}
    assert shape_of(one) == shape_of(other)
    assert shape_of(one) != shape_of({**one, "rank_2.log": b"step 1 loss 2.0\n"})
    assert shape_of(one) != shape_of({**one, "rank_1.log": b"ValueError 0x7f3a\n"})
    assert shape_of(one) != shape_of({"rank_0.log": one["rank_0.log"], "host-1": one["rank_1.log"]})


def test_a_shape_reads_pickles_without_loading_them() -> None:
    import pickle

    def dump(op: str, seq: int) -> bytes:
        entries = [{"collective_seq_id": seq + at, "op": op, "size": [seq * 9]} for at in range(3)]
        return pickle.dumps({"version": "2.10", "entries": entries}, protocol=2)

    small, large = {"d": dump("all_reduce", 3)}, {"d": dump("all_reduce", 70_000)}
    assert small["d"] != large["d"]
    assert shape_of(small) == shape_of(large)
    assert shape_of(small) != shape_of({"d": dump("broadcast", 3)})
    bomb = {"d": b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00exit\x85R."}
    assert shape_of(bomb) != shape_of(small)
    assert shape_of({"d": small["d"][:40]}) != shape_of(small)  # torn: taken as it is


def test_half_of_the_seeds_are_sealed() -> None:
    both = [is_sealed(seed) for seed in range(2000)]
    assert 900 < sum(both) < 1100
    wanted = seeds(100, sealed=True)
    drawn = [next(wanted) for _ in range(50)]
    assert drawn == [seed for seed in range(100, drawn[-1] + 1) if both[seed]]
