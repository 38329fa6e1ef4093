"""The compiled catalog: its entries as JSON, which needs neither YAML nor pydantic.

Entries of which a job needs few have a line each, which is read when it is asked for; what is known
of all of them stands apart. So do the example lines: only few jobs are compared with them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, fields
from itertools import accumulate
from typing import Any, TypeVar, cast

from diagnose.catalog import kept, schema
from diagnose.catalog.schema import (
    Catalog,
    CauseClass,
    Condition,
    KnownIssue,
    Near,
    Place,
    Remedy,
    Run,
    Setting,
    Signature,
    Vocabulary,
    Word,
    WordIndex,
)
from diagnose.lazy import Lazy, Named

_EXAMPLES = ("written", "examples", "near_miss")  # fields that are not kept
_WHOLE = ("classes", "settings")  # which are read at once
_LINES = ("known_issues", "vocabularies", "signatures")  # of which each entry has a line
Entry = TypeVar("Entry")


class Rows(Lazy[Entry]):
    """Entries of which each is a line of JSON; `about` is what is known of all of them."""

    def __init__(
        self,
        data: memoryview,
        lengths: Sequence[int],
        kind: Callable[..., Entry],
        about: Any = None,
    ) -> None:
        super().__init__(len(lengths))
        self._data = data
        self._starts = [*accumulate(lengths, initial=0)]
        self._kind = kind
        self.about = about

    def make(self, index: int) -> Entry:
        """The entry of a line."""
        line = self._data[self._starts[index] : self._starts[index + 1]]
        return _made(self._kind, json.loads(line.tobytes()))


def sizes(signatures: Sequence[Signature]) -> Sequence[int]:
    """How many expressions each has."""
    if isinstance(signatures, Rows):
        return cast("Sequence[int]", signatures.about)
    return [len(signature.match) for signature in signatures]


def word_index(vocabularies: Sequence[Vocabulary]) -> WordIndex:
    """The index of the words of all of them."""
    if isinstance(vocabularies, Rows):
        return cast("WordIndex", vocabularies.about)
    return schema.word_index(vocabularies)


def name_of(revision: str) -> str:
    """The name of the file of a catalog."""
    return f"{revision}.catalog"


def sections(catalog: Catalog) -> dict[str, bytes]:
    """What is kept of a catalog that was read with its examples."""
    about = {name: getattr(catalog, name) for name in _WHOLE}
    about |= {"ids": [*catalog.by_id], "sizes": sizes(catalog.signatures)}
    about["words"] = word_index(catalog.vocabularies)
    lines = {
        name: [json.dumps(entry, default=_fields).encode() for entry in getattr(catalog, name)]
        for name in _LINES
    }
    about["lengths"] = {name: [*map(len, rows)] for name, rows in lines.items()}
    return {
        "about": json.dumps(about, default=_fields).encode(),
        "examples": json.dumps(example_lines(catalog.signatures)).encode(),
        **{name: b"".join(rows) for name, rows in lines.items()},
    }


def _fields(entry: Any) -> dict[str, Any]:
    """The fields of an entry that are not as they would be anyway, without its examples."""
    return {
        field.name: value
        for field in fields(entry)
        if field.name not in _EXAMPLES and (value := getattr(entry, field.name)) != _default(field)
    }


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def read(revision: str) -> Catalog | None:
    """The catalog of a revision, without examples; None if it is not kept."""
    for found in kept.find(name_of(revision)):
        with suppress(ValueError, KeyError, TypeError):
            return _catalog(found, revision)
    return None


def _catalog(found: kept.Kept, revision: str) -> Catalog:
    about = json.loads(found.section("about").tobytes())
    issues, vocabularies, entries = (
        (found.section(name), about["lengths"][name]) for name in _LINES
    )
    signatures = Rows(*entries, Signature, about["sizes"])
    return Catalog(
        signatures=signatures,
        known_issues=Rows(*issues, KnownIssue),
        classes={id_: _made(CauseClass, entry) for id_, entry in about["classes"].items()},
        revision=revision,
        vocabularies=Rows(*vocabularies, Vocabulary, WordIndex(*about["words"])),
        settings={id_: _made(Setting, entry) for id_, entry in about["settings"].items()},
        by_id=Named(about["ids"], signatures),
    )


_PARTS: dict[str, Callable[..., Any]] = {  # what fields hold that hold more than texts
    "remedies": Remedy, "run": Run, "all": Condition, "any": Condition, "none": Condition,
    "words": Word, "near": Near, "places": Place,
}  # fmt: skip


def _made(kind: Callable[..., Entry], entry: dict[str, Any]) -> Entry:
    """An entry of its fields."""
    for name in _PARTS.keys() & entry.keys():
        part, value = _PARTS[name], entry[name]
        several = isinstance(value, list)
        entry[name] = [_made(part, one) for one in value] if several else _made(part, value)
    return kind(**entry)


def read_examples(catalog: Catalog) -> list[tuple[str, str]]:
    """What was kept of this catalog; [] if nothing was."""
    for found in kept.find(name_of(catalog.revision)):
        with suppress(ValueError, TypeError):
            return [(id_, line) for id_, line in json.loads(found.section("examples").tobytes())]
    return []


def example_lines(signatures: Sequence[Signature]) -> list[tuple[str, str]]:
    """(Id, line) of every example of these entries that must match."""
    return [
        (entry.id, line)
        for entry in signatures
        for example in entry.examples
        for line in example.line.splitlines()
        if line.strip()
    ]
