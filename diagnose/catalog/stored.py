"""The catalog as it is kept between runs: as JSON, which needs neither YAML nor pydantic."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from diagnose.catalog import cache
from diagnose.catalog.schema import (
    Catalog,
    CauseClass,
    Condition,
    KnownIssue,
    Remedy,
    Run,
    Signature,
)
from diagnose.catalog.settings import Place, Setting
from diagnose.catalog.vocabulary import Near, Vocabulary, Word

FORMAT = 11  # of what is kept: another one when the fields of an entry change


def _name(revision: str) -> str:
    return f"catalog-{revision}.json"


def write(catalog: Catalog) -> None:
    """Keep a catalog, without its examples."""
    cache.keep(_name(catalog.revision), json.dumps(_fields(catalog), default=_fields).encode())


def _fields(entry: Any) -> dict[str, Any]:
    """The fields of an entry, but for what can be had again."""
    found = {field.name: getattr(entry, field.name) for field in fields(entry)}
    found.pop("by_id", None)
    return found | {"examples": None} if "examples" in found else found


def read(revision: str) -> Catalog | None:
    """The catalog of a revision, without examples; None if it is not kept."""
    raw = cache.read(_name(revision))
    if raw is None:
        return None
    try:
        data = json.loads(raw)
        return Catalog(
            signatures=[_signature(entry) for entry in data["signatures"]],
            known_issues=[_known_issue(entry) for entry in data["known_issues"]],
            classes={id_: _class(entry) for id_, entry in data["classes"].items()},
            revision=revision,
            vocabularies=[_vocabulary(entry) for entry in data["vocabularies"]],
            settings={id_: _setting(entry) for id_, entry in data["settings"].items()},
        )
    except (ValueError, KeyError, TypeError):
        return None


def _remedies(entry: dict[str, Any]) -> dict[str, Any]:
    steps = [
        Remedy(**(step | {"run": [Run(**run) for run in step["run"]]}))
        for step in entry["remedies"]
    ]
    return entry | {"remedies": steps}


def _signature(entry: dict[str, Any]) -> Signature:
    return Signature(**_remedies(entry))


def _known_issue(entry: dict[str, Any]) -> KnownIssue:
    conditions = {key: [Condition(**c) for c in entry[key]] for key in ("all", "any", "none")}
    return KnownIssue(**(_remedies(entry) | conditions))


def _vocabulary(entry: dict[str, Any]) -> Vocabulary:
    words = [
        Word(**(word | {"near": [Near(**near) for near in word["near"]]}))
        for word in entry["words"]
    ]
    return Vocabulary(**(entry | {"words": words}))


def _class(entry: dict[str, Any]) -> CauseClass:
    return CauseClass(**_remedies(entry))


def _setting(entry: dict[str, Any]) -> Setting:
    places = [Place(**(place | {"run": Run(**place["run"])})) for place in entry["places"]]
    return Setting(**(entry | {"places": places}))
