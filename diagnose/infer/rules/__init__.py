"""Rules: each proposes hypotheses about the root cause, from what it sees in the context.

To add one, write a module with a `propose(context)` and put it into its stage. Rules of a later
stage see what the stages before proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module

from diagnose import plugins
from diagnose.infer.rules import known_issues, signatures, stalls, unstated
from diagnose.infer.rules.base import Context, Hypothesis, Rule
from diagnose.infer.rules.endings import propose_cut_line, propose_exits
from diagnose.timeline.event import Timeline


def _when(needed: Callable[[Context], object], module: str) -> Rule:
    """The rule of a module that is imported for jobs that need it; most have no dump or stack."""

    def propose(context: Context) -> Iterable[Hypothesis]:
        rule: Rule | None = import_module(module).propose if needed(context) else None
        return rule(context) if rule else ()

    return propose


def plugged_rules(context: Context) -> Iterator[Hypothesis]:
    """What rules of other packages propose: entry points of the group `diagnose.rules`.

    One that raises, or names a class that is none, is left out.
    """
    rules = plugins.loaded(plugins.RULES)
    for name, rule in [*rules.found.items()]:
        try:
            found: list[Hypothesis] = [*rule(context)]
            for hypothesis in found:
                if hypothesis.cause not in context.catalog.classes:
                    raise ValueError(f"no cause class {hypothesis.cause}")
        except Exception as error:
            rules.drop(name, error)
        else:
            yield from found


# What lines state themselves; the first failure and the onset follow from it.
STATED: dict[str, Rule] = {
    "signatures": signatures.propose,
    "exit_codes": propose_exits,
}
# What follows from who was where, by logs, dumps, stacks and checkpoints.
INFERRED: dict[str, Rule] = {
    "stalls": stalls.propose,
    "rendezvous": unstated.propose_gathering,
    **unstated.RULES,
    "cut_line": propose_cut_line,
    "values": _when(lambda context: context.values, "diagnose.infer.rules.numeric"),
    "stacks": _when(lambda context: context.stacks or context.lone, "diagnose.infer.rules.stacks"),
    "devices": _when(
        lambda context: context.timeline.signalling("unanswered", "unnotified", "blamed"),
        "diagnose.infer.rules.devices",
    ),
    "node_signs": _when(lambda context: context.signs, "diagnose.infer.rules.node_signs"),
    "checkpoints": _when(lambda context: context.checkpoints, "diagnose.infer.rules.checkpoints"),
    "plugged": plugged_rules,
}
# What the catalog knows of all of it together.
KNOWN: dict[str, Rule] = {"known_issues": known_issues.propose}


def with_claims(ranked: list[Hypothesis], context: Context) -> list[Hypothesis]:
    """The hypotheses, the first one weighed by what other detectors conclude, if any does."""
    if not context.timeline.signalling("concluded"):
        return ranked
    from diagnose.infer.rules import detectors  # noqa: PLC0415  few jobs have any

    return detectors.with_claims(ranked, context)


def proposals(rules: Mapping[str, Rule], context: Context) -> Iterator[Hypothesis]:
    """What these rules propose, with the name of the rule and what the cause class explains."""
    for name, propose in rules.items():
        for hypothesis in propose(context):
            of_class = context.catalog.classes[hypothesis.cause]
            explained = [*hypothesis.explains, *of_class.explains]
            yield replace(hypothesis, rule=name, explains=explained, outside=of_class.outside)


def claims_beside_work(timeline: Timeline) -> list[str]:
    """Notes of what other detectors state of a job that nothing shows to have failed."""
    if not timeline.signalling("concluded"):
        return []
    from diagnose.infer.rules import detectors  # noqa: PLC0415  few jobs have any

    return detectors.beside_work(timeline)
