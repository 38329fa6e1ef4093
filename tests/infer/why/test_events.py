"""What became of events: which counted, what absolved the others, and how little of it is kept."""

from __future__ import annotations

from typing import Any

import pytest

import diagnose
from diagnose.infer.events.facts import last_attempt
from diagnose.infer.events.failures import failures, unexplained
from diagnose.infer.why import events as why
from diagnose.infer.why.events import attempt_reasons, event_reasons
from diagnose.timeline import runs
from diagnose.timeline.event import Begin, Timeline

from ..rows import Row, catalog, ended, marker, matched, signature, stack, step, stories_of, wait

ERROR = signature("t.error", "crash.gpu_oom", strength="strong")
HINT = signature("t.hint", "crash.exception", strength="weak")
CRASH = signature("t.crash", "crash.native", strength="strong")
CATALOG = catalog(ERROR, HINT, CRASH)
SYMPTOM = {"signal": "notified", "role": "effect", "signature": "t.symptom"}
SERVED = [
    {"kind": "progress", "role": "progress", "phase": "inference", "text": f"served {n}"}
    for n in range(3)
]


def fates(timeline: Timeline) -> list[tuple[str, str, str]]:
    sifted = failures(stories_of(timeline)).sifted
    return [(one.outcome, one.subject, one.predicate) for one in event_reasons(sifted, CATALOG)]


@pytest.mark.parametrize(
    ("rows", "fate"),
    [
        ([matched(ERROR)], ("counted", "t.error", "shows_failure")),
        ([matched(HINT)], ("counted", "t.hint", "ends_the_log")),
        ([{"signal": "stuck"}], ("counted", "stuck", "reported_hang")),
        ([{"signal": "complaint"}], ("counted", "complaint", "complaint")),
        (
            [step(1), {"signal": "host_blocked", "role": None, "signature": "t.blocked"}],
            ("counted", "t.blocked", "stuck_at_the_end"),
        ),
        ([matched(HINT), step(1), step(2)], ("absolved", "t.hint", "work_went_on")),
        (
            [matched(ERROR, rank=0), *(step(n, rank=0) for n in range(5))],
            ("absolved", "t.error", "worked_on"),
        ),
        (
            [step(1, rank=0), matched(HINT, rank=0), {"signal": "finished", "rank": 0}],
            ("absolved", "t.hint", "completed"),
        ),
        (
            [
                {"kind": "phase", "phase": "shutdown", "signature": "t.end"},
                {"signal": "notified", "signature": "t.notified"},
            ],
            ("absolved", "t.notified", "after_the_end"),
        ),
        (
            [
                {"kind": "phase", "phase": "shutdown", "signature": "t.end"},
                {"role": "aftermath", "signature": "t.store-gone", "rank": 3},
            ],
            ("absolved", "t.store-gone", "after_the_end"),
        ),
        (
            [*SERVED, SYMPTOM | {"phase": "inference"}, *SERVED],
            ("absolved", "t.symptom", "answered"),
        ),
    ],
)
def test_the_fate_of_an_event(make: Any, rows: list[Row], fate: tuple[str, str, str]) -> None:
    assert fates(make(*rows)) == [fate]


def test_what_counts_comes_first_and_causes_before_effects(make: Any) -> None:
    timeline = make(matched(HINT), wait(0), matched(ERROR))
    assert fates(timeline) == [
        ("counted", "t.error", "shows_failure"),
        ("counted", "t.watchdog", "shows_failure"),
        ("ignored", "t.hint", "weaker_hint"),
    ]


def test_a_habit_absolves(make: Any) -> None:
    rows: list[Row] = []
    for number in range(7):
        rows += [matched(HINT, text="answer 3 cannot be parsed"), step(number)]
    timeline = make(*rows, matched(HINT, text="answer 3 cannot be parsed"))
    assert ("absolved", "t.hint", "habit") in fates(timeline)


def test_an_end_of_another_run_does_not_count(make: Any) -> None:
    timeline = make(step(1, rank=0), ended(0, exitcode="1"), *(step(n, rank=0) for n in range(9)))
    assert fates(timeline) == [("absolved", "t.exit", "another_run")]


def test_trouble_that_work_answers(make: Any) -> None:
    trouble = {"signal": "trouble", "signature": "t.trouble", "strength": "weak"}
    sifted = unexplained(stories_of(make(trouble, step(1)))).sifted
    assert [(one.fate, one.predicate) for one in sifted] == [("absolved", "worked_on_below")]
    sifted = unexplained(stories_of(make(step(1), trouble))).sifted
    assert [(one.fate, one.predicate) for one in sifted] == [("counted", "unexplained")]


