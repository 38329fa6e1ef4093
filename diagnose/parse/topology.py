"""Where the nodes are: which rack, leaf switch, block … each belongs to, by a text that says so.

| text | from |
|---|---|
| CSV with a column `host` and one a level | anybody |
| `topology.conf`, `topology.yaml` (trees, blocks) | Slurm; also in a ConfigMap, as by Topograph |
| `kubectl get nodes -o json` (or `yaml`) | labels of NVIDIA, AWS, OCI, Google, Kubernetes |
| `{"instances": [{"id", "network_layers", "attributes"}]}` | Topograph's engine `graph` |
| output of `ibnetdiscover` | InfiniBand; hosts by the descriptions of their adapters |

Of a fabric with a leaf switch for each rail, the leaf switches of the same nodes are one unit.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagnose.errors import InputError

MAX_HOSTS = 200_000
MAX_LEVELS = 8
MAX_COLUMNS = 64  # of a CSV
MAX_YAML = 8 << 20  # characters
_DIGITS = 18  # of the number of a host
# The labels of Kubernetes nodes that say where they are.
_LABELS = {
    "nvidia.com/gpu.clique": "nvlink",
    "network.topology.nvidia.com/accelerator": "nvlink",
    "topology.k8s.aws/ultraserver-id": "nvlink",
    "topology.kubernetes.io/rack": "rack",
    "oci.oraclecloud.com/host.rack_id": "rack",
    "network.topology.nvidia.com/leaf": "leaf",
    "topology.k8s.aws/network-node-layer-3": "leaf",
    "network.topology.nvidia.com/spine": "spine",
    "topology.k8s.aws/network-node-layer-2": "spine",
    "network.topology.nvidia.com/core": "core",
    "topology.k8s.aws/network-node-layer-1": "core",
    "cloud.google.com/gce-topology-subblock": "subblock",
    "cloud.google.com/gce-topology-block": "block",
    "oci.oraclecloud.com/host.network_block_id": "block",
    "topology.kubernetes.io/zone": "zone",
    "topology.kubernetes.io/region": "region",
}
_LAYERS = ("leaf", "spine", "core")  # of switches, from the hosts up
_LIST = re.compile(r"(?<![^\[\],])([^\[\],]+)(?:\[([0-9,-]{1,20000})\]([^\[\],]*))?(?:,|\Z)")
_PAIR = re.compile(r"(?<!\w)(\w{1,40})=(\S+)")
_CONF = re.compile(r"(?im)^\s*(?:Switch|Block)Name=")
_YAML = re.compile(r"(?m)^(?:- +|)(?:topology|apiVersion|kind|items|data): ?")
_ANCHOR = re.compile(r"(?:^|[\s\[{,])[&*][^\s,\[\]{}]")
_SWITCH = re.compile(r'Switch\s+\d+\s+"S-(\w{1,32})"\s*#\s*"(?:[^";]{0,40};)?([^":]{0,100})')
_LINK = re.compile(r'\[\d+\](?:\[\w+\])?\s+"([HS])-(\w{1,32})"[^#]{0,100}#\s*"([^"]{0,100})"')
_ADAPTER = re.compile(r"([A-Za-z0-9][\w.-]*) (?:HCA-\d+|(?:mlx|hfi|qib|bnxt_re|irdma|ib)\w+)")

Levels = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Topology:
    """The units of each level by host, levels from small units to large ones."""

    levels: Levels


def placed(units: Mapping[str, str], hosts: Sequence[str]) -> list[str]:
    """The unit of each host, "" where none is known; one of the two names may lack its domain."""
    alike: dict[str, str] = {}  # a name without its domain, of hosts of one unit
    for host, unit in units.items():
        alike[_bare(host)] = unit if alike.get(_bare(host), unit) == unit else ""
    return [units.get(host) or alike.get(_bare(host), "") for host in hosts]


def _bare(host: str) -> str:
    """The name of a host without its domain; an address as it is."""
    name = host.partition(".")[0]
    return host if name.isdigit() else name


def topology_of(text: str) -> Topology | None:
    """The topology in a text, None where there is none. Raises InputError for one too large."""
    levels = _read(text, inner=False)
    # Few units are large ones; a level in which all are one says nothing.
    sizes = {name: len({*units.values()}) for name, units in levels.items()}
    order = sorted((name for name in levels if sizes[name] > 1), key=lambda name: -sizes[name])
    return Topology({name: levels[name] for name in order[:MAX_LEVELS]}) if order else None


def _read(text: str, *, inner: bool) -> Levels:
    """The levels in a text; one `inner` to a ConfigMap holds no other."""
    if text.lstrip().startswith("{"):
        try:
            return _document(json.loads(text), inner=inner)
        except (ValueError, RecursionError):
            return {}
    if _CONF.search(text) and not _YAML.search(text):
        return _conf(text)
    if _YAML.search(text):
        return _document(_yaml(text), inner=inner)
    return _fabric(text) if _SWITCH.search(text) else _csv(text)


def _yaml(text: str) -> Any:
    """A YAML document without anchors, by which a small one could become a large one."""
    import yaml  # noqa: PLC0415  few topologies are YAML

    if len(text) > MAX_YAML or _ANCHOR.search(text):
        return None
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, Loader=loader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _document(data: Any, *, inner: bool) -> Levels:
    """What a JSON or YAML document says; nothing where it is of another form."""
    try:
        if isinstance(data, list):
            return _slurm_yaml(data)
        if "instances" in data:
            return _instances(data["instances"])
        items = data.get("items", [data])
        found = _kubernetes(items)
        for text in () if inner else _texts(items):
            found |= _read(text, inner=True)
    except (KeyError, TypeError, AttributeError):
        return {}
    return found


def _texts(items: Iterable[Any]) -> Iterator[str]:
    """What ConfigMaps hold."""
    for item in items:
        data = item.get("data")
        yield from (text for text in (data or {}).values() if isinstance(text, str))


def _csv(text: str) -> Levels:
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    try:
        names = [name.strip() for name in next(rows, [])]
        known = (
            at for at, name in enumerate(names) if name.lower() in ("host", "node", "hostname")
        )
        if (host := next(known, None)) is None:
            return {}
        columns = [(at, name) for at, name in enumerate(names) if name and at != host]
        found: Levels = {name: {} for _, name in columns[:MAX_COLUMNS]}
        for row in rows:
            for at, name in columns[:MAX_COLUMNS]:
                if max(host, at) < len(row) and row[host].strip() and row[at].strip():
                    found[name][row[host].strip()] = row[at].strip()
    except csv.Error:
        return {}
    return found


def _kubernetes(items: Iterable[Any]) -> Levels:
    found: Levels = {}
    for item in items:
        labels: Mapping[str, Any] = item["metadata"].get("labels") or {}
        host = str(labels.get("kubernetes.io/hostname", item["metadata"].get("name")))
        for label, level in _LABELS.items():
            if label in labels:
                found.setdefault(level, {}).setdefault(host, str(labels[label]))
    return found


def _instances(items: Iterable[Any]) -> Levels:
    found: Levels = {}
    for item in items:
        layers = zip(_LAYERS, item.get("network_layers") or (), strict=False)
        domain = (item.get("attributes") or {}).get("nvlink")
        for level, unit in (*layers, ("nvlink", domain)):
            if unit:
                found.setdefault(level, {})[str(item["id"])] = str(unit)
    return found


def _conf(text: str) -> Levels:
    """Slurm's topology.conf."""
    blocks: list[tuple[str, str]] = []
    switches: list[tuple[str, str, str]] = []
    for line in text.splitlines():
        pairs = {key.lower(): value for key, value in _PAIR.findall(line.partition("#")[0])}
        hosts = pairs.get("nodes", "")
        if block := pairs.get("blockname"):
            blocks.append((block, hosts))
        elif switch := pairs.get("switchname"):
            switches.append((switch, hosts, pairs.get("switches", "")))
    return _slurm(blocks, switches)


