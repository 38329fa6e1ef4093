"""What no linter holds: functions and modules are short, name no cause class; CI runs all."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnose.catalog.load import load_catalog

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "diagnose"
LINES_OF_A_FUNCTION, LINES_OF_A_MODULE = 60, 450

# To be split; nothing is to be added.
LONG_FUNCTIONS = {
    "checkpoint/dcp_metadata.py: run",
    "report/html/page.py: page",
}
NAME_CLASSES = {"infer/decide/fusion.py"}

# No engineer searches for these; what a name holds has a word of the field, such as `reported`.
NO_NAMES = {"told", "said", "behind", "thin", "again", "heard", "stood"}


def test_functions_are_short() -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                if node.end_lineno - node.lineno >= LINES_OF_A_FUNCTION:
                    found.add(f"{path.relative_to(PACKAGE)}: {node.name}")
    assert found <= LONG_FUNCTIONS


def test_modules_of_the_engine_are_short() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for folder in ("infer", "stories", "timeline")
        for path in (PACKAGE / folder).rglob("*.py")
        if path.read_text(encoding="utf-8").count("\n") > LINES_OF_A_MODULE
    }
    assert found == set()


def test_names_are_words_of_the_field() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in PACKAGE.rglob("*.py")
        for name in [path.stem, *_names(ast.parse(path.read_text(encoding="utf-8")))]
        if NO_NAMES & set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))
    }
    assert found == set()


def _names(tree: ast.Module) -> Iterator[str]:
    """What a module names itself; what it imports is named elsewhere."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.alias(asname=str(name)):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.arg(arg=name) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.ExceptHandler(name=str(name)):
                yield name


@pytest.mark.parametrize("mark", ["browser", "cluster", "lab"])
def test_no_marked_test_is_outside_of_the_folders_that_ci_names(mark: str) -> None:
    """Collecting only these folders spares each worker ten thousand other tests."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    lines = [line for line in script.splitlines() if f"pytest -m {mark}" in line]
    folders = {folder for line in lines for folder in re.findall(r"\btests/\S+", line)}
    marked = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(rf"\bmark\.{mark}\b", path.read_text(encoding="utf-8"))
    }
    assert marked
    assert {path for path in marked if not path.startswith(tuple(folders))} == set()


def test_no_module_names_a_cause_class() -> None:
    """`unknown` and `none` are verdicts, too, and words."""
    ids = {name for name in load_catalog().classes if "." in name}
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in ids
    }
    assert found <= NAME_CLASSES
