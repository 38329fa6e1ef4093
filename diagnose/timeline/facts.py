"""Facts of the job that its lines tell: versions, settings, who takes part."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from diagnose.catalog.schema import Signature
from diagnose.timeline.event import Event, Fields, Timeline

_CAPTURE = re.compile(r"\{(\w+)\}")


def told(
    timeline: Timeline, signatures: Mapping[str, Signature]
) -> Iterator[tuple[Event, str, str]]:
    """Each event that tells a fact, with the fact's name and value, in order of time."""
    templates = {
        id_: [*signatures[id_].facts.items()] for id_ in timeline.by_signature if id_ in signatures
    }
    events = [event for id_ in templates if templates[id_] for event in timeline.by_signature[id_]]
    events.sort(key=lambda event: event.index)
    for event in events:
        for name, template in templates[event.signature or ""]:
            value = _filled(template, event.fields)
            if value:
                yield event, name, value


def _filled(template: str, fields: Fields) -> str:
    """A fact's value with the captures put in; empty when one is missing."""
    if "{" not in template:
        return template.strip()
    try:
        return _CAPTURE.sub(lambda match: fields[match[1]], template).strip()
    except KeyError:
        return ""
