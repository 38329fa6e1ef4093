"""Facts of the job that its lines tell: versions, settings, who takes part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from diagnose.catalog.schema import Signature
from diagnose.lazy import expression
from diagnose.timeline.event import Event, Fields, Timeline

_CAPTURE = expression(r"\{(\w+)\}")


def stated_facts(
    timeline: Timeline, signatures: Mapping[str, Signature]
) -> Iterable[tuple[str, str, Sequence[Event]]]:
    """Each fact, its value and the events of one signature that tell it, by the first of these."""
    found = []
    for id_, events in timeline.by_signature.items():
        facts = signatures[id_].facts if id_ in signatures else {}
        for place, (name, template) in enumerate(facts.items()):
            for same in _saying_the_same(template, events):
                value = _filled(template, same[0].fields)
                if value:
                    found.append((same[0].index, place, name, value, same))
    found.sort(key=itemgetter(0, 1))
    return ((name, value, same) for _, _, name, value, same in found)


def _saying_the_same(template: str, events: Sequence[Event]) -> Iterable[Sequence[Event]]:
    """The events of each value that the captures of a template have."""
    captures = _CAPTURE.findall(template)
    if not captures:
        return [events]
    found: dict[tuple[str | None, ...], list[Event]] = defaultdict(list)
    for event in events:
        found[tuple(map(event.fields.get, captures))].append(event)
    return found.values()


def _filled(template: str, fields: Fields) -> str:
    """A fact's value with the captures put in; empty when one is missing."""
    if "{" not in template:
        return template.strip()
    try:
        return _CAPTURE.sub(lambda match: fields[match[1]], template).strip()
    except KeyError:
        return ""
