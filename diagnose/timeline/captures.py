"""What lines captured: numbers and lists of ranks, bounded and never raising; facts of the job."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from diagnose.catalog.schema import Signature
from diagnose.lazy import expression
from diagnose.timeline.event import Event, Fields, Timeline

RANK_LIMIT = 1_000_000  # no job has more ranks
_RANKS_LIMIT = 100_001  # of one captured list
_MS_LIMIT = 10**12  # thirty years
_PLAIN = 18  # digits of a number that is surely small enough
_SCALES = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def captured_ranks(text: str | None) -> list[int]:
    """The ranks of a captured list such as "0, 3", "0-3,7" or "{1}"; bounded, sorted."""
    ranks: set[int] = set()
    left = _RANKS_LIMIT
    for low, high in _spans(text):
        part = range(low, min(high + 1, low + left))
        ranks.update(part)
        left -= len(part)
    return sorted(ranks)


def highest_rank(text: str | None) -> int | None:
    """The highest rank of such a list, None where it names none."""
    ends = (min(high, low + _RANKS_LIMIT - 1) for low, high in _spans(text) if low <= high)
    return max(ends, default=None)


def _spans(text: str | None) -> Iterator[tuple[int, int]]:
    for low, high in re.findall(r"0*(\d{1,6})(?:\s*-\s*0*(\d{1,6}))?", text or ""):
        yield int(low), int(high or low)


def rank_of(text: str | None) -> int | None:
    """A rank or a number of ranks; None for more than any job has."""
    value = integer(text)
    return value if value is not None and value <= RANK_LIMIT else None


def integer(text: str | None) -> int | None:
    """A number as logs print it: "1,024", "0x1f", "12k"; None for what is none, or far too big."""
    if text is None:
        return None
    if len(text) <= _PLAIN and text.isascii() and text.isdigit():
        return int(text)  # nearly all are: a fifth of the time
    digits = text.strip().replace(",", "").replace("_", "")
    scale = _SCALES.get(digits[-1:].lower())
    try:
        value = int(float(digits[:-1]) * scale) if scale else int(digits, 0)
    except OverflowError:
        return None
    except ValueError:
        try:
            value = int(digits)  # a leading zero
        except ValueError:
            return None
    return value if -(2**62) < value < 2**62 else None


def milliseconds(captures: Mapping[str, str], name: str) -> int | None:
    """A captured duration (`<name>_ms`, `<name>_s`), None for one that leaves the calendar."""
    if f"{name}_ms" in captures:
        number = integer(captures[f"{name}_ms"])
        return number if number is not None and number <= _MS_LIMIT else None
    try:
        seconds = float(captures[f"{name}_s"]) if f"{name}_s" in captures else None
    except ValueError:
        seconds = None
    if seconds is None and name == "elapsed" and "elapsed" in captures:
        seconds = clock_seconds(captures["elapsed"])
    return None if seconds is None or seconds * 1000 > _MS_LIMIT else int(seconds * 1000)


def clock_seconds(text: str) -> float | None:
    """Seconds of a progress bar's elapsed time, `[D day, ][H:]MM:SS`."""
    parts = re.findall(r"\d+", text)
    if not parts or len(parts) > 4 or any(len(part) > 9 for part in parts):
        return None
    seconds = 0.0
    for part, unit in zip(reversed(parts), (1, 60, 3600, 86400), strict=False):
        seconds += int(part) * unit
    return seconds


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
