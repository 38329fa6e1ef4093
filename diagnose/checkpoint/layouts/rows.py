"""Layouts of checkpoints as data: `formats/checkpoints/*.yaml`, read when a folder asks for them.

A layout says how its folders are recognised, which files belong to a checkpoint, and what has to
hold for it to be complete. docs/extending.md shows how to write one; `checks.py` has
the predicates. What a row cannot say is a function, named as `module.function` of this package.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from diagnose.checkpoint.look import Look, Looker
from diagnose.checkpoint.model import Flaw, FlawKind, Found, State
from diagnose.checkpoint.tree import Folder, Leaf

FOLDER = Path(__file__).parents[2] / "formats" / "checkpoints"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Row = Mapping[str, Any]


# What a row says for itself. All else it has from the one that it is `like`.
_OWN = ("name", "order", "is", "only", "like", "marks", "resume", "compare", "facts", "groups")


@dataclass(frozen=True, slots=True)
class Layout:
    """One way to lay out checkpoints.

    `name` is what reports print and `family` what its checkpoints in one folder are compared under.
    `row` has the rest as written in the file; see docs/extending.md.
    """

    name: str
    family: str
    row: Row

    def read(self, folder: Folder, look: Looker, step: int | None = None) -> Found | None:
        """The checkpoint that a folder holds, judged as far as its own files go, or None.

        A folder whose name and rests tell what it was to become is one, however little is left of
        it. `step` is what is known of it where its name says none.
        """
        view = View(folder, self.row, look)
        if not view.holds(self.row["is"]):
            return None
        found = view.read(self.name, self.step_of(folder.name) if step is None else step)
        found.by = self
        return found

    def step_of(self, name: str) -> int | None:
        """What the name of a folder says."""
        step = self.row.get("step") or self.row.get("folder", "")
        if isinstance(step, dict):
            number: int | None = hook(step["hook"])(name)
            return number
        match = pattern(step).fullmatch(name)
        named = match["step"] if match and "step" in match.re.groupindex else None
        return int(named) if named else None

    def compare(self, run: Folder, found: list[Found]) -> None:
        """Add what markers (`latest` …) and the others tell of checkpoints, in order of step."""
        hook("checks.compare")(self, run, found)


def layouts(family: str = "") -> list[Layout]:
    """Those of a family, or all that are recognised by themselves, the most telling first."""
    return [
        one for one in all_layouts() if (one.family == family if family else "only" not in one.row)
    ]


def read(
    families: str | list[str], folder: Folder, look: Looker, step: int | None = None
) -> Found | None:
    """The checkpoint of one of some families that a folder holds."""
    names = [families] if isinstance(families, str) else families
    several = (one for name in names for one in layouts(name))
    return next((found for one in several if (found := one.read(folder, look, step))), None)


@cache
def all_layouts() -> tuple[Layout, ...]:
    """All, in the order in which they are asked."""
    files = [yaml.load(path.read_bytes(), _LOADER) for path in sorted(FOLDER.glob("*.yaml"))]
    rows = sorted(
        (one for file in files for one in file["layouts"]), key=lambda row: row.get("order", 50)
    )
    by_name: dict[str, dict[str, Any]] = {}
    for row in rows:
        if "only" not in row:
            by_name.setdefault(row["name"], row)
    return tuple(_layout(row, by_name) for row in rows)


def _layout(row: Row, by_name: Mapping[str, Row]) -> Layout:
    full: dict[str, Any] = {"facts": {}, "groups": {}}
    at: Row | None = row
    while at is not None:
        own = () if at is row else _OWN
        full = {key: value for key, value in at.items() if key not in own} | full
        for part in ("facts", "groups"):
            full[part] = at.get(part, {}) | full[part]
        at = by_name.get(at["like"]) if "like" in at else None
    texts = full["facts"]
    full["facts"] = {name: _written_out(fact, texts) for name, fact in texts.items()}
    return Layout(row["name"], full.get("family") or row["name"], full)


def _written_out(fact: Any, facts: Mapping[str, Any]) -> Any:
    """A fact with the patterns that it quotes as `%{name}`."""
    if isinstance(fact, dict):
        return {key: _written_out(value, facts) for key, value in fact.items()}
    if not isinstance(fact, str):
        return fact

    def quoted(match: re.Match[str]) -> str:
        text = _written_out(facts[match[1]], facts)
        text = next(iter(text.values())) if isinstance(text, dict) else text
        return re.sub(r"\(\?P<\w+>", "(?:", f"(?:{text})")

    return re.sub(r"%\{(\w+)\}", quoted, fact)


@cache
def pattern(text: str) -> re.Pattern[str]:
    """A pattern of a row."""
    return re.compile(text)


@cache
def hook(name: str) -> Callable[..., Any]:
    """The function that a row names."""
    module, _, function = name.partition(".")
    found: Callable[..., Any] = getattr(
        import_module(f"diagnose.checkpoint.layouts.{module}"), function
    )
    return found


@cache
def _condition(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


# What every folder has or has not.
_GIVEN: dict[str, Callable[[View], bool]] = {
    "always": lambda view: True,
    "bare": lambda view: not view.folder.files and not view.folder.folders,
    "flawless": lambda view: not view.found.flaws,
    "named": lambda view: view.named is not None,
    "nothing": lambda view: not view.found.parts,
    "unread": lambda view: view.folder.problem != "",
    "void": lambda view: not view.folder.problem and next(view.folder.leaves(), None) is None,
}


@dataclass(slots=True)
class View:
    """A folder as the facts of a layout see it, and what its checks have found out so far.

    `prefix` is the path from the checkpoint to the folder, with a slash; `looks` are by path in the
    checkpoint; `inner` what other layouts say of folders inside; `numbers` what checks counted.
    """

    folder: Folder
    row: Row
    look: Looker
    found: Found = field(default_factory=lambda: Found("", "", {}))
    prefix: str = ""
    looks: dict[str, Look] = field(default_factory=dict)
    inner: dict[str, Found] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=lambda: {"one": 1})
    _known: dict[str, list[re.Match[str]]] = field(default_factory=dict)

    @property
    def named(self) -> re.Match[str] | None:
        """How the pattern of folders matches the name of this one."""
        folder = self.row.get("folder")
        return pattern(folder).fullmatch(self.folder.name) if folder else None

    def holds(self, condition: str) -> bool:
        """Whether facts are there: their names, `and`, `or`, `not`."""
        return self._holds(_condition(condition))

    def _holds(self, node: ast.expr) -> bool:
        if isinstance(node, ast.BoolOp):
            test = all if isinstance(node.op, ast.And) else any
            return test(map(self._holds, node.values))
        if isinstance(node, ast.UnaryOp):
            return not self._holds(node.operand)
        if not isinstance(node, ast.Name):
            raise TypeError(ast.dump(node))
        if node.id in _GIVEN:
            return _GIVEN[node.id](self)
        if node.id in self.numbers and node.id not in self.row["facts"]:
            return self.numbers[node.id] > 0
        fact = self.row["facts"][node.id]
        if isinstance(fact, dict):
            if "when" in fact:
                return self.holds(fact["when"])
            if "hook" in fact:
                return bool(hook(fact["hook"])(self))
            if "known" in fact:
                inside = self.folder.folders.get(fact["known"])
                several = [one for name in fact["as"] for one in layouts(name)]
                return inside is not None and any(
                    View(inside, one.row, self.look).holds(one.row["is"]) for one in several
                )
        return bool(self.matches(node.id))

    def matches(self, name: str) -> list[re.Match[str]]:
        """Names of files that a fact matches as a whole, of folders or of paths below."""
        fact = self.row["facts"][name]
        kind, text = next(iter(fact.items())) if isinstance(fact, dict) else ("files", fact)
        if kind in ("taken", "parts"):  # which grow
            return _full(text, self.inner if kind == "taken" else self.found.parts)
        if name not in self._known:
            found = _full(text, _NAMES[kind](self))
            if isinstance(fact, dict) and "holding" in fact:
                found = [one for one in found if self._inside(one.string).holds(fact["holding"])]
            self._known[name] = found
        return self._known[name]

    def _inside(self, name: str) -> View:
        return View(self.folder.folders[name], self.row, self.look)

    def parts(self) -> dict[str, Leaf]:
        """Files of the folder that belong to the checkpoint."""
        facts = self.row.get("parts")
        if facts is None:
            return dict(self.folder.leaves())
        names = [match.string for fact in facts for match in self.matches(fact)]
        return {name: self.folder.files[name] for name in names}

    def read(self, name: str, step: int | None) -> Found:
        """The checkpoint, after all checks."""
        self.found = Found(self.folder.path, name, self.parts(), step)
        if self.holds(self.row.get("framework_if", "always")):
            self.found.framework = self.row.get("framework", "")
        self.check(self.row["checks"])
        return self.found

    def check(self, checks: list[Any]) -> bool:
        """Apply checks; False where one of them ends it."""
        for one in checks:
            spec = {"hook": one} if isinstance(one, str) else one
            if self.holds(spec.get("when", "always")):
                if "use" in spec:
                    hook("checks.use")(self, spec)
                elif "hook" in spec:
                    hook(spec["hook"])(self)
                else:
                    hook(f"checks.{next(iter(spec))}")(self, spec)
                if spec.get("stop"):
                    return False
        return True

    def at(self, path: str) -> Folder:
        """A folder inside."""
        folder = self.folder
        for name in path.split("/"):
            folder = folder.folders[name]
        return folder

    def flaw(self, state: State, why: str, file: str = "", kind: FlawKind = FlawKind.OTHER) -> None:
        """Add a flaw; `file` is relative to the folder."""
        self.found.flaws.append(Flaw(state, why, f"{self.prefix}{file}" if file else "", kind))


def _full(text: str, names: Any) -> list[re.Match[str]]:
    matches = map(pattern(text).fullmatch, names)
    return [match for match in matches if match]


def _below(folder: Folder, depth: int = 5) -> list[str]:
    return [
        path
        for name, inside in folder.folders.items()
        for path in (
            name,
            *(f"{name}/{one}" for one in (_below(inside, depth - 1) if depth else ())),
        )
    ]


_NAMES: dict[str, Callable[[View], Any]] = {
    "files": lambda view: view.folder.files,
    "folders": lambda view: view.folder.folders,
    "below": lambda view: _below(view.folder),
    "place": lambda view: [view.folder.path],
    "paths": lambda view: [path for path, _ in view.folder.leaves()],
    "name": lambda view: [view.folder.name],
}
