"""What `tools/sources/*.yaml` says of each source: its files, its message sites, what is none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sites.c_code import CallForm, c_sites
from sites.plain_text import found, topics
from sites.python_code import PythonForms, python_sites
from sites.template import Site, distinct

EVERY = "every"  # the file with what holds for every source
_LARGEST = 4 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """Some files of a source and how messages are told there (one of the four ways)."""

    files: tuple[str, ...]
    without: tuple[str, ...] = ()
    calls: tuple[CallForm, ...] = ()
    python: PythonForms | None = None
    topics: bool = False
    find: tuple[tuple[str, str], ...] = ()
    conversions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoFailure:
    """Templates that tell of no failure of a job, and why."""

    template: re.Pattern[str]
    why: str


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """One source: where it is from, and its parts."""

    name: str
    title: str
    repository: str
    parts: tuple[Part, ...]
    no_failures: tuple[NoFailure, ...]


def read_specs(folder: Path) -> dict[str, SourceSpec]:
    """Every source by its name."""
    documents: dict[str, Any] = {}
    for path in sorted(folder.glob("*.yaml")):
        documents |= yaml.safe_load(path.read_text(encoding="utf-8"))
    every = documents.pop(EVERY)
    return {name: _spec(name, raw, every) for name, raw in documents.items()}


def _spec(name: str, raw: Mapping[str, Any], every: Mapping[str, Any]) -> SourceSpec:
    rows = (*raw.get("not_failures", ()), *every["not_failures"])
    return SourceSpec(
        name,
        raw["title"],
        raw["repository"],
        tuple(_part(part, every) for part in raw["parts"]),
        tuple(NoFailure(re.compile(row["template"]), row["why"]) for row in rows),
    )


def _part(raw: Mapping[str, Any], every: Mapping[str, Any]) -> Part:
    conversions = raw.get("conversions", {})
    return Part(
        files=tuple(raw["files"]),
        without=tuple(raw.get("without", ())),
        calls=tuple(_calls(call, conversions) for call in raw.get("calls", ())),
        python=_python(raw["python"], every) if "python" in raw else None,
        topics=raw.get("topics", False),
        find=tuple((one["pattern"], one["line"]) for one in raw.get("find", ())),
        conversions=conversions,
    )


def _calls(raw: Mapping[str, Any], conversions: Mapping[str, str]) -> CallForm:
    return CallForm(
        calls=tuple(raw["call"]),
        form=raw["form"],
        line=raw["line"],
        skip=raw.get("skip", 0),
        only=frozenset(raw.get("only", ())),
        assigned=raw.get("assigned", False),
        conversions=conversions,
    )


def _python(raw: Mapping[str, Any], every: Mapping[str, Any]) -> PythonForms:
    logs = {
        name: line.replace("{level}", every["levels"][name])
        for names, line in raw.get("logs", {}).items()
        for name in names.split()
    }
    types = raw.get("types", "failures")
    chosen = frozenset(types) if isinstance(types, list) else frozenset()
    without = frozenset(every["argument_checks"] if types == "failures" else ())
    return PythonForms(logs, chosen, without)


def sites_of(spec: SourceSpec, checkout: Path) -> list[Site]:
    """The distinct message sites of a checkout, in the order of its files."""
    return list(distinct([site for part in spec.parts for site in _sites(part, checkout)]))


def _sites(part: Part, checkout: Path) -> Iterator[Site]:
    for path in _files(part, checkout):
        name = path.relative_to(checkout).as_posix()
        text = path.read_text(encoding="utf-8", errors="replace")
        yield from _read(part, name, text)


def _read(part: Part, name: str, text: str) -> Iterator[Site]:
    if part.calls:
        yield from c_sites(name, text, part.calls)
    if part.python is not None:
        yield from python_sites(name, text, part.python)
    if part.topics:
        yield from topics(name, text)
    for pattern, line in part.find:
        yield from found(name, text, pattern, line, part.conversions)


def _files(part: Part, checkout: Path) -> Sequence[Path]:
    chosen = {path for glob in part.files for path in _matching(checkout, glob) if path.is_file()}
    left_out = {path for glob in part.without for path in _matching(checkout, glob)}
    return sorted(path for path in chosen - left_out if path.stat().st_size <= _LARGEST)


def _matching(checkout: Path, glob: str) -> Iterator[Path]:
    """The paths of a glob, in which `**` at the end stands for everything below."""
    return checkout.glob(f"{glob}/*" if glob.endswith("**") else glob)
