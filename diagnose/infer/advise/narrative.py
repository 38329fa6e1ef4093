"""The verdict told with its lines: evidence, causal chain, alternatives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from diagnose.catalog.entries import entry_of
from diagnose.diagnosis import (
    Alternative,
    ChainLink,
    Confidence,
    Evidence,
    PythonException,
    RootCause,
)
from diagnose.infer.events.exceptions import fullest, in_words, reread, with_code
from diagnose.infer.events.onset import Activity
from diagnose.infer.judge.verdict import Verdict
from diagnose.infer.rules import signatures
from diagnose.infer.rules.base import Context, Hypothesis, Lost, Tier
from diagnose.text.times import iso
from diagnose.timeline.event import Event, Timeline
from diagnose.timeline.readings import DOCUMENT_SIGNALS

if TYPE_CHECKING:
    from diagnose.infer.collectives.clock_fit import ClockFit
    from diagnose.job.model import Job

_CHAIN_LIMIT, _EVIDENCE_LIMIT, _ALTERNATIVES = 10, 6, 4
_TEXT_LIMIT, _EVENT_LIMIT = 400, 120
# Lines that back the verdict up but tell no event of their own.
_NO_EVENT = ("rank_map", "frontier", "frame")
_CHAIN_ROLES = ("cause", "effect", "aftermath")
_WORDS = {
    Lost.FOLLOWS: "consequence of the root cause ({title})",
    Lost.LATE: "first seen after the first failure",
    Lost.WEAK: "supported only by weak evidence",
    Lost.CIRCUMSTANTIAL: "circumstantial; the evidence for the root cause is decisive",
    Lost.AFTER: "first seen after the root cause",
    Lost.LESS: "weaker evidence than the root cause",
}


def evidence(winner: Hypothesis, context: Context) -> list[Evidence]:
    """Log lines of the verdict first, then where single ranks are by dumps and stacks."""
    found = _lines(winner, context)
    if context.stacks:
        from diagnose.infer.rules import stacks  # noqa: PLC0415  few jobs have stack dumps

        found += stacks.evidence(context.stacks, winner.ranks)
    if context.signs:
        from diagnose.infer.rules import node_signs  # noqa: PLC0415  only bundles have them

        found += node_signs.evidence(context, winner.cause)
    return [*found, *(one for stall in context.stalls for one in _of_ranks(stall))]


def _of_ranks(stall: Verdict) -> Iterator[Evidence]:
    """What dumps say of single ranks, the culprits first."""
    why = {True: "State of the blocking rank", False: "State of a waiting rank"}
    if stall.kind in ("mismatched", "cycle", "deadlock"):
        why = {True: "State of the diverging rank", False: "State of another rank"}
    for one in stall.evidence:
        text = why[one.rank in stall.ranks] if stall.ranks else ""
        yield Evidence(one.file, one.line, one.text, text, quoted=False)


def _lines(winner: Hypothesis, context: Context) -> list[Evidence]:
    """The lines that carry the verdict, one per place, each with why it matters."""
    whys = {row: stall.why for stall in context.stalls for row in stall.rows if stall.why}
    found: dict[tuple[str, int], Evidence] = {}
    for index in winner.rows:
        event = context.timeline.at(index)
        if event.signal in DOCUMENT_SIGNALS:
            continue
        entry = entry_of(context.catalog, event.signature)
        why = entry.title if entry else ""
        if winner.inferred and index in whys:
            why = f"{why}; {whys[index]}" if why else whys[index]
        found.setdefault(event.place, Evidence(*event.place, clean(event.text), why))
    return list(found.values())[:_EVIDENCE_LIMIT]


def exception(winner: Hypothesis, context: Context, job: Job) -> PythonException | None:
    """The exception that the verdict rests on, the fullest that one of its lines tells."""
    lines, raised = [*map(context.timeline.at, winner.rows)], context.stories.deeds.raised
    if found := fullest(lines, raised):
        return with_code(found, job)
    header = next((line for line in lines if line.index in raised.nameless), None)
    return reread(header, job) if header is not None else None


def root_cause(winner: Hypothesis, raised: PythonException | None, level: Confidence) -> RootCause:
    """The cause that the verdict names, by whom."""
    return RootCause(
        winner.cause,
        winner.title,
        _summary(winner, raised),
        level,
        winner.signature,
        winner.suggested,
    )


def _summary(winner: Hypothesis, raised: PythonException | None) -> str:
    """What happened: by its rule, but that a name which only reading again shows is said."""
    if raised is None or not winner.vague or (raised.type and raised.type in winner.summary):
        return winner.summary
    who = signatures.who(winner.ranks, winner.hosts)
    return f"{in_words(raised)}{', ' + who if who else ''}."


def chain(winner: Hypothesis, context: Context, clocks: ClockFit | None = None) -> list[ChainLink]:
    """What happened in time order, the same message of several ranks told once.

    Where `clocks` cannot tell which of two hosts' lines came first, the later one says so.
    """
    by_signature = _by_signature(context.timeline)
    links: list[ChainLink] = []
    seen: set[str] = set()
    before: Event | None = None
    chosen = map(context.timeline.at, _to_tell(winner, by_signature.values(), context.activity))
    for event in _in_order(chosen):
        if event.signature in seen:
            continue
        seen |= {event.signature} if event.signature else set()
        entry = entry_of(context.catalog, event.signature)
        title = entry.title if entry else clean(event.text)[:_EVENT_LIMIT]
        ranks = set(map(attrgetter("rank"), by_signature.get(event.signature or "", ()))) - {None}
        several = sorted(ranks) if len(ranks) > 1 else []
        title += _unordered(before, event, clocks)
        before = event
        links.append(ChainLink(title, iso(event.time), event.rank, *event.place, several))
    return links[:_CHAIN_LIMIT]


def _in_order(events: Iterable[Event]) -> list[Event]:
    """By time; those without one stay below the line that they follow.

    Processes that write one file by turns print lines that are older than the one above.
    """
    last, timed = 0, []
    for event in events:
        last = event.time if event.time is not None else last
        timed.append((last, event))
    return [event for _, event in sorted(timed, key=itemgetter(0))]


def _by_signature(timeline: Timeline) -> dict[str, list[Event]]:
    """Signature → its events that count; the first of them comes first."""
    found: dict[str, list[Event]] = defaultdict(list)
    for alike, events in timeline.alike.items():
        counts = alike.role in _CHAIN_ROLES or alike.kind == "exit"
        if alike.signature is not None and counts and alike.signal not in _NO_EVENT:
            found[alike.signature] += events
    return found


def _to_tell(
    winner: Hypothesis, groups: Iterable[Sequence[Event]], activity: Activity
) -> list[int]:
    """The first event of each signature that counts, and what shows the cause."""
    first = sorted(events[0].index for events in groups)
    keep = {*first[:_CHAIN_LIMIT], *winner.rows[:2]}
    return sorted(keep if activity.row is None else {*keep, activity.row})


def _unordered(before: Event | None, event: Event, clocks: ClockFit | None) -> str:
    """A remark where the clocks of two hosts do not tell whose line came first."""
    if clocks is None or before is None or before.host is None or event.host is None:
        return ""
    if before.host == event.host or before.time is None or event.time is None:
        return ""
    unsure = clocks.uncertain(before.host, event.host)
    if unsure is not None and event.time - before.time > unsure:
        return ""
    return " [order uncertain: may precede the line above, the hosts' clocks differ]"


def alternatives(ranked: Sequence[Hypothesis]) -> list[Alternative]:
    """The runners-up and why each lost."""
    found = []
    for one in ranked[1 : _ALTERNATIVES + 1]:
        strong = one.tier >= Tier.LIKELY and one.lost is not Lost.FOLLOWS
        level: Confidence = "medium" if strong else "low"
        why = _WORDS[one.lost or Lost.LESS].format(title=one.lost_to.title if one.lost_to else "")
        if one.hint and one.lost is not Lost.FOLLOWS:
            why = one.hint
        found.append(Alternative(one.cause, level, why))
    return found


def clean(text: str) -> str:
    """A line on one line with single spaces, bounded."""
    words = " ".join(text.split())
    return words if len(words) <= _TEXT_LIMIT else words[:_TEXT_LIMIT] + " …"
