"""Rules: each proposes hypotheses about the root cause, from what it sees in the context.

To add one, write a module with a `propose(context)` and put it into its stage. Rules of a later
stage see what the stages before proposed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from diagnose.infer.rules import (
    checkpoints,
    collectives,
    exit_codes,
    known_issues,
    signatures,
    stacks,
    stalls,
)
from diagnose.infer.rules.base import Context, Hypothesis, Rule

# What lines state themselves; the first failure and the onset follow from it.
STATED: dict[str, Rule] = {
    "signatures": signatures.propose,
    "exit_codes": exit_codes.propose,
}
# What follows from who was where, by logs, dumps, stacks and checkpoints.
INFERRED: dict[str, Rule] = {
    "stalls": stalls.propose,
    "collectives": collectives.propose,
    "stacks": stacks.propose,
    "agreeing": stalls.agreeing,
    "checkpoints": checkpoints.propose,
}
# What the catalog knows of all of it together.
KNOWN: dict[str, Rule] = {"known_issues": known_issues.propose}


def proposals(rules: dict[str, Rule], context: Context) -> Iterator[Hypothesis]:
    """What these rules propose, each hypothesis with the name of its rule."""
    for name, propose in rules.items():
        for hypothesis in propose(context):
            yield replace(hypothesis, rule=name)
