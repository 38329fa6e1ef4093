"""What `diagnose collect` writes besides stacks, dumps and logs: JSON documents of a bundle.

`node.json` says which processes a node had and what became of its probes, `activity.json` what one
process did between two samples and where it waits in the kernel, `filesystems.json` which mounts
gave no answer, `manifest.json` which nodes could not be reached. What is wrong with a node by its
own account is in `gpus.json` (nvidia-smi's words), `rdma.json` (sysfs), `cgroup.json`
(memory.events of cgroup v2, memory.oom_control of v1), `sockets.json` (/proc/net/tcp),
`filesystems.json` and `pressure.json`. Other documents of a bundle are for people.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from diagnose.parse.path import read_path

_MAX_ITEMS = 20_000


def listed(document: object, name: str) -> list[Any]:
    """The list under a name, so far as anybody needs it."""
    found = document.get(name) if isinstance(document, dict) else None
    return found[:_MAX_ITEMS] if isinstance(found, list) else []


def items(document: object, name: str) -> Iterator[dict[str, Any]]:
    """The objects in the list under a name."""
    yield from (item for item in listed(document, name) if isinstance(item, dict))


def text(value: object, most: int) -> str:
    """A text, so many characters of it."""
    return value[:most] if isinstance(value, str) else ""


Kind = Literal[
    "gpu_lost", "gpu_errors", "port", "port_errors", "oom_kill", "unanswered", "nccl_error",
    "dead", "late",
]  # fmt: skip

_SIGN_TEXT = 200
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
    lines = [_short(line) for line in listed(outputs, "gpus")]
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
        name = f"{_short(port.get('device'))}/{_short(port.get('port'))}"
        state = _short(port.get("state"))
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
            found = _OOM_KILLS.search(_short(group.get(file)))
            if found and int(found[1]):
                yield (
                    "oom_kill",
                    f"group {_short(name).rpartition(':')[2]}",
                    f"{file}: oom_kill {int(found[1])}",
                )


def _unanswered(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The other end, what is said of it, and the node's own end."""
    for process in items(document, "processes"):
        for socket in items(process, "sockets"):
            resends, remote = socket.get("resends"), _short(socket.get("remote"))
            waits = socket.get("state") in ("established", "syn-sent")
            if not isinstance(resends, int) or resends < _RESENDS or not waits:
                continue
            if remote and not _OWN.match(remote):
                text = f"{socket.get('state')}, sent again {resends} times without an answer"
                yield remote, text, _short(socket.get("local"))


_FIND: Mapping[str, Callable[[Mapping[str, Any]], Iterator[_Found]]] = {
    "gpus": _gpus, "rdma": _ports, "cgroup": _groups,
}  # fmt: skip


def _full(document: Mapping[str, Any]) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for mount in items(document, "mounts"):
        size, free = mount.get("size"), mount.get("free")
        key = (_short(mount.get("source")), str(size))
        if not isinstance(size, int) or not size or mount.get("read_only") or key in seen:
            continue
        what = "space" if free == 0 else "inodes" if _no_inodes(mount) else ""
        if what and len(seen) < _MAX_FULL:
            seen.add(key)
            yield f"no {what} left on {_short(mount.get('point'))} ({_short(mount.get('type'))})"


def _no_inodes(mount: Mapping[str, Any]) -> bool:
    return mount.get("inodes_free") == 0 and bool(mount.get("inodes"))


def _pressed(document: Mapping[str, Any]) -> Iterator[str]:
    for name in ("memory", "io"):
        for line in listed(document, name):
            found = _AVERAGE.match(_short(line))
            if found and float(found[1]) >= _STALLED:
                what = "memory" if name == "memory" else "I/O"
                yield f"for {float(found[1]):.0f} % of a minute all its tasks waited for {what}"


def _short(value: object) -> str:
    return text(value, _SIGN_TEXT)


_MAX_BYTES = 64 << 20
_TEXT = 500  # characters of any one
_OURS = re.compile(rb'\s*\{\s*"(?:diagnose|schema)"\s*:\s*"(?:diagnose-)?[a-z-]{2,20}/1"')


