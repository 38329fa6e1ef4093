"""How the clocks of hosts differ, told by the collectives that their ranks share.

A collective is enqueued on all its members at about the same moment, so the difference of the
times that two hosts recorded for it is the difference of their clocks plus that of their hosts'
progress. One pair proves nothing: a host may be early or late by any time. Over many, the median
leaves the clocks, and what remains uncertain is the larger of

- the spread: nine of ten pairs deviate less, and
- the gap: in a job that waits for its collectives nobody has left one before all have entered it,
  so a host cannot be late by more than others need for their next call. A host that is ALWAYS
  late by the same time cannot be told from a clock that runs behind, but is no later than that.

A job whose hosts run ahead of their devices may be later than the gap; its spread shows that
unless the lateness never changes. So the fit serves to refuse an order, not to measure clocks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from diagnose.infer.collectives.clock_fit import ClockFit
from diagnose.infer.collectives.table import Table

MIN_MATCHED = 8  # collectives that two hosts share
_SPREAD = 0.9

Numbers = npt.NDArray[np.int64]
Entries = tuple[Numbers, Numbers]
_NOTHING: Numbers = np.zeros(0, np.int64)


def align(table: Table, host_of: Mapping[int, str]) -> ClockFit:
    """Fit the clocks of all hosts of `host_of` (rank → host) by the collectives of `table`.

    The reference is the host that shares collectives with most others. Hosts that share none with
    it are fitted by way of others, over as few as can be; their residuals add up.
    """
    hosts = sorted(set(host_of.values()))
    residual: dict[str, int | None] = dict.fromkeys(hosts)
    if table.empty:
        return ClockFit(residual=residual)
    entries = _entries(table, host_of, hosts)
    shared = _shared(entries)
    links = shared >= MIN_MATCHED
    if not links.any():
        return ClockFit(residual=residual)
    order = [(-links[h].sum(), -shared[h].sum(), h) for h in range(len(hosts))]
    first = min(order)[2]
    found: dict[int, tuple[int, int]] = {first: (0, 0)}  # offset, residual
    reached = [first]
    while reached:
        nearer: dict[int, tuple[int, int]] = {}
        for via in sorted(reached, key=lambda host: (found[host][1], host)):
            for host in np.flatnonzero(links[via]).tolist():
                if host in found:
                    continue
                offset, unsure = _pair(entries[host], entries[via])
                fit = (found[via][0] + offset, found[via][1] + unsure)
                if host not in nearer or fit[1] < nearer[host][1]:
                    nearer[host] = fit
        found |= nearer
        reached = [*nearer]
    return ClockFit(
        hosts[first],
        {hosts[host]: found[host][0] for host in sorted(found)},
        residual | {hosts[host]: fit[1] for host, fit in found.items()},
    )


def _entries(table: Table, host_of: Mapping[int, str], hosts: list[str]) -> list[Entries]:
    """Per host: the collectives it shares, ascending, and when its last rank entered each."""
    columns = table.columns
    numbers = {host: number for number, host in enumerate(hosts)}
    rank = columns["rank"].astype(np.int64)
    host_of_rank = np.full(int(rank.max(initial=-1)) + 1, -1, np.int64)
    for number, name in host_of.items():
        if 0 <= number < len(host_of_rank):
            host_of_rank[number] = numbers[name]
    created, host = columns["time_created"].astype(np.int64), host_of_rank[rank]
    used = (created > 0) & ~columns["p2p"].astype(bool) & (host >= 0)
    created, host = created[used], host[used]
    seq = columns["seq"].astype(np.int64)[used]
    group = columns["group"].astype(np.int64)[used]
    order = np.lexsort((created, host, seq, group))
    group, seq, host, created = group[order], seq[order], host[order], created[order]
    begins = np.ones(len(group), bool)  # of a collective
    begins[1:] = (np.diff(group) != 0) | (np.diff(seq) != 0)
    event = np.cumsum(begins) - 1
    last = np.ones(len(group), bool)  # of a host in it, which is the latest
    last[:-1] = begins[1:] | (np.diff(host) != 0)
    event, host, created = event[last], host[last], created[last]
    common = np.bincount(event)[event] > 1
    event, host, created = event[common], host[common], created[common]
    return [(event[host == number], created[host == number]) for number in range(len(hosts))]


def _shared(entries: list[Entries]) -> Numbers:
    """How many collectives every two hosts share."""
    events = np.concatenate([event for event, _ in entries]) if entries else _NOTHING
    host = np.repeat(np.arange(len(entries)), [len(event) for event, _ in entries])
    shared = np.zeros((len(entries), len(entries)), np.int64)
    there = np.zeros(int(events.max(initial=-1)) + 1, bool)
    for number, (event, _) in enumerate(entries):
        there[event] = True
        shared[number] = np.bincount(host[there[events]], minlength=len(entries))
        shared[number, number] = 0
        there[event] = False
    return shared


def _pair(one: Entries, other: Entries) -> tuple[int, int]:
    """Offset of one host's clock against another's, and what it may be off."""
    _, in_one, in_other = np.intersect1d(one[0], other[0], True, return_indices=True)
    a, b = one[1][in_one], other[1][in_other]
    differences = a - b
    offset = int(np.median(differences - differences[0])) + int(differences[0])
    spread = int(np.quantile(np.abs(differences - offset), _SPREAD))
    gap = int(np.median(np.maximum(np.diff(np.sort(a)), np.diff(np.sort(b)))))
    return offset, max(spread, gap, 1)
