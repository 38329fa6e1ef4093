"""Pods of a job on Kubernetes: `kubectl exec` into the training container of each."""

from __future__ import annotations

import json
from typing import Any

from diagnose.collect.reach.model import Call, Plan
from diagnose.collect.reach.program import Start
from diagnose.collect.reach.tools import ToolError, absent, ask

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


def plan(
    selector: str,
    start: Start,
    *,
    namespace: str | None = None,
    container: str | None = None,
    context: str | None = None,
) -> Plan:
    """A call for each running pod of a label selector; the others are problems."""
    found = Plan("kubernetes", problems=absent("kubectl"))
    if found.problems:
        return found
    kubectl = ["kubectl"]
    kubectl += [f"--context={context}"] if context else []
    kubectl += [f"--namespace={namespace}"] if namespace else []
    try:
        answer = ask([*kubectl, "get", "pods", f"--selector={selector}", "--output=json"])
        pods = json.loads(answer)["items"]
        for pod in pods:
            name, phase = pod["metadata"]["name"], pod["status"].get("phase", "Unknown")
            inside = _container(pod, container)
            if phase != "Running":
                found.problems.append(f"pod {name} is {phase.lower()}: not reached")
            elif inside is None:
                found.problems.append(f"pod {name} has no container {container}: not reached")
            else:
                command = (*kubectl, "exec", "--stdin", name, f"--container={inside}", "--")
                found.calls.append(Call(name, (*command, *start.words), start.stdin))
        if not pods:
            where = f" in the namespace {namespace}" if namespace else ""
            found.problems.append(f"no pod{where} has the labels {selector}")
    except ToolError as error:
        found.problems.append(f"kubectl: {error}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        found.problems.append("kubectl: its list of pods cannot be read")
    return found


def _container(pod: dict[str, Any], wanted: str | None) -> str | None:
    """The container to look into: the wanted one, the pod's default, or its first."""
    names = [str(one["name"]) for one in pod["spec"]["containers"]]
    if wanted is not None:
        return wanted if wanted in names else None
    default = (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER)
    return default if default in names else names[0]
