"""Kinds of lines that one run alone has, or has far more often; those near the onset first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import log2
from typing import NamedTuple

from diagnose.comparison.model import Difference
from diagnose.comparison.profile import Profile, Spot, Template
from diagnose.comparison.stated import whose
from diagnose.diagnosis import SourceLine
from diagnose.lazy import expression
from diagnose.text.times import iso

_MOST = 1000  # kinds of lines of one run alone
_PAIRS = 400  # kinds of lines of one run alone that are compared with those of the other
_WORDS = expression(r"<\w+>|\w+|[^\w\s]")
_ALIKE = 0.6  # of the words of two lines that are one line changed
_NEAR = 3  # lines between two that are shown as one
_OFTEN, _TIMES = 20, 5.0  # lines, and how many times as often
_TEXT = 300
_LEVELS = {"FATAL": 3.0, "ERROR": 3.0, "WARNING": 2.0}
_ALARMS = expression(
    r"(?i)\b(?:warn|err(?:or)?\b|fail|fatal|timed? ?out|retr(?:y|ies)|exception|slow|corrupt|lost"
    r"|refused|reset|unreachable|denied|abort|killed|dropp|throttl|degrad|fall(?:ing)? ?back|unable"
    r"|cannot|could not)"
)
_FRAMES = ('File "', "Traceback (most recent call last)")  # which say less than what follows them
_ROLES = {"cause": 3.0, "context": 1.5, "effect": -1.0, "aftermath": -2.0}


class _Seen(NamedTuple):
    """Lines of one kind, how telling they are, and whether they were there before the trouble."""

    template: Template
    weight: float
    early: bool

    @property
    def spot(self) -> Spot:
        """The first of them."""
        return self.template.spots[0]


def line_differences(good: Profile, bad: Profile, known: Sequence[Difference]) -> list[Difference]:
    """New, gone and changed kinds of lines, and such as are far more frequent.

    Of lines that differ in nothing but what is `known` already nothing is said.
    """
    values = {text for one in known for text in (one.good, one.bad) if text}
    places = {at for one in known for at in (one.good_at, one.bad_at)}
    new = _weighed(
        bad, [one for key, one in bad.templates.items() if key not in good.templates and one.spots]
    )
    last = max(
        (one.order for key, one in good.templates.items() if key in bad.templates), default=0
    )
    gone = _weighed(good, [
        one
        for key, one in good.templates.items()
        if key not in bad.templates and one.spots and one.order < last
    ])  # fmt: skip
    pairs = _pairs(new[:_PAIRS], gone[:_PAIRS])
    found = []
    for one in _together(new):
        before = pairs.get(one.template.key)
        if before is None:
            if not _explained(one.spot, values, places):
                found.append(_line("new", one, bad))
        elif not ({before.spot.place, one.spot.place} & places) and not all(
            _explained(each.spot, values, places) for each in (before, one)
        ):
            found.append(_changed(before, one))
    paired = {id(one.template) for one in pairs.values()}
    found += [
        _line("gone", one, good)
        for one in _together(gone)
        if id(one.template) not in paired and not _explained(one.spot, values, places)
    ]
    return [*found, *_more(good, bad)]


def _weighed(run: Profile, templates: Sequence[Template]) -> list[_Seen]:
    """Kinds of lines, the most telling first."""
    shown = _Onset(run)
    roles = {event.place: event.role for event in run.job.events if event.role in _ROLES}
    found = []
    for one in templates:
        spot = one.spots[0]
        early, near = shown.early(spot), shown.near(spot)
        role = roles.get((spot.source.name, spot.line))
        alarm = 1.0 if _ALARMS.search(spot.prefix.message or spot.text) else 0.0
        weight = max(_LEVELS.get(spot.prefix.level or "", 1.0), 1 + alarm) + alarm / 2 + near
        weight += _ROLES.get(role or "", 0.0)
        early = early and not _shown(spot).startswith(_FRAMES)
        found.append(_Seen(one, weight, early))
    ordered = sorted(found, key=lambda one: (not one.early, -one.weight, one.template.order))
    return ordered[:_MOST]


class _Onset:
    """When the trouble of a run began, by its time and by the lines that are evidence of it."""

    def __init__(self, run: Profile) -> None:
        diagnosis = run.diagnosis
        self.time = diagnosis.onset.time
        self.lines: dict[str, int] = {}
        self.ends = run.ends
        self.exception = diagnosis.exception  # which the verdict shows
        places = [(one.source, one.line) for one in diagnosis.evidence]
        for source, line in places:
            self.lines[source] = min(line, self.lines.get(source, line))

    def early(self, spot: Spot) -> bool:
        """Whether a line is not behind it."""
        raised = self.exception
        at = (spot.source.name, spot.line)
        if raised is not None and raised.source == at[0] and at[1] >= raised.first_line:
            return False
        known = self.lines.get(spot.source.name)
        if known is not None:
            return spot.line <= known
        stamp = spot.prefix.stamp
        if self.time is None or stamp is None or not stamp.has_date or stamp.boot:
            return True
        return (iso(stamp.ns) or "") <= self.time

    def near(self, spot: Spot) -> float:
        """From 0 to 2: how few lines are between it, or the end of the log, and a line."""
        known = self.lines.get(spot.source.name, self.ends.get(spot.source.name, 0))
        return round(2 / (1 + log2(4 + abs(known - spot.line)) / 4), 1)


def _together(found: Sequence[_Seen]) -> Iterator[_Seen]:
    """The most telling of lines that follow each other."""
    taken: dict[str, list[int]] = {}
    for one in found:
        lines = taken.setdefault(one.spot.source.name, [])
        if not any(abs(line - one.spot.line) <= _NEAR for line in lines):
            yield one
        lines.append(one.spot.line)


def _pairs(new: Sequence[_Seen], gone: Sequence[_Seen]) -> dict[str, _Seen]:
    """Of each new kind of lines the one that it was in the other run, where one is alike."""
    words = {one.template.key: _WORDS.findall(one.template.key) for one in [*new, *gone]}
    left, found = {one.template.key: one for one in gone}, {}
    for one in new:
        own = words[one.template.key]
        best, most = None, _ALIKE
        for key in left:
            share = _share(own, words[key])
            if share > most:
                best, most = key, share
        if best is not None:
            found[one.template.key] = left.pop(best)
    return found


def _share(one: Sequence[str], other: Sequence[str]) -> float:
    """How many of the words of two lines are at the same place, from either end."""
    if not one or not other or max(len(one), len(other)) > 2 * min(len(one), len(other)):
        return 0.0
    ahead = _same(one, other)
    rest = min(len(one), len(other)) - ahead
    at_end = min(rest, _same(one[::-1], other[::-1]))
    inner, outer = one[ahead : len(one) - at_end], other[ahead : len(other) - at_end]
    between = sum(a == b for a, b in zip(inner, outer, strict=False))
    return (ahead + at_end + between) / max(len(one), len(other))


def _same(one: Sequence[str], other: Sequence[str]) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def _explained(spot: Spot, values: Collection[str], places: Collection[SourceLine | None]) -> bool:
    """Whether a line says one of the values that differ, which are shown already."""
    shown = any(len(value) >= _VALUE and value in spot.text for value in values)
    return shown or spot.place in places


_VALUE = 4  # characters of a value that a line does not hold by chance


def _line(kind: str, one: _Seen, run: Profile) -> Difference:
    text, place = _shown(one.spot), one.spot.place
    who = _who(one.template, run)
    if kind == "new":
        return Difference("new", "", None, text, who, one.early, one.template.count, bad_at=place)
    return Difference("gone", "", text, None, who, True, one.template.count, good_at=place)


def _changed(before: _Seen, now: _Seen) -> Difference:
    return Difference(
        "changed", "", _shown(before.spot), _shown(now.spot), "", now.early, now.template.count,
        good_at=before.spot.place, bad_at=now.spot.place,
    )  # fmt: skip


def _shown(spot: Spot) -> str:
    return (spot.prefix.message or spot.text).strip()[:_TEXT]


def _who(template: Template, run: Profile) -> str:
    """The authors of a few lines, where they are not all."""
    if template.count > len(template.spots) or len(run.diagnosis.job.ranks_seen) < 2:
        return ""
    authors = dict.fromkeys(run.author(spot.source, spot.prefix) for spot in template.spots)
    if any(kind != "rank" for kind, _ in authors) or len(authors) == len(
        run.diagnosis.job.ranks_seen
    ):
        return ""
    return whose(authors)


def _more(good: Profile, bad: Profile) -> Iterator[Difference]:
    """Kinds of lines that are far more frequent in the bad run, for how long both are."""
    for key, one in bad.templates.items():
        before = good.templates.get(key)
        if before is None or one.count < _OFTEN or not one.spots or not before.spots:
            continue
        ratio = (one.count / bad.lines) / (before.count / good.lines)
        if ratio >= _TIMES and one.count >= _TIMES * before.count:
            yield Difference(
                "more", _shown(one.spots[0]), f"{before.count}", f"{one.count}", count=one.count,
                ratio=round(ratio, 1), good_at=before.spots[0].place, bad_at=one.spots[0].place,
            )  # fmt: skip
