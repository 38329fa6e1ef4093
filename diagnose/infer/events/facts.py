"""What the log says about the job itself: frameworks, versions, settings, world size, hosts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import pandas as pd

from diagnose.catalog.schema import Signature
from diagnose.timeline.build import highest_rank

_WORLD_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts by name (`framework`, `trainer`, `version.torch`, …), each with its values in order.

    `world_size` is the number of ranks the log claims (None: it does not say), `world_why` the
    sources of that number. `ranks_seen` are the ranks with a line of their own.
    """

    values: dict[str, list[str]] = field(default_factory=dict)
    world_size: int | None = None
    ranks_seen: list[int] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)

    def get(self, name: str) -> list[str]:
        """Values of one fact, most frequent first; empty when unknown."""
        return self.values.get(name, [])

    def first(self, name: str) -> str | None:
        """The most frequent value of a fact."""
        return next(iter(self.get(name)), None)

    @property
    def versions(self) -> dict[str, str]:
        """Package versions by package name."""
        prefix = "version."
        return {
            name.removeprefix(prefix): values[0]
            for name, values in sorted(self.values.items())
            if name.startswith(prefix)
        }


def gather(frame: pd.DataFrame, signatures: dict[str, Signature]) -> Facts:
    """All facts of a timeline."""
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    facted = {s.id for s in signatures.values() if s.facts}
    rows = frame[frame["signature"].isin(facted)]
    for id_, fields in zip(rows["signature"], rows["fields"], strict=True):
        for name, template in signatures[id_].facts.items():
            value = _fill(template, fields)
            if value:
                counted[name][value] += 1
    seen = sorted({int(rank) for rank in frame["rank"].dropna().unique()})
    return Facts(
        values={name: [v for v, _ in counter.most_common(8)] for name, counter in counted.items()},
        world_size=_world_size(frame, counted.get("world_size", Counter())),
        ranks_seen=seen,
        hosts=sorted({str(host) for host in frame["host"].dropna().unique()}),
    )


def _fill(template: str, fields: dict[str, str]) -> str:
    try:
        return re.sub(r"\{(\w+)\}", lambda m: fields[m.group(1)], template).strip()
    except KeyError:
        return ""


def _world_size(frame: pd.DataFrame, named: Counter[str]) -> int | None:
    """The largest world size claimed by at least one source; None when there is none.

    Sub-groups claim smaller sizes than the job, so the largest wins; a claim smaller than a rank
    that was seen is wrong.
    """
    sizes = [int(value) for value in named.elements() if value.isdigit()]
    sizes += list(_captured(frame, "world_size"))
    for fields in frame.loc[frame["tells"].isin(["missing", "joined"]), "fields"]:
        told = (highest_rank(fields.get(key)) for key in ("ranks", "missing"))
        sizes += [rank + 1 for rank in told if rank is not None]
    sizes = [size for size in sizes if 0 < size <= _WORLD_LIMIT]
    if not sizes:
        return None
    highest = frame["rank"].max()
    return max([*sizes, 0 if pd.isna(highest) else int(highest) + 1])


def _captured(frame: pd.DataFrame, name: str) -> Iterable[int]:
    for fields in frame["fields"]:
        value = fields.get(name, "")
        if value.isdigit():
            yield int(value)
