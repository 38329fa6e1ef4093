"""The YAML files of a catalog: plain data, every part with its line, and the entries in it.

Only what a catalog needs: texts, truth values, lists and mappings with texts as keys. Numbers,
dates and tags are refused, each with its line, and so is what nests too deep. An alias counts as
all that it stands for, so that a small file stays small.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from diagnose.catalog.expressions import unusable
from diagnose.catalog.matches import type_matches, type_near_misses
from diagnose.catalog.remedies import FieldError, type_runs
from diagnose.catalog.schema import Catalog, CauseClass, KnownIssue, Setting, Signature, Vocabulary
from diagnose.errors import CatalogError

MAX_DEPTH = 32
MAX_NODES = 100_000  # of one file, aliases written out
_NESTED = f"nested more than {MAX_DEPTH} deep"

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_YAML = "tag:yaml.org,2002:"
_COLLECTIONS = (_YAML + "map", _YAML + "seq")
_OTHERS = ("int", "float", "timestamp", "merge", "value")  # what a text without quotes may be
_BOOLS = dict.fromkeys(("yes", "true", "on"), True) | dict.fromkeys(("no", "false", "off"), False)
# How libyaml refuses what nests deeper than its own bound, far above ours.
_TOO_DEEP = "exceeded maximum nesting depth"


class DocumentError(Exception):
    """A file that is no such document: the line, and what is wrong there."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


At = tuple[str | int, ...]  # keys and indexes


@dataclass(slots=True)
class Document:
    """What a file holds, of which nothing is shared, and the line of each part by its place."""

    data: Any = None
    lines: dict[At, int] = field(default_factory=dict)

    def line_of(self, path: Sequence[str | int]) -> int:
        """The line of the part at `path`, or of the deepest one that exists."""
        at = tuple(path)
        while at not in self.lines:
            at = at[:-1]
        return self.lines[at]

    def add(self, found: yaml.Node, at: At = ()) -> Any:
        """The data of a node, which counts as often as an alias names it. Raises DocumentError."""
        line = found.start_mark.line + 1
        self.lines.setdefault(at, line)
        if len(self.lines) > MAX_NODES:
            raise DocumentError(line, f"more than {MAX_NODES:,} entries, aliases written out")
        if isinstance(found, yaml.ScalarNode):
            return _value(found, line)
        if found.tag not in _COLLECTIONS:
            raise DocumentError(line, f"not valid YAML: the tag {found.tag} is not allowed")
        if len(at) >= MAX_DEPTH:
            raise DocumentError(line, _NESTED)
        if isinstance(found, yaml.SequenceNode):
            return [self.add(one, (*at, number)) for number, one in enumerate(found.value)]
        data: dict[str, Any] = {}
        for key, value in found.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise DocumentError(line, "a key must be a text")
            if key.value in data:
                raise DocumentError(line, f"{key.value}: the key appears twice")
            self.lines[*at, key.value] = line
            data[key.value] = self.add(value, (*at, key.value))
        return data


def read(data: bytes) -> Document:
    """The document of a file; its data are None if there is nothing in it. Raises DocumentError."""
    text = _text(data)
    try:
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        if problem == _TOO_DEEP:
            raise DocumentError(line, _NESTED) from error
        raise DocumentError(line, f"not valid YAML: {problem}") from error
    except RecursionError as error:  # without libyaml
        raise DocumentError(1, _NESTED) from error
    found = Document()
    if root is not None:
        found.data = found.add(root)
    return found


def _text(data: bytes) -> str:
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError(line, f"not {'UTF-16' if utf16 else 'UTF-8'} text") from error
    # The parser would tell no line.
    hidden = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if hidden:
        line = text.count("\n", 0, hidden.start()) + 1
        raise DocumentError(line, f"not valid YAML: the character U+{ord(hidden[0]):04X}")
    return text


