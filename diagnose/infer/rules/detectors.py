"""What other detectors conclude, beside the logs and beside each other.

A claim is a line or a record that blames somebody: `signatures` proposes it as any cause that is
stated. Where the logs blame the same, both together are proof; where another detector blames
somebody else, or the logs do, the verdict says so and shows both. Only what the logs observe by
themselves outweighs a detector.
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
    parts = (part for one in ranked for part in (one, *one.merged))
    own = next((part for part in parts if _is_own(part)), None)
    if own is not None and (against := _against(own, blamed, context)):
        return [_doubted(first, own, against, context), *others]
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


def short_host(host: str) -> str:
    """A host without its domain, in lower case."""
    return host.lower().partition(".")[0]


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


def _against(
    own: Hypothesis, blamed: Mapping[str, _Blamed], context: Context
) -> dict[str, _Blamed]:
    """Whom detectors blame that have nobody in common with what the logs show."""
    mine = set(own.ranks), set(own.hosts)
    return {tool: one for tool, one in blamed.items() if _apart(mine, one, context)}


def _is_own(one: Hypothesis) -> bool:
    """Whether logs or dumps alone show it, and of whom."""
    named = bool(one.ranks or one.hosts) and tool_of(one.signature) is None
    return named and one.tier >= Tier.LIKELY and one.basis != "node"


def _apart(one: _Blamed, other: _Blamed, context: Context) -> bool:
    """Whether two have nobody in common: neither a rank nor, by where ranks are, a host."""
    host_of = context.timeline.hosts_of_ranks
    hosts, others = (
        {short_host(host) for host in (*hosts, *(host_of[rank] for rank in ranks & host_of.keys()))}
        for ranks, hosts in (one, other)
    )
    if one[0] and other[0]:
        return one[0].isdisjoint(other[0])
    return bool(hosts and others) and hosts.isdisjoint(others)


def _doubted(
    first: Hypothesis, own: Hypothesis, against: Mapping[str, _Blamed], context: Context
) -> Hypothesis:
    """The first hypothesis, with whom each analysis blames and the lines of these.

    It names whom the logs do if these are observed to be it, else nobody: any of them may be wrong.
    """
    views = [f"the logs blame {who(own.ranks, own.hosts)}", *_in_words(against)]
    claims = context.timeline.signalling(CONCLUDED)
    rows = [event.index for event in claims if tool_of(event.signature) in against]
    observed = own.tier >= Tier.OBSERVED
    return replace(
        first,
        summary=f"{first.summary} Analyses disagree: {'; '.join(views)}.",
        tier=min(first.tier, own.tier if observed else Tier.CIRCUMSTANTIAL),
        ranks=own.ranks if observed else [],
        hosts=own.hosts if observed else [],
        kind=own.kind if observed else None,
        why=own.why if observed else "",
        rows=[*first.rows, *(row for row in rows if row not in first.rows)],
    )


def _in_words(blamed: Mapping[str, _Blamed]) -> list[str]:
    return [
        f"{tool} blames {who(sorted(ranks), sorted(hosts))}"
        for tool, (ranks, hosts) in blamed.items()
    ]


def _differing(blamed: Mapping[str, _Blamed]) -> list[str]:
    """What each tool says, where two of them have nobody in common."""
    for one, other in combinations(blamed.values(), 2):
        ranks, hosts = one[0] and other[0], one[1] and other[1]
        if (ranks or hosts) and one[0].isdisjoint(other[0]) and one[1].isdisjoint(other[1]):
            return _in_words(blamed)
    return []
