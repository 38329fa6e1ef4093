"""On which nodes the pods among the culprits run: a pod has no fault that a node could have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from diagnose.infer.rules.base import Hypothesis
from diagnose.timeline.event import Timeline


def put_on_nodes(winner: Hypothesis, timeline: Timeline) -> None:
    """Name the nodes of a cause's pods, as far as lines state them; the pods stay in `pods`."""
    placed = timeline.once(_nodes_of_pods)
    pods = timeline.pods | placed.keys()
    winner.pods = [host for host in winner.hosts if host in pods]
    found = {pod: node for pod in winner.pods if (node := placed.get(pod))}
    winner.hosts = sorted({found.get(host, host) for host in winner.hosts})
    named = [f"pod {pod} was assigned to {node}" for pod, node in found.items()]
    winner.why = "; ".join(part for part in (winner.why, *named) if part)


def _nodes_of_pods(timeline: Timeline) -> Mapping[str, str | None]:
    """Pod to node; None where lines name several, as of one that was moved."""
    nodes: dict[str, set[str]] = defaultdict(set)
    for event in timeline.signalling("placed"):
        if event.fields.get("name") and event.fields.get("host"):
            nodes[event.fields["name"]].add(event.fields["host"])
    return {pod: next(iter(of)) if len(of) == 1 else None for pod, of in nodes.items()}
