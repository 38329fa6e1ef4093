"""Values of JSON documents that may hold anything: what is of another type counts as absent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_MAX_ITEMS = 20_000


def listed(document: object, name: str) -> list[Any]:
    """The list under a name, so far as anybody needs it."""
    found = document.get(name) if isinstance(document, dict) else None
    return found[:_MAX_ITEMS] if isinstance(found, list) else []


def items(document: object, name: str) -> Iterator[dict[str, Any]]:
    """The objects in the list under a name."""
    yield from (item for item in listed(document, name) if isinstance(item, dict))


def text(value: object, most: int) -> str:
    """A text, so many characters of it."""
    return value[:most] if isinstance(value, str) else ""
