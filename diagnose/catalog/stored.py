"""The catalog as it is kept between runs: as JSON, which needs neither YAML nor pydantic.

Entries of which a job needs few have a line each, which is read when it is asked for. What is known
of all of them stands before these with the other entries, and above that a checksum of the rest, so
that a damaged file shows at once. The example lines are kept apart: only few jobs are compared with
them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields
from itertools import chain, islice
from typing import Any, TypeVar

from diagnose.catalog import cache
from diagnose.catalog.schema import (
    Catalog,
    CauseClass,
    Condition,
    KnownIssue,
    Place,
    Remedy,
    Run,
    Setting,
    Signature,
)
from diagnose.catalog.vocabulary import Near, Vocabulary, Word
from diagnose.lazy import Lazy, Named

FORMAT = 15  # of what is kept: another one when the fields of an entry change
_EXAMPLES = ("written", "examples", "near_miss")  # fields that are not kept
_WHOLE = ("classes", "settings")  # which are read at once
_LINES = ("known_issues", "vocabularies", "signatures")  # of which each entry has a line
Entry = TypeVar("Entry")


def _name(revision: str) -> str:
    return f"catalog-{revision}.json"


class Kept(Lazy[Entry]):
    """Entries of which each is a line of JSON; `sizes` are numbers of expressions."""

    def __init__(
        self,
        lines: Sequence[bytes],
        entry: Callable[[dict[str, Any]], Entry],
        sizes: Sequence[int] = (),
    ) -> None:
        super().__init__(len(lines))
        self._lines = lines
        self._entry = entry
        self.sizes = sizes

    def make(self, index: int) -> Entry:
        """The entry of a line."""
        return self._entry(json.loads(self._lines[index]))


def sizes(signatures: Sequence[Signature]) -> Sequence[int]:
    """How many expressions each has."""
    if isinstance(signatures, Kept):
        return signatures.sizes
    return [len(signature.match) for signature in signatures]


def write(catalog: Catalog) -> None:
    """Keep a catalog, without its examples."""
    about = {name: getattr(catalog, name) for name in _WHOLE}
    about |= {"ids": [*catalog.by_id], "sizes": sizes(catalog.signatures)}
    kept = [getattr(catalog, name) for name in _LINES]
    about["lines"] = [*map(len, kept)]
    rows = [json.dumps(row, default=_fields) for row in (about, *chain(*kept))]
    data = "\n".join(rows).encode()
    cache.keep(_name(catalog.revision), _checksum(data) + data)


def _checksum(data: bytes | memoryview) -> bytes:
    """The first line of a file, above this."""
    return b"%08x\n" % zlib.crc32(data)


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
    raw = cache.read(_name(revision))
    head = len(_checksum(b""))
    if raw is None or raw[:head] != _checksum(memoryview(raw)[head:]):
        return None
    try:
        _, about, *lines = raw.split(b"\n")
        kept = json.loads(about)
        issues, vocabularies, entries = (
            [*islice(rest, count)] for rest in [iter(lines)] for count in kept["lines"]
        )
        signatures = Kept(entries, _signature, kept["sizes"])
        return Catalog(
            signatures=signatures,
            known_issues=Kept(issues, _known_issue),
            classes={id_: _class(entry) for id_, entry in kept["classes"].items()},
            revision=revision,
            vocabularies=Kept(vocabularies, _vocabulary),
            settings={id_: _setting(entry) for id_, entry in kept["settings"].items()},
            by_id=Named(kept["ids"], signatures),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _remedies(entry: dict[str, Any]) -> dict[str, Any]:
    steps = [
        Remedy(**(step | {"run": [Run(**run) for run in step.get("run", ())]}))
        for step in entry.get("remedies", ())
    ]
    return entry | {"remedies": steps}


def _signature(entry: dict[str, Any]) -> Signature:
    return Signature(**_remedies(entry))


def _known_issue(entry: dict[str, Any]) -> KnownIssue:
    conditions = {
        key: [Condition(**c) for c in entry.get(key, ())] for key in ("all", "any", "none")
    }
    return KnownIssue(**(_remedies(entry) | conditions))


def _vocabulary(entry: dict[str, Any]) -> Vocabulary:
    words = [
        Word(**(word | {"near": [Near(**near) for near in word.get("near", ())]}))
        for word in entry["words"]
    ]
    return Vocabulary(**(entry | {"words": words}))


def _class(entry: dict[str, Any]) -> CauseClass:
    return CauseClass(**_remedies(entry))


def _setting(entry: dict[str, Any]) -> Setting:
    places = [Place(**(place | {"run": Run(**place["run"])})) for place in entry["places"]]
    return Setting(**(entry | {"places": places}))


def _examples_name(revision: str) -> str:
    return f"examples-{revision}.json"


def write_examples(catalog: Catalog) -> None:
    """Keep the examples of a catalog that was read with them."""
    rows = json.dumps(example_lines(catalog.signatures))
    cache.keep(_examples_name(catalog.revision), rows.encode())


def read_examples(catalog: Catalog) -> list[tuple[str, str]]:
    """What was kept of this catalog; [] if nothing was."""
    raw = cache.read(_examples_name(catalog.revision))
    try:
        return [(id_, line) for id_, line in json.loads(raw or b"[]")]
    except (ValueError, TypeError):
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
