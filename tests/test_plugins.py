"""Entry points: the example package is installed and used; broken ones cost a note each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import diagnose
from diagnose import plugins
from diagnose.catalog import load
from tests.own import LINE, README_ENTRY

ROOT = Path(__file__).parents[1]
EXAMPLE = Path(__file__).with_name("plugin_example")
STEPS = "".join(f"[rank{rank}]: step {step} loss 2.1\n" for step in range(3) for rank in range(4))

USE = """
import json, sys, diagnose
for folder in sys.argv[1:]:
    found = diagnose.diagnose(diagnose.load(folder))
    print(json.dumps(found.to_dict()))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `pip install --target` leaves it, without an index or a build."""
    target = tmp_path_factory.mktemp("site")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    shutil.copytree(EXAMPLE / "diagnose_example", target / "diagnose_example")
    about = target / "diagnose_example-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    (about / "entry_points.txt").write_text(
        "\n".join(
            "\n".join([f"[{group}]", *(f"{name} = {what}" for name, what in points.items())])
            for group, points in project["entry-points"].items()
        )
    )
    return target


def used(installed: Path, *folders: Path) -> list[dict[str, Any]]:
    path = os.pathsep.join([str(installed), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", USE, *map(str, folders)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_the_example_is_used(installed: Path, tmp_path: Path) -> None:
    texts = {
        "pattern/a.log": STEPS + "[rank3]: acme token store a not mounted\n",
        "reader/counts.txt": "acme counts\n0 17 16\n1 17 16\n2 16 16\n3 17 16\n",
        "rule/a.log": STEPS + "acme lease of n7 lost\n[rank1]: ValueError: bad batch\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    pattern, reader, rule = used(installed, *(tmp_path / n for n in ("pattern", "reader", "rule")))
    assert pattern["root_cause"]["signature"] == "acme.store.not-mounted"
    assert pattern["culprits"]["ranks"] == [3]
    assert (reader["verdict"], reader["culprits"]["ranks"]) == ("hung", [2])
    assert rule["root_cause"]["summary"] == "Acme took n7 away from the job"
    assert rule["culprits"]["hosts"] == ["n7"]
    notes = [note for one in (pattern, reader, rule) for note in one["notes"]]
    assert not any("plug-in" in note for note in notes)


class Point:
    """An entry point that gives what it is told."""

    def __init__(self, name: str, what: Any) -> None:
        self.name, self.what = name, what

    def load(self) -> Any:
        if isinstance(self.what, Exception):
            raise self.what
        return self.what


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the entry points of this process."""

    def given(**groups: list[Point]) -> None:
        def entry_points(group: str) -> list[Point]:
            return groups.get(group.removeprefix("diagnose."), [])

        monkeypatch.setattr(plugins, "_entry_points", entry_points)
        _forget()

    yield given
    _forget()


def _forget() -> None:
    plugins.loaded.cache_clear()
    load._base.cache_clear()


def broken(*_: object) -> Any:
    raise KeyError("acme")


class Odd:
    recognises = read = staticmethod(broken)


def test_one_that_does_not_work_costs_a_note(points: Any) -> None:
    points(
        patterns=[Point("p1", ImportError("no module named acme")), Point("p2", broken)],
        readers=[Point("r1", Odd)],
        rules=[Point("u1", broken), Point("u2", 7)],
    )
    job = diagnose.load_text(STEPS + "[rank1]: ValueError: bad batch\n")
    result = diagnose.diagnose(job)
    assert (result.verdict, result.culprits.ranks) == ("failed", [1])
    assert [note for note in job.notes if note.startswith("plug-in")] == [
        "plug-in p2: left out: 'acme'",
        "plug-in p1: left out: ImportError: no module named acme",
        "plug-in r1: left out: KeyError: 'acme'",
    ]
    assert [note for note in result.notes if note not in job.notes] == [
        "plug-in u1: left out: KeyError: 'acme'",
        "plug-in u2: left out: TypeError: 'int' object is not callable",
    ]


def test_a_reader_that_raises_where_it_is_asked_is_asked_once(points: Any, tmp_path: Path) -> None:
    points(readers=[Point("r1", Odd)])
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(STEPS)
    job = diagnose.load(tmp_path)
    assert job.notes == ["plug-in r1: left out: KeyError: 'acme'"]


@pytest.mark.parametrize(
    ("text", "what"),
    [("signatures: [{id: acme.x}]\n", "acme.x: title"), ("[", "not valid YAML")],
)
def test_a_pack_that_is_wrong_is_left_out(
    points: Any, tmp_path: Path, text: str, what: str
) -> None:
    (tmp_path / "acme.yaml").write_text(text)
    points(patterns=[Point("acme", lambda: tmp_path)])
    (note,) = diagnose.load_text(STEPS).notes
    assert note.startswith(f"plug-in acme: left out: {tmp_path}/acme.yaml:")
    assert what in note


def test_a_pack_is_a_folder_a_function_or_a_package(points: Any, tmp_path: Path) -> None:
    (tmp_path / "acme.yaml").write_text(README_ENTRY)
    points(patterns=[Point("acme", lambda: str(tmp_path))])
    job = diagnose.load_text(LINE)
    assert diagnose.diagnose(job).root_cause.signature == "acme.tokens.not-mounted"
    assert job.notes == []
