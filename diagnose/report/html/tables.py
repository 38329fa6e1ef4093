"""The tables of the page: findings, facts of the job, its checkpoints, the sources."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from operator import attrgetter
from typing import Any

from diagnose.catalog.entries import entry_of
from diagnose.catalog.schema import Catalog
from diagnose.checkpoint.model import STATE_WORDS, Inspection
from diagnose.diagnosis import JobFacts
from diagnose.job.model import Job
from diagnose.report import words
from diagnose.report.html import clock
from diagnose.report.html.clock import Events
from diagnose.report.safe import Scrub
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.captures import stated_facts
from diagnose.timeline.event import Event, Timeline, taken

# --- findings: what the catalog recognised, alike lines of many ranks as one ----------------------

MAX_VARIANTS = 8  # of one finding
MAX_TEXT = 600  # characters of a quoted line
# Events of one finding whose texts are told apart; the rest counts as the last variant.
_COMPARED = 20_000
# In the order of importance.
ROLES = ("cause", "effect", "aftermath", "context", "phase", "progress")
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
                role=role,
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
    return [(role, found.count(role)) for role in ROLES if role in found]


# --- facts of the job, and where its ranks differ -------------------------------------------------

MAX_VALUES = 8  # of one fact
MAX_FACTS = 200
# These say who a rank is rather than how it is set up.
_OWN = frozenset({"rank", "local_rank", "pid", "world_size"})
_GROUPS = {"version": "Version", "setting": "Setting"}


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a fact, and who said it."""

    text: str
    who: str


@dataclass(frozen=True, slots=True)
class JobFact:
    """A fact with its values, the most frequent first; `differs` if ranks or hosts disagree."""

    name: str
    values: list[Value]
    differs: bool


def overview(job: JobFacts) -> list[tuple[str, str]]:
    """What the diagnosis knows of the job, as labelled lines."""
    seen = set(job.ranks_seen)
    absent: list[int] = []
    if seen and job.world_size:
        absent = sorted(set(range(min(job.world_size, 1 << 20))) - seen)
    rows = [
        ("Ranks", f"{job.world_size:,}" if job.world_size else ""),
        ("Seen in the logs", ranks_phrase(job.ranks_seen) if seen else ""),
        ("No output from", ranks_phrase(absent) if absent else ""),
        ("Hosts", f"{len(job.hosts):,}: {words.names(job.hosts, 16)}" if job.hosts else ""),
        ("Attempts", str(job.attempts) if job.attempts > 1 else ""),
        ("Software", words.names(job.frameworks, 16)),
        ("Versions", ", ".join(f"{name} {version}" for name, version in job.versions.items())),
    ]
    return [(label, text) for label, text in rows if text]


def job_facts(timeline: Timeline, catalog: Catalog, scrub: Scrub) -> list[JobFact]:
    """Every fact that a line states, sorted by name, those that differ first."""
    stated: dict[str, dict[str, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for name, value, events in stated_facts(timeline, catalog.by_id):
        if name not in _OWN:
            stated[name][value] += events
    facts = [_fact(name, stated[name], scrub) for name in sorted(stated)[:MAX_FACTS]]
    return sorted(facts, key=lambda fact: not fact.differs)


def _fact(name: str, stated: Mapping[str, list[Event]], scrub: Scrub) -> JobFact:
    items = sorted(stated.items(), key=lambda item: -len(item[1]))
    group, _, rest = name.partition(".")
    shown = f"{_GROUPS[group]} of {rest}" if group == "version" else rest or name
    values = [
        Value(scrub.text(value, 200), scrub.text(who(events)))
        for value, events in items[:MAX_VALUES]
    ]
    differs = _differs([events for _, events in items])
    return JobFact(scrub.text(shown.replace("_", " ") if not rest else shown), values, differs)


def _differs(groups: list[list[Event]]) -> bool:
    """Whether each rank (or host, where no rank is named) says one value, but not all the same.

    A process that reports several values, say of nested settings, disagrees with nobody.
    """
    if len(groups) < 2:
        return False
    by_rank: list[set[Any]] = [{e.rank for e in events} - {None} for events in groups]
    by_host: list[set[Any]] = [{e.host for e in events} - {None} for events in groups]
    for authors in (by_rank, by_host):
        if all(authors):
            return sum(map(len, authors)) == len(set().union(*authors))
    return False


# --- checkpoints: which are intact, and what is wrong with the others -----------------------------

MAX_ROWS = 60
MAX_REASONS = 6


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One checkpoint as text; `chosen` marks the one to resume from."""

    name: str
    layout: str
    step: str
    files: str
    size: str
    state: str
    reasons: list[str]
    chosen: bool


def checkpoints(inspection: Inspection | None, scrub: Scrub) -> list[CheckpointRow]:
    """The newest MAX_ROWS of them, in their order."""
    if inspection is None:
        return []
    base = words.common_folder(inspection.checkpoints)
    back = inspection.resume.path if inspection.resume else None
    rows = []
    for one in inspection.checkpoints[-MAX_ROWS:]:
        lines = words.folded_reasons(one.reasons)
        reasons = [words.sentence(scrub.text(reason, 300)) for reason in lines[:MAX_REASONS]]
        if len(lines) > MAX_REASONS:
            reasons.append(f"… and {len(lines) - MAX_REASONS} more.")
        rows.append(
            CheckpointRow(
                scrub.text(words.relative(one.path, base), 200), one.layout,
                "" if one.step is None else f"{one.step:,}", f"{one.files:,}",
                words.size(one.bytes), STATE_WORDS[one.state], reasons, one.path == back,
            )
        )  # fmt: skip
    return rows


# --- what was read, how much of it, by which clock, and what could not be read --------------------

MAX_SOURCES = 300
KINDS = {
    "text": "log",
    "error_json": "error file of torchrun",
    "fr_dump": "Flight Recorder dump",
    "empty": "empty",
    "binary": "not a log",
    "unreadable": "unreadable",
    "skipped": "left out",
}


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One source: its clock is the span of times in it, or that it has none."""

    name: str
    kind: str
    size: str
    lines: str
    clock: str
    notes: str


def sources(
    job: Job, spans: Mapping[str, tuple[int, int]], scrub: Scrub
) -> tuple[list[SourceRow], int]:
    """The sources, those with notes first, and how many were left out of the list.

    `spans` has the first and the last time in each source that has any.
    """
    scans = {scan.source.name: scan for scan in job.scans}
    rows = []
    for source in job.sources:
        scan = scans.get(source.name)
        notes = list(dict.fromkeys(filter(None, (source.note, *source.notes))))
        if scan is not None and scan.problem:
            notes.append(scan.problem)
        times = "no times"
        if source.name in spans:
            first, last = spans[source.name]
            times = f"{clock.moment(first)} – {clock.moment(last, first)}"
        rows.append(
            SourceRow(
                scrub.text(source.name, 300),
                KINDS.get(source.kind, source.kind.replace("_", " ")),
                words.size(source.size),
                f"{scan.total_lines:,}" if scan is not None else "",
                times if scan is not None else "",
                scrub.text("; ".join(notes), 400),
            )
        )
    rows.sort(key=lambda row: not row.notes)
    return rows[:MAX_SOURCES], max(0, len(rows) - MAX_SOURCES)
