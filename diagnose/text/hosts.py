"""Names of nodes: which may stand in a command, and lists of them as Slurm writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from diagnose.text.ranks import runs

# Anything else would be another word of the command line it is pasted into.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
# The own name of each node, and what Slurm takes for every node.
_EVERYWHERE = ("localhost", "localhost.localdomain", "127.0.0.1", "0.0.0.0", "all")
_NUMBERED = re.compile(r"(.*?[A-Za-z_-])(\d{1,15})")


def is_host(name: str) -> bool:
    """Whether a name can be that of a node: no word of a shell, and no name of many."""
    return bool(_NAME.fullmatch(name)) and name.lower() not in _EVERYWHERE


def fold(hosts: Iterable[str]) -> str:
    """The hostlist expression of `hosts`, sorted; names that Slurm would not take are left out."""
    groups: dict[tuple[str, int], set[int]] = {}
    alone: set[str] = set()
    names = {host for host in hosts if _NAME.fullmatch(host)}
    padded = {
        (match[1], len(match[2]))
        for match in map(_NUMBERED.fullmatch, names)
        if match and match[2].startswith("0")
    }
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            alone.add(name)
            continue
        wide = len(match[2]) if (match[1], len(match[2])) in padded else 0
        groups.setdefault((match[1], wide), set()).add(int(match[2]))
    folded = [_group(prefix, wide, found) for (prefix, wide), found in groups.items()]
    return ",".join(sorted([*folded, *alone]))


def _group(prefix: str, wide: int, numbers: set[int]) -> str:
    parts = [
        f"{first:0{wide}d}" if first == last else f"{first:0{wide}d}-{last:0{wide}d}"
        for first, last in runs(numbers)
    ]
    inside = ",".join(parts)
    return prefix + (f"[{inside}]" if len(numbers) > 1 else inside)
