"""The name of a rule is for people: no module of the engine compares it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import diagnose
from diagnose.infer.rules import INFERRED, KNOWN, STATED

ENGINE = Path(diagnose.__file__).parent / "infer"


def compared(source: str) -> Iterator[str]:
    """What of this code compares, looks up or matches an attribute `rule`."""
    for node in ast.walk(ast.parse(source)):
        parts: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            parts = [node.slice]
        elif isinstance(node, ast.Match):
            parts = [node.subject]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            # `h.rule.startswith(…)`, `NAMES.get(h.rule)`
            parts = [node.func.value, *node.args] if node.func.attr != "append" else []
        if any(isinstance(part, ast.Attribute) and part.attr == "rule" for part in parts):
            yield ast.unparse(node)


def test_what_compares_a_name_is_seen() -> None:
    assert [*compared('h.rule == "stalls"')] == ["h.rule == 'stalls'"]
    for code in ("h.rule in X", "X[h.rule]", 'h.rule.startswith("s")', "X.get(h.rule)"):
        assert [*compared(code)]
    assert not [*compared("Reason(rule=h.rule, score=h.score)")]


def test_no_module_of_the_engine_compares_the_name_of_a_rule() -> None:
    found = {
        str(path.relative_to(ENGINE)): [*compared(path.read_text(encoding="utf-8"))]
        for path in ENGINE.rglob("*.py")
    }
    assert len(found) > 50
    assert {path: code for path, code in found.items() if code} == {}


def test_the_decision_does_not_know_the_names() -> None:
    """Not even as strings that would be compared in a roundabout way."""
    names = {*STATED, *INFERRED, *KNOWN} - {"silence", "stacks", "node_signs", "lone_stacks"}
    for path in (ENGINE / "decide").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        assert not strings & names, path.name
