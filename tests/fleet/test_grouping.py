"""What jobs are grouped and filtered by."""

from datetime import timedelta

import numpy as np
import pytest

from diagnose.errors import InputError
from diagnose.fleet import summarise
from diagnose.fleet.causes import count
from diagnose.fleet.grouping import Filter, chosen, sizes
from diagnose.fleet.summary import listed

from .frames import BEGIN, failed, frame, row, typed

JOBS = typed(
    frame(
        failed("a", 0, hosts=["n1", "n2"], culprit_hosts=["n1"], ranks=8, fingerprint="f",
               labels={"team": "x", "gpu": "H100"}, versions={"torch": "2.6.0"},
               frameworks=["nemo", "lightning"], **{"class": "hw.gpu"}, gpu_hours_lost=3.0),
        failed("a2", 0, hosts=["n1", "n2"], culprit_hosts=["n1"], ranks=8, fingerprint="f",
               labels={"team": "x"}, versions={"gpu": "A100"}, **{"class": "hw.gpu"}),
        failed("b", 10, hosts=["n2"], ranks=9, labels={"team": "y"}, **{"class": "hw.node"}),
        failed("c", 20, ranks=1, labels={"team": "x"}, verdict="hung"),
        row("d", 30, ranks=512, labels={"team": "x"}),
        row("e", 30, verdict=None, error="cut", **{"class": None}),
    )
)  # fmt: skip


def jobs_by(by: str) -> dict[str, int]:
    return {group.name: group.jobs for group in count(JOBS, by)}


def test_by_size_in_order() -> None:
    assert list(jobs_by("size").items()) == [("1", 1), ("2-8", 2), ("9-16", 1), ("257-512", 1)]
    keys, names = sizes(np.array([np.nan, 0, 1, 2, 8, 9, 16, 17, 1024]))
    assert [names[key] for key in keys] == [
        "unknown", "unknown", "1", "2-8", "2-8", "9-16", "9-16", "17-32", "513-1024",
    ]  # fmt: skip


def test_by_framework_and_by_what_logs_state() -> None:
    assert jobs_by("framework") == {"nemo": 1, "lightning": 1, "unknown": 4}
    assert jobs_by("torch") == {"2.6.0": 1, "unknown": 4}
    assert jobs_by("gpu") == {"H100": 1, "A100": 1, "unknown": 3}  # of the path, else of the logs


def test_rates_count_the_jobs_that_ended_well() -> None:
    groups = {group.name: group for group in count(JOBS, "team")}
    assert (groups["x"].rate, groups["y"].rate) == (0.75, 1.0)
    assert groups["x"].rate_low < 0.75 < groups["x"].rate_high < 1
    assert groups["x"].causes == {"hw.gpu": 2, "crash.exception": 1}
    assert groups["x"].examples[0] == "c"


def test_filters() -> None:
    def names(**wanted: object) -> list[str]:
        left = chosen(JOBS, Filter(**wanted))  # type: ignore[arg-type]
        return left.job.to_pylist()

    day = BEGIN.timestamp()
    assert names(since=day + 5 * 86_400, until=day + 25 * 86_400) == ["b", "c"]
    assert names(labels=(("team", "y"),)) == ["b"]
    assert names(labels=(("team", "x"), ("team", "y"), ("host", "n2"))) == ["a", "a2", "b"]
    assert names(labels=(("torch", "2.6.0"),)) == ["a"]
    assert names(labels=(("size", "2-8"),)) == ["a", "a2"]
    assert names(labels=(("framework", "nemo"),)) == ["a"]
    with pytest.raises(InputError, match="no job passes"):
        names(labels=(("team", "z"),))
    with pytest.raises(InputError, match="cannot group by 'teem'"):
        names(labels=(("teem", "z"),))


def test_what_is_left_is_a_fleet_of_its_own() -> None:
    left = chosen(JOBS, Filter(labels=(("host", "n2"),)))
    assert left.incident.tolist() == [0, 0, 2]
    found = summarise(left)
    assert found.overview.jobs == 3
    assert [item.incidents for item in found.recurring] == [1]
    assert {node.host: node.blamed for node in found.nodes.nodes} == {"n1": 1, "n2": 1}


def test_a_cause_that_is_asked_for_leaves_the_others_in_the_rate() -> None:
    found = summarise(chosen(JOBS, Filter(causes=("hw",))), by="team")
    assert [group.name for group in found.causes] == ["hw.gpu", "hw.node"]
    assert (found.overview.failed, found.overview.hung, found.overview.other) == (3, 0, 1)
    groups = {group.name: group for group in found.groups}
    assert (groups["x"].jobs, groups["x"].rate, groups["x"].other) == (4, 0.5, 1)
    with pytest.raises(InputError, match=r"no job has the class nett: there are crash\.exception"):
        chosen(JOBS, Filter(causes=("nett",)))


def test_the_jobs_of_a_row_the_latest_first() -> None:
    found = listed(chosen(JOBS, Filter(causes=("hw",))))
    assert [one.job for one in found] == ["b", "a2", "a"]
    assert found[2].gpu_hours_lost == 3.0
    assert found[1].gpu_hours_lost is None
    assert found[0].time == (BEGIN + timedelta(days=10)).isoformat()
    assert (found[2].cause, found[2].labels["team"]) == ("hw.gpu", "x")
    assert [one.job for one in listed(JOBS, 1)] == ["c"]


def test_a_label_with_a_million_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diagnose.fleet.causes.MAX_GROUPS", 3)
    jobs = typed(frame(*(row(f"j{n}", labels={"id": str(n)}) for n in range(6)),
                       failed("bad", labels={"id": "9"})))  # fmt: skip
    groups = {group.name: group.jobs for group in count(jobs, "id")}
    assert groups == {"9": 1, "0": 1, "(others)": 5}
