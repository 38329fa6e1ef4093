"""What helps to write entries: the JSON Schema of their files, by which editors complete and check
them, a new entry in its place to be filled in, and one entry by itself to be tested.
"""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter

from diagnose.catalog.document import KINDS, WRITTEN_OF_WORDS, FileEntry, read_files
from diagnose.catalog.entries import entries, unknown
from diagnose.catalog.load import catalog_files, load_catalog
from diagnose.catalog.schema import Match, RunKind, Vocabulary
from diagnose.errors import InputError
from diagnose.parse.prefix import peel
from diagnose.runtime import files

_REF = "#/$defs/{model}"
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
    defs: dict[str, Any] = {}
    for model in (*KINDS.values(), Match, Vocabulary):
        found = TypeAdapter(model).json_schema(ref_template=_REF)
        defs |= found.pop("$defs", {})
        defs[model.__name__] = found
    for name, form in defs.items():
        _untitled(form)
        properties = form.get("properties", {})
        for written, key in WRITTEN_OF_WORDS.items():
            if key in properties and name != "Condition":
                properties[written] = properties.pop(key)
            if key in form.get("required", []):
                form["required"] = [written if one == key else one for one in form["required"]]
    signature = defs["Signature"]["properties"]
    del signature["written"]
    signature["match"] = {
        "type": "array", "items": {"$ref": _REF.format(model="Match")}, "minItems": 1,
    }  # fmt: skip
    _match(defs["Match"])
    near_misses = {"type": "array", "items": {"anyOf": [_TEXT, _FIRST_LINE]}}
    defs["KnownIssue"]["properties"]["near_miss"] = near_misses
    _runs(defs)
    _vocabulary(defs)
    lists = {
        kind: {"type": "array", "items": {"$ref": _REF.format(model=model.__name__)}}
        for kind, model in KINDS.items()
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


ID = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+\.[a-z0-9-]+\Z")
BAD_ID = "ids are in lower case, and have three parts: product.family.name"
_SCHEMA = "# yaml-language-server: $schema=../schema.json\n"
_SIGNATURES = re.compile(
    r"^signatures:[ \t]*(?P<value>[^#\n]*?)(?P<comment>[ \t]*(?:#.*)?)\n", re.MULTILINE
)
TODO = "TODO"  # what is still to be filled in
_CAUSE = """\
    class: {cause}
    culprit: self
"""


@dataclass(frozen=True, slots=True)
class Filled:
    """What is known of a new entry; what is not is to be filled in.

    `regex` is "" where the line is to be made one.
    """

    title: str = TODO
    regex: str = ""
    near_miss: str = TODO
    not_evidence_of: str = TODO
    remedy: str = TODO
    restart: str = "fix_first"
    reference: str = TODO


_UNFILLED = Filled()


def place_of(id_: str, directory: Path) -> Path:
    """The file of an entry. Raises InputError for what is no id."""
    if not ID.match(id_):
        raise InputError(f"{id_}: {BAD_ID}")
    product, family, _ = id_.split(".")
    return directory / product / f"{family}.yaml"


def add(
    id_: str, directory: Path, *, role: str, cause: str, line: str, filled: Filled = _UNFILLED
) -> tuple[Path, int]:
    """Write a new signature where its id says; the file, and the line of the entry there.

    Raises InputError where the id is taken, also by the shipped catalog.
    """
    path = place_of(id_, directory)
    catalog = load_catalog([directory] if any(directory.rglob("*.yaml")) else [])
    if id_ in catalog.by_id or any(issue.id == id_ for issue in catalog.known_issues):
        raise InputError(f"{id_}: the id is taken; diagnose explain {id_} shows the entry")
    if cause and role != "cause":
        raise InputError(f"only role cause has a class: leave out --class {cause}")
    if cause and cause not in catalog.classes:
        raise InputError(f"unknown cause class {cause!r}; choose from {', '.join(catalog.classes)}")
    before, after = _around(path, directory)
    path.parent.mkdir(parents=True, exist_ok=True)
    entry = _entry(id_, role, cause, line, filled)
    if re.search(r"^- ", before.rpartition("signatures:")[2], re.MULTILINE):
        entry = textwrap.dedent(entry)  # as the others of the file
    files.replace(path, (before + entry + after).encode())
    return path, before.count("\n") + 1


def _around(path: Path, directory: Path) -> tuple[str, str]:
    """What stands in its file before a new signature and after it."""
    if not path.exists():
        schema = _SCHEMA if (directory / "schema.json").exists() else ""
        return f"{schema}signatures:\n", ""
    text = path.read_text(encoding="utf-8").rstrip("\n") + "\n"
    own = _SIGNATURES.search(text)
    if own is None:
        return f"{text}\nsignatures:\n", ""
    if own["value"] not in ("", "[]"):
        raise InputError(f"{path}: write its signatures below `signatures:`, each on its own lines")
    before = f"{text[: own.start()]}signatures:{own['comment']}\n"
    below = text[own.end() :]
    others = re.compile(r"^\w+:", re.MULTILINE).search(below)
    end = others.start() if others else len(below)
    signatures = below[:end].strip("\n")
    before += f"{signatures}\n\n" if signatures else ""
    return before, "\n" * bool(others) + below[end:]


def _entry(id_: str, role: str, cause: str, line: str, filled: Filled) -> str:
    line = line.strip("\n")
    is_cause = role == "cause"
    message = peel(line).message.strip() or TODO
    escaped = re.sub(r"[\\.^$|?*+()\[\]{}]", r"\\\g<0>", message)
    regex = filled.regex or re.sub(r"\d+", r"\\d+", escaped)
    title, near_miss, unproven, remedy = (
        one if one == TODO else _quoted(one)
        for one in (filled.title, filled.near_miss, filled.not_evidence_of, filled.remedy)
    )
    return "".join(
        [
            f"  - id: {id_}\n    title: {title}\n    role: {role}\n",
            _CAUSE.format(cause=cause or TODO) if is_cause else "",
            f"    match:\n      - regex: {_quoted(regex)}\n",
            f"        example: {_quoted(line or TODO)}\n",
            f"    near_miss: [{near_miss}]\n    not_evidence_of: {unproven}\n",
            f"    remedies:\n      - {{when: now, do: {remedy}}}\n" if is_cause else "",
            f"    restart: {filled.restart}\n" if is_cause else "",
            f"    references: [{filled.reference}]\n" if is_cause else "",
        ]
    )


def _quoted(text: str) -> str:
    if not text.isprintable():
        return json.dumps(text)
    return "'" + text.replace("'", "''") + "'"


def entry_in(id_: str, directories: list[Path]) -> FileEntry:
    """The entry of an id, read from its own file where it has one. Raises InputError."""
    product, _, _ = id_.partition(".")
    for directory in directories:
        family = directory / product / f"{id_.split('.')[1] if '.' in id_ else ''}.yaml"
        for place in (family, directory):
            if place.exists():
                for found in read_files([*catalog_files([place])]):
                    if found.entry.id == id_:
                        return found
    raise InputError(unknown("id", id_, entries(load_catalog())))
