"""Events that no line of a log tells."""

from __future__ import annotations

import pytest

from diagnose.timeline.event import Meaning
from diagnose.timeline.readings import document


def test_a_document_knows_its_own_rank() -> None:
    draft = document("fr_3", 4, 3, "waits", Meaning(kind="collective", signal="pending"))
    assert (draft.document, draft.rank) == (True, 3)
    assert (draft.source, draft.line, draft.text, draft.signal) == ("fr_3", 4, "waits", "pending")


@pytest.mark.parametrize(
    ("site", "told"), [("train.py:9", {"site": "train.py:9"}), ("", {}), (None, {})]
)
def test_where_in_the_code_it_is(site: str | None, told: dict[str, str]) -> None:
    assert document("fr_3", 4, 3, "waits", Meaning(), site=site).fields == told
