"""What a remedy gives to copy, from the form that YAML has to the one of the schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from diagnose.catalog.schema import RunKind


class RunError(Exception):
    """What is wrong with something to run, and where in its entry."""

    def __init__(self, at: Sequence[str | int], problem: str) -> None:
        super().__init__(problem)
        self.at = at


def type_runs(item: dict[str, Any]) -> None:
    """Write `{shell: text}` as `{kind: shell, lines: [text]}`; what is no such mapping stays."""
    for number, remedy in enumerate(_list(item.get("remedies"))):
        runs = _list(remedy.get("run")) if isinstance(remedy, dict) else []
        for index, run in enumerate(runs):
            if isinstance(run, dict):
                runs[index] = typed_run(run, ["remedies", number, "run", index])
    places = _list(item.get("places"))
    for number, place in enumerate(places):
        if isinstance(place, dict):
            own = {key: place[key] for key in ("reference", "unless") if key in place}
            run = {key: value for key, value in place.items() if key not in own}
            places[number] = {"run": typed_run(run, ["places", number]), **own}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def typed_run(run: dict[str, Any], at: Sequence[str | int]) -> dict[str, Any]:
    """A run as YAML writes it (the kind is the key), in the form of the schema.

    `at` is where it stands. Raises RunError.
    """
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
