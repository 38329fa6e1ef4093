"""Parts of a step that take longer in one run than in the other, of all ranks or of some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from diagnose.comparison.model import Difference
from diagnose.comparison.profile import Author, Profile, Template
from diagnose.comparison.stated import whose
from diagnose.diagnosis import SourceLine
from diagnose.parse.prefix import Prefix, peel
from diagnose.stories.work import median
from diagnose.text.times import duration
from diagnose.timeline.pace import Track

_LEAST = 8  # steps
_SLOWER = 1.2  # times as long
_WARM_UP = 2  # first steps, which are left out
_WHOLE = "total"
_STEP = "step"


def pace_differences(good: Profile, bad: Profile) -> list[Difference]:
    """What takes longer or shorter; the part that makes most of the change first."""
    names = dict.fromkeys(chain(*(track.phases for track in good.job.pace.tracks)))
    found: list[tuple[bool, float, Difference]] = []
    for name in names:
        found += _part(name, good, bad)
    found.sort(key=lambda one: one[:2], reverse=True)
    return [one for *_, one in found] or [*_of_steps(good, bad)]


def _part(name: str, good: Profile, bad: Profile) -> Iterator[tuple[bool, float, Difference]]:
    """A part of a step: whether it is no whole one, by how many seconds it changed, the difference.

    Ranks of which most have the same change are not named.
    """
    ours, theirs = _seconds(good, name), _seconds(bad, name)
    if not ours or not theirs:
        return
    ranks = [key for key in theirs if key in ours]
    changed = [key for key in ranks if _clear(ours[key], theirs[key])]
    few = 0 < len(changed) <= len(ranks) // 2
    if few:
        one, other = ([each for key in changed for each in own[key]] for own in (ours, theirs))
    else:
        one, other = ([*chain(*own.values())] for own in (ours, theirs))
        if not _clear(one, other):
            return
    before, now = median(one), median(other)
    ratio = now / before if before > 0 else 0.0
    yield name != _WHOLE, abs(now - before), Difference(
        "pace" if ratio > 1 else "faster", name, _time(before), _time(now),
        whose(changed) if few else "",
        ratio=round(ratio, 2),
        good_at=_place(good, name, changed if few else []),
        bad_at=_place(bad, name, changed if few else []),
    )  # fmt: skip


def _seconds(run: Profile, name: str) -> dict[Author, list[float]]:
    """Seconds of a part by author, of the later half of the steps."""
    found: dict[Author, list[float]] = {}
    for rank, track in _tracks(run):
        own = [seconds for _, seconds in track.of(name)][_WARM_UP:]
        if len(own) >= _LEAST:
            found.setdefault(rank, []).extend(own[len(own) // 2 :])
    return found


def _tracks(run: Profile) -> Iterator[tuple[Author, Track]]:
    for rank, track in run.job.pace.ranks.items():
        yield ("rank", rank), track
    sources = {source.name: source for source in run.job.sources}
    for (_, host, local, name), track in run.job.pace.others.items():
        if name in sources:
            yield run.author(sources[name], Prefix("", host=host, local_rank=local)), track


def _clear(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether the middle halves of two sets of times are apart, and the medians far enough."""
    low, high = sorted((sorted(one), sorted(other)), key=median)
    apart = low[3 * len(low) // 4] < high[len(high) // 4]
    return apart and median(high) >= _SLOWER * median(low) > 0


def _place(run: Profile, name: str, ranks: Sequence[Author]) -> SourceLine | None:
    for rank, track in _tracks(run):
        if name in track.phases and track.places and (not ranks or rank in ranks):
            return SourceLine(*track.places[-1])
    return None


def _of_steps(good: Profile, bad: Profile) -> Iterator[Difference]:
    """What a whole step takes by the times of lines, where nothing tells its parts."""
    known = [run.diagnosis.progress for run in (good, bad)]
    before, now = [one.seconds_a_step if one else None for one in known]
    last = [run.job.events.kind("progress")[-1:] for run in (good, bad)]
    places = [SourceLine(*events[0].place) if events else None for events in last]
    name = _STEP
    if not before or not now:
        most = _most_frequent(good, bad)
        if most is None:
            return
        before, now = (seconds_between(one) for one in most)
        places = [one.spots[0].place for one in most]
        name = "between lines of a step"
    if before and now and max(before, now) >= _SLOWER * min(before, now):
        yield Difference(
            "pace" if now > before else "faster", name, _time(before), _time(now),
            ratio=round(now / before, 2), good_at=places[0], bad_at=places[1],
        )  # fmt: skip


def _most_frequent(good: Profile, bad: Profile) -> tuple[Template, Template] | None:
    """The lines of which there are most: where a program tells no steps they show its pace."""
    shared = [
        (good.templates[key], one)
        for key, one in bad.templates.items()
        if key in good.templates and min(one.count, good.templates[key].count) >= 2 * _LEAST
    ]
    known = (pair for pair in shared if all(seconds_between(one) for one in pair))
    return max(known, key=lambda pair: min(one.count for one in pair), default=None)


def seconds_between(template: Template) -> float | None:
    """What passes between two lines of a kind on average; None where they have no times."""
    if template.count < 2 or not template.spots:
        return None
    stamps = [template.spots[0].prefix.stamp, peel(template.last.decode(errors="replace")).stamp]
    first, last = stamps
    if first is None or last is None or not (first.has_date and last.has_date):
        return None
    return (last.ns - first.ns) / 1e9 / (template.count - 1)


def _time(seconds: float) -> str:
    return (
        f"{seconds * 1000:.3g} ms"
        if seconds < 1
        else duration(seconds)
        if seconds >= 100
        else f"{seconds:.2f} s"
    )
