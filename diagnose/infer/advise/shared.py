"""What the culprits share of the fabric, where chance does not explain it.

Suspects on several hosts may all be in one rack, at one leaf switch, in one NVLink domain, or have
their trouble at the same adapter of each host (a rail). Where hosts are says a topology file, the
NVLink domains also NCCL's own lines. As many hosts drawn from those of the job would be in one unit
of that level with a chance p, which is multiplied by the number of levels that were compared.

It names a part to look at, never other culprits, and is left out where a part of the job itself
(a host, a pipeline stage …) has all of them: schedulers put such parts next to each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import comb
from typing import TYPE_CHECKING

from diagnose.diagnosis import Diagnosis, Shared
from diagnose.lazy import expression
from diagnose.timeline.event import Timeline

if TYPE_CHECKING:
    from diagnose.parse.topology import Topology

ALPHA = 0.01
MAX_HOSTS = 20_000
NVLINK, RAIL = "nvlink", "rail"
_PORT = expression(r":\d+(?:/\w+)?$")
_ADAPTER = expression(r"\[\d+\]")


def added(diagnosis: Diagnosis, topology: Topology | None, timeline: Timeline) -> Diagnosis:
    """The diagnosis with what its culprits share; as it is where that is nothing."""
    suspects = _suspects(diagnosis, timeline)
    names = sorted({*diagnosis.job.hosts, *suspects})
    if len(suspects) < 2 or not 2 < len(names) <= MAX_HOSTS:
        return diagnosis
    levels = dict(topology.levels) if topology else {}
    if NVLINK not in levels and (segments := _segments(timeline)):
        levels[NVLINK] = segments
    found = [*_units(levels, names, suspects)]
    if rail := _rail(diagnosis, len(names), suspects, timeline):
        found.append(rail)
    best = min(found, key=lambda one: (one.p, one.hosts), default=None)
    if best is None or best.p * len(found) > ALPHA:
        return diagnosis
    return replace(diagnosis, shared=replace(best, p=float(f"{best.p * len(found):.3g}")))


def _suspects(diagnosis: Diagnosis, timeline: Timeline) -> list[str]:
    """The hosts of the culprits, else of missing ranks; none where a part of the job has all."""
    missing = diagnosis.collective.missing if diagnosis.collective else []
    ranks = diagnosis.culprits.ranks or ([] if diagnosis.culprits.hosts else missing)
    if diagnosis.topology and len(ranks) > 1:
        from diagnose.infer.collectives.parallelism import smallest_unit  # noqa: PLC0415  few have

        if smallest_unit(ranks, diagnosis.topology):
            return []
    if diagnosis.culprits.hosts or not ranks:
        return sorted({*diagnosis.culprits.hosts})
    host_of = timeline.hosts_of_ranks
    known = {host_of[rank] for rank in ranks if rank in host_of}
    return sorted(known) if all(rank in host_of for rank in ranks) else []


def _units(
    levels: Mapping[str, Mapping[str, str]], hosts: Sequence[str], culprits: Sequence[str]
) -> Iterator[Shared]:
    """For each level that places the culprits what they share there, if only by chance (p = 1)."""
    from diagnose.parse.topology import placed  # noqa: PLC0415  few jobs have a topology

    for level, units in levels.items():
        of = dict(zip(hosts, placed(units, hosts), strict=True))
        inside = {of[host] for host in culprits}
        if "" in inside:
            continue
        sizes = Counter(filter(None, of.values()))
        known, drawn = sizes.total(), len(culprits)
        same = len(inside) == 1
        ways = sum(comb(size, drawn) for size in sizes.values())
        unit = min(inside)
        p = ways / comb(known, drawn) if same else 1.0
        yield Shared(level, unit if same else "", [*culprits], sizes[unit], known, p)


def _rail(
    diagnosis: Diagnosis, hosts: int, suspects: Sequence[str], timeline: Timeline
) -> Shared | None:
    """The one adapter that the lines of the root cause name on each of several hosts."""
    signature = diagnosis.root_cause.signature
    nics: dict[str, set[str]] = {}
    for event in timeline.capturing("nic"):
        if event.host and event.signature == signature and event.host in suspects:
            nics.setdefault(event.host, set()).add(_PORT.sub("", event.fields["nic"]))
    lists = [event.fields["adapters"] for event in timeline.capturing("adapters")]
    count = max((len(_ADAPTER.findall(text)) for text in lists), default=0)
    if len(nics) < 2 or len(nics) < len(suspects) or count < 2:
        return None
    named = set.union(*nics.values())
    same = len(named) == 1
    p = count ** (1.0 - len(nics)) if same else 1.0
    return Shared(RAIL, min(named) if same else "", [*suspects], hosts, hosts, p)


def _segments(timeline: Timeline) -> dict[str, str]:
    """The NVLink domain of each host, as NCCL states those of its devices; none if these differ."""
    found: dict[str, set[str]] = {}
    for event in timeline.capturing("segment"):
        if event.host:
            segment = event.fields["segment"].replace(" cliqueId 0x", ".")
            found.setdefault(event.host, set()).add(segment)
    return {host: min(own) for host, own in found.items() if len(own) == 1}
