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
    cache.keep(_name(catalog.revision), json.dumps(_lines(catalog.signatures)).encode())


def examples_of(catalog: Catalog) -> list[tuple[str, str]]:
    """(Id, line) of every example that a signature of this catalog matches; [] if none are kept."""
    told = _lines(catalog.signatures)
    if told:
        return told
    raw = cache.read(_name(catalog.revision))
    try:
        kept = json.loads(raw) if raw else []
        return [(id_, line) for id_, line in kept if id_ in catalog.by_id]
    except (ValueError, TypeError):
        return []


def _lines(signatures: Sequence[Signature]) -> list[tuple[str, str]]:
    return [
        (entry.id, line)
        for entry in signatures
        if entry.examples
        for example in entry.examples.match
        for line in example.line.splitlines()
        if line.strip()
    ]
