"""The example lines of a catalog, kept apart from it: only few jobs are compared with them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from diagnose.catalog import cache
from diagnose.catalog.schema import Catalog, Signature


def _name(revision: str) -> str:
    return f"examples-{revision}.json"


def keep(catalog: Catalog) -> None:
    """Keep the examples of a catalog that was read with them."""
    cache.keep(_name(catalog.revision), json.dumps(lines(catalog.signatures)).encode())


def kept(catalog: Catalog) -> list[tuple[str, str]]:
    """What was kept of this catalog; [] if nothing was."""
    raw = cache.read(_name(catalog.revision))
    try:
        return [(id_, line) for id_, line in json.loads(raw or b"[]")]
    except (ValueError, TypeError):
        return []


def lines(signatures: Sequence[Signature]) -> list[tuple[str, str]]:
    """(Id, line) of every example of these entries that must match."""
    return [
        (entry.id, line)
        for entry in signatures
        if entry.examples
        for example in entry.examples.match
        for line in example.line.splitlines()
        if line.strip()
    ]
