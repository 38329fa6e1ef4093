"""What a remedy gives to copy, from the form that YAML has to the one of the schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from diagnose.catalog.schema import RunKind


class RunError(Exception):
    """What is wrong with something to run, and where in the list of remedies."""

    def __init__(self, at: Sequence[str | int], problem: str) -> None:
        super().__init__(problem)
        self.at = at


def type_runs(item: dict[str, Any]) -> None:
    """Write `{shell: text}` as `{kind: shell, lines: [text]}`; what is no such mapping stays."""
    remedies = item.get("remedies")
    for number, remedy in enumerate(remedies if isinstance(remedies, list) else []):
        runs = remedy.get("run") if isinstance(remedy, dict) else None
        if not isinstance(runs, list):
            continue
        for index, run in enumerate(runs):
            if isinstance(run, dict):
                runs[index] = typed_run(run, [number, "run", index])


def typed_run(run: dict[str, Any], at: Sequence[str | int]) -> dict[str, Any]:
    """A run as YAML writes it (the kind is the key), in the form of the schema."""
    """One of them; `at` is where it stands. Raises RunError."""
    kinds = [kind for kind in get_args(RunKind) if kind in run]
    if len(kinds) != 1:
        raise RunError(at, "run: needs exactly one of shell, python, setting and note")
    for key in run:
        if key not in (kinds[0], "framework", "file"):
            raise RunError([*at, key], f"run: {key}: unknown key")
    text = run[kinds[0]]
    if text in ("", []):
        raise RunError([*at, kinds[0]], f"run: {kinds[0]}: is empty")
    rest = {key: value for key, value in run.items() if key != kinds[0]}
    return {"kind": kinds[0], "lines": [text] if isinstance(text, str) else text, **rest}
