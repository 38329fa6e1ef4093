"""What nodes of a hanging job say of themselves: devices, ports, killed processes, dead peers.

Only a GPU that the driver gave up, and the kernel's kill of a process that is missing, explain a
hang by themselves. A port is worth a word where other nodes have the same one active: many nodes
have ports that nobody ever connected. One connection without an answer says nothing of which end is
at fault. Where all of them, from and to different nodes, have one address in common, it is the node
behind that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from diagnose.diagnosis import CulpritKind, Evidence
from diagnose.infer.rules.base import Context, Hypothesis, Tier
from diagnose.infer.stacks.groups import PlaceClass
from diagnose.parse.probes import Kind, Sign

# Why its node is blamed; the class is the one that lists the sign in `shown_by`.
WHY: Mapping[Kind, str] = {
    "gpu_lost": "the driver has given up a GPU of the node",
    "oom_kill": "the kernel killed a process of its memory group",
    "gpu_errors": "a GPU of the node counts uncorrectable memory errors",
    "port": "a port is not active that other nodes have active",
    "port_errors": "a port counts errors while the job hangs",
    "unanswered": "a peer acknowledges nothing of what is sent to it",
    "nccl_error": "NCCL got a message of another size than it had posted",
    "dead": "its process is dead, by NCCL's RAS",
    "late": "it alone has launched fewer collectives, by NCCL's RAS",
}
# What is said of ranks and not of nodes, and of which kind these are then.
_OF_RANKS: Mapping[Kind, CulpritKind] = {
    "nccl_error": "mismatched", "dead": "missing", "late": "stuck_host",
}  # fmt: skip
_PROOF: frozenset[Kind] = frozenset({"gpu_lost", "oom_kill"})
# All others are circumstantial; NCCL's RAS takes for dead whom it can no longer reach.
_TIERS: Mapping[Kind, Tier] = dict.fromkeys(_PROOF, Tier.STRONG) | {"dead": Tier.LIKELY}
_OTHERS = 2  # nodes that are cut off from it


def propose(context: Context) -> Iterator[Hypothesis]:
    """One hypothesis a kind of sign, naming the nodes that have it."""
    by_kind = relevant(context.signs, context.stacks)
    for kind, group in by_kind.items():
        if kind == "late" and (context.by_dumps is not None or "dead" in by_kind):
            continue  # the counts of all ranks say more
        cause, why = _class(kind, context), WHY[kind]
        tier = _TIERS.get(kind, Tier.CIRCUMSTANTIAL)
        found = Hypothesis(
            cause, tier, context.catalog.classes[cause].title, _summary(group), inferred=True,
            basis="node",
        )  # fmt: skip
        if kind in _OF_RANKS:
            found.ranks = sorted({sign.rank for sign in group if sign.rank is not None})
            found.kind, found.why = _OF_RANKS[kind] if found.ranks else None, why
            found.hosts = [] if found.ranks else sorted({sign.host for sign in group if sign.host})
        elif kind == "unanswered":  # which end of a connection is at fault, one alone never says
            _name_cut_off(found, group, context.stacks)
        else:
            found.hosts = sorted({sign.host for sign in group if sign.host})
            found.why = why
        if kind == "oom_kill":
            found.ranks, found.kind = _missing(context.stacks, found.hosts), "crashed"
        yield found


def _name_cut_off(found: Hypothesis, group: Sequence[Sign], classes: Sequence[PlaceClass]) -> None:
    """Blame the node that all connections without an answer begin or end at, if there is one."""
    node = cut_off(group)
    if node is None:
        return
    found.tier = Tier.OBSERVED
    found.summary = (
        f"No packet gets through from or to {node.host or node.address}. {found.summary}"
    )
    found.why = "all connections without an answer begin or end at it"
    if node.host:
        places = [place for alike in classes for place in alike.places]
        found.hosts = [node.host]
        found.ranks = sorted(place.rank for place in places if place.stack.host == node.host)


def hang(signs: Sequence[Sign], classes: Sequence[PlaceClass], *, ended: bool = False) -> bool:
    """Whether these show that a job hangs whose stacks alone do not.

    A node says what no job survives, or has trouble while no rank made a step between two looks.
    Processes of a job that `ended` well are dead for NCCL's RAS as soon as they exit. But a report
    that knows them by their ranks was given by others of the communicator, which had not ended.
    """
    by_kind = relevant(signs, classes)
    places = [place for alike in classes for place in alike.places]
    if by_kind.keys() & _PROOF:
        return not places or any(place.still is not False for place in places)
    of_ranks = [sign for kind in _OF_RANKS for sign in by_kind.get(kind, ())]
    if of_ranks and not places:
        return not ended or any(sign.rank is not None for sign in of_ranks)
    return bool(by_kind and places) and all(place.still for place in places)


def relevant(signs: Sequence[Sign], classes: Sequence[PlaceClass]) -> dict[Kind, list[Sign]]:
    """The signs that say something of the hang, by kind."""
    active: dict[str, int] = defaultdict(int)
    for sign in signs:
        active[sign.what] += sign.kind == "port" and bool(sign.up)
    lacking = {p.stack.host for g in classes if g.state == "exited" for p in g.places}
    found: dict[Kind, list[Sign]] = defaultdict(list)
    for sign in signs:
        if sign.kind == "port" and (sign.up or active[sign.what] < 2):
            continue
        if sign.kind == "oom_kill" and sign.host not in lacking:
            continue  # who knows when that was, and of what
        found[sign.kind].append(sign)
    return dict(sorted(found.items()))


def evidence(context: Context, cause: str) -> list[Evidence]:
    """What the nodes said that speaks for this cause."""
    return [
        Evidence(sign.source, sign.line, _sentence(sign), WHY[kind], quoted=False)
        for kind, group in relevant(context.signs, context.stacks).items()
        if _class(kind, context) == cause
        for sign in group[:3]
    ]


def _class(kind: Kind, context: Context) -> str:
    return context.catalog.class_shown_by(f"node.{kind}")


def _sentence(sign: Sign) -> str:
    return ": ".join(part for part in (sign.host, sign.what, sign.text) if part)


def _missing(classes: Sequence[PlaceClass], hosts: Sequence[str]) -> list[int]:
    places = [place for alike in classes if alike.state == "exited" for place in alike.places]
    return sorted(place.rank for place in places if place.stack.host in hosts)


def _summary(group: Sequence[Sign]) -> str:
    first, more = group[0], len(group) - 1
    rest = f" (and {more} more)." if more else "."
    if first.kind in _OF_RANKS:
        return f"NCCL's RAS report says of {first.what}: {first.text}{rest}"
    return f"{first.host or 'A node'} says of {first.what}: {first.text}{rest}"


@dataclass(frozen=True, slots=True)
class CutOff:
    """The address that all connections without an answer share, and its host where known."""

    address: str
    host: str | None


def cut_off(signs: Sequence[Sign]) -> CutOff | None:
    """The node that is cut off, if these are the connections of one."""
    ends = [(_address(sign.local), _address(sign.what), sign.host) for sign in signs]
    known = [one for one in ends if one[0] and one[1]]
    if len(known) < len(ends) or not known:
        return None
    common = set.intersection(*({local, remote} for local, remote, _ in known))
    others = {end for local, remote, _ in known for end in (local, remote)} - common
    if len(common) != 1 or len(others) < _OTHERS:
        return None
    (address,) = common
    hosts = {host for local, _, host in known if local == address and host}
    return CutOff(address, hosts.pop() if len(hosts) == 1 else None)


def _address(end: str) -> str:
    return end.rpartition(":")[0]
