"""What is computed by column is what a loop over the jobs gives, on fleets of random jobs."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from diagnose.catalog.load import load_catalog
from diagnose.fleet.causes import count, weeks
from diagnose.fleet.columns import Lists, pairs, split, total
from diagnose.fleet.grouping import NOT_KNOWN
from diagnose.fleet.jobs import Jobs
from diagnose.fleet.nodes import nodes
from diagnose.fleet.recurring import recurring, unknowns
from tests.sizes import few

from .frames import failed, frame, row, shown, typed

HOSTS = ["n1", "n2", "n2.cluster", "n3.cluster", "localhost", "n4", ""]
CAUSES = ["hw.gpu", "net.fabric", "crash.exception", "unknown"]


NODE_CAUSES = load_catalog().node_causes


def any_jobs(seed: int, size: int = 80) -> Jobs:
    """Few hosts, days and marks, so that retries, ties and gaps are frequent."""
    rng = random.Random(seed)
    rows = []
    for number in range(size):
        values: dict[str, Any] = {
            "hosts": rng.choices(HOSTS, k=rng.randrange(5)),
            "labels": rng.choice(["{}", '{"user": "x"}', '{"user": "y", "team": "z"}', "{"]),
            "versions": {"torch": rng.choice(["2.6.0", "2.10.0"])} if rng.random() < 0.7 else {},
            "ranks": rng.choice([None, 8, 64]), "frameworks": rng.choices("ab", k=rng.randrange(3)),
        }  # fmt: skip
        day = rng.choice([0, 0, 1, 8, 300, 900])
        if rng.random() < 0.6:
            values |= {
                "verdict": rng.choice(["hung", "failed", "unknown", None]),
                "class": rng.choice(CAUSES), "fingerprint": rng.choice(["f1", "f2", None]),
                "culprit_hosts": rng.choices(HOSTS, k=rng.randrange(3)),
                "gpu_hours_lost": rng.choice([None, rng.random()]),
                "confidence": rng.choice(["low", "high"]), "error": rng.choice([None, "cut"]),
                "notes": [f"shard {number} gave up"],
            }  # fmt: skip
        make = failed if "verdict" in values else row
        rows.append(make(f"j{rng.randrange(60)}", day, **values, source=f"/{number % 7}/{number}"))
    return typed(frame(*rows))


def keys_of(job: Any, by: str) -> list[str]:
    if by == "cause":
        return [job.cause or "unknown"] if job.troubled else []
    if by == "week":
        return [job.week or NOT_KNOWN]
    if by == "host":
        return sorted({*job.hosts, *job.culprit_hosts}) or [NOT_KNOWN]
    return [job.labels.get(by) or NOT_KNOWN]


@pytest.mark.parametrize("by", ["cause", "week", "host", "user"])
@pytest.mark.parametrize("seed", few(range(40), 6))
def test_groups(by: str, seed: int) -> None:
    jobs = any_jobs(seed)
    groups: dict[str, list[Any]] = defaultdict(list)
    for job in shown(jobs).itertuples():
        if not job.unreadable:
            for key in keys_of(job, by):
                groups[key].append(job)
    found = {group.name: group for group in count(jobs, by)}
    assert found.keys() == groups.keys()
    for name, mine in groups.items():
        group, troubled = found[name], [job for job in mine if job.troubled]
        verdicts = Counter(job.verdict for job in mine)
        paid = [job for job in troubled if by != "host" or name in job.culprit_hosts]
        costs = np.array([job.gpu_hours_lost for job in paid], dtype=float)
        known = costs[~np.isnan(costs)]
        assert group.jobs == len(mine)
        assert group.hung == verdicts["hung"]
        assert group.healthy == verdicts["healthy"]
        assert group.cost_unknown == len(costs) - len(known)
        if len(known):
            assert group.gpu_hours_lost == round(float(np.nan_to_num(costs).sum()), 2)
        else:
            assert group.gpu_hours_lost == (None if len(costs) else 0.0)
        calendar = weeks(jobs)
        when = Counter(job.week for job in troubled)
        assert group.weekly == [when[week] for week in calendar]
        if by == "host":
            assert group.blamed == len(paid)
            assert group.victim == sum(bool(job.culprit_hosts) for job in troubled) - len(paid)
        times = [job.time for job in troubled]
        assert group.first_seen == (f"{min(times).isoformat()}+00:00" if times else None)
        assert group.last_seen == (f"{max(times).isoformat()}+00:00" if times else None)


def named_by(job: Any) -> list[str]:
    """The hosts that a job singles out, told in plain words."""
    if job.verdict not in ("hung", "failed") or job.cause not in NODE_CAUSES:
        return []
    if job.confidence == "low":
        return []
    if len(job.hosts) == 1 and job.culprit_hosts in ([], job.hosts):
        return list(job.hosts)
    if job.hosts and 2 * len(job.culprit_hosts) > len({*job.hosts, *job.culprit_hosts}):
        return []
    return list(job.culprit_hosts)


@pytest.mark.parametrize("seed", few(range(60), 10))
def test_nodes(seed: int) -> None:
    jobs = any_jobs(seed)
    incidents: dict[int, list[Any]] = defaultdict(list)
    without = []
    for job in shown(jobs).itertuples():
        if not job.unreadable and not job.hosts:
            without.append(job)
        if not job.unreadable and (job.hosts or named_by(job)):
            incidents[job.incident].append(job)
    took_part, blamed, victim = Counter(), Counter(), Counter()  # type: ignore[var-annotated]
    for mine in incidents.values():
        votes = Counter(host for job in mine for host in named_by(job))
        accused = {host for host, many in votes.items() if many == max(votes.values())}
        whole = {*mine[0].hosts, *accused}
        took_part.update(whole)
        blamed.update(accused)
        victim.update(whole - accused if accused else ())
    found = nodes(jobs, NODE_CAUSES)
    assert {node.host: (node.jobs, node.blamed, node.victim) for node in found.nodes} == {
        host: (took_part[host], blamed[host], victim[host]) for host in took_part
    }
    assert found.jobs_compared == len(incidents)
    assert found.jobs_without_hosts == len(without)
    assert found.blamed_without_hosts == sum(bool(named_by(job)) for job in without)


@pytest.mark.parametrize("seed", few(range(40), 6))
def test_repeats_and_unknowns(seed: int) -> None:
    jobs = any_jobs(seed)
    alike: dict[str, list[Any]] = defaultdict(list)
    unexplained = []
    for job in sorted(shown(jobs).itertuples(), key=lambda job: (job.time, job.job)):
        if job.troubled and job.fingerprint and job.cause != "unknown":
            alike[job.fingerprint].append(job)
        if job.troubled and job.cause == "unknown" and not job.error:
            unexplained.append(job)
    again = {mark: mine for mark, mine in alike.items() if len(mine) > 1}
    found = {item.fingerprint: item for item in recurring(jobs)}
    assert found.keys() == again.keys()
    for mark, mine in again.items():
        item = found[mark]
        assert item.jobs == len(mine)
        assert item.incidents == len({job.incident for job in mine})
        assert item.cause == Counter(job.cause for job in mine).most_common(1)[0][0]
        assert item.hosts == len({host for job in mine for host in job.culprit_hosts})
        assert item.examples == [job.job for job in mine[-5:]][::-1]
    gaps = unknowns(jobs)
    assert sum(gap.jobs for gap in gaps) == len(unexplained)
    if unexplained:
        assert gaps[0].text == "shard <n> gave up"
        assert gaps[0].example == unexplained[-1].ending
        assert gaps[0].frameworks == sorted({f for job in unexplained for f in job.frameworks})


def test_pairs_are_sorted_and_none_is_there_twice() -> None:
    lists = pairs(np.array([5, 1, 5, 3]), 3, ["a", "b"])
    assert [lists.of(row) for row in range(3)] == [["b"], ["b"], ["b"]]
    assert lists.lengths().tolist() == [1, 1, 1]
    assert len(set(lists.same().tolist())) == 1
    none = pairs(np.zeros(0, dtype=np.int64), 2, [])
    assert none.union(none).lengths().tolist() == [0, 0]
    assert none.among(np.array([0, 1])).tolist() == []


def test_pairs_are_found_as_a_search_through_all_of_them() -> None:
    rng = np.random.default_rng(5)
    many, few = (pairs(rng.integers(40 * 30, size=n), 40, [str(n) for n in range(30)])
                 for n in (500, 60))  # fmt: skip
    keys, wanted = (one.rows * 30 + one.items for one in (many, few))
    there, places = many.find(few)
    assert there.tolist() == np.isin(wanted, keys).tolist()
    assert places.tolist() == np.searchsorted(keys, wanted).tolist()
    both = many.union(few)
    assert (both.rows * 30 + both.items).tolist() == np.union1d(keys, wanted).tolist()


def test_helpers_of_nothing() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert list(split(nothing)) == []
    some = Lists(np.array([0]), np.array([0]), 1, ["a"])
    none = Lists(nothing, nothing, 1, ["a"])
    assert [one.tolist() for one in none.find(some)] == [[False], [0]]
    assert [one.tolist() for one in some.find(none)] == [[], []]
    assert total(np.zeros(0)) is None
    assert total(np.array([np.nan])) is None
    assert total(np.array([np.nan, 2.0])) == 2.0
