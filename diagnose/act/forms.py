"""Decisions as other programs take them: commands, options, documents. Nothing here runs any.

A command is a list of words; `shell` quotes each, whatever a log called its nodes.

Sources: scontrol(1) and the guide to prologs and epilogs of Slurm; the reference of the Kubernetes
API (taints, conditions of nodes); NVSentinel's HealthEvent; the node health check of NVIDIA's
Resiliency Extension, which reads `failed_checks`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from diagnose.act.record import ON_NODES, SCHEMA, Action
from diagnose.diagnosis import plain
from diagnose.report.safe import escaped
from diagnose.text.hosts import fold

TAINT = "diagnose/suspect"
CONDITION = "DiagnoseSuspect"
_PLAIN = re.compile(r"[^A-Za-z0-9 .,:;()/@%+=_-]+")
_NEVER = (
    "# As root or SlurmUser. Never in a prolog or epilog: Slurm wants no scontrol there, every\n"
    "# ending job would wait for the controller.\n"
)
Words = list[str]


def document(actions: Sequence[Action]) -> str:
    """The records: one object of schema `diagnose-action/1`."""
    return _json({"schema": SCHEMA, "actions": [plain(one) for one in actions]})


def _json(data: Any) -> str:
    return escaped(json.dumps(data, ensure_ascii=False, indent=2)) + "\n"


def _on_nodes(actions: Iterable[Action]) -> list[Action]:
    return [one for one in actions if one.action in ON_NODES]


def shell(commands: Iterable[Words]) -> str:
    """Commands as lines of a shell."""
    return "".join(f"{shlex.join(words)}\n" for words in commands)


def simple(text: str, limit: int) -> str:
    """A text of harmless characters alone, for a field that others split or print."""
    return " ".join(_PLAIN.sub(" ", text).split())[:limit].strip()


def drains(actions: Sequence[Action], undo: bool) -> list[Words]:
    """The commands of Slurm: nodes with the same reason together. Only drains change nodes."""
    found: dict[str, list[str]] = {}
    for one in actions:
        if one.action == "drain":
            reason = simple(f"diagnose {one.fingerprint} {one.reason}", 180)
            found.setdefault(reason, []).extend(one.targets)
    return [
        ["scontrol", "update", f"NodeName={fold(nodes)}",
         *(["State=RESUME"] if undo else ["State=DRAIN", f"Reason={reason}"])]
        for reason, nodes in found.items()
    ]  # fmt: skip


def slurm(actions: Sequence[Action], undo: bool) -> str:
    """Drains as commands; nodes that are only to be left out as a comment with the option."""
    commands = shell(drains(actions, undo))
    left_out = exclude([one for one in actions if one.action == "exclude"], undo)
    note = f"# Not sure enough for a drain: sbatch {left_out}" if left_out else ""
    return (_NEVER + commands if commands else "") + note


def exclude(actions: Sequence[Action], undo: bool) -> str:
    """The option of sbatch and srun with all nodes of drains and exclusions; empty without any."""
    if undo:
        return ""
    nodes = fold(node for one in _on_nodes(actions) for node in one.targets)
    return f"--exclude={nodes}\n" if nodes else ""


def taints(actions: Sequence[Action], undo: bool) -> list[Words]:
    """The commands of Kubernetes: a taint that keeps pods away, and a condition that says why."""
    found = []
    for one in _on_nodes(actions):
        effect = "NoSchedule" if one.action == "drain" else "PreferNoSchedule"
        condition = {
            "type": CONDITION,
            "status": "False" if undo else "True",
            "reason": "".join(part.title() for part in re.split(r"[^a-z0-9]+", one.cause)),
            "message": one.reason,
            "lastTransitionTime": one.made.replace("+00:00", "Z"),
        }
        patch = json.dumps({"status": {"conditions": [condition]}}, separators=(",", ":"))
        for node in one.targets:
            taint = [f"{TAINT}-"] if undo else [f"{TAINT}={one.cause}:{effect}", "--overwrite"]
            found.append(["kubectl", "taint", "node", node, *taint])
            found.append(
                ["kubectl", "patch", "node", node, "--subresource=status", "--type=strategic",
                 "-p", patch]
            )  # fmt: skip
    return found


def nvsentinel(actions: Sequence[Action], undo: bool) -> str:
    """A list of NVSentinel's HealthEvents, one a node."""
    return _json([
        {
            "version": 1,
            "agent": "diagnose",
            "componentClass": "Node",
            "checkName": f"Diagnose{one.cause.title().replace('.', '').replace('_', '')}",
            "isFatal": one.action == "drain" and not undo,
            "isHealthy": undo,
            "message": one.reason,
            "recommendedAction": "NONE" if undo else "CONTACT_SUPPORT",
            "errorCode": [one.cause],
            "entitiesImpacted": [{"entityType": "NODE", "entityValue": node}],
            "metadata": {"fingerprint": one.fingerprint, "job": one.job, "expires": one.expires},
            "generatedTimestamp": one.made.replace("+00:00", "Z"),
            "nodeName": node,
        }
        for one in _on_nodes(actions)
        for node in one.targets
    ])  # fmt: skip


def nvrx(actions: Sequence[Action], undo: bool) -> str:
    """What a node health check of NVRx is to answer, by node: `failed_checks` says unhealthy."""
    return _json({
        node: {"failed_checks": [] if undo else [f"diagnose {one.cause}"]}
        for one in _on_nodes(actions)
        for node in one.targets
    })  # fmt: skip


FORMS: Mapping[str, Callable[[Sequence[Action], bool], str]] = {
    "slurm": slurm,
    "exclude": exclude,
    "kubernetes": lambda actions, undo: shell(taints(actions, undo)),
    "nvsentinel": nvsentinel,
    "nvrx": nvrx,
}
COMMANDS: Mapping[str, Callable[[Sequence[Action], bool], list[Words]]] = {
    "slurm": drains,
    "kubernetes": taints,
}
