"""Hides secrets and people: what of a text must not leave the house."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def data(name: str) -> Any:
    """A file of `formats/secrets`, also from the archive that a node is sent."""
    loader: Any = __spec__.loader
    path = Path(__file__).parents[1] / "formats" / "secrets" / f"{name}.json"
    return json.loads(loader.get_data(str(path)))


def words(name: str) -> frozenset[str]:
    """A list of words to look things up in."""
    return frozenset(" ".join(data("words")[name]).split())
