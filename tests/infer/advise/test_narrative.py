"""The verdict told with its lines."""

from typing import Any

import pandas as pd
import pytest

from diagnose.infer.advise import narrative as story
from diagnose.infer.events.onset import Activity
from diagnose.infer.events.watchdogs import Stall
from diagnose.infer.rules.base import Candidate

from ..rows import at, catalog, ended, marker, matched, signature, step, wait

OOM = signature("t.oom", "crash.gpu_oom")
WATCHDOG = signature("t.watchdog", "", role="effect")
CATALOG = catalog(OOM, WATCHDOG)


def winner(*rows: int, inferred: bool = False) -> Candidate:
    return Candidate("crash.gpu_oom", 6.0, "title", "summary", list(rows), inferred=inferred)


def test_the_same_message_of_many_ranks_is_told_once(make: Any) -> None:
    frame = make(
        matched(OOM, rank=3, time=at("08:00:00.250")),
        *[wait(rank, time=at("08:10:00")) for rank in (2, 0, 1)],
    )
    links = story.chain(winner(0), frame, CATALOG, Activity())
    assert [(link.event, link.time, link.rank, link.line) for link in links] == [
        ("Title of t.oom", "2026-06-02T08:00:00.250", 3, 1),
        ("Title of t.watchdog (ranks 0-2)", "2026-06-02T08:10:00", 2, 2),
    ]


def test_the_chain_begins_with_what_was_going_on(make: Any) -> None:
    frame = make(step(4), marker("checkpoint", rank=0, text=" saving\tto /data "), wait(1))
    links = story.chain(winner(), frame, CATALOG, Activity("checkpoint", 1))
    assert [(link.event, link.line) for link in links] == [
        ("saving to /data", 2),
        ("Title of t.watchdog", 3),
    ]


def test_evidence_of_one_message_is_one_link(make: Any) -> None:
    frame = make(matched(OOM, rank=3), matched(OOM, rank=4), step(1))
    links = story.chain(winner(0, 1), frame, CATALOG, Activity())
    assert [link.event for link in links] == ["Title of t.oom (ranks 3-4)"]


def test_ends_belong_to_the_chain_and_facts_do_not(make: Any) -> None:
    frame = make(step(4), {"text": "a fact"}, ended(2, exitcode="-9") | {"text": "exit -9"})
    links = story.chain(winner(), frame, CATALOG, Activity())
    assert [(link.event, link.rank) for link in links] == [("exit -9", 2)]


def test_evidence_comes_once_per_place(make: Any) -> None:
    frame = make(
        matched(OOM, line=5, text="CUDA  out of\tmemory", source="a.log"),
        wait(0, line=5, text="CUDA  out of\tmemory", source="a.log"),
        wait(1, line=5, text="other", source="b.log"),
    )
    found = story.evidence(winner(0, 1, 2), frame, CATALOG, [])
    assert [(e.source, e.line, e.text, e.why) for e in found] == [
        ("a.log", 5, "CUDA out of memory", "Title of t.oom"),
        ("b.log", 5, "other", "Title of t.watchdog"),
    ]


def test_what_was_worked_out_says_why(make: Any) -> None:
    frame = make(wait(0), {"text": "unknown line", "signature": None})
    stall = Stall(None, "missing", why="rank 1 of 2 printed no timeout", rows=[0, 1])
    found = story.evidence(winner(0, 1, inferred=True), frame, CATALOG, [stall])
    assert [e.why for e in found] == [
        "Title of t.watchdog; rank 1 of 2 printed no timeout",
        "rank 1 of 2 printed no timeout",
    ]
    assert story.evidence(winner(0), frame, CATALOG, [stall])[0].why == "Title of t.watchdog"


def test_alternatives_say_why_they_lost() -> None:
    ranked = [winner()]
    for score, lost in ((5.0, "it follows from the verdict: x"), (3.5, "later"), (3.4, "")):
        ranked.append(Candidate("net.p2p", score, "", "", lost=lost))
    found = story.alternatives(ranked)
    assert [(a.confidence, a.why_not) for a in found] == [
        ("low", "it follows from the verdict: x"),
        ("medium", "later"),
        ("low", "less speaks for it"),
    ]


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (at("08:00:00"), "2026-06-02T08:00:00"),
        (at("08:00:00.1239"), "2026-06-02T08:00:00.123"),
        (pd.NaT, None),
        (None, None),
    ],
)
def test_times(time: Any, text: str | None) -> None:
    assert story.iso(time) == text
