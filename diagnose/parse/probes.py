"""What `diagnose collect` writes besides stacks, dumps and logs: JSON documents of a bundle.

`node.json` says which processes a node had and what became of its probes, `activity.json` what one
process did between two samples and where it waits in the kernel, `filesystems.json` which mounts
gave no answer, `manifest.json` which nodes could not be reached. What a node says of its devices,
limits and connections, `parse.node_signs` reads. Other documents of a bundle are for people.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from diagnose.parse.json_values import items, text
from diagnose.parse.node_signs import Sign, remarks, signs_of
from diagnose.parse.path import read_path

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
