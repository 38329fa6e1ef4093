"""A node that no packet reaches or leaves, by who on which node waits for an answer of whom.

One connection without an answer says nothing of which end is at fault. Where all of them, from and
to different nodes, have one address in common, it is the node behind that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diagnose.parse.node_signs import Sign

_OTHERS = 2  # nodes that are cut off from it


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
