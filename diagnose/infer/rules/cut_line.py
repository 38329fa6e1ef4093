"""The last line of a log, cut off in the middle of a message that the catalog knows.

Whoever pastes a log, and a process that is killed while it writes, leave half a line. Its beginning
says as much as the whole, if it is long and rare enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from diagnose.catalog.load import examples_of
from diagnose.catalog.schema import Catalog
from diagnose.infer.rules.base import Context, Hypothesis, Tier, stated
from diagnose.lazy import expression
from diagnose.parse.prefix import peel
from diagnose.timeline.event import Event

_LEAST = 18  # characters that the line shares with an example, up to the cut
_ANCHOR = 8  # of them are looked up first
_WORDS = 3  # among them, the last of which may be cut
_WORDS_AMID = 5  # where they are no beginning: any message may go on like the middle of another one
_WORD = expression(r"[A-Za-z_]{2,}")
# Frames and code say where, and not what.
_CODE = expression(r"File \"|\braise \w|^\s*(?:frame #|at |in )|\S/\S+/\S")
# What an exception is called says nothing of the message that follows.
_TYPE = expression(r"[\w.]*(?:Error|Exception|Failure|Interrupt|Exit): ?")


def propose(context: Context) -> Iterator[Hypothesis]:
    """The cause of the example that goes on where a source breaks off, if nothing else is known."""
    classes = context.catalog.classes
    if any(h.tier >= Tier.WEAK and not classes[h.cause].unspecific for h in context.proposed):
        return
    for event in _last_lines(context):
        text = event.text.rstrip()
        part, id_ = _continued(text, context.catalog)
        if not part or _ambiguous(part, context.catalog):
            continue
        entry = context.catalog.by_id[id_]
        yield Hypothesis(
            cause=entry.cause,
            tier=stated(entry.strength, ["cut"]),
            title=context.catalog.classes[entry.cause].title,
            summary=f"The log breaks off in the middle of a message: {entry.title}.",
            rows=[event.index],
            signature=id_,
            inferred=True,
            explains=list(entry.explains),
            remedies=list(entry.remedies),
            restart=entry.restart,
            basis="line",
            grounds=[entry.strength, "cut"],
            vague=True,
        )


def _last_lines(context: Context) -> Iterator[Event]:
    """Last lines of which nothing but their form is known, and whose end some example has."""
    last = {event.source: event for event in context.timeline.kind("edge")}.values()
    numbers = {event.line for event in last}
    known = {
        event.place
        for id_, events in context.timeline.by_signature.items()
        if _known(id_, context.catalog)
        for event in events
        if event.line in numbers
    }
    # Of a large job hardly any last line ends as a known message goes on, and many end alike.
    ends = [(event.text.rstrip()[-_ANCHOR:], event) for event in last if event.place not in known]
    examples = _all_examples(context.catalog) if ends else ""
    going_on = {end for end in {end for end, _ in ends} if end in examples}
    for end, event in ends:
        if end in going_on and not _CODE.search(event.text):
            yield event


def _known(id_: str, catalog: Catalog) -> bool:
    entry = catalog.by_id.get(id_)
    if entry is None or entry.generic or entry.signal == "exception":
        return False
    return entry.role in ("cause", "effect", "context")


def _continued(text: str, catalog: Catalog) -> tuple[str, str]:
    """What the example of a cause that shares most with the end of this text has of it, its entry.

    Empty where no example goes on behind it, or not enough is shared.
    """
    anchor = text[-_ANCHOR:]
    best: tuple[int, str, str] | None = None
    for id_, beginning in _beginnings(anchor, catalog) if len(text) >= _LEAST else ():
        shared = _shared(text, beginning)
        if best is None or shared > best[0]:
            best = shared, id_, beginning
    if best is None:
        return "", ""
    shared, id_, beginning = best
    part = _TYPE.sub("", text[-shared:])
    begins = shared >= len(peel(beginning).message)
    words = _WORDS if begins else _WORDS_AMID
    enough = len(part) >= _LEAST and len(_WORD.findall(part)) >= words
    return (part, id_) if enough else ("", "")


@lru_cache(maxsize=16)
def _beginnings(anchor: str, catalog: Catalog) -> list[tuple[str, str]]:
    """Entries of causes and their examples, up to the anchor and with it, behind which they go on.

    Many logs of one job end in the same words, so that the examples are searched once for all.
    """
    return [
        (id_, begins + anchor)
        for id_, example in examples_of(catalog)
        for begins, _, rest in [example.partition(anchor)]
        if rest and _is_cause(id_, catalog)
    ]


def _ambiguous(part: str, catalog: Catalog) -> bool:
    """Whether messages of several classes, or of none, begin so."""
    text, examples = _all_examples(catalog), examples_of(catalog)
    causes: set[str | None] = set()
    at = text.find(part)
    while at >= 0 and len(causes) < 2:
        id_, _ = examples[text.count("\n", 0, at)]
        causes.add(catalog.by_id[id_].cause)
        at = text.find(part, at + 1)
    return len(causes) > 1


def _shared(text: str, example: str) -> int:
    """How many characters the ends of both have in common."""
    most = min(len(text), len(example))
    return next((n for n in range(most) if text[-n - 1] != example[-n - 1]), most)


def _is_cause(id_: str, catalog: Catalog) -> bool:
    """Whether it is an entry of a cause that says what it is about."""
    return catalog.by_id[id_].role == "cause" and not catalog.by_id[id_].generic


@lru_cache(maxsize=2)
def _all_examples(catalog: Catalog) -> str:
    """The lines of all examples in one text, in which a look-up is quick."""
    return "\n".join(line.replace("\n", " ") for _, line in examples_of(catalog))
