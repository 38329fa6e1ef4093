"""Makes a JSON Schema from dataclasses whose JSON form has their fields as keys."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from diagnose.act.record import SCHEMA as ACTION
from diagnose.act.record import Action
from diagnose.checkpoint.model import JSON_KEYS, Checkpoint, Resume
from diagnose.checkpoint.model import SCHEMA as CHECKPOINT
from diagnose.collect.bundle import SCHEMA as BUNDLE
from diagnose.collect.bundle import Manifest, Node
from diagnose.comparison.model import SCHEMA as COMPARE
from diagnose.comparison.model import Comparison
from diagnose.diagnosis import LEFT_OUT, RENAMED, Diagnosis
from diagnose.diagnosis import SCHEMA as DIAGNOSIS
from diagnose.fleet.summary import SCHEMA as FLEET
from diagnose.fleet.summary import Fleet

Schema = dict[str, Any]

_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schemas() -> dict[str, Schema]:
    """Every schema by the name of its file."""
    return {
        "diagnosis-2.json": _Maker().document(DIAGNOSIS, _hints(Diagnosis)),
        "compare-1.json": _Maker().document(COMPARE, _hints(Comparison)),
        "fleet-1.json": _Maker().document(FLEET, _hints(Fleet)),
        "checkpoint-1.json": _Maker().document(
            CHECKPOINT, {"checkpoints": list[Checkpoint], "resume": Resume | None}
        ),
        "action-1.json": _Maker().document(ACTION, {"actions": list[Action]}),
        "bundle-1.json": _Maker().document(BUNDLE, _bundle()),
    }


def _bundle() -> dict[str, Any]:
    keys = _hints(Manifest) | {"nodes": list[Node]}
    return {name: kind for name, kind in keys.items() if name != "schema"}


def _hints(of: type) -> dict[str, Any]:
    """The keys of the JSON form of a dataclass, and their types."""
    # Of what is left out the types are not known at run time.
    found = get_type_hints(of, localns=dict.fromkeys(LEFT_OUT.values(), Any))
    left_out = LEFT_OUT if of is Diagnosis else {}
    every = [field.name for field in fields(of) if field.name not in left_out]
    return {name: found[name] for name in JSON_KEYS.get(of.__name__, every)}


class _Maker:
    """One document: what several places of it hold stands under `$defs`."""

    def __init__(self) -> None:
        self.shared: dict[str, Schema] = {}

    def document(self, name: str, keys: Mapping[str, Any]) -> Schema:
        """The schema called `name` of an object with these keys."""
        made = self._object({"schema": Literal[name], **keys})
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": name,
            **made,
            "$defs": dict(sorted(self.shared.items())),
        }

    def _object(self, keys: Mapping[str, Any]) -> Schema:
        properties = {
            RENAMED.get(key, key) if kind is str else key: self._of(kind)
            for key, kind in keys.items()
        }
        return {"type": "object", "properties": properties, "required": list(properties)}

    def _of(self, kind: Any) -> Schema:
        origin, inner = get_origin(kind), get_args(kind)
        if kind is Any:
            return {}
        if kind in _SIMPLE:
            return {"type": _SIMPLE[kind]}
        if origin is Literal:
            return {"const": inner[0]} if len(inner) == 1 else {"enum": list(inner)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self._of(one) for one in inner]}
        if origin is dict:
            return {"type": "object", "additionalProperties": self._of(inner[1])}
        if origin is list or (origin is tuple and inner[1:] == (...,)):
            return {"type": "array", "items": self._of(inner[0])}
        if origin is tuple:
            parts = [self._of(one) for one in inner]
            return {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts)}
        return self._shared(kind)

    def _shared(self, kind: type) -> Schema:
        if not is_dataclass(kind):
            raise TypeError(f"{kind} has no form in JSON")
        if kind.__name__ not in self.shared:
            self.shared[kind.__name__] = {}  # for those that hold themselves
            described = {"description": " ".join((inspect.getdoc(kind) or "").split())}
            self.shared[kind.__name__] = described | self._object(_hints(kind))
        return {"$ref": f"#/$defs/{kind.__name__}"}
