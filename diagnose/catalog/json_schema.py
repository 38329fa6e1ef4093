"""The JSON Schema of catalog files, by which editors complete and check what is written.

It is made of the dataclasses; `diagnose catalog schema` prints it.
"""

from __future__ import annotations

import json
from typing import Any, get_args

from pydantic import TypeAdapter

from diagnose.catalog.schema import CauseClass, KnownIssue, Match, RunKind, Setting, Signature
from diagnose.catalog.vocabulary import Vocabulary

_REF = "#/$defs/{model}"
# What YAML calls otherwise than the dataclasses do.
_WRITTEN = {
    "Signature": {"cause": "class"},
    "KnownIssue": {"cause": "class"},
    "Near": {"cause": "class", "why_not": "not"},
    "Word": {"cause": "class", "why_not": "not", "spellings": "word"},
}
_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT, "minItems": 1}
_FIRST_LINE = {
    "type": "object",
    "properties": {"first_line": _TEXT},
    "required": ["first_line"],
    "additionalProperties": False,
}


def text() -> str:
    """The file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def schema() -> dict[str, Any]:
    """The schema of all kinds of files."""
    kinds = {
        "signatures": Signature,
        "known_issues": KnownIssue,
        "classes": CauseClass,
        "settings": Setting,
    }
    defs: dict[str, Any] = {}
    for model in (*kinds.values(), Match, Vocabulary):
        found = TypeAdapter(model).json_schema(ref_template=_REF)
        defs |= found.pop("$defs", {})
        defs[model.__name__] = found
    for name, form in defs.items():
        _untitled(form)
        properties = form.get("properties", {})
        for key, written in _WRITTEN.get(name, {}).items():
            properties[written] = properties.pop(key)
            if key in form.get("required", []):
                form["required"] = [written if one == key else one for one in form["required"]]
    _signature(defs["Signature"])
    _match(defs["Match"])
    near_misses = {"type": "array", "items": {"anyOf": [_TEXT, _FIRST_LINE]}}
    defs["KnownIssue"]["properties"]["near_miss"] = near_misses
    _runs(defs)
    _vocabulary(defs)
    lists = {
        kind: {"type": "array", "items": {"$ref": _REF.format(model=model.__name__)}}
        for kind, model in kinds.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A file of the catalog of diagnose",
        "anyOf": [
            {"type": "object", "properties": lists, "additionalProperties": False},
            {"$ref": _REF.format(model="Vocabulary")},
        ],
        "$defs": dict(sorted(defs.items())),
    }


def _untitled(form: Any) -> None:
    """Leave out the titles that repeat names of fields."""
    if isinstance(form, dict):
        if isinstance(form.get("title"), str):
            del form["title"]
        for part in form.values():
            _untitled(part)
    elif isinstance(form, list):
        for part in form:
            _untitled(part)


def _signature(form: dict[str, Any]) -> None:
    del form["properties"]["written"]
    matches = {"type": "array", "items": {"$ref": _REF.format(model="Match")}, "minItems": 1}
    form["properties"]["match"] = matches


def _match(form: dict[str, Any]) -> None:
    example = {"anyOf": [_TEXT, {"$ref": _REF.format(model="Example")}]}
    form["properties"] = {
        "regex": {"anyOf": [_TEXT, _TEXTS]},
        "any_of": _TEXTS,
        "after": _TEXT,
        "before": _TEXT,
        "example": example,
        "examples": {"type": "array", "items": example, "minItems": 1},
        "variants": {"anyOf": [_TEXT, _TEXTS]},
    }
    form["oneOf"] = [{"required": ["regex"]}, {"required": ["any_of"]}]


def _runs(defs: dict[str, Any]) -> None:
    """Runs and places have their kind as a key."""
    run, place = defs["Run"], defs["Place"]
    kinds = {kind: {"anyOf": [_TEXT, _TEXTS]} for kind in get_args(RunKind)}
    parts = {"framework": _TEXT, "file": _TEXT}
    run["properties"] = kinds | parts
    place["properties"] = kinds | parts | {"reference": _TEXT, "unless": _TEXT}
    run["required"], place["required"] = [], ["reference"]
    for form in (run, place):
        form["oneOf"] = [{"required": [kind]} for kind in kinds]


def _vocabulary(defs: dict[str, Any]) -> None:
    vocabulary, word = defs["Vocabulary"], defs["Word"]
    del vocabulary["properties"]["id"]  # the name of its file
    vocabulary["required"] = ["about", "words"]
    word["properties"]["word"] = {"anyOf": [_TEXT, _TEXTS]}
    word["required"] = ["word", "class", "strength"]
