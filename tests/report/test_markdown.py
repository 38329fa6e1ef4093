"""Log text cannot break out of its place in Markdown."""

import re

import pytest

from diagnose.report import markdown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_b *c* `d`", r"a\_b \*c\* \`d\`"),
        ("[x](y) <b> &lt; |", r"\[x\](y) \<b\> \&lt; \|"),
        ("@team fixed #12, 5 # 6", "@\u200bteam fixed #\u200b12, 5 # 6"),
    ],
)
def test_escape(text: str, expected: str) -> None:
    assert markdown.escape(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a b", "`a b`"), ("a`b", "``a`b``"), ("`a", "`` `a ``"), ("``", "``` `` ```")],
)
def test_code(text: str, expected: str) -> None:
    assert markdown.code(text) == expected


def test_no_line_closes_its_fence() -> None:
    assert markdown.fenced("x\n````\ny") == "`````\nx\n````\ny\n`````"


@pytest.mark.parametrize(
    "text",
    ["https://x.org/a", "see HTTP://x.org", "www.x.org", "mailto:a@x.org", "GH-1", "gh-12", "!7"],
)
def test_nothing_becomes_a_link(text: str) -> None:
    """An invisible blank stands where a forge would see the address or number begin."""
    once = markdown.escape(text)
    assert once.replace("\u200b", "").replace("\\", "") == text
    assert re.search(r"://|www\.|GH-\d|!\d|mailto:a|@x", once, re.IGNORECASE) is None


def test_what_is_no_link_stays() -> None:
    assert markdown.escape("bus a:/b, GH200, great! 7") == "bus a:/b, GH200, great! 7"
