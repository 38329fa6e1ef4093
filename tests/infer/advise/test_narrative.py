"""The verdict told with its lines."""

from typing import Any

import pytest

from diagnose.infer.advise import narrative
from diagnose.infer.collectives.clock_fit import ClockFit
from diagnose.infer.events.onset import Activity
from diagnose.infer.judge.verdict import Verdict
from diagnose.infer.rules.base import Hypothesis, Lost, Tier

from ..rows import at, catalog, context, ended, marker, matched, signature, step, wait

OOM = signature("t.oom", "crash.gpu_oom")
WATCHDOG = signature("t.watchdog", "", role="effect")
CATALOG = catalog(OOM, WATCHDOG)


def winner(*rows: int, inferred: bool = False) -> Hypothesis:
    return Hypothesis(
        "crash.gpu_oom", Tier.PROVEN, "title", "summary", list(rows), inferred=inferred
    )


def test_the_same_message_of_many_ranks_is_told_once(make: Any) -> None:
    timeline = make(
        matched(OOM, rank=3, time=at("08:00:00.250")),
        *[wait(rank, time=at("08:10:00")) for rank in (2, 0, 1)],
    )
    links = narrative.chain(winner(0), context(timeline, CATALOG))
    assert [(link.event, link.time, link.rank, link.line, link.ranks) for link in links] == [
        ("Title of t.oom", "2026-06-02T08:00:00.250", 3, 1, []),
        ("Title of t.watchdog", "2026-06-02T08:10:00", 2, 2, [0, 1, 2]),
    ]


def test_the_chain_begins_with_what_was_going_on(make: Any) -> None:
    timeline = make(step(4), marker("checkpoint", rank=0, text=" saving\tto /data "), wait(1))
    links = narrative.chain(
        winner(), context(timeline, CATALOG, activity=Activity("checkpoint", 1))
    )
    assert [(link.event, link.line) for link in links] == [
        ("saving to /data", 2),
        ("Title of t.watchdog", 3),
    ]


def test_evidence_of_one_message_is_one_link(make: Any) -> None:
    timeline = make(matched(OOM, rank=3), matched(OOM, rank=4), step(1))
    links = narrative.chain(winner(0, 1), context(timeline, CATALOG))
    assert [(link.event, link.ranks) for link in links] == [("Title of t.oom", [3, 4])]


def test_ends_belong_to_the_chain_and_facts_do_not(make: Any) -> None:
    timeline = make(step(4), {"text": "a fact"}, ended(2, exitcode="-9") | {"text": "exit -9"})
    links = narrative.chain(winner(), context(timeline, CATALOG))
    assert [(link.event, link.rank) for link in links] == [("exit -9", 2)]


def test_evidence_comes_once_per_place(make: Any) -> None:
    timeline = make(
        matched(OOM, line=5, text="CUDA  out of\tmemory", source="a.log"),
        wait(0, line=5, text="CUDA  out of\tmemory", source="a.log"),
        wait(1, line=5, text="other", source="b.log"),
    )
    found = narrative.evidence(winner(0, 1, 2), context(timeline, CATALOG))
    assert [(e.source, e.line, e.text, e.why) for e in found] == [
        ("a.log", 5, "CUDA out of memory", "Title of t.oom"),
        ("b.log", 5, "other", "Title of t.watchdog"),
    ]


