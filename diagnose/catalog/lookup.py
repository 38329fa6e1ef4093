"""What the catalog has under a name: a cause class, a setting, a signature or a known issue."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from diagnose.catalog.schema import Catalog, CauseClass, KnownIssue, Setting, Signature
from diagnose.errors import InputError

_ALIKE = 0.5
_FEW, _SEVERAL = 12, 60  # choices that are listed in any case, and where none is alike

Named = CauseClass | Setting | KnownIssue | Signature


def entries(catalog: Catalog) -> dict[str, Signature | KnownIssue]:
    """The signatures and known issues by id."""
    every: list[Signature | KnownIssue] = [*catalog.known_issues, *catalog.signatures]
    return {entry.id: entry for entry in every}


def find(catalog: Catalog, name: str) -> Named:
    """What has this name. Raises InputError, which says what is spelt like it."""
    known: dict[str, Named] = {**entries(catalog), **catalog.settings, **catalog.classes}
    wanted = name.strip()
    if wanted not in known:
        raise InputError(unknown("cause class, setting or signature", name, known))
    return known[wanted]


def unknown(what: str, given: str, choices: Mapping[str, object]) -> str:
    """A message for a name that does not exist: near ones, or where all are."""
    near = get_close_matches(given, choices, n=3, cutoff=_ALIKE)
    if near and len(choices) > _FEW:
        return f"unknown {what} {given!r}; did you mean {' or '.join(near)}?"
    if len(choices) <= _SEVERAL:
        return f"unknown {what} {given!r}; choose from {', '.join(choices)}"
    return (
        f"unknown {what} {given!r}; diagnose catalog list shows all {len(choices)}, with their "
        "cause classes"
    )
