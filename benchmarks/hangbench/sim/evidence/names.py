"""Names, numbers and clocks that all evidence of one job shares."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from benchmarks.hangbench.sim.outcome import Outcome

# Names of nodes; {} is the number of the node in its rack.
_HOSTS = ("node{:02d}", "gpu-{:03d}", "ip-10-4-{0}-{1}", "h100-{:03d}", "compute-{:d}", "g{:04d}")


@dataclass(frozen=True, slots=True)
class Names:
    """hosts, ips and agents (process ids of the launchers) by node; pids by rank; job: its id."""

    hosts: tuple[str, ...]
    ips: tuple[str, ...]
    agents: tuple[int, ...]
    pids: tuple[int, ...]
    job: int


def names(outcome: Outcome) -> Names:
    """The names of a job: the same for the same outcome, whichever form of evidence asks."""
    rng = random.Random(f"{outcome.start.isoformat()} {outcome.world}")
    form = rng.choice(_HOSTS)
    first = rng.randint(1, 40)
    hosts, ips = [], []
    for node in range(outcome.nodes):
        number = first + node
        row, place = divmod(number, 200)
        hosts.append(form.format(row, place) if "{0}" in form else form.format(number))
        ips.append(f"10.4.{row}.{place}")
    bases = [rng.randint(900, 60000) for _ in range(outcome.nodes)]
    step = rng.choice((1, 1, 2, 7))
    pids = [bases[rank.node] + 70 + step * rank.local_rank for rank in outcome.ranks]
    job = rng.randint(100000, 9999999)
    return Names(tuple(hosts), tuple(ips), tuple(bases), tuple(pids), job)


def wall(outcome: Outcome, time: float) -> datetime:
    """The job's own clock at `time` seconds."""
    return outcome.start + timedelta(seconds=time)


def ranges(numbers: list[int]) -> str:
    """Numbers as Slurm lists them: `0-3,5`."""
    parts: list[str] = []
    start = 0
    for at, number in enumerate(numbers):
        if at + 1 == len(numbers) or numbers[at + 1] != number + 1:
            first = numbers[start]
            parts.append(str(first) if first == number else f"{first}-{number}")
            start = at + 1
    return ",".join(parts)
