"""What users read follows the glossary of CONTRIBUTING.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
# Words of the glossary that are right in some context, with those contexts.
_ALLOWED = re.compile(r"whole (?:node|machine|group|process group|sequence)", re.IGNORECASE)
_SENTENCES = {
    "title", "summary", "explanation", "not_evidence_of", "restart_why", "do", "why", "capture",
    "note",
}  # fmt: skip


def avoided() -> list[str]:
    """The phrases in the right-hand column of the glossary."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("<!-- glossary -->")[2].partition("<!-- end -->")[0]
    cells = [row.split("|")[2] for row in table.strip().splitlines()[2:]]
    return [phrase.strip() for cell in cells for phrase in cell.split(",")]


BAD = re.compile(rf"\b(?:{'|'.join(map(re.escape, avoided()))})\b", re.IGNORECASE)


def wrong(text: str) -> str:
    """The first avoided phrase of a text, empty where there is none."""
    found = BAD.search(_ALLOWED.sub("", text))
    return found[0] if found else ""


def catalog_texts(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """(place, text) of everything in a catalog file that is written for people."""
    if isinstance(value, dict):
        path = f"{path}/{value['id']}" if "id" in value else path
        for key, inner in value.items():
            if key in _SENTENCES:
                for text in inner if isinstance(inner, list) else [inner]:
                    if isinstance(text, str):
                        yield f"{path}.{key}", text
            if not isinstance(inner, str):
                yield from catalog_texts(inner, path)
    elif isinstance(value, list):
        for inner in value:
            yield from catalog_texts(inner, path)


def printed(path: Path) -> Iterator[tuple[str, str]]:
    """(place, text) of the string literals of a module, docstrings left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield f"{path.name}:{node.lineno}", node.value


def test_the_glossary_is_read() -> None:
    assert {"mend", "anew", "odd one out", "told"} <= set(avoided())
    assert wrong("Mend it") == "Mend"
    assert wrong("Use a whole node") == ""


@pytest.mark.parametrize(
    "path", sorted((ROOT / "patterns").rglob("*.yaml")), ids=lambda path: path.stem
)
@pytest.mark.slow
def test_catalog_texts_follow_the_glossary(path: Path) -> None:
    found = catalog_texts(yaml.load(path.read_bytes(), yaml.CSafeLoader))
    assert {place: text for place, text in found if wrong(text)} == {}


def test_what_a_match_does_not_prove_completes_the_sentence() -> None:
    starts = re.compile(r"(?:not|does|do|is|may|only|often|common|normal)\b|[A-Z][a-z]+ (?!in )")
    found = {}
    for path in (ROOT / "patterns").rglob("*.yaml"):
        for place, text in catalog_texts(yaml.load(path.read_bytes(), yaml.CSafeLoader)):
            if place.endswith(".not_evidence_of") and starts.match(text):
                found[place] = text
    assert found == {}


_PRINTING = (
    "batch", "catalog", "checkpoint", "cli", "collect", "fleet", "infer", "ingest", "job", "match",
    "mcp", "parse", "report", "serve", "watch",
)  # fmt: skip


@pytest.mark.parametrize("folder", _PRINTING)
def test_what_the_program_prints_follows_the_glossary(folder: str) -> None:
    root = ROOT / "diagnose" / folder
    texts = [item for path in root.rglob("*.py") for item in printed(path)]
    for path in root.rglob("*.j2"):
        texts.append((path.name, re.sub(r"{[{%].*?[%}]}", "", path.read_text(encoding="utf-8"))))
    assert texts
    assert {place: text for place, text in texts if " " in text and wrong(text)} == {}


@pytest.mark.parametrize("name", ["README.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))])
def test_the_pages_follow_the_glossary(name: str) -> None:
    text = re.sub(r"`[^`\n]*`", "", (ROOT / name).read_text(encoding="utf-8"))
    assert [found[0] for found in BAD.finditer(_ALLOWED.sub("", text))] == []
