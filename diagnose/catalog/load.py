"""Reads the YAML catalog into typed entries, and caches the result per catalog revision.

`safe_load` only, unknown and duplicate keys are errors, and every error names file, line and
field. The cache (entries as JSON, without examples) spares YAML and pydantic on later runs; it is
keyed by a hash of every catalog file and of this package's version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import diagnose
from diagnose.catalog import cache
from diagnose.catalog.schema import (
    Catalog,
    CauseClass,
    Condition,
    Example,
    Examples,
    KnownIssue,
    Remedy,
    Signature,
)

_CACHE_FORMAT = 1
_MAX_FILE = 4 << 20
_KINDS = ("signatures", "known_issues", "classes")


class CatalogError(Exception):
    """A catalog file that cannot be used; the message says file, line, field and problem."""


def default_dir() -> Path:
    """The catalog that ships with the package (or lies beside it in a checkout)."""
    installed = Path(__file__).parents[1] / "patterns"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "patterns"


def load_catalog(extra_dirs: Sequence[Path] = (), *, examples: bool = False) -> Catalog:
    """The shipped catalog plus the entries of `extra_dirs`, with their examples if asked for.

    An entry of a later directory replaces an earlier one of the same id. Raises CatalogError.
    """
    files = list(catalog_files([default_dir(), *extra_dirs]))
    revision = _revision(files)
    cached = None if examples else _read_cache(revision)
    if cached is not None:
        return cached
    catalog = read_catalog(files, revision)
    _write_cache(catalog)
    return catalog


def read_catalog(files: Sequence[tuple[Path, bytes]], revision: str) -> Catalog:
    """Parse and type-check catalog files (with their examples), without the cache."""
    entries: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
    for path, data in files:
        for kind, id_, entry in _read_file(path, data):
            entries[kind][id_] = entry
    return Catalog(
        signatures=list(entries["signatures"].values()),
        known_issues=list(entries["known_issues"].values()),
        classes=entries["classes"],
        revision=revision,
    )


def entries_of(path: Path, data: bytes) -> list[Any]:
    """The entries of one catalog file, in order."""
    return [entry for _, _, entry in _read_file(path, data)]


def catalog_files(dirs: Iterable[Path]) -> Iterator[tuple[Path, bytes]]:
    """Every YAML file of the directories (or the files themselves) with its bytes."""
    for directory in dirs:
        if directory.is_file():
            paths = [directory]
        elif directory.is_dir():
            paths = sorted(p for p in directory.rglob("*") if p.suffix in (".yaml", ".yml"))
        else:
            raise CatalogError(f"{directory}: no such file or directory")
        if not paths:
            raise CatalogError(f"{directory}: holds no .yaml file")
        for path in paths:
            try:
                data = path.read_bytes()
            except OSError as error:
                raise CatalogError(f"{path}: cannot be read: {error.strerror}") from error
            if len(data) > _MAX_FILE:
                raise CatalogError(f"{path}: larger than {_MAX_FILE >> 20} MiB")
            yield path, data


def _revision(files: Sequence[tuple[Path, bytes]]) -> str:
    digest = hashlib.sha256(f"{_CACHE_FORMAT} {diagnose.__version__}".encode())
    for path, data in files:
        digest.update(f"\0{path.name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()[:16]


def _read_file(path: Path, data: bytes) -> Iterator[tuple[str, str, Any]]:
    import yaml  # noqa: PLC0415  (not needed when the catalog is cached)
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415

    adapters: dict[str, TypeAdapter[Any]] = {
        "signatures": TypeAdapter(Signature),
        "known_issues": TypeAdapter(KnownIssue),
        "classes": TypeAdapter(CauseClass),
    }
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = yaml.compose(data, Loader=loader)
        if root is not None:
            _refuse_duplicates(path, root)
        document = yaml.load(data, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise CatalogError(f"{path}{at}: not valid YAML: {problem}") from error
    except RecursionError as error:
        raise CatalogError(f"{path}: nested too deeply") from error
    if document is None:
        return
    if not isinstance(document, dict):
        raise CatalogError(f"{path}:1: expected a mapping with {', '.join(_KINDS)}")
    for kind, items in document.items():
        if kind not in _KINDS:
            raise CatalogError(
                f"{path}:{_line(root, [kind])}: {kind}: unknown key, expected one of "
                f"{', '.join(_KINDS)}"
            )
        if not isinstance(items, list):
            raise CatalogError(f"{path}:{_line(root, [kind])}: {kind}: expected a list")
        for index, item in enumerate(items):
            line = _line(root, [kind, index])
            if not isinstance(item, dict):
                raise CatalogError(f"{path}:{line}: {kind}[{index}]: expected a mapping")
            if kind != "classes" and "class" in item:
                item["cause"] = item.pop("class")
            try:
                entry = adapters[kind].validate_python(item)
            except ValidationError as error:
                first = error.errors()[0]
                where = ["class" if part == "cause" else part for part in first["loc"]]
                line = _line(root, [kind, index, *where])
                field = ".".join(str(part) for part in where)
                name = item.get("id", f"{kind}[{index}]")
                raise CatalogError(f"{path}:{line}: {name}: {field}: {first['msg']}") from error
            yield kind, entry.id, entry


def _refuse_duplicates(path: Path, node: Any) -> None:
    pairs = node.value if node.id == "mapping" else []
    seen = set()
    for key, _ in pairs:
        if key.value in seen:
            line = key.start_mark.line + 1
            raise CatalogError(f"{path}:{line}: {key.value}: the key appears twice")
        seen.add(key.value)
    children = [value for _, value in pairs] if pairs else node.value
    if node.id != "scalar":
        for child in children:
            _refuse_duplicates(path, child)


def _line(root: Any, loc: Sequence[Any]) -> int:
    """1-based line of the node at `loc` (keys and indexes), or of the deepest one that exists."""
    node = root
    line = int(node.start_mark.line)
    for part in loc:
        if node.id == "mapping":
            found = [(k, v) for k, v in node.value if k.value == part]
            if not found:
                break
            line, node = int(found[0][0].start_mark.line), found[0][1]
        elif node.id == "sequence" and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = int(node.start_mark.line)
        else:
            break
    return line + 1


def _cached_as(revision: str) -> str:
    return f"catalog-{revision}.json"


def _write_cache(catalog: Catalog) -> None:
    data = asdict(catalog)
    for entry in (*data["signatures"], *data["known_issues"]):
        entry["examples"] = None
    cache.keep(_cached_as(catalog.revision), json.dumps(data).encode())


def _read_cache(revision: str) -> Catalog | None:
    raw = cache.read(_cached_as(revision))
    if raw is None:
        return None
    try:
        data = json.loads(raw)
        return Catalog(
            signatures=[_signature(entry) for entry in data["signatures"]],
            known_issues=[_known_issue(entry) for entry in data["known_issues"]],
            classes={id_: _class(entry) for id_, entry in data["classes"].items()},
            revision=revision,
        )
    except (ValueError, KeyError, TypeError):
        return None


def _remedies(entry: dict[str, Any]) -> dict[str, Any]:
    return entry | {"remedies": [Remedy(**step) for step in entry["remedies"]]}


def _signature(entry: dict[str, Any]) -> Signature:
    return Signature(**_remedies(entry))


def _known_issue(entry: dict[str, Any]) -> KnownIssue:
    conditions = {key: [Condition(**c) for c in entry[key]] for key in ("all", "any", "none")}
    return KnownIssue(**(_remedies(entry) | conditions))


def _class(entry: dict[str, Any]) -> CauseClass:
    return CauseClass(**_remedies(entry))


__all__ = [
    "CatalogError",
    "Example",
    "Examples",
    "default_dir",
    "load_catalog",
    "read_catalog",
]
