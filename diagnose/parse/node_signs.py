"""What is wrong with a node by its own account: devices, ports, limits, disks, connections.

From the documents that `diagnose collect` writes of a node (`diagnose.collect.machine`):
`gpus.json` (nvidia-smi's words), `rdma.json` (sysfs), `cgroup.json` (memory.events of cgroup v2,
memory.oom_control of v1), `sockets.json` (/proc/net/tcp), `filesystems.json` and `pressure.json`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from diagnose.parse.json_values import items, listed, text

Kind = Literal[
    "gpu_lost", "gpu_errors", "port", "port_errors", "oom_kill", "unanswered", "nccl_error",
    "dead", "late",
]  # fmt: skip

_TEXT = 200
# nvidia-smi's words for a device that the driver has given up.
_LOST = re.compile(
    r"(?i)GPU is lost|GPU requires reset|unable to determine the device handle|fallen off the bus"
)
_UNCORRECTED = re.compile(r"ecc\.errors\.uncorrected\.volatile\.total")
_OOM_KILLS = re.compile(r"^oom_kill (\d+)$", re.M)
_AVERAGE = re.compile(r"full avg10=\S+ avg60=(\d+(?:\.\d+)?)")
# Counters of a port that do not grow while it is well; of mlx5 and of the InfiniBand standard.
_PORT_ERRORS = (
    "link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors",
    "local_link_integrity_errors", "local_ack_timeout_err", "rnr_nak_retry_err",
)  # fmt: skip
_RESENDS = 4  # each doubles the wait: some three seconds without an answer
_OWN = re.compile(r"127\.|\[0000:0000:0000:0000:0000:0000:0000:0001\]|0\.0\.0\.0:")
_STALLED = 20.0  # % of a minute in which all tasks waited for it
_MAX_FULL = 3  # mounts told of


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that a node says of itself.

    `what` is the device, port, group or address, `up` whether a port is active (None of all else),
    `text` what was read, for people; `rank` whom it is about, where that is no node; `local` the
    node's own end of a connection to the address.
    """

    source: str
    host: str | None
    kind: Kind
    what: str
    text: str
    up: bool | None = None
    rank: int | None = None
    line: int = 1
    local: str = ""


def signs_of(kind: str, document: Mapping[str, Any], source: str, host: str | None) -> list[Sign]:
    """The signs in a document of this kind; of ports also those that are well, to compare with."""
    if kind == "sockets":
        found = islice(_unanswered(document), _MAX_SOCKETS)
        return [
            Sign(source, host, "unanswered", remote, text, local=local)
            for remote, text, local in found
        ]
    find = _FIND.get(kind)
    return [Sign(source, host, *found) for found in find(document)] if find else []


def remarks(kind: str, document: Mapping[str, Any], host: str | None) -> list[str]:
    """What a document says that may matter and proves nothing, for people."""
    if kind == "filesystems":
        return [f"{host}: {line}" for line in _full(document)]
    if kind == "pressure":
        return [f"{host}: {line}" for line in _pressed(document)]
    return []


_Found = tuple[Kind, str, str] | tuple[Kind, str, str, bool]
_MAX_SOCKETS = 10_000  # of a node that wait for an answer


def _gpus(document: Mapping[str, Any]) -> Iterator[_Found]:
    outputs = document.get("said")
    lines = [_text(line) for line in listed(outputs, "gpus")]
    for line in lines:
        if _LOST.search(line):
            yield "gpu_lost", "GPU", line
    if not lines:
        return
    header = [name.strip() for name in lines[0].split(",")]
    column = next((at for at, name in enumerate(header) if _UNCORRECTED.match(name)), None)
    for line in lines[1:]:
        values = [value.strip() for value in line.split(",")]
        if column is not None and len(values) == len(header) and values[column].isdigit():
            count = int(values[column])
            if count:
                yield "gpu_errors", f"GPU {values[0]}", f"{count} uncorrectable memory errors"


def _ports(document: Mapping[str, Any]) -> Iterator[_Found]:
    for port in items(document, "ports"):
        name = f"{_text(port.get('device'))}/{_text(port.get('port'))}"
        state = _text(port.get("state"))
        if state:
            yield "port", name, f"state {state.rpartition(': ')[2]}", state.endswith("ACTIVE")
        grew = port.get("grew")
        grown = [
            f"{counter} +{by}"
            for counter in _PORT_ERRORS
            if isinstance(grew, dict) and isinstance(by := grew.get(counter), int) and by > 0
        ]
        if grown:
            yield "port_errors", name, f"{', '.join(grown)} within a second"


def _groups(document: Mapping[str, Any]) -> Iterator[_Found]:
    groups = document.get("groups")
    for name, group in (groups if isinstance(groups, dict) else {}).items():
        if not isinstance(group, dict):
            continue
        for file in ("memory.events", "memory.oom_control"):
            found = _OOM_KILLS.search(_text(group.get(file)))
            if found and int(found[1]):
                yield (
                    "oom_kill",
                    f"group {_text(name).rpartition(':')[2]}",
                    f"{file}: oom_kill {int(found[1])}",
                )


def _unanswered(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The other end, what is said of it, and the node's own end."""
    for process in items(document, "processes"):
        for socket in items(process, "sockets"):
            resends, remote = socket.get("resends"), _text(socket.get("remote"))
            waits = socket.get("state") in ("established", "syn-sent")
            if not isinstance(resends, int) or resends < _RESENDS or not waits:
                continue
            if remote and not _OWN.match(remote):
                text = f"{socket.get('state')}, sent again {resends} times without an answer"
                yield remote, text, _text(socket.get("local"))


_FIND: Mapping[str, Callable[[Mapping[str, Any]], Iterator[_Found]]] = {
    "gpus": _gpus, "rdma": _ports, "cgroup": _groups,
}  # fmt: skip


def _full(document: Mapping[str, Any]) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for mount in items(document, "mounts"):
        size, free = mount.get("size"), mount.get("free")
        key = (_text(mount.get("source")), str(size))
        if not isinstance(size, int) or not size or mount.get("read_only") or key in seen:
            continue
        what = "space" if free == 0 else "inodes" if _no_inodes(mount) else ""
        if what and len(seen) < _MAX_FULL:
            seen.add(key)
            yield f"no {what} left on {_text(mount.get('point'))} ({_text(mount.get('type'))})"


def _no_inodes(mount: Mapping[str, Any]) -> bool:
    return mount.get("inodes_free") == 0 and bool(mount.get("inodes"))


def _pressed(document: Mapping[str, Any]) -> Iterator[str]:
    for name in ("memory", "io"):
        for line in listed(document, name):
            found = _AVERAGE.match(_text(line))
            if found and float(found[1]) >= _STALLED:
                what = "memory" if name == "memory" else "I/O"
                yield f"for {float(found[1]):.0f} % of a minute all its tasks waited for {what}"


def _text(value: object) -> str:
    return text(value, _TEXT)