def _value(found: yaml.ScalarNode, line: int) -> str | bool | None:
    text: str = found.value
    kind = found.tag.removeprefix(_YAML)
    if kind == "null":
        return None
    if kind == "bool" and text.lower() in _BOOLS:
        return _BOOLS[text.lower()]
    if kind in _OTHERS:
        raise DocumentError(line, f"{text[:60]}: is of type {kind}; as a text it needs quotes")
    if kind != "str":
        raise DocumentError(line, f"not valid YAML: the tag {found.tag} is not allowed")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DocumentError(line, "not valid YAML: half a character") from error
    return text


# --------------------------------------------------------------------------- entries

KINDS = {
    "signatures": Signature, "known_issues": KnownIssue, "classes": CauseClass, "settings": Setting,
}  # fmt: skip
WORDS = "vocabularies"  # each a file of its own
# What YAML calls otherwise than the dataclasses do.
WRITTEN = {"class": "cause"}
WRITTEN_OF_WORDS = {"class": "cause", "not": "why_not", "word": "spellings"}


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An entry that stands at `at` in its file."""

    kind: str
    at: At
    entry: Any
    path: Path
    document: Document

    def wrong(self, field: Sequence[str | int], problem: str) -> CatalogError:
        """An error at a field of this entry."""
        line = self.document.line_of([*self.at, *field])
        return CatalogError(f"{self.path}:{line}: {self.entry.id}: {problem}")


def read_catalog(files: Sequence[tuple[Path, bytes]], revision: str) -> Catalog:
    """Parse and type-check catalog files (with their examples), without the cache."""
    return catalog_of(read_files(files), revision)


def read_files(files: Sequence[tuple[Path, bytes]]) -> list[FileEntry]:
    """The entries of catalog files, in order."""
    return [found for path, data in files for found in _read_file(path, data)]


def catalog_of(found: Iterable[FileEntry], revision: str) -> Catalog:
    """The catalog of these entries; of one id the last counts."""
    entries: dict[str, dict[str, Any]] = {kind: {} for kind in (*KINDS, WORDS)}
    for one in found:
        entries[one.kind][one.entry.id] = one.entry
    return Catalog(
        signatures=list(entries["signatures"].values()),
        known_issues=list(entries["known_issues"].values()),
        classes=entries["classes"],
        revision=revision,
        vocabularies=list(entries[WORDS].values()),
        settings=entries["settings"],
    )


def with_entries(catalog: Catalog, items: Iterable[dict[str, Any]]) -> Catalog:
    """A catalog with further signatures, each as YAML has it; what to do may be of their class."""
    found = [*catalog.signatures]
    for item in items:
        _typed("signatures", item)
        one: Signature = _adapter("signatures").validate_python(item)
        of_class = catalog.classes.get(one.cause)
        if of_class and not one.remedies:
            one = replace(one, remedies=of_class.remedies, restart=of_class.restart)
        found.append(one)
    return replace(catalog, signatures=found, by_id={entry.id: entry for entry in found})


def _read_file(path: Path, data: bytes) -> Iterator[FileEntry]:
    try:
        found = read(data)
    except DocumentError as error:
        raise CatalogError(f"{path}:{error.line}: {error}") from error
    if found.data is None:
        return
    if not isinstance(found.data, dict):
        raise CatalogError(
            f"{path}:{found.line_of([])}: expected a mapping with {', '.join(KINDS)}"
        )
    if "words" in found.data:
        words = {"about": "", "references": [], **found.data, "id": path.stem}
        yield _entry(WORDS, (), words, path, found)
        return
    for kind, items in found.data.items():
        at = f"{path}:{found.line_of([kind])}: {kind}"
        if kind not in KINDS:
            raise CatalogError(f"{at}: unknown key, expected one of {', '.join(KINDS)}")
        if not isinstance(items, list):
            raise CatalogError(f"{at}: expected a list")
        for index, item in enumerate(items):
            if not isinstance(item, dict):
                line = found.line_of([kind, index])
                raise CatalogError(f"{path}:{line}: {kind}[{index}]: expected a mapping")
            yield _entry(kind, (kind, index), item, path, found)


def _entry(kind: str, at: At, item: dict[str, Any], path: Path, document: Document) -> FileEntry:
    """An entry of its plain data. Raises CatalogError."""
    name = item.get("id", f"{kind}[{at[-1] if at else 0}]")
    try:
        _typed(kind, item)
        entry = _adapter(kind).validate_python(item)
    except FieldError as error:
        line = document.line_of([*at, *error.at])
        raise CatalogError(f"{path}:{line}: {name}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        written = {ours: key for key, ours in WRITTEN_OF_WORDS.items()}
        where = [written.get(str(part), part) for part in first["loc"]]
        line, place = document.line_of([*at, *where]), ".".join(map(str, where))
        raise CatalogError(f"{path}:{line}: {name}: {place}: {first['msg']}") from error
    return FileEntry(kind, at, entry, path, document)


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    """Pydantic's adapter of a kind; making one takes longer than reading a file."""
    return TypeAdapter(Vocabulary if kind == WORDS else KINDS[kind])


