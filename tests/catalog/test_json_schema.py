"""The schema that editors use is that of the code, and all files of the catalog are valid by it."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from diagnose.catalog.authoring import text
from diagnose.catalog.load import default_dir

SCHEMA = default_dir() / "schema.json"
ENTRY = """
id: a.b.c
title: A
role: effect
match: [{regex: lost, example: lost}]
near_miss: [found]
"""


def test_the_file_is_current() -> None:
    """`diagnose catalog schema > patterns/schema.json` writes it."""
    assert SCHEMA.read_text(encoding="utf-8") == text()


def test_all_files_are_valid_and_name_the_schema() -> None:
    checker = jsonschema.Draft202012Validator(json.loads(text()))
    for path in default_dir().rglob("*.yaml"):
        data = path.read_text(encoding="utf-8")
        up = "../" * (len(path.relative_to(default_dir()).parts) - 1)
        head = f"# yaml-language-server: $schema={up}schema.json"
        assert data.partition("\n")[0] == head, path
        assert checker.is_valid(yaml.load(data, Loader=yaml.CSafeLoader)), path


@pytest.mark.parametrize(
    "change",
    [
        {"titel": "A"},
        {"role": "guilt"},
        {"match": ["lost"]},
        {"match": []},
        {"match": [{"example": "lost"}]},
        {"match": [{"regex": "lost", "any_of": ["lost"]}]},
        {"match": [{"regexp": "lost"}]},
        {"match": [{"regex": "lost", "example": {"text": "lost"}}]},
        {"remedies": [{"when": "now", "do": "look", "run": [{"shell": "a", "python": "b"}]}]},
        {"written": []},
        {"cause": "net.fabric"},
        {"near_miss": [1]},
    ],
)
def test_what_the_loader_refuses_is_refused(change: dict[str, Any]) -> None:
    checker = jsonschema.Draft202012Validator(json.loads(text()))
    entry = yaml.safe_load(ENTRY)
    assert checker.is_valid({"signatures": [entry]})
    assert not checker.is_valid({"signatures": [entry | change]})
