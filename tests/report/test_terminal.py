"""What exact text does not show: colour, odd terminals, hostile text, long lists."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from diagnose.diagnosis import (
    Alternative,
    ChainLink,
    Diagnosis,
    Evidence,
    MissingEvidence,
    RootCause,
)
from diagnose.report import terminal

from .samples import HOSTILE, HUNG, UNKNOWN


def rendered(diagnosis: Diagnosis, console: Console) -> str:
    with console.capture() as capture:
        terminal.render(diagnosis, console)
    return capture.get()


class Ascii(io.StringIO):
    encoding = "ascii"


def test_colour_changes_no_word() -> None:
    plain = rendered(HUNG, Console(file=io.StringIO(), width=80, color_system=None))
    console = Console(
        file=io.StringIO(), width=80, height=1000, force_terminal=True, color_system="standard"
    )
    coloured = rendered(HUNG, console)
    assert "\x1b[1;31mHUNG" in coloured
    without = "".join(part.partition("m")[2] for part in f"m{coloured}".split("\x1b["))
    assert without == plain


def test_hostile_text_cannot_reach_the_terminal() -> None:
    text = rendered(HOSTILE, Console(file=io.StringIO(), width=80, color_system=None))
    assert all(char == "\n" or char.isprintable() for char in text)
    assert "owned" not in text
    assert "[bold]ValueError[/bold]" in text  # shown as it is, not as markup
    assert len(text) < 4000


def test_ascii_terminals_get_ascii() -> None:
    evidence = [Evidence("a.log", 1, "loss – nan", "“odd”")]
    text = rendered(
        replace(HUNG, evidence=evidence, alternatives=[]),
        Console(file=Ascii(), width=80, color_system=None),
    )
    assert text.isascii()
    assert "    | loss - nan" in text.splitlines()
    assert '  a.log:1  "odd".' in text.splitlines()


def test_a_long_report_ends_with_the_verdict() -> None:
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True)
    lines = rendered(HUNG, console).splitlines()
    assert "Summary" in lines[-3]
    assert "HUNG" in lines[-2]


def test_a_short_report_says_the_verdict_once() -> None:
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True)
    assert rendered(UNKNOWN, console).count("UNKNOWN") == 1


@pytest.mark.parametrize(
    ("field", "item", "shown"),
    [
        ("causal_chain", ChainLink("it happened"), terminal.MAX_CHAIN),
        ("alternatives", Alternative("net.socket", "low", "why"), terminal.MAX_ALTERNATIVES),
    ],
)
def test_long_lists_are_cut_and_counted(field: str, item: object, shown: int) -> None:
    bare = Diagnosis("hung", RootCause("net.socket", "A title", "", "low"))
    console = Console(file=io.StringIO(), width=80, color_system=None)
    text = rendered(replace(bare, **{field: [item] * (shown + 5)}), console)
    assert "  … and 5 more in the JSON output" in text.splitlines()


def test_alike_evidence_is_quoted_once() -> None:
    evidence = [
        Evidence("a.log", 4, "rank 0 ran for 600 ms", "it timed out"),
        Evidence("a.log", 9, "rank 1 ran for 601 ms", "it timed out"),
        Evidence("b.log", 1, "rank 2 ran for 602 ms", "it timed out"),
        Evidence("b.log", 5, "rank 2 died", "it timed out"),
        *(Evidence("b.log", 10 + n, f"rank {n} ran for 0 ms", "it timed out") for n in range(9)),
    ]
    console = Console(file=io.StringIO(), width=80, color_system=None)
    lines = rendered(replace(HUNG, evidence=evidence), console).splitlines()
    start = lines.index("Evidence")
    assert lines[start + 1 : start + 5] == [
        "  a.log:4, :9, b.log:1 and 9 more  it timed out.",
        "    │ rank 0 ran for 600 ms",
        "  b.log:5",
        "    │ rank 2 died",
    ]


def test_many_kinds_of_evidence_are_cut_and_counted() -> None:
    kinds = [Evidence("a.log", n, "a line", f"why {n}") for n in range(terminal.MAX_EVIDENCE + 3)]
    console = Console(file=io.StringIO(), width=80, color_system=None)
    text = rendered(replace(HUNG, evidence=[*kinds, kinds[-1]]), console)
    assert "  … and 4 more in the JSON output" in text.splitlines()


def test_a_chain_over_midnight_shows_dates() -> None:
    chain = [
        ChainLink("later", "2025-01-02T00:10:00"),
        ChainLink("earlier", "2025-01-01T23:50:00"),
    ]
    console = Console(file=io.StringIO(), width=80, color_system=None)
    lines = rendered(replace(HUNG, causal_chain=chain), console).splitlines()
    start = lines.index("Sequence of events")
    assert lines[start + 1 : start + 3] == [
        "  2025-01-01 23:50:00  earlier.",
        "  2025-01-02 00:10:00  later.",
    ]


def test_what_cannot_be_put_in_order_comes_first_and_says_so() -> None:
    chain = [
        ChainLink(
            "A rank timed out", "2025-01-01T10:00:00.250", 2, "a.log", 4, ranks=[0, 1, 2, 3, 6]
        ),
        ChainLink("It aborted", None, 2, "a.log", 5),
        ChainLink("The kernel killed a process", None, None, "dmesg.txt", 1),
    ]
    console = Console(file=io.StringIO(), width=80, color_system=None)
    lines = rendered(replace(HUNG, causal_chain=chain), console).splitlines()
    start = lines.index("Sequence of events")
    assert lines[start + 1 : start + 4] == [
        "  no time                     The kernel killed a process. [dmesg.txt:1]",
        "  10:00:00.250  ranks 0-3, 6  A rank timed out. [a.log:4]",
        "                rank 2        It aborted. [a.log:5]",
    ]


def test_a_chain_of_one_event_would_only_repeat_the_evidence() -> None:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    assert "in order" not in rendered(replace(HUNG, causal_chain=[ChainLink("It died")]), console)


def test_missing_evidence_without_a_how_is_one_line() -> None:
    missing = [MissingEvidence("the kernel log", ""), MissingEvidence("stacks", "py-spy dump")]
    console = Console(file=io.StringIO(), width=80, color_system=None)
    lines = rendered(replace(HUNG, missing_evidence=missing), console).splitlines()
    start = lines.index("Collect this next time")
    assert lines[start + 1 : start + 4] == ["  - the kernel log", "  - stacks", "    py-spy dump"]


def test_a_quote_is_cut_at_the_end_of_its_last_line() -> None:
    text = " ".join(["x" * 60] * 9)
    console = Console(file=io.StringIO(), width=80, color_system=None)
    evidence = [Evidence("a.log", 1, text, "")]
    lines = rendered(replace(HUNG, evidence=evidence), console).splitlines()
    start = lines.index("Evidence")
    assert lines[start + 2 : start + 7] == [f"    │ {'x' * 60}"] * 4 + [f"    │ {'x' * 60} …"]


def test_of_one_reason_three_kinds_are_quoted() -> None:
    evidence = [Evidence("a.log", n, chr(ord("a") + n), "it died") for n in range(5)]
    console = Console(file=io.StringIO(), width=80, color_system=None)
    lines = rendered(replace(HUNG, evidence=evidence), console).splitlines()
    start = lines.index("Evidence")
    assert lines[start + 1 : start + 8] == [
        *("  a.log  it died.", "    │ a", "  a.log:1", "    │ b", "  a.log:2", "    │ c"),
        "  … and 2 more in the JSON output",
    ]
