"""Suspect nodes: the planted ones, no busy one, over many simulated fleets."""

from itertools import product
from math import comb

import numpy as np
import pytest

from diagnose.catalog.load import load_catalog
from diagnose.fleet.blame import ALPHA, binomial, hypergeometric
from diagnose.fleet.nodes import Nodes, nodes
from diagnose.report.fleet.words import compared
from tests.sizes import few

from .frames import BAD, BUSY, failed, fleet, frame, row, shown, typed

NODE_CAUSES = load_catalog().node_causes


def found(*rows: dict[str, object]) -> Nodes:
    return nodes(typed(frame(*rows)), NODE_CAUSES)


def hosts(report: Nodes) -> list[str]:
    return [suspect.host for suspect in report.suspects]


def background(count: int = 200, width: int = 2) -> list[dict[str, object]]:
    """Healthy jobs of all of ten nodes in turn."""
    return [
        row(f"h{n}", n / 10, hosts=[f"n{(n + at) % 10}" for at in range(width)])
        for n in range(count)
    ]


def blamed(
    host: str, count: int, cause: str = "hw.gpu", other: str = "n9", **values: object
) -> list[dict[str, object]]:
    told = {"hosts": [host, other], "culprit_hosts": [host], "class": cause}
    return [failed(f"{host}-{n}", n, **told | values) for n in range(count)]


KINDS: list[dict[str, object]] = [
    {},
    {"right": 0.6},
    {"background": 0.02},
    {"background": 0.3},
    {"paired": True},
    {"bad": ()},
]


@pytest.mark.parametrize(("seed", "kind"), few(product(range(100, 104), KINDS), 7), ids=str)
def test_planted_nodes_and_only_those(seed: int, kind: dict[str, object]) -> None:
    wanted = set(kind.get("bad", BAD))  # type: ignore[call-overload]
    suspects = set(hosts(nodes(typed(fleet(seed, **kind)), NODE_CAUSES)))  # type: ignore[arg-type]
    assert suspects == wanted


@pytest.mark.slow
def test_false_discovery_rate_over_many_seeds() -> None:
    for right in (0.9, 0.78, 0.6, 0.5):
        flagged = false = exact = 0
        for seed in range(15):
            suspects = set(hosts(nodes(typed(fleet(seed, right=right)), NODE_CAUSES)))
            flagged, false = flagged + len(suspects), false + len(suspects - set(BAD))
            exact += suspects == set(BAD)
        print(f"right {right}: exact {exact}/15, false discovery rate {false}/{flagged}")
        assert false <= 1
        assert exact >= (15 if right > 0.7 else 13)


def test_busy_nodes_fail_more_often_than_bad_ones() -> None:
    """The simulation would be of no use if a plain count found the bad nodes."""
    jobs = shown(typed(fleet(0)))
    counts = jobs[jobs["troubled"]].explode("hosts")["hosts"].value_counts()
    assert counts[list(BUSY)].min() > counts[list(BAD)].max()


def test_a_bad_nodes_neighbour_is_not_suspect() -> None:
    """In half of their common failures the wrong one of the two is blamed."""
    jobs = typed(fleet(4, paired=True, background=0.02, right=0.5))
    assert set(hosts(nodes(jobs, NODE_CAUSES))) == set(BAD)


def test_what_is_said_of_a_suspect() -> None:
    report = found(
        *background(), *blamed("n3", 6, gpu_hours_lost=2.5), *blamed("n5", 1, other="n3")
    )
    [suspect] = report.suspects
    assert (suspect.host, suspect.blamed, suspect.jobs) == ("n3", 6, 47)
    assert suspect.expected == pytest.approx(1 / (414 - 47) * 47, abs=1e-3)
    assert suspect.ratio == pytest.approx(6 / 0.5)
    # 414 places, 7 of them blamed, 47 of them its own; ten nodes
    tail = sum(comb(7, k) * comb(407, 47 - k) for k in (6, 7)) / comb(414, 47)
    assert suspect.p == pytest.approx(10 * tail)
    assert suspect.victim == 1
    assert suspect.causes == {"hw.gpu": 6}
    assert suspect.blamed_jobs == [f"n3-{n}" for n in range(6)]
    assert suspect.gpu_hours_lost == 15.0
    assert suspect.first_seen == "2025-06-02T00:00:00+00:00"
    assert suspect.last_seen == "2025-06-07T00:00:00+00:00"
    assert report.nodes[0].host == "n3"
    assert (report.jobs_compared, report.jobs_without_hosts) == (207, 0)


@pytest.mark.parametrize("cause", ["crash.exception", "crash.native", "desync.mismatch", "net.shm"])
def test_software_is_no_reason(cause: str) -> None:
    assert cause not in NODE_CAUSES
    assert hosts(found(*background(), *blamed("n3", 30, cause))) == []


@pytest.mark.parametrize("cause", sorted(NODE_CAUSES))
def test_what_moves_with_the_node_is(cause: str) -> None:
    assert hosts(found(*background(), *blamed("n3", 6, cause))) == ["n3"]


def test_two_incidents_are_too_few_and_retries_are_one() -> None:
    assert hosts(found(*background(2000), *blamed("n3", 2))) == []
    retries = [failed(f"r{n}", 1 + n / 100, **{"class": "hw.gpu"}, hosts=["n3", "n4"],
                      culprit_hosts=["n3"]) for n in range(30)]  # fmt: skip
    assert hosts(found(*background(), *retries)) == []


