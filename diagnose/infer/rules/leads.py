"""What is better than nothing where no rule has a likely cause: leads of low confidence.

What the log ends amid of, and the line that matters most and matched nothing, beside all examples
of the catalog: other versions say the same in other words, so a line that shares the distinctive
words of an example of a cause is a lead, and never more. A line that an entry knows is none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from diagnose.catalog.load import examples_of
from diagnose.catalog.schema import Catalog
from diagnose.infer.rules.base import Context, Hypothesis, inferred
from diagnose.infer.tiers import Tier
from diagnose.lazy import expression
from diagnose.stories.fold import only_lost_peers
from diagnose.timeline.event import Event

_WORD = expression(r"[A-Za-z_][A-Za-z_]{2,40}")
_MODULES = expression(
    r"\b(?:[a-z_][a-z_0-9]{0,40}\.){2,}"
)  # where an exception is defined tells nothing
_SITE = expression(  # where a line was printed, or what failed there, tells nothing either
    r"\[(?:FUNC|FILE|LINE):[^\]\n]{0,300}\]?|\S{1,200}\.(?:cc|cpp|cxx|cu|h|hpp|py):\d{1,7}"
)
_FRAME = expression(  # of Python, of C++, and of py-spy, with its heading
    r"\s*(?:\[rank\d+\]:\s*)?"
    r"(?:File \"|frame #|raise |0x[0-9a-f]{4,16} \(|\S{1,80} \(\S+:\d+\)$)|.*Traceback \(most"
    r"|Process \d{1,7}: /"
)
# What went well is like no cause, however many words it shares with one.
_WELL = expression(
    r"(?i)(?<!not )\b(?:success(?:ful(?:ly)?)?|succeeded|completed?|finished|passed)\b"
    r"|\b(?:code|status|rc|returncode)[ :=]+0\b"
)
_ILL = expression(r"(?i)fail|error|exception|abort|not? (?:\w+ )?success|\bdied|killed")
_KNOWN = ("cause", "effect")  # an entry that knows a line says more than likeness to another
_MOST_LINES = 40
_LEAST_SHARED = 4  # words
_LEAST_ALIKE = 0.55  # of what the words of both weigh
_BUSY = "Nothing says what went wrong; the log ends amid this work, which was not finished."


def leads_of(context: Context) -> list[Hypothesis]:
    """What is better than nothing where nothing is likely: low confidence, and no culprits."""
    timeline = context.timeline
    known = {event.place for event in timeline if _is_known(event, context.catalog)}
    lines = [e for e in timeline if e.place not in known and (e.signature is None or _vague(e))]
    found = list(resembling(context, lines))
    phase = context.activity.phase if context.activity.moving else None
    if phase == "inference" and all(event.role == "aftermath" for event in context.failing):
        phase = None  # a server that was stopped kept nobody waiting
    busy = context.catalog.busy_class(phase) if phase else None
    if busy and not only_lost_peers(context.failing):
        lead = inferred(busy, Tier.GUESS, context.catalog, _BUSY)
        found.insert(0, replace(lead, rule="busy"))
    return found[:1]


def _is_known(event: Event, catalog: Catalog) -> bool:
    """Whether an entry knows what the line proves, or that it proves nothing."""
    entry = catalog.by_id.get(event.signature or "")
    harmless = entry is not None and entry.role == "context" and bool(entry.not_evidence_of)
    return event.role in _KNOWN or (harmless and not _vague(event))


def _vague(event: Event) -> bool:
    return event.tells == "trouble" or event.role == "aftermath"


@dataclass(frozen=True, slots=True)
class _Known:
    """An example: the entry that it belongs to, and its words."""

    signature: str
    words: frozenset[str]
    weight: float


def resembling(context: Context, lines: Sequence[Event]) -> Iterator[Hypothesis]:
    """The cause whose example is most like one of these lines, if any is."""
    known, weights = _index(context.catalog)
    best: tuple[float, int, str] | None = None
    for event in [line for line in lines if _may_tell(line.text)][-_MOST_LINES:]:
        for alike, id_ in _alike(event.text, known, weights, _LEAST_SHARED):
            if alike >= _LEAST_ALIKE and (best is None or (alike, event.index) > best[:2]):
                best = alike, event.index, id_
    if best is None:
        return
    _, index, id_ = best
    entry = context.catalog.by_id[id_]
    yield Hypothesis(
        cause=entry.cause,
        tier=Tier.GUESS,
        title=context.catalog.classes[entry.cause].title,
        summary=f"No entry knows this line, but it resembles {id_}: {entry.title}.",
        rows=[index],
        inferred=True,
        remedies=list(entry.remedies),
        restart=entry.restart,
        rule="resembles",
        basis="line",
    )


def _may_tell(text: str) -> bool:
    """Whether a line is no stack frame, and none that says that something went well."""
    return not _FRAME.match(text) and (not _WELL.search(text) or _ILL.search(text) is not None)


def _alike(
    text: str, known: Sequence[_Known], weights: Mapping[str, float], least: int
) -> Iterator[tuple[float, str]]:
    """How like a line each example is that shares so many words with it: (0 to 1, its id).

    Sums are exact (`fsum`): words come in any order, and two lines may be alike to the last digit.
    """
    words = _words(text)
    weight = math.fsum(weights.get(word, 0.0) for word in words)
    for example in known:
        shared = words & example.words
        if len(shared) < least:
            continue
        common = math.fsum(weights[word] for word in shared)
        if common:
            yield common / math.sqrt(weight * example.weight), example.signature


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(_MODULES.sub("", _SITE.sub("", text))))


@lru_cache(maxsize=2)
def _index(catalog: Catalog) -> tuple[list[_Known], dict[str, float]]:
    """The examples of all causes, and what each word weighs: the rarer, the more."""
    found = [
        (id_, _words(line))
        for id_, line in examples_of(catalog)
        if not _FRAME.match(line)
        and catalog.by_id[id_].role == "cause"
        and not catalog.by_id[id_].generic
    ]
    seen = Counter(word for _, words in found for word in words)
    weights = {word: math.log((1 + len(found)) / count) for word, count in seen.items()}
    known = [_Known(id_, words, math.fsum(weights[word] for word in words)) for id_, words in found]
    return [one for one in known if one.weight > 0], weights


def nearest(catalog: Catalog, text: str, count: int) -> list[tuple[float, str]]:
    """The causes whose examples are most like a line: (0 to 1, id), the most alike first."""
    known, weights = _index(catalog)
    best: dict[str, float] = {}
    for alike, id_ in _alike(text, known, weights, 1):
        best[id_] = max(alike, best.get(id_, 0.0))
    ordered = sorted(best.items(), key=lambda item: (-item[1], item[0]))
    return [(alike, id_) for id_, alike in ordered[:count]]