def test_a_crash_behind_an_exception_is_its_own_end(make: Any) -> None:
    frames = stack(0, ("train.py", 9, "<module>"))
    raised = matched(signature("t.raised", "crash.exception", signal="exception"), rank=0)
    trace = {"text": "Traceback (most recent call last):", "role": "aftermath", "rank": 0}
    trace["signal"] = "trouble"
    timeline = make(trace, *frames, raised, matched(CRASH, rank=0))
    (reason,) = event_reasons(last_attempt(timeline, CATALOG.classes).sifted, CATALOG)
    assert (reason.outcome, reason.subject, reason.predicate) == ("absolved", "t.crash", "own_end")


def test_a_flood_of_events_leaves_few_reasons(make: Any) -> None:
    rows = [matched(ERROR, rank=number % 8) for number in range(2000)]
    kinds = [{"signal": "notified", "role": "effect", "signature": f"t.{n}"} for n in range(50)]
    reasons = event_reasons(failures(stories_of(make(*rows, *kinds))).sifted, CATALOG)
    assert len(reasons) == why.MAX_KINDS + 1
    assert (reasons[0].subject, reasons[0].count) == ("t.error", 2000)
    assert len(reasons[0].places) == why.MAX_PLACES
    assert (reasons[-1].outcome, reasons[-1].count) == ("left_out", 21)
    assert reasons[-1].text == "21 more kinds of events, 21 lines, are not listed"


def test_attempts(make: Any) -> None:
    timeline = make(matched(ERROR, rank=3), step(1, attempt=1), marker("training", attempt=1))
    reasons = attempt_reasons(last_attempt(timeline, CATALOG.classes), timeline, CATALOG)
    assert [(one.outcome, one.subject, one.text) for one in reasons] == [
        ("diagnosed", "1", "the last one that left more than facts; only its lines are weighed"),
        ("earlier", "0", "ended with: Title of t.error"),
    ]
    assert [(place.source, place.line) for place in reasons[1].places] == [timeline.at(0).place]
    only = make(step(1))
    assert attempt_reasons(last_attempt(only, CATALOG.classes), only, CATALOG) == []


def test_where_a_run_begins_in_a_file_and_why() -> None:
    died = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n{}\n'
    start = "Please NOTE: device: 1, GPU Compute Capability: 7.0, Driver API\n"
    text = start + died.format("KeyError: 'lr'") + start + died.format("ValueError: bad batch")
    reasons = diagnose.diagnose(diagnose.load_text(text)).reasons
    attempts = [one for one in reasons if one.step == "attempt"]
    assert [(one.outcome, one.subject, one.predicate) for one in attempts] == [
        ("diagnosed", "1", "last_attempt"),
        ("begun", "1", "starts_as_before"),
        ("earlier", "0", "earlier_attempt"),
    ]
    assert [(place.line, attempts[1].text) for place in attempts[1].places] == [
        (5, why._BEGUN["starts_as_before"])
    ]


def test_many_runs_leave_few_reasons(make: Any) -> None:
    every = make(*(step(1, attempt=number) for number in range(99)))
    every.begins = [
        Begin(source, 10 * number, number, "whole_start")
        for source in "abcdef"
        for number in range(1, 99)
    ]
    reasons = attempt_reasons(last_attempt(every, CATALOG.classes), every, CATALOG)
    begun = [one for one in reasons if one.outcome == "begun"]
    assert [one.subject for one in begun] == [str(number) for number in range(79, 99)]
    assert (len(begun[0].places), begun[0].count) == (why.MAX_PLACES, 6)


def test_every_reason_of_a_run_has_its_sentence() -> None:
    import inspect
    import re

    predicates = set(re.findall(r'"([a-z]+(?:_[a-z]+)+)"', inspect.getsource(runs.Machine)))
    assert predicates == set(why._BEGUN)


def test_every_predicate_has_its_sentence() -> None:
    """A predicate without one would raise when it is met, which may be in a rare log only."""
    import ast
    from pathlib import Path

    folder = Path(why.__file__).parents[1] / "events"
    used = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                at = {"keep": 0, "absolve": 0, "counting": 0, "Sifted": 1, "_sifted": 1}.get(name)
                if at is not None and isinstance(node.args[at], ast.Constant):
                    used.add(node.args[at].value)
    assert used - {""} <= set(why._WHY)
    assert len(used) > 15
