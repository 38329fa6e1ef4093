"""The text of an issue: never too long, and log text stays in its place."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from diagnose.catalog.schema import Run
from diagnose.diagnosis import Diagnosis, Evidence, RemedyStep
from diagnose.report import markdown

from .samples import ALL, HUNG


@pytest.mark.parametrize("name", ALL)
def test_it_is_the_markdown_and_what_made_it(name: str) -> None:
    text = markdown.render_issue(ALL[name])
    plain = markdown.render(ALL[name])
    assert text.startswith(plain[: plain.rindex("\n")])
    assert text.endswith("log lines masked.</sub>\n")
    assert len(text) <= markdown.LIMIT


def test_notes_are_folded_and_escaped() -> None:
    text = markdown.render_issue(replace(HUNG, notes=["@team: a.log is cut #12", *["x"] * 30]))
    assert "<details><summary>Notes on the input</summary>\n\n- @\u200bteam: a.log" in text
    assert "#\u200b12." in text
    assert "- … and 11 more" in text


def test_an_unmasked_text_says_so() -> None:
    assert "**not masked: check it before you post it**" in markdown.render_issue(
        HUNG, redact=False
    )


def test_what_is_too_long_is_left_out_from_the_end() -> None:
    long = "é😀" * 950
    steps = [RemedyStep("now", f"{n}", long, [Run("shell", [long] * 3)]) for n in range(8)]
    evidence = [Evidence("a.log", n, long, f"{n} {long}") for n in range(40)]
    text = markdown.render_issue(
        Diagnosis("failed", HUNG.root_cause, remedies=steps, evidence=evidence)
    )
    assert len(text.encode("utf-16-le")) // 2 <= markdown.LIMIT
    assert text.startswith("### Failed: Rank 0 was still")
    assert "left out: longer than an issue may be. Attach the JSON output.*" in text
    assert text.count("<details>") == text.count("</details>")
    assert text.count("```") % 2 == 0


def test_mentions_links_and_fences() -> None:
    line = "@org/team #1 GH-2 https://x.org www.x.org ``` ```` </details> <!-- a -->"
    text = markdown.render_issue(
        replace(
            HUNG,
            root_cause=replace(HUNG.root_cause, title=line, summary=line),
            evidence=[Evidence("a.log", 1, line, line)],
        )
    )
    fence = re.search(r"\n(`{5,})\n@org/team.*\n\1\n", text)
    assert fence is not None  # the line as it is stands in a fence longer than its own
    outside = text.replace(fence[0], "")
    assert not re.search(r"@org|#1\b|GH-2|https://|www\.x|(?<!\\)</details>\s*<!--", outside)
