"""Why this verdict: the tables of reasons, exactly as they are printed."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

import diagnose
from diagnose.diagnosis import STEPS, Diagnosis, Reason, SourceLine
from diagnose.report import markdown, terminal, why

from .samples import ALL, HOSTILE
from .test_expected import compare

ROOT = Path(__file__).parents[2]
# A hang whose cause explains a stall; an exception and a rival which each explain the other.
SHOWN = ("megatron-xid79", "two-hosts-collate-error")


@cache
def fixture(name: str) -> Diagnosis:
    return diagnose.diagnose(diagnose.load(ROOT / "fixtures" / name))


def printed(diagnosis: Diagnosis, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        terminal.render(diagnosis, console, why=True)
    return capture.get()


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("name", SHOWN)
def test_on_a_terminal(name: str, width: int) -> None:
    compare(f"why-{name}.{width}.txt", printed(fixture(name), width))


@pytest.mark.parametrize("width", [80, 200])
def test_hostile_text_on_a_terminal(width: int) -> None:
    compare(f"why-hostile.{width}.txt", printed(HOSTILE, width))


def test_in_markdown() -> None:
    compare("why-hostile.md", markdown.render(HOSTILE, why=True))
    assert markdown.render(HOSTILE) in markdown.render(HOSTILE, why=True)


def test_nobody_sees_reasons_who_did_not_ask() -> None:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    with console.capture() as capture:
        terminal.render(HOSTILE, console)
    for text in (capture.get(), markdown.render(HOSTILE)):
        assert why.TITLE not in text
        assert "highest" not in text


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("diagnosis", [*map(fixture, SHOWN), *ALL.values()])
def test_no_line_is_wider_than_the_terminal(diagnosis: Diagnosis, width: int) -> None:
    for line in printed(diagnosis, width).splitlines():
        assert len(line) < width
        assert line == line.rstrip()


def test_the_verdict_comes_first_and_the_events_last() -> None:
    given = [Reason(step, "met", "x", "y", "z") for step in reversed(STEPS)]
    headings = [table.heading for table in why.tables(given)]
    assert headings[0] == "The verdict"
    assert headings[-2:] == ["Events that counted, or did not", "Attempts"]
    assert len(headings) == len(STEPS)


def test_a_column_that_is_empty_is_left_out() -> None:
    (table,) = why.tables([Reason("rival", "lost", "net.socket", "seen_late", "late")])
    assert table.heads == ["outcome", "class", "predicate"]
    assert table.rows[0].cells == ["lost", "net.socket", "seen_late"]


def test_where_a_reason_is_seen() -> None:
    places = [SourceLine("a.log", 4), SourceLine("a.log", 9)]
    told = Reason("rival", "lost", "net.socket", "x", "y", signature="s.x", places=places, count=7)
    (table,) = why.tables([told])
    assert table.rows[0].seen == "s.x at a.log:4, :9 and 5 more"
