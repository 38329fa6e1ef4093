"""Where the nodes are: which rack, leaf switch, block … each belongs to, by a file that says so.

That is a CSV (`host,rack,leaf`), Slurm's `topology.conf`, or the nodes of Kubernetes
(`kubectl get nodes -o json`).
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose.errors import InputError
from diagnose.ingest.raw import reason
from diagnose.ingest.sniff import without_mark

MAX_BYTES = 64 << 20
MAX_HOSTS = 200_000
MAX_LEVELS = 8
_DIGITS = 18  # of the number of a host
# The labels of Kubernetes nodes that say where they are.
_LABELS = {
    "nvidia.com/gpu.clique": "nvlink",
    "network.topology.nvidia.com/accelerator": "nvlink",
    "topology.kubernetes.io/rack": "rack",
    "network.topology.nvidia.com/leaf": "leaf",
    "network.topology.nvidia.com/spine": "spine",
    "network.topology.nvidia.com/core": "core",
    "topology.kubernetes.io/zone": "zone",
    "topology.kubernetes.io/region": "region",
}
_LIST = re.compile(r"([^\[\],]+)(?:\[([0-9,-]{1,20000})\])?([^\[\],]*)(?:,|\Z)")
_PAIR = re.compile(r"(\w+)=(\S+)")


@dataclass(frozen=True, slots=True)
class Topology:
    """The units of each level by host, levels from small units to large ones."""

    levels: dict[str, dict[str, str]]


def read_topology(path: Path) -> Topology:
    """The topology in a file. Raises InputError where it cannot be read or says nothing."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: {reason(error)}") from error
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
    text = without_mark(data).decode("utf-8", "replace")
    if text.lstrip().startswith("{"):
        levels = _kubernetes(text)
    elif re.search(r"(?im)^\s*(?:Switch|Block)Name=", text):
        levels = _slurm(text)
    else:
        levels = _csv(text)
    # Few units are large ones; a level in which all are one says nothing.
    sizes = {name: len({*units.values()}) for name, units in levels.items()}
    order = sorted((name for name in levels if sizes[name] > 1), key=lambda name: -sizes[name])
    if not order:
        raise InputError(
            f"{path}: no topology: give a CSV with the columns host and rack, leaf …, Slurm's "
            "topology.conf, or the output of `kubectl get nodes -o json`"
        )
    return Topology({name: levels[name] for name in order[:MAX_LEVELS]})


def _csv(text: str) -> dict[str, dict[str, str]]:
    rows = csv.DictReader(text.splitlines(), skipinitialspace=True)
    try:
        names = [name for name in rows.fieldnames or () if name]
        host = next((name for name in names if name.lower() in ("host", "node", "hostname")), None)
        if host is None:
            return {}
        found: dict[str, dict[str, str]] = {name: {} for name in names if name != host}
        for row in rows:
            for name, units in found.items():
                if row[host] and row[name]:
                    units[row[host].strip()] = row[name].strip()
    except csv.Error:
        return {}
    return found


def _kubernetes(text: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    try:
        for item in json.loads(text)["items"]:
            labels: Mapping[str, Any] = item["metadata"].get("labels") or {}
            host = str(labels.get("kubernetes.io/hostname", item["metadata"]["name"]))
            for label, level in _LABELS.items():
                if label in labels:
                    found.setdefault(level, {})[host] = str(labels[label])
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return {}
    return found


def _slurm(text: str) -> dict[str, dict[str, str]]:
    """Switches by how many levels are below them, and blocks."""
    count = 0  # of hosts by switch
    nodes: dict[str, list[str]] = {}
    below: dict[str, set[str]] = {}
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        pairs = {key.lower(): value for key, value in _PAIR.findall(line.partition("#")[0])}
        hosts = [*expanded(pairs.get("nodes", ""))]
        count += len(hosts)
        _check(count)
        if block := pairs.get("blockname"):
            found.setdefault("block", {}).update(dict.fromkeys(hosts, block))
        elif switch := pairs.get("switchname"):
            nodes[switch], below[switch] = hosts, {*expanded(pairs.get("switches", ""))}
    level = {name for name, hosts in nodes.items() if hosts}
    number = 1
    while level and number <= MAX_LEVELS:
        of_level = {host: switch for switch in sorted(level) for host in nodes[switch]}
        found["leaf" if number == 1 else f"switch level {number}"] = of_level
        above = {name for name, parts in below.items() if level & parts} - level
        for name in above:
            count += sum(len(nodes.get(part, ())) for part in below[name])
            _check(count)
            nodes[name] = [host for part in below[name] for host in nodes.get(part, ())]
        level, number = above, number + 1
    return found


def _check(count: int) -> None:
    if count > MAX_HOSTS * MAX_LEVELS:
        raise InputError(f"the topology lists hosts more than {MAX_HOSTS * MAX_LEVELS:,} times")


def expanded(text: str) -> Iterator[str]:
    """The names of a hostlist expression, at most MAX_HOSTS of them."""
    count = 0
    for prefix, numbers, suffix in _LIST.findall(text):
        for part in numbers.split(",") if numbers else ("",):
            first, dash, last = part.partition("-")
            if not dash:
                names: Any = (first,)
            elif 0 < len(first) <= _DIGITS >= len(last) > 0 and (
                int(last) - int(first) < MAX_HOSTS
            ):
                names = (f"{n:0{len(first)}d}" for n in range(int(first), int(last) + 1))
            else:
                continue
            for name in names:
                count += 1
                if count > MAX_HOSTS:
                    return
                yield f"{prefix}{name}{suffix}"