def _typed(kind: str, item: dict[str, Any]) -> None:
    """Bring what YAML writes otherwise into the form of the schema. Raises FieldError."""
    if kind == WORDS:
        for word in _mappings(item["words"]):
            _rename(word, WRITTEN_OF_WORDS)
            if isinstance(word.get("spellings"), str):
                word["spellings"] = [word["spellings"]]
            for near in _mappings(word.get("near")):
                _rename(near, WRITTEN_OF_WORDS)
        return
    if kind != "classes":
        _rename(item, WRITTEN)
    type_runs(item)
    if kind == "signatures":
        type_matches(item)
    elif kind == "known_issues":
        type_near_misses(item)


def _mappings(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _rename(item: dict[str, Any], names: Mapping[str, str]) -> None:
    for written, ours in names.items():
        if written in item:
            item[ours] = item.pop(written)


def joined(catalog: Catalog, files: Sequence[tuple[Path, bytes]], revision: str) -> Catalog:
    """A catalog and the entries of these files, which must be such as it can use."""
    later = read_catalog(files, revision)

    def both(kind: str) -> list[Any]:
        entries = (*getattr(catalog, kind), *getattr(later, kind))
        return list({entry.id: entry for entry in entries}.values())

    found = Catalog(
        signatures=both("signatures"),
        known_issues=both("known_issues"),
        classes=catalog.classes | later.classes,
        revision=revision,
        vocabularies=both("vocabularies"),
        settings=catalog.settings | later.settings,
    )
    for path, data in files:
        _refuse_unusable(path, data, found)
    return found


def _refuse_unusable(path: Path, data: bytes, catalog: Catalog) -> None:
    """Raise CatalogError for an entry with which no job could be diagnosed.

    The shipped entries are not asked: tests hold them to more than this.
    """
    for found in _read_file(path, data):
        entry = found.entry
        cause = getattr(entry, "cause", "")
        if cause and cause not in catalog.classes:
            raise found.wrong(["class"], f"class: unknown class {cause}")
        for index, remedy in enumerate(getattr(entry, "remedies", ())):
            if remedy.setting and remedy.setting not in catalog.settings:
                unknown = f"setting: unknown setting {remedy.setting}"
                raise found.wrong(["remedies", index, "setting"], unknown)
        if not isinstance(entry, Signature):
            continue
        if entry.role == "cause" and not cause:
            raise found.wrong(["role"], "class: needed for role cause")
        for name, expressions in (("match", entry.match), ("unless", entry.unless)):
            for index, expression in enumerate(expressions):
                problem = unusable(expression, ignore_case=entry.ignore_case)
                if problem:
                    raise found.wrong([name, index], problem)
