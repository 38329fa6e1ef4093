"""What culprits on several hosts share of the fabric, and where nothing is said."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from diagnose.diagnosis import (
    Axis,
    Collective,
    Culprits,
    Diagnosis,
    JobFacts,
    RootCause,
    Topology,
    Verdict,
)
from diagnose.infer.advise.shared import added
from diagnose.parse import topology
from diagnose.report import words
from diagnose.timeline.event import Timeline
from tests.timeline.told import event

Row = dict[str, Any]


HOSTS = [f"n{n:02d}" for n in range(32)]
RACKS = {host: f"r{n // 4}" for n, host in enumerate(HOSTS)}
PODS = {host: f"p{n // 16}" for n, host in enumerate(HOSTS)}


def timeline(rows: Sequence[Row]) -> Timeline:
    plain: Row = {"source": "a.log", "attempt": 0, "text": "", "kind": "signature", "fields": {}}
    return Timeline(
        event(**(plain | {"role": "context", "index": n, "line": n + 1, "offset": n * 9} | row))
        for n, row in enumerate(rows)
    )


NOTHING = timeline([])


def diagnosis(culprits: Sequence[str], verdict: Verdict = "failed") -> Diagnosis:
    cause = RootCause("net.fabric", "title", "summary", "high", "net.link")
    return Diagnosis(verdict, cause, Culprits(hosts=[*culprits]), job=JobFacts(hosts=HOSTS))


def found(
    culprits: Sequence[str], events: Timeline = NOTHING, **levels: dict[str, str]
) -> tuple[str, str, int, int] | None:
    shared = added(diagnosis(culprits), topology.Topology(levels), events).shared
    return (shared.level, shared.unit, shared.hosts, shared.of_hosts) if shared else None


def test_a_rack_that_chance_does_not_explain() -> None:
    one = added(diagnosis(HOSTS[8:12]), topology.Topology({"rack": RACKS, "pod": PODS}), NOTHING)
    assert one.shared is not None
    assert one.shared.p == pytest.approx(2 * 8 / 35_960, rel=0.01)  # 8 racks of C(32, 4) choices
    assert one.culprits == diagnosis(HOSTS[8:12]).culprits  # which names nobody else
    assert words.facts(one)["in common"] == (
        "all 4 culprit hosts are in rack r2, which has 4 of the job's 32 hosts (by chance 0.04 %)"
    )


@pytest.mark.parametrize(
    "culprits",
    [
        HOSTS[8:9],  # one
        HOSTS[8:10],  # two of a rack are by chance in 10 of 100 draws
        [*HOSTS[8:11], "n12"],  # not all are there
        [*HOSTS[8:11], "elsewhere"],  # of one it is not known
        HOSTS,  # all of the job
    ],
)
def test_where_nothing_is_shared(culprits: list[str]) -> None:
    assert found(culprits, rack=RACKS) is None


def test_many_levels_need_a_smaller_chance() -> None:
    three = {"a": RACKS}
    assert found(HOSTS[8:11], **three) == ("a", "r2", 4, 32)  # 0.6 %
    assert found(HOSTS[8:11], **three, b=PODS) is None


def test_hosts_of_missing_ranks_where_nobody_is_named() -> None:
    waits = Collective("world", "ALLREDUCE", 7, missing=[8, 9, 10])
    one = replace(diagnosis([], "hung"), collective=waits)
    at = [{"rank": n, "host": host} for n, host in enumerate(HOSTS)]
    shared = added(one, topology.Topology({"rack": RACKS}), timeline(at))
    assert words.in_common(shared).startswith("all 3 hosts of the missing ranks are in rack r2,")
    some = timeline([row for row in at if row["rank"] != 9])
    assert added(one, topology.Topology({"rack": RACKS}), some).shared is None


def test_a_pipeline_stage_in_a_rack_is_placed_there() -> None:
    stages = Axis("PP", 8, tuple((*range(n, 32, 4),) for n in range(4)))
    grid = Topology((stages,), {rank: {"PP": rank // 4} for rank in range(32)})
    one = replace(diagnosis(HOSTS[8:12]), topology=grid)
    one = replace(one, culprits=replace(one.culprits, ranks=[8, 9, 10, 11]))
    assert added(one, topology.Topology({"rack": RACKS}), NOTHING).shared is None


def segment(host: str, name: str) -> Row:
    return {"host": host, "fields": {"segment": f"7a4a.{name} cliqueId 0x7ffe"}}


def test_nvlink_domains_by_nccl() -> None:
    events = timeline([segment(host, RACKS[host]) for host in HOSTS])
    assert found(HOSTS[8:11], events) == ("nvlink", "7a4a.r2.7ffe", 4, 32)
    other = timeline([segment(host, RACKS[host]) for host in HOSTS] + [segment("n09", "r7")])
    assert found(HOSTS[8:11], other) is None  # a host in two domains


def rail(hosts: Sequence[str], nics: Sequence[str], count: int = 8) -> Timeline:
    used = " ".join(f"[{n}]mlx5_{n}:1/IB" for n in range(count))
    rows: list[Row] = [{"host": HOSTS[0], "fields": {"adapters": used}}]
    for host, nic in zip(hosts, nics, strict=True):
        rows.append({"host": host, "signature": "net.link", "fields": {"nic": nic}})
    return timeline(rows)


def test_one_adapter_of_each_host_is_a_rail() -> None:
    hosts = [HOSTS[n] for n in (1, 9, 20, 31)]
    one = added(diagnosis(hosts), None, rail(hosts, ["mlx5_3:1/IB", *["mlx5_3"] * 3]))
    assert words.in_common(one) == "adapter mlx5_3 on all 4 culprit hosts (by chance 0.19 %)"
    for other in (
        rail(hosts, ["mlx5_3", "mlx5_3", "mlx5_3", "mlx5_4"]),
        rail(hosts[:3], ["mlx5_3"] * 3),  # of one it is not known
        rail(hosts, ["mlx5_0"] * 4, count=1),  # there is but one
    ):
        assert added(diagnosis(hosts), None, other).shared is None