def test_of_retries_the_node_that_most_of_them_blame() -> None:
    days = [
        failed(f"{day}-{n}", day + n / 10, **{"class": "hw.gpu"}, hosts=["n3", "n4"],
               culprit_hosts=["n4" if n == 2 else "n3"])
        for day in range(6) for n in range(3)
    ]  # fmt: skip
    report = found(*background(), *days)
    assert hosts(report) == ["n3"]
    assert {node.host: node.blamed for node in report.nodes}["n4"] == 0


def test_a_guess_or_half_of_the_job_names_nobody() -> None:
    assert hosts(found(*background(), *blamed("n3", 9, confidence="low"))) == []
    assert hosts(found(*background(), *blamed("n3", 9, culprit_hosts=["n3", "n9"]))) == []
    link = {"hosts": ["n3", "n9", "n1", "n2"], "culprit_hosts": ["n3", "n9"]}
    assert hosts(found(*background(), *blamed("n3", 9, **link))) == ["n3"]


def test_a_job_on_one_node_needs_no_name() -> None:
    alone = [failed(f"a{n}", n, **{"class": "hw.gpu"}, hosts=["n3"]) for n in range(9)]
    assert hosts(found(*background(width=1), *alone)) == ["n3"]


def test_narrow_jobs_are_compared_with_narrow_jobs() -> None:
    """A node that runs alone is blamed for all; that many ran alone, and so were they."""
    rows = background(300, width=8)
    for node in range(10):
        rows += [
            failed(f"alone{node}-{n}", n, **{"class": "hw.gpu"}, hosts=[f"n{node}"])
            for n in range(20 if node == 3 else 2)
        ]
        rows += [row(f"fine{node}-{n}", n, hosts=[f"n{node}"]) for n in range(2 + 18 * (node == 3))]
    assert hosts(found(*rows)) == []


def test_jobs_that_name_no_host_are_left_out_and_counted() -> None:
    unnamed = blamed("n3", 9, hosts=[], culprit_hosts=[])
    report = found(*background(), *unnamed)
    assert report.suspects == []
    assert (report.jobs_compared, report.jobs_without_hosts) == (200, 9)
    assert report.blamed_without_hosts == 0
    assert "9 jobs without known hosts excluded" in compared(report)


def test_a_node_is_suspect_where_only_who_is_blamed_is_known() -> None:
    report = found(*background(), *blamed("n3", 6, hosts=[]), *blamed("n5", 1, hosts=[]))
    [suspect] = report.suspects
    assert (suspect.host, suspect.blamed, suspect.jobs) == ("n3", 6, 46)
    # One of ten nodes with the same number of places: 7 blamed, each of them by a tenth.
    assert suspect.expected == pytest.approx(1 / 9, abs=1e-3)
    tail = sum(comb(7, k) * 0.1**k * 0.9 ** (7 - k) for k in (6, 7))
    assert suspect.p == pytest.approx(10 * tail)
    assert suspect.blamed_jobs == [f"n3-{n}" for n in range(6)]
    assert (report.jobs_compared, report.jobs_without_hosts) == (207, 7)
    assert report.blamed_without_hosts == 7
    assert "of 7 jobs only the blamed node is known" in compared(report)
    assert "without known hosts excluded" not in compared(report)


def test_nodes_known_from_blame_alone_are_compared_with_each_other() -> None:
    once = [one for at in range(30) for one in blamed(f"n{at}", 1, hosts=[])]
    assert hosts(found(*once, *blamed("bad", 9, hosts=[]))) == ["bad"]
    thrice = [one for at in range(30) for one in blamed(f"n{at}", 3, hosts=[])]
    assert hosts(found(*thrice)) == []
    assert hosts(found(*blamed("n3", 9, hosts=[]))) == []


def test_a_busy_node_is_blamed_more_often_where_only_that_is_known() -> None:
    """n0 does a third of the work, and has a third of the blame."""
    busy = [row(f"b{n}", n / 10, hosts=["n0", f"n{1 + n % 9}"]) for n in range(200)]
    rest = [one for at in range(1, 10) for one in blamed(f"n{at}", 2, hosts=[])]
    assert hosts(found(*background(), *busy, *rest, *blamed("n0", 9, hosts=[]))) == []
    assert hosts(found(*background(), *rest, *blamed("n0", 12, hosts=[]))) == ["n0"]


def test_one_node_alone_cannot_be_compared() -> None:
    assert (
        hosts(found(*[failed(f"a{n}", n, **{"class": "hw.gpu"}, hosts=["n1"]) for n in range(9)]))
        == []
    )
    assert found(row("a")).nodes == []


def test_the_distribution_is_exact() -> None:
    for population, marked, drawn in ((20, 7, 5), (20, 18, 9), (5, 0, 3), (6, 6, 6), (400, 30, 50)):
        chance = hypergeometric(population, marked, drawn)
        exact = [
            comb(marked, k) * comb(population - marked, drawn - k) / comb(population, drawn)
            for k in range(min(marked, drawn) + 1)
        ]
        assert np.allclose(chance, exact, rtol=1e-9)
    for drawn, share in ((0, 0.5), (7, 0.1), (60, 0.7)):
        exact = [comb(drawn, k) * share**k * (1 - share) ** (drawn - k) for k in range(drawn + 1)]
        assert np.allclose(binomial(drawn, share), exact, rtol=1e-9)
    assert ALPHA == 0.01
