"""A first draft of a signature from a job that was confirmed: its most telling line, as an entry.

Telling is a line with words of failure that no entry of the catalog knows, early rather than late;
best one that other incidents with the same cause have too, and no incident with another cause.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnose.catalog.authoring import TODO, Filled
from diagnose.diagnosis import Diagnosis
from diagnose.errors import InputError
from diagnose.fleet.recurring import normalise, pattern
from diagnose.infer.rules.learned import is_ill, may_tell, message_of
from diagnose.job.model import Job
from diagnose.memory.features import of_line
from diagnose.memory.recall import key_of
from diagnose.memory.store import Incident, Memory, opened
from diagnose.redact.redactor import MASKED, mask

_KNOWN = ("cause", "effect", "aftermath", "phase", "progress")
_WORK = ("phase", "progress")
_MOST = 500  # lines that are compared
_MOST_PLACES, _ABOVE, _BELOW = 64, 5, 60  # lines that are read again
_LONGEST = 180  # characters of an expression, of which a part may have 200


@dataclass(frozen=True, slots=True)
class Draft:
    """An entry to be written: the class ("" if nobody said it), the example, and the rest."""

    cause: str
    line: str
    filled: Filled


def draft(job: Job, diagnosis: Diagnosis, memory: Path | None, reference: str) -> Draft:
    """The draft of an entry for a job. Raises InputError where no line tells anything."""
    lines, hosts = _lines(job, diagnosis), {*diagnosis.job.hosts, *diagnosis.culprits.hosts}
    if not lines:
        raise InputError("no line of this job says what went wrong that the catalog does not know")
    own, scores = None, dict.fromkeys(lines, 0.0)
    if memory is not None:
        with opened(memory) as found:
            own = found.of_key(key_of(diagnosis))
            scores = _scores(lines, hosts, own, found)
    first = max(lines, key=lambda line: (scores[line] + is_ill(line), -lines.index(line)))
    regex = _expression(first, hosts)
    title = normalise(message_of(first), hosts)[:100].strip(" .:")
    filled = Filled(
        title=re.sub(r"<\w+>", "…", title),
        regex=regex,
        near_miss=_near_miss(first, regex, lines),
        not_evidence_of="another cause; drafted from one job",
        remedy=(own.fix if own else "") or TODO,
        reference=reference or TODO,
    )
    return Draft(own.cause if own else "", first, filled)


def _lines(job: Job, diagnosis: Diagnosis) -> list[str]:
    """Lines that no entry knows, near the last work of each source and near the evidence.

    In the order of the log, secrets masked; only those with words of failure, if there are any.
    """
    known = {
        (event.source, event.line): event
        for event in job.events
        if event.signature in job.catalog.by_id and event.role in _KNOWN
    }
    last = {event.source: event.line for event in job.events if event.line}
    last |= {event.source: event.line for event in known.values() if event.role in _WORK}
    places = [*last.items(), *((one.source, one.line) for one in diagnosis.evidence if one.line)]
    near = job.lines_near(places[:_MOST_PLACES], _ABOVE, _BELOW)
    worn = {normalise(message_of(event.text)) for event in known.values()}
    found: dict[str, None] = {}
    for source, lines in near.items():
        for number, text in sorted(lines.items()):
            line, message = mask(text).strip(), message_of(text)
            new = (source, number) not in known and normalise(message) not in worn
            if new and line.isprintable() and may_tell(message):
                found[line] = None
    ill = [one for one in found if is_ill(one)]
    return (ill or [*found])[:_MOST]


def _scores(
    lines: Sequence[str], hosts: set[str], own: Incident | None, memory: Memory
) -> dict[str, float]:
    """How much the incidents with this cause have a line, rather than others."""
    numbers = {line: of_line(line, hosts) for line in lines}
    having = memory.having([*numbers.values()])
    incidents = memory.incidents({one for one, _ in having})
    scores = dict.fromkeys(lines, 0.0)
    for line, number in numbers.items():
        for one, feature in having:
            if feature == number and (own is None or incidents[one].key != own.key):
                alike = own is not None and incidents[one].cause == own.cause
                scores[line] += 1.0 if alike else -1.0
    return scores


def _expression(line: str, hosts: set[str]) -> str:
    """An expression for lines like this one, cut where it would be too long: at a word, if any."""
    text = normalise(message_of(line), hosts).removesuffix("…")
    while len(regex := pattern(text).replace(re.escape(MASKED), r"\S+")) > _LONGEST:
        text = text.rpartition(" ")[0] or re.sub(r"<\w*$", "", text[: len(text) * 3 // 4])
    return regex


def _near_miss(line: str, regex: str, others: Sequence[str]) -> str:
    """The line that shares most words and is none of it; else the beginning of the line itself."""
    own = {*message_of(line).lower().split()}
    missed = [one for one in others if not re.search(regex, one)]
    alike = max(missed, key=lambda one: len(own & {*one.lower().split()}), default="")
    if len(own & {*alike.lower().split()}) * 2 >= len(own):
        return alike
    words = message_of(line).split()
    return " ".join(words[: max(1, len(words) // 2)])
