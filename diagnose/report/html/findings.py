"""All findings: what the catalog recognised, alike lines of many ranks folded into one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from operator import attrgetter
from typing import Any

from diagnose.catalog.entries import entry_of
from diagnose.catalog.schema import Catalog
from diagnose.report import words
from diagnose.report.html import clock
from diagnose.report.html.events import Events
from diagnose.report.html.scrub import Scrub
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.event import Event, Timeline, taken

MAX_VARIANTS = 8  # of one finding
MAX_TEXT = 600  # characters of a quoted line
# Events of one finding whose texts are told apart; the rest counts as the last variant.
_COMPARED = 20_000
# The order of importance, and what readers call it.
ROLES = {
    "cause": "cause",
    "effect": "effect",
    "aftermath": "aftermath",
    "context": "context",
    "phase": "phase",
    "progress": "progress",
}
# Roles whose lines differ from step to step: one of them is enough.
_ONE = ("phase", "progress")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_OPERATION = attrgetter("work.op", "work.seq", "work.size_in", "work.group")
_OF_OPERATIONS = frozenset({"op", "seq", "numel_in", "group"})  # the captures that tell these


@dataclass(frozen=True, slots=True)
class Variant:
    """Lines of one finding that say the same; `who` said it, `count` times, first at `place`."""

    who: str
    count: int
    text: str
    place: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One signature that was seen. `at` is its first place on the axis, for sorting."""

    anchor: str
    signature: str
    title: str
    role: str
    cause: str
    at: int | None
    time: str
    who: str
    count: int
    variants: list[Variant] = field(default_factory=list)
    more: int = 0


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings in order of time.

    `numbers` has the place of a signature in them, `kinds` the variant of an event by its index
    where it is not the first one.
    """

    items: list[Finding]
    numbers: dict[str, int]
    kinds: dict[int, int]

    def of(self, signature: str, index: int) -> tuple[int, int]:
        """Finding and variant of an event; -1 for what is none, and for a variant not kept."""
        number = self.numbers.get(signature, -1)
        return number, self.kinds.get(index, 0) if number >= 0 else -1


def findings(events: Events, catalog: Catalog, scrub: Scrub) -> Findings:
    """Fold the timeline into findings."""
    timeline = events.timeline
    indexes = timeline.of_signatures
    first = {id_: _least(taken(events.times, own)) for id_, own in indexes.items()}
    begin = _least(first.values())
    calls = {alike.signature for alike in timeline.positions if _OF_OPERATIONS & {*alike.captures}}
    items: list[Finding] = []
    kinds: dict[int, int] = {}
    for number, (id_, own) in enumerate(indexes.items()):
        role = str(timeline.events[own[0]].role)
        variants = [own]
        if role not in _ONE:
            variants = _variants(own, timeline, of_calls=id_ in calls)
        for kind, alike in enumerate(variants[1:], start=1):
            kinds |= dict.fromkeys(alike, kind if kind < MAX_VARIANTS else -1)
        entry = entry_of(catalog, id_)
        shown = [_shown(alike, events, scrub) for alike in variants[:MAX_VARIANTS]]
        items.append(
            Finding(
                anchor=f"finding-{number + 1}",
                signature=scrub.text(id_),
                title=scrub.text(entry.title if entry else id_),
                role=ROLES.get(role, role),
                cause=scrub.text(entry.cause) if entry else "",
                at=_least(taken(events.at, own)),
                time=clock.moment(first[id_], begin),
                who=shown[0].who if len(variants) == 1 else scrub.text(_who(own, events)),
                count=len(own),
                variants=shown,
                more=max(0, len(variants) - MAX_VARIANTS),
            )
        )
    return Findings(items, {id_: number for number, id_ in enumerate(indexes)}, kinds)


def who(events: Sequence[Event]) -> str:
    """Who printed them: ranks, else hosts, else nobody that is named."""
    return _named({event.rank for event in events}, events)


def _who(indexes: Sequence[int], events: Events) -> str:
    """The same of events of a timeline."""
    own = map(events.timeline.events.__getitem__, indexes)
    return _named({*taken(events.ranks, indexes)}, own)


def _named(ranks: set[Any], events: Iterable[Event]) -> str:
    ranks.discard(None)
    if ranks:
        return ranks_phrase(ranks)
    return words.names(sorted({event.host for event in events if event.host is not None}), 4)


def _least(values: Collection[int | None]) -> int | None:
    return min([value for value in values if value is not None], default=None)


def _variants(indexes: list[int], timeline: Timeline, *, of_calls: bool) -> list[list[int]]:
    """The indexes of those that say the same together, in order of appearance.

    `of_calls`: they may tell of different collectives.
    """
    compared = indexes[:_COMPARED]
    meanings = taken(timeline.column("meaning"), compared)
    # Whose lines are alike by the object that they share, others by themselves.
    of_each = zip(meanings, compared, strict=True)
    lines = [id(meaning) if meaning.alike else -index for meaning, index in of_each]
    first = dict(zip(lines[::-1], compared[::-1], strict=True))
    texts = [event.text[:MAX_TEXT] for event in taken(timeline.events, [*first.values()])]
    shapes = _shapes(texts)
    calls = map(_OPERATION, taken(timeline.events, compared)) if of_calls else ()
    operations: list[Any] = [*calls] or [None]
    if len(shapes) == 1 and operations.count(operations[0]) == len(operations):  # as mostly
        return [indexes]
    shape_of = dict(zip(first, cycle(shapes), strict=False))
    found: dict[tuple[object, ...], list[int]] = defaultdict(list)
    pairs = zip(map(shape_of.get, lines), cycle(operations), compared, strict=False)
    for shape, operation, index in pairs:
        found[shape, operation].append(index)
    variants = list(found.values())
    variants[-1].extend(indexes[_COMPARED:])
    return variants


def _shapes(texts: Sequence[str]) -> list[bytes]:
    """What is left of texts without numbers, one for all where all are alike.

    Of all texts at once it takes a third of the time.
    """
    left = _shape("\n".join(texts))
    first = left.partition(b"\n")[0]
    if left == b"\n".join([first] * len(texts)):
        return [first]
    shapes = left.split(b"\n")
    return shapes if len(shapes) == len(texts) else [*map(_shape, texts)]


def _shape(text: str) -> bytes:
    if "0x" in text:
        text = _ADDRESS.sub("", text)
    # Bytes lose their digits in a tenth of the time that text takes.
    return text.encode(errors="surrogatepass").translate(None, b"0123456789")


def _shown(alike: Sequence[int], events: Events, scrub: Scrub) -> Variant:
    first = events.timeline.events[alike[0]]
    return Variant(
        who=scrub.text(_who(alike, events)),
        count=len(alike),
        text=scrub.text(first.text, MAX_TEXT),
        place=scrub.text(words.place(first.source, first.line)),
    )


def counts(items: Iterable[Finding]) -> list[tuple[str, int]]:
    """How many findings there are of each role, in the order of importance."""
    found = [item.role for item in items]
    return [(role, found.count(role)) for role in ROLES.values() if role in found]
