"""Reasons about events: what counted as a failure, what did not and by what, which attempts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from diagnose.catalog.entries import entry_of
from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import Outcome, Reason, SourceLine
from diagnose.infer.advise.narrative import clean
from diagnose.infer.events.facts import MAX_ATTEMPTS, Attempt, ended_by
from diagnose.stories.passing import Sifted
from diagnose.text.ranks import plural
from diagnose.timeline.event import Begin, Event, Timeline

MAX_PLACES = 4  # lines that one reason names
MAX_KINDS = 30  # of events
_QUOTED = 100  # characters of a line without a signature
# By what a run shows that was appended to a file; see `timeline.runs`.
_BEGUN: Mapping[str, str] = {
    "restart_reported": "the line above reports that the job is restarted",
    "words_after_silence": "the first words of its file stand there again, after a silence",
    "start_after_stop": "somebody starts, or fails to, after the whole job was stopped",
    "starts_as_before": "somebody starts there who had started before the end above",
    "steps_from_below": "its process ended above, and steps are counted from below the last one",
    "second_exception": "the process of its file had died of another exception above",
    "whole_start": "as many start there as in the run above, or they get as far",
}
_ROLES = ("cause", "effect", "aftermath")

# What each predicate of the sieve found, as the end of a sentence.
_WHY: Mapping[str, str] = {
    "shows_failure": "counts as a failure",
    "stuck_at_the_end": "counts: no step and no ending comes after it",
    "reported_hang": "counts: the user reports a hang",
    "complaint": "counts: the user complains about it",
    "ends_the_log": "counts: the log ends with it",
    "unsurvived": "counts: its author was not seen to go on",
    "unexplained": "counts as trouble: no entry explains it, and no work follows",
    "weaker_hint": "too weak to show a failure by itself; stronger lines do, and rules weigh it",
    "another_run": "of a process that is no rank of this run, or whose rank worked on",
    "phase_ended": "its author reported the end of this phase afterwards",
    "wait_ended": "this wait ended: other lines follow where it would be reported again",
    "logged_as_warning": "its author logged it below the level of an error and went on",
    "word_above_the_end": "a word of failure alone, far above the end of the log",
    "caught": "somebody caught it, by its traceback or its place, and work went on",
    "another_program": "of a program that is no part of the job",
    "mentioned": "its line only mentions it, and work went on",
    "beside_work": "a detector states it, and the logs show work that it did not stop",
    "after_the_end": "came after the job said that it was done",
    "work_went_on": "work went on after it",
    "orderly_shutdown": "part of an orderly shutdown",
    "shutdown_alone": "a shutdown by itself is no failure",
    "habit": "occurs regularly while the job works on",
    "explained": "an entry of the catalog explains this line",
    "worked_on_below": "work goes on below it",
    "completed": "its author says afterwards that the work is complete",
    "handled": "a handler caught it, and work went on",
    "answered": "the server answered requests afterwards",
    "served_on": "the server was at work long afterwards",
    "everybody_went_on": "everyone who writes in this source worked on afterwards",
    "counted_on": "steps were counted on long afterwards",
    "worked_on": "its rank worked on afterwards",
    "own_end": "crash of a process that had raised an exception before",
    "ignored_exception": "below an exception that Python ignored",
    "orderly_close": "communicators closed after the last work",
    "end_of_crash": "the end of a process that had raised an exception is no success",
}


def event_reasons(sifted: Iterable[Sifted], catalog: Catalog) -> list[Reason]:
    """One reason for all events of a kind that met the same fate, those that counted first."""
    groups = [(one, kind, events) for one in sifted for kind, events in _kinds(one.events).items()]
    groups.sort(key=lambda group: _importance(group[0], group[2][0]))
    found = [_event_reason(one, kind, events, catalog) for one, kind, events in groups[:MAX_KINDS]]
    return [*found, *_left_out([events for _, _, events in groups[MAX_KINDS:]])]


def _importance(one: Sifted, event: Event) -> tuple[bool, int]:
    """What counted first, causes before what follows from them."""
    return one.fate != "counted", _ROLES.index(event.role) if event.role in _ROLES else len(_ROLES)


def places(events: Iterable[Event]) -> list[SourceLine]:
    """The first lines of these events, each once."""
    found: dict[tuple[str, int], None] = {}
    for event in events:
        found.setdefault(event.place)
        if len(found) == MAX_PLACES:
            break
    return [SourceLine(*place) for place in found]


def places_of(rows: Sequence[int], timeline: Timeline) -> list[SourceLine]:
    """The same of the events of these indices."""
    return places(timeline.at(row) for row in rows)


def _kinds(events: Sequence[Event]) -> Mapping[str, Sequence[Event]]:
    """Events by their signature, those without one by what they tell or are."""
    meanings = [event.meaning for event in events]
    distinct = {id(meaning): meaning for meaning in meanings}  # few differ in a flood of events
    names = {
        number: meaning.signature or meaning.signal or meaning.kind or "line"
        for number, meaning in distinct.items()
    }
    if len({*names.values()}) == 1:
        return dict.fromkeys(names.values(), events)
    found: dict[str, list[Event]] = defaultdict(list)
    for meaning, event in zip(meanings, events, strict=True):
        found[names[id(meaning)]].append(event)
    return found


def _event_reason(one: Sifted, kind: str, events: Sequence[Event], catalog: Catalog) -> Reason:
    first = events[0]
    entry = entry_of(catalog, first.signature)
    title = entry.title if entry else clean(first.text)[:_QUOTED] or kind
    role = f" ({first.role})" if first.role and one.fate == "counted" else ""
    return Reason(
        "event", one.fate, kind, one.predicate, f"{title}{role}: {_WHY[one.predicate]}",
        signature=first.signature, places=places(events), count=len(events),
    )  # fmt: skip


def _left_out(groups: Sequence[Sequence[Event]]) -> list[Reason]:
    if not groups:
        return []
    events = sum(map(len, groups))
    text = (
        f"{len(groups):,} more {plural(len(groups), 'kind')} of events, "
        f"{events:,} {plural(events, 'line')}, {plural(len(groups), 'is', 'are')} not listed"
    )
    return [Reason("event", "left_out", "", "no_room", text, count=events)]


def attempt_reasons(attempt: Attempt, every: Timeline, catalog: Catalog) -> list[Reason]:
    """Which attempt is diagnosed, and what ended those before; nothing where there is but one."""
    if attempt.attempts < 2:
        return []
    if attempt.number is None:
        text, subject = "no line says which attempt it is of; all lines are weighed together", ""
    else:
        subject = str(attempt.number)
        text = "the last one that left more than facts; only its lines are weighed"
    found = [_attempt("diagnosed", subject, "last_attempt", text)]
    found += _begun(every.begins)
    ended = ended_by(every, attempt.attempts)
    for number, event in [*ended.items()][:MAX_ATTEMPTS]:
        entry = entry_of(catalog, event.signature)
        title = entry.title if entry else event.signature or "a cause"
        found.append(
            _attempt("earlier", str(number), "earlier_attempt", f"ended with: {title}", event)
        )
    if len(ended) > MAX_ATTEMPTS:
        more = len(ended) - MAX_ATTEMPTS
        found.append(_attempt("left_out", "", "no_room", f"{more:,} more attempts are not listed"))
    return found


def _begun(begins: Sequence[Begin]) -> list[Reason]:
    """Where the last runs begin that were appended to files, and why they are others."""
    found: dict[int, list[Begin]] = defaultdict(list)
    for begin in begins:
        found[begin.attempt].append(begin)
    return [
        Reason(
            "attempt", "begun", str(number), own[0].predicate, _BEGUN[own[0].predicate],
            places=[SourceLine(one.source, one.line) for one in own[:MAX_PLACES]], count=len(own),
        )
        for number, own in sorted(found.items())[-MAX_ATTEMPTS:]
    ]  # fmt: skip


def _attempt(
    outcome: Outcome, number: str, predicate: str, text: str, event: Event | None = None
) -> Reason:
    events = [event] if event else []
    return Reason(
        "attempt", outcome, number, predicate, text,
        signature=event.signature if event else None, places=places(events), count=len(events),
    )  # fmt: skip
