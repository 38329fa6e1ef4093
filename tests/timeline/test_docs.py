"""docs/timeline.md lists the columns as the code defines them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from diagnose.timeline.frame import COLUMNS, PROGRESS_COLUMNS, RANK_COLUMNS, Column

PAGE = Path(__file__).parents[2] / "docs" / "timeline.md"


def table(columns: Sequence[Column]) -> str:
    rows = [f"| `{one.name}` | `{one.dtype}` | {one.meaning} |" for one in columns]
    return "\n".join(["| column | dtype | meaning |", "|---|---|---|", *rows])


@pytest.mark.parametrize(
    ("mark", "columns"),
    [("columns", COLUMNS), ("progress", PROGRESS_COLUMNS), ("ranks", RANK_COLUMNS)],
)
def test_the_page_lists_all_columns(mark: str, columns: Sequence[Column]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    start = text.index(f"<!-- {mark} -->\n") + len(f"<!-- {mark} -->\n")
    end = text.index("<!-- end -->", start)
    if os.environ.get("UPDATE_EXPECTED"):
        PAGE.write_text(f"{text[:start]}{table(columns)}\n{text[end:]}", encoding="utf-8")
    else:
        assert text[start:end].strip() == table(columns)
