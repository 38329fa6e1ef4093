"""Groups of jobs: counts, shares, costs, weeks."""

import pytest

from diagnose.errors import InputError
from diagnose.fleet.causes import MAX_WEEKS, Group, count, weeks
from diagnose.fleet.grouping import NOT_KNOWN

from .frames import failed, frame, row, typed

JOBS = typed(
    frame(
        failed("a", 0, gpu_hours_lost=4.0, hosts=["n1", "n2"], culprit_hosts=["n1"],
               labels={"user": "x"}, **{"class": "hw.gpu"}, verdict="hung"),
        failed("b", 8, gpu_hours_lost=1.0, hosts=["n1", "n2"], culprit_hosts=["n1"],
               labels={"user": "y"}, **{"class": "hw.gpu"}),
        failed("c", 21, gpu_hours_lost=None, hosts=["n2"], labels={"user": "x"}),
        row("d", 21, hosts=["n2"], labels={"user": "x"}),
        row("e", 21, verdict="unknown", **{"class": "unknown"}),
        row("f", 21, verdict=None, error="cut", **{"class": None}),
    )
)  # fmt: skip


def by(name: str) -> dict[str, Group]:
    return {group.name: group for group in count(JOBS, name, {"hw.gpu": "A GPU failed"})}


def test_by_cause() -> None:
    groups = by("cause")
    assert list(groups) == ["hw.gpu", "crash.exception", "unknown"]
    assert groups["hw.gpu"] == Group(
        name="hw.gpu", title="A GPU failed", jobs=2,
        hung=1, failed=1, unknown=0, healthy=0, running=0, other=0, share=0.5,
        rate=0.4, rate_low=0.1176, rate_high=0.7693,  # 2 of the 5 that could be read
        gpu_hours_lost=5.0, cost_unknown=0,
        first_seen="2025-06-02T00:00:00+00:00", last_seen="2025-06-10T00:00:00+00:00",
        weekly=[1, 1, 0, 0], causes={"hw.gpu": 2}, examples=["b", "a"],
    )  # fmt: skip
    assert groups["crash.exception"].gpu_hours_lost is None
    assert groups["crash.exception"].cost_unknown == 1


def test_by_host_a_cost_is_of_who_is_blamed() -> None:
    groups = by("host")
    assert list(groups) == ["n1", "n2", NOT_KNOWN]
    assert (groups["n1"].jobs, groups["n1"].blamed, groups["n1"].victim) == (2, 2, 0)
    assert groups["n1"].gpu_hours_lost == 5.0
    assert (groups["n2"].jobs, groups["n2"].blamed, groups["n2"].victim) == (4, 0, 2)
    assert groups["n2"].gpu_hours_lost == 0.0
    assert groups["n2"].healthy == 1


def test_by_week_in_order() -> None:
    groups = by("week")
    assert list(groups) == ["2025-06-02", "2025-06-09", "2025-06-23"]
    assert [group.jobs for group in groups.values()] == [1, 1, 3]


@pytest.mark.parametrize("name", ["user", "user-label"])
def test_by_a_label(name: str) -> None:
    groups = by(name)
    assert {key: group.jobs for key, group in groups.items()} == {"x": 3, "y": 1, NOT_KNOWN: 1}
    assert groups["x"].share == 0.5


def test_an_unknown_label_names_those_there_are() -> None:
    with pytest.raises(InputError, match=r"cannot group by 'team': .* or a label of .*: user$"):
        count(JOBS, "team")
    with pytest.raises(InputError, match="have no labels"):
        count(typed(frame(row("a"))), "user-label")


def test_weeks_have_no_gaps_and_an_end() -> None:
    assert weeks(JOBS) == ["2025-06-02", "2025-06-09", "2025-06-16", "2025-06-23"]
    old = typed(frame(row("a", -20_000), row("b", 0)))
    assert len(weeks(old)) == MAX_WEEKS
    assert weeks(old)[-1] == "2025-06-02"


def test_a_host_whose_jobs_are_all_well() -> None:
    [group] = count(typed(frame(row("a", hosts=["n1"]))), "host")
    assert (group.name, group.jobs, group.healthy) == ("n1", 1, 1)
    assert (group.blamed, group.victim, group.gpu_hours_lost) == (0, 0, 0.0)