def test_what_was_worked_out_says_why(make: Any) -> None:
    timeline = make(wait(0), {"text": "unknown line", "signature": None})
    stall = Verdict("missing", why="rank 1 of 2 printed no timeout", rows=(0, 1))
    seen = context(timeline, CATALOG, stalls=[stall])
    found = narrative.evidence(winner(0, 1, inferred=True), seen)
    assert [e.why for e in found] == [
        "Title of t.watchdog; rank 1 of 2 printed no timeout",
        "rank 1 of 2 printed no timeout",
    ]
    assert narrative.evidence(winner(0), seen)[0].why == "Title of t.watchdog"


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        (Lost.FOLLOWS, "consequence of the root cause (title)"),
        (Lost.LATE, "first seen after the first failure"),
        (Lost.WEAK, "supported only by weak evidence"),
        (
            Lost.CIRCUMSTANTIAL,
            "circumstantial; the evidence for the root cause is decisive",
        ),
        (Lost.AFTER, "first seen after the root cause"),
        (Lost.LESS, "weaker evidence than the root cause"),
        (None, "weaker evidence than the root cause"),
    ],
)
def test_alternatives_say_why_they_lost(lost: Lost | None, why: str) -> None:
    other = Hypothesis("net.p2p", Tier.STRONG, "", "", lost=lost, lost_to=winner())
    (found,) = narrative.alternatives([winner(), other])
    assert (found.cause, found.why_not) == ("net.p2p", why)


@pytest.mark.parametrize(
    ("lost", "why"),
    [(Lost.LESS, "look at x"), (Lost.FOLLOWS, "consequence of the root cause (title)")],
)
def test_an_issue_to_be_checked_says_how(lost: Lost, why: str) -> None:
    other = Hypothesis("net.p2p", Tier.GUESS, "", "", lost=lost, lost_to=winner(), hint="look at x")
    (found,) = narrative.alternatives([winner(), other])
    assert (found.confidence, found.why_not) == ("low", why)


@pytest.mark.parametrize(
    ("tier", "lost", "level"),
    [
        (Tier.OBSERVED, Lost.FOLLOWS, "low"),
        (Tier.LIKELY, Lost.LATE, "medium"),
        (Tier.CIRCUMSTANTIAL, Lost.LESS, "low"),
    ],
)
def test_how_much_speaks_for_an_alternative(tier: Tier, lost: Lost, level: str) -> None:
    (found,) = narrative.alternatives([winner(), Hypothesis("net.p2p", tier, "", "", lost=lost)])
    assert found.confidence == level


def test_only_some_alternatives_are_told() -> None:
    others = [Hypothesis(f"c{number}", Tier.STRONG, "", "", lost=Lost.LESS) for number in range(9)]
    found = narrative.alternatives([winner(), *others])
    assert [alternative.cause for alternative in found] == ["c0", "c1", "c2", "c3"]


@pytest.mark.parametrize(
    ("hosts", "second", "said"),
    [
        (
            ("a", "b"),
            "08:00:00.004",
            " [order uncertain: may precede the line above, the hosts' clocks differ]",
        ),
        (("a", "b"), "08:00:00.006", ""),
        (("a", "a"), "08:00:00.004", ""),
        (("a", None), "08:00:00.004", ""),
    ],
)
def test_an_order_that_clocks_do_not_tell_is_not_claimed(
    make: Any, hosts: tuple[str, str | None], second: str, said: str
) -> None:
    clocks = ClockFit("a", {"a": 0, "b": 0}, {"a": 0, "b": 5_000_000})
    timeline = make(
        matched(OOM, rank=3, host=hosts[0], time=at("08:00:00")),
        wait(1, host=hosts[1], time=at(second)),
    )
    links = narrative.chain(winner(), context(timeline, CATALOG), clocks)
    assert [link.event for link in links] == ["Title of t.oom", "Title of t.watchdog" + said]


def test_events_of_documents_are_no_lines(make: Any) -> None:
    pending = {"kind": "collective", "signal": "pending", "role": None, "text": "waits"}
    timeline = make(pending, matched(OOM, text="CUDA out of memory"))
    found = narrative.evidence(winner(0, 1), context(timeline, CATALOG))
    assert [e.text for e in found] == ["CUDA out of memory"]


@pytest.mark.parametrize(
    ("text", "clean"),
    [("  a\tb \n c", "a b c"), ("x" * 400, "x" * 400), ("x" * 401, "x" * 400 + " …")],
)
def test_a_line_on_one_line(text: str, clean: str) -> None:
    assert narrative.clean(text) == clean
