"""The JSON schema and the page that describes it say the same."""

import re
from pathlib import Path

from .samples import ALL, HUNG

PAGE = Path(__file__).parents[2] / "docs" / "json.md"


def keys(value: object) -> set[str]:
    """Every key of the schema; the keys of `versions` are package names."""
    if isinstance(value, dict):
        inner = (keys(item) for key, item in value.items() if key != "versions")
        return set(value).union(*inner)
    if isinstance(value, list):
        return set().union(*map(keys, value))
    return set()


def test_the_page_describes_every_key() -> None:
    described = set(re.findall(r"`([a-z_]+)`", PAGE.read_text(encoding="utf-8")))
    assert keys(HUNG.to_dict()) <= described


def test_every_verdict_has_the_same_keys() -> None:
    wanted = list(HUNG.to_dict())
    assert all(list(diagnosis.to_dict()) == wanted for diagnosis in ALL.values())
