"""Process groups, the grid of ranks that they form, and the part of it that suspects share.

An axis is a set of groups that partitions the world into equal parts. What its groups are for comes
from their description alone (Megatron-LM's `TENSOR_MODEL_PARALLEL_GROUP`, a DeviceMesh's `mesh_tp`,
`fsdp:root`); groups that say nothing are told apart by the stride between their members.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from diagnose.diagnosis import Axis, Topology
from diagnose.text.ranks import ranks_phrase

DEFAULT_GROUP = "default_pg"
Parts = tuple[tuple[int, ...], ...]

_NAMES = ("TP", "PP", "CP", "EP", "DP")  # of equal parts the first explains best
_WORDS = {
    "tensor": "TP", "tp": "TP",
    "pipeline": "PP", "pipe": "PP", "pp": "PP",
    "data": "DP", "dp": "DP", "fsdp": "DP", "ddp": "DP",
    "expert": "EP", "ep": "EP", "moe": "EP",
    "context": "CP", "cp": "CP",
}  # fmt: skip
# Groups that are no axis although their members may form one: several axes at once, or a few ranks.
_NO_AXIS = re.compile(r"embed|partial|optimizer|hierarchical|mesh_default|^model_parallel")
_WITH_CP = re.compile(r"data_parallel_group_with_cp")
# Axes of which not the group matters but the place in it: kind and word.
_PLACES = {"PP": ("PP stage", "pipeline stage"), "DP": ("DP replica", "DP replica")}
_NEARLY = 0.75  # of a unit's ranks must be suspects


class Group(NamedTuple):
    """A process group; `listed` when a dump lists the members (global ranks, in group order)."""

    key: str
    name: str
    desc: str
    members: tuple[int, ...]
    listed: bool

    @property
    def label(self) -> str:
        """What a report prints."""
        described = self.desc not in ("", "undefined")
        return f"{self.desc} ({self.key})" if described else f"group {self.key}"


class Unit(NamedTuple):
    """A part of the job: `label` such as `pipeline stage 2 (ranks 16-23)`; `text` is a sentence.

    `kind` is gpu, host, or what the axis makes: TP group, EP group, CP group, PP stage, DP
    replica, group, slice.
    """

    kind: str
    label: str
    ranks: tuple[int, ...]
    text: str


def topology(groups: Iterable[Group], world: int) -> Topology:
    """The grid of a job of `world` ranks, smallest stride first.

    Groups of one rank, the default group and groups that combine axes give none. Where only
    `DATA_PARALLEL_GROUP_WITH_CP` is in use, it is the data axis once context groups are taken out.
    """
    described = _described(groups)
    named, rest = _by_name(described, world)
    if "DP" not in named:
        with_cp = next((sets for desc, sets in described.items() if _WITH_CP.match(desc)), set())
        parts = _without(tuple(sorted(with_cp)), named.get("CP", ()))
        if _partition(parts, world):
            named["DP"] = parts
    _add_by_stride(named, rest, world)
    axes = [Axis(name, len(parts[0]), parts) for name, parts in named.items()]
    axes.sort(key=lambda axis: (_steps(axis.groups[0]), axis.size, axis.name))
    return Topology(tuple(axes), _coordinates(axes, world))


def _described(groups: Iterable[Group]) -> dict[str, set[tuple[int, ...]]]:
    """Members of the groups that may be an axis, by their description."""
    found: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for group in groups:
        if len(group.members) > 1 and group.desc != DEFAULT_GROUP:
            found[group.desc.lower()].add(tuple(sorted(group.members)))
    return found


def _by_name(
    described: Mapping[str, set[tuple[int, ...]]], world: int
) -> tuple[dict[str, Parts], set[tuple[int, ...]]]:
    """The axes that descriptions name, and the groups of those that name none."""
    named: dict[str, Parts] = {}
    rest: set[tuple[int, ...]] = set()
    # Where data is both replicated and sharded, the replicas are the data axis.
    for desc in sorted(described, key=lambda text: ("replicate" not in text, len(text), text)):
        name, parts = _axis_of(desc), tuple(sorted(described[desc]))
        if name and name not in named and _partition(parts, world):
            named[name] = parts
        elif name is None or name in named:
            rest |= described[desc]
    return named, rest


def _add_by_stride(named: dict[str, Parts], groups: Iterable[tuple[int, ...]], world: int) -> None:
    """Groups of one shape that make up the world are an axis, too."""
    shapes: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
    for part in sorted(groups):
        shapes[_steps(part)].append(part)
    for steps in sorted(shapes, key=lambda steps: (len(steps), steps)):
        parts = tuple(shapes[steps])
        if len(parts) > 1 and parts not in named.values() and _partition(parts, world):
            name = f"stride {steps[0]}" if len(set(steps)) == 1 else "?"
            named[f"{name} of {len(steps) + 1}" if name in named else name] = parts


def _coordinates(axes: Iterable[Axis], world: int) -> dict[int, dict[str, int]]:
    axes = list(axes)
    found: dict[int, dict[str, int]] = {rank: {} for rank in range(world)} if axes else {}
    for axis in axes:
        for part in axis.groups:
            for place, rank in enumerate(part):
                found[rank][axis.name] = place
    return found


def _axis_of(desc: str) -> str | None:
    """The axis a description names, "" if it names none or several, None if it says nothing."""
    if _NO_AXIS.search(desc):
        return ""
    words = re.findall(r"[a-z]+", desc)
    found = {_WORDS[word] for word in words if word in _WORDS}
    if not found:
        return None
    return found.pop() if len(found) == 1 else ""


def _steps(members: tuple[int, ...]) -> tuple[int, ...]:
    """Distances from each member to the next."""
    return tuple(b - a for a, b in pairwise(members))


def _partition(parts: Parts, world: int) -> bool:
    """Whether disjoint parts of equal size make up the world."""
    if not parts or len({len(part) for part in parts}) != 1:
        return False
    ranks = [rank for part in parts for rank in part]
    return len(ranks) == world and set(ranks) == set(range(world))


def _without(parts: Parts, inner: Parts) -> Parts:
    """Each part divided among the places of an inner axis."""
    place = {rank: n for part in inner for n, rank in enumerate(part)}
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, part in enumerate(parts):
        for rank in part:
            found[number, place.get(rank, 0)].append(rank)
    return tuple(sorted(tuple(part) for part in found.values() if len(part) > 1))


def smallest_unit(
    suspects: Collection[int],
    topology: Topology,
    host_of: Mapping[int, str] | None = None,
    gpu_of: Mapping[int, str] | None = None,
) -> Unit | None:
    """The smallest part of the job that holds all suspects and hardly anybody else.

    `host_of` and `gpu_of` map a rank to the name of its host and of its GPU there. None for fewer
    than two suspects, where they are less than three quarters of any part, and where only the
    whole job holds them.
    """
    blamed = set(suspects)
    if len(blamed) < 2:
        return None
    world = {*topology.coordinates, *(host_of or ()), *(gpu_of or ())}
    fitting = [
        (len(ranks), order, label, kind, ranks)
        for order, (kind, label, ranks) in enumerate(_units(topology, host_of or {}, gpu_of or {}))
        if blamed <= set(ranks) and len(blamed) >= _NEARLY * len(ranks) and len(ranks) < len(world)
    ]
    if not fitting:
        return None
    _, _, label, kind, ranks = min(fitting)
    if kind not in ("gpu", "host"):
        label = f"{label} ({ranks_phrase(ranks)})"
    place = f"{'on' if kind in ('gpu', 'host') else 'in'} {label}"
    part = "" if len(blamed) == len(ranks) else f", {len(blamed)} of its {len(ranks)} ranks"
    text = f"all suspects are {place}{part}"
    return Unit(kind, label, ranks, text)


def _units(
    topology: Topology, host_of: Mapping[int, str], gpu_of: Mapping[int, str]
) -> Iterable[tuple[str, str, tuple[int, ...]]]:
    """(kind, label, ranks) of all parts; of parts that are equal the first explains best."""
    gpus: dict[str, list[int]] = defaultdict(list)
    hosts: dict[str, list[int]] = defaultdict(list)
    for rank in sorted(gpu_of.keys() & host_of.keys()):
        gpus[f"GPU {gpu_of[rank]} of host {host_of[rank]}"].append(rank)
    for rank in sorted(host_of):
        hosts[host_of[rank]].append(rank)
    for gpu, ranks in gpus.items():
        yield "gpu", gpu, tuple(ranks)
    for host, ranks in hosts.items():
        yield "host", f"host {host}", tuple(ranks)
    order = {name: n for n, name in enumerate(_NAMES)}
    for axis in sorted(topology.axes, key=lambda axis: order.get(axis.name, len(order))):
        yield from _of_axis(axis)


def _of_axis(axis: Axis) -> Iterable[tuple[str, str, tuple[int, ...]]]:
    """Groups of an axis, or, where it orders stages or replicas, what lies at the same place."""
    slices = [tuple(sorted(group[n] for group in axis.groups)) for n in range(axis.size)]
    named = axis.name in _NAMES
    if axis.name not in _PLACES:
        for number, group in enumerate(axis.groups):
            yield f"{axis.name} group" if named else "group", f"{axis.name} group {number}", group
    if axis.name in _PLACES or not named:
        kind, word = _PLACES.get(axis.name, ("slice", f"{axis.name} place"))
        for number, ranks in enumerate(slices):
            yield kind, f"{word} {number}", ranks
