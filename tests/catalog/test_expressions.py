"""What expressions cost all searches, told by their form."""

from __future__ import annotations

import pytest

from diagnose.catalog.expressions import costly
from diagnose.catalog.load import load_catalog

PROGRESS = [f"INFO epoch {number} loss: 2.1" for number in range(20)]
MANY = "|".join(f"{number:03}no" for number in range(300))  # five states each


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (r"\S+ lost \d+", None),
        (r"\S+ is \d+", "begins with a repeat"),
        (r"(?:\w+|x) is \d+", None),  # one way begins with a character
        (r"(?:(?:\w+)) is \d+", "begins with a repeat"),
        (r"^\S+ is \d+", None),
        (r"x\S+ is \d+", None),
        (rf"opened (?:{MANY})", None),
        (rf"open (?:{MANY})", None),  # "open " is enough
        (rf"op (?:{MANY})", "slow: 1,503 states, more than 1,200"),
        (rf"opened (?:{MANY}) (?:{MANY})", "slow: 3,008 states, more than 2,600"),
        (r"^gpu\d+:", "slow: 'gpu0' is in names of hosts, so in all their lines"),
        (r"epoch \d+", "slow: 'epoch ', its rarest text, is in lines of progress"),
        (r"epoch \d+ was lost", None),
        (r"\b(?:it|loss|run).*\bhung", "begins with words that are in most lines"),
        (r"\b(?:it|gpu|run).*\bhung", None),
        (r"\p{Lu} lost", None),  # `re` does not know that
    ],
)
def test_what_is_refused(expression: str, problem: str | None) -> None:
    found = costly(expression, ignore_case=False, ordinary=PROGRESS)
    assert (found is None) if problem is None else (found is not None and problem in found)


def test_where_case_is_ignored_more_is_common() -> None:
    assert costly(r"EPOCH \d", ignore_case=False, ordinary=PROGRESS) is None
    assert costly(r"EPOCH \d", ignore_case=True, ordinary=PROGRESS) is not None


@pytest.mark.slow
def test_the_catalog_costs_no_more() -> None:
    """As the check says, which takes long for other reasons."""
    ordinary = ["step 10/100 loss 2.1 lr 1e-05"] * 3
    for signature in load_catalog().signatures:
        if not signature.per_step:
            for expression in signature.match:
                ignored = signature.ignore_case
                assert costly(expression, ignore_case=ignored, ordinary=ordinary) is None