def _slurm_yaml(topologies: Iterable[Any]) -> Levels:
    """Slurm's topology.yaml: where several place a node, the default of the cluster does."""
    found: Levels = {}
    for one in sorted(topologies, key=lambda one: one.get("cluster_default") is True):
        flat = {name: value for name, value in one.items() if isinstance(value, dict)}
        blocks = flat.get("block", {}).get("blocks") or ()
        switches = flat.get("tree", {}).get("switches") or ()
        levels = _slurm(
            [(str(row["block"]), _names(row, "nodes")) for row in blocks],
            [(str(row["switch"]), _names(row, "nodes"), _names(row, "children"))
             for row in switches],
        )  # fmt: skip
        for level, units in levels.items():
            found.setdefault(level, {}).update(units)
    return found


def _names(row: Mapping[str, Any], key: str) -> str:
    return str(row.get(key) or "")


def _slurm(blocks: Iterable[tuple[str, str]], switches: Iterable[tuple[str, str, str]]) -> Levels:
    """Blocks, and switches by how many levels are below them; hosts and switches as hostlists."""
    count = 0  # of hosts by switch
    nodes: dict[str, list[str]] = {}
    below: dict[str, set[str]] = {}
    found: Levels = {}
    for block, hosts in blocks:
        names = [*expanded(hosts)]
        count += len(names)
        _check(count)
        found.setdefault("block", {}).update(dict.fromkeys(names, block))
    for switch, hosts, inner in switches:
        nodes[switch], below[switch] = [*expanded(hosts)], {*expanded(inner)}
        count += len(nodes[switch]) + len(below[switch])
        _check(count)
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


