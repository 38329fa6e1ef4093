"""Log text cannot break out of its place in Markdown."""

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
