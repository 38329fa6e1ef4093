"""What other detectors conclude, beside the logs and beside each other.

A claim is a line or a record that blames somebody: `signatures` proposes it as any cause that is
stated. Where the logs blame the same, both together are proof; where another detector blames
somebody else, the verdict says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from diagnose.infer.rules.base import Context, Hypothesis, Tier
from diagnose.infer.rules.signatures import culprits_of, who
from diagnose.parse.detectors import about, tool_of
from diagnose.stories.passing import CONCLUDED
from diagnose.timeline.event import Event, Timeline

_NOTES, _TEXT = 5, 200  # how many, and characters of what is stated
_Blamed = tuple[set[int], set[str]]  # ranks and hosts


def with_claims(ranked: Sequence[Hypothesis], context: Context) -> list[Hypothesis]:
    """The hypotheses, the first one weighed by what detectors conclude of it."""
    first, *others = ranked
    if any(about(one.signature).get("hang") for one in (first, *first.merged)):
        first = replace(first, hung=True)
    blamed, agreed = _blamed(context), _agree(first)
    if differing := _differing(blamed):
        summary = f"{first.summary} Detectors disagree: {'; '.join(differing)}."
        tier = first.tier if agreed else min(first.tier, Tier.CIRCUMSTANTIAL)
        return [replace(first, summary=summary, tier=tier), *others]
    if agreed:
        first = replace(first, tier=max(first.tier, Tier.OBSERVED), sure=True)
    return [first, *others]


def beside_work(timeline: Timeline) -> list[str]:
    """What detectors state, in notes, of a job that nothing shows to have failed of it."""
    notes: dict[str, None] = {}
    for event in timeline.signalling(CONCLUDED):
        if event.cause is not None:
            notes.setdefault(noted(event))
    return bounded([*notes])


def bounded(notes: Sequence[str]) -> list[str]:
    """The first notes, and how many more there are."""
    more = len(notes) - _NOTES
    return [*notes[:_NOTES], f"Detectors state {more} more faults"] if more > 0 else [*notes]


def noted(claim: Event) -> str:
    """What a detector states of whom."""
    rank, host = claim.fields.get("rank"), claim.fields.get("host") or claim.host
    whom = f"rank {rank}" if rank else host or "a host"
    what = claim.fields.get("message") or claim.fields.get("reason") or claim.text.strip()
    return f"{tool_of(claim.signature)} of {whom}: {what[:_TEXT]}"


def _agree(winner: Hypothesis) -> bool:
    """Whether a detector and the logs each name the class, and nobody else than the other does.

    What RAS and nodes report of themselves is no other witness than their detectors are.
    """
    claims, own = [], []
    for one in (winner, *winner.merged):
        if tool_of(one.signature):
            claims.append(one)
        elif one.tier >= Tier.LIKELY and one.basis != "node":
            own.append(one)
    return any(_same(claim, one) for claim in claims for one in own)


def _same(claim: Hypothesis, one: Hypothesis) -> bool:
    if claim.ranks and one.ranks:
        return set(claim.ranks) == set(one.ranks)
    return bool(claim.hosts and one.hosts) and set(claim.hosts) == set(one.hosts)


def _blamed(context: Context) -> Mapping[str, _Blamed]:
    """Whom each tool blames, hints left out."""
    found: dict[str, _Blamed] = {}
    for event in context.timeline.signalling(CONCLUDED):
        signature, tool = context.catalog.by_id.get(event.signature or ""), tool_of(event.signature)
        if signature is None or tool is None or signature.strength == "weak":
            continue
        own = culprits_of(signature, [event], context.facts.world_size, context.timeline)
        ranks, hosts = found.setdefault(tool, (set(), set()))
        ranks.update(own[0])
        hosts.update(own[1])
    return {tool: one for tool, one in found.items() if any(one)}


def _differing(blamed: Mapping[str, _Blamed]) -> list[str]:
    """What each tool says, where two of them have nobody in common."""
    for one, other in combinations(blamed.values(), 2):
        ranks, hosts = one[0] and other[0], one[1] and other[1]
        if (ranks or hosts) and one[0].isdisjoint(other[0]) and one[1].isdisjoint(other[1]):
            return [
                f"{tool} blames {who(sorted(found[0]), sorted(found[1]))}"
                for tool, found in blamed.items()
            ]
    return []