def _fabric(text: str) -> Levels:
    """The output of ibnetdiscover: hosts by leaf switches, and these by the switches above."""
    names: dict[str, str] = {}
    links: dict[str, set[str]] = {}
    hosts: dict[str, set[str]] = {}
    switch = ""
    for line in text.splitlines():
        if head := _SWITCH.match(line):
            switch = head[1]
            names[switch] = head[2].strip() or switch
        elif not line.strip():
            switch = ""
        elif switch and (link := _LINK.match(line)):
            if link[1] == "S":
                links.setdefault(switch, set()).add(link[2])
            elif adapter := _ADAPTER.fullmatch(link[3].strip()):
                hosts.setdefault(adapter[1], set()).add(switch)
    alike = {name for name, count in Counter(names.values()).items() if count > 1}
    names = {one: f"{name} {one}" if name in alike else name for one, name in names.items()}
    leaves = {one for found in hosts.values() for one in found}
    above = {one: links.get(one, set()) - leaves for one in leaves}
    spines = {host: {up for one in found for up in above[one]} for host, found in hosts.items()}
    return {"leaf": _joined(hosts, names), "spine": _joined(spines, names)}


def _joined(hosts: Mapping[str, set[str]], names: Mapping[str, str]) -> dict[str, str]:
    """The unit of each host: the switches that it shares with others, and those with others."""
    root: dict[str, str] = {}

    def top(one: str) -> str:
        while root.setdefault(one, one) != one:
            root[one] = root[root[one]]
            one = root[one]
        return one

    for found in hosts.values():
        for one in found:
            root[top(one)] = top(min(found))
    members: dict[str, list[str]] = {}
    for one in root:
        members.setdefault(top(one), []).append(names.get(one, one))
    titles = {
        one: f"{min(units)} + {len(units) - 1}" if len(units) > 1 else units[0]
        for one, units in members.items()
    }
    return {host: titles[top(min(found))] for host, found in hosts.items() if found}


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