@dataclass(frozen=True, slots=True)
class Wait:
    """Where a thread waits in the kernel.

    `state` is the kernel's letter (S, D, T …), `where` the kernel's function, `call` the system
    call, `file` what it is about, `type` the type of the file system there, `mount` its place.
    """

    thread: int
    state: str = ""
    where: str = ""
    call: str = ""
    file: str = ""
    type: str = ""
    mount: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """What one document says of one process; what it leaves open is None or empty.

    `activity` is running, waiting, stuck, stopped or ended; `cpu` the share of a CPU it used and
    `switches` how often its main thread was taken off or put back on one, meanwhile.
    `ranks_here` is how many ranks its node should have.
    """

    source: str
    host: str | None
    pid: int
    rank: int | None = None
    local_rank: int | None = None
    role: str = ""
    parent: int | None = None
    world: int | None = None
    ranks_here: int | None = None
    command: str = ""
    activity: str = ""
    cpu: float | None = None
    switches: int | None = None
    waits: tuple[Wait, ...] = ()


@dataclass(frozen=True, slots=True)
class Probed:
    """What one document says: of processes, of mounts and their node, and for people."""

    looks: list[Look] = field(default_factory=list)
    silent_mounts: list[str] = field(default_factory=list)
    signs: list[Sign] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def is_probe(head: bytes) -> bool:
    """Whether a file is a document that `diagnose collect` wrote."""
    return _OURS.match(head) is not None


def read_probe(data: bytes, name: str) -> Probed:
    """What a document holds. Raises ValueError with a line for people where it is none."""
    try:
        document = json.loads(data[:_MAX_BYTES])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name}: damaged: it is no JSON document") from error
    if not isinstance(document, dict):
        raise ValueError(f"{name}: it is no document of a bundle")
    kind = _text(document.get("diagnose") or document.get("schema")).partition("/")[0]
    host = read_path(name).host
    if kind == "node":
        return _node(document, name, host)
    if kind == "activity":
        return Probed(looks=[_activity(document, name, host)])
    if kind == "filesystems":
        silent = [
            _text(m.get("point")) for m in items(document, "mounts") if m.get("answers") is False
        ]
        return Probed(silent_mounts=silent, notes=remarks(kind, document, host))
    if kind == "diagnose-bundle":
        problems = document.get("problems")
        notes = problems if isinstance(problems, list) else []
        return Probed(notes=[_text(note) for note in notes[:100]])
    return Probed(signs=signs_of(kind, document, name, host), notes=remarks(kind, document, host))


def _node(document: dict[str, Any], name: str, host: str | None) -> Probed:
    here = _text(document.get("host")) or host
    looks = [
        Look(
            name, here, pid, rank=_number(one.get("rank")),
            local_rank=_number(one.get("local_rank")), role=_text(one.get("role")),
            parent=_number(one.get("parent")), world=_number(one.get("world")),
            ranks_here=_number(one.get("local_world")), command=_text(one.get("command")),
        )
        for one in items(document, "processes")
        if (pid := _number(one.get("pid"))) is not None
    ]  # fmt: skip
    problems = document.get("problems")
    notes = [_text(problem) for problem in problems[:20]] if isinstance(problems, list) else []
    failed: dict[str, list[str]] = {}
    for probe in items(document, "probes"):
        if probe.get("problem") and probe.get("status") != "not available":
            failed.setdefault(_text(probe.get("problem")), []).append(_text(probe.get("name")))
    notes += [
        f"{', '.join(names[:4])}{', …' * (len(names) > 4)}: {why}" for why, names in failed.items()
    ]
    return Probed(looks=looks, notes=[f"{here}: {note}" for note in notes])


def _activity(document: dict[str, Any], name: str, host: str | None) -> Look:
    cpu = document.get("cpu")
    waits = tuple(
        Wait(
            thread, _text(one.get("state")), _text(one.get("wchan")), _text(one.get("call")),
            _text(one.get("file")), _text(one.get("type")), _text(one.get("mount")),
        )
        for one in items(document, "waits")
        if (thread := _number(one.get("thread"))) is not None
    )  # fmt: skip
    pid = _number(document.get("pid"))
    if pid is None:
        raise ValueError(f"{name}: it does not say of which process it is")
    return Look(
        name, host, pid, rank=_number(document.get("rank")), role=_text(document.get("role")),
        activity=_text(document.get("activity")),
        cpu=float(cpu) if isinstance(cpu, int | float) else None, switches=_switches(document),
        waits=waits,
    )  # fmt: skip


def _switches(document: dict[str, Any]) -> int | None:
    counts = []
    for sample in items(document, "samples"):
        parts = (_number(sample.get("voluntary")), _number(sample.get("involuntary")))
        counts.append(
            sum(part for part in parts if part is not None)
            if any(part is not None for part in parts)
            else None
        )
    if len(counts) != 2 or counts[0] is None or counts[1] is None:
        return None
    return max(0, counts[1] - counts[0])


def _number(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < 1 << 40 else None  # type: ignore[operator, return-value]


def _text(value: object) -> str:
    return text(value, _TEXT)
