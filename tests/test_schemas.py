"""The JSON Schema files are those of the code, and every output is valid by them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import diagnose
from diagnose.act.forms import document
from diagnose.act.record import decide
from diagnose.catalog.load import load_catalog
from diagnose.checkpoint.find import inspect
from diagnose.checkpoint.model import Inspection
from diagnose.collect.bundle import Manifest, Node, Probe, Process
from diagnose.diagnosis import Axis, Diagnosis, Earlier, SiteRecord, Topology, WaitGraph
from diagnose.fleet import summarise
from diagnose.report.fleet.words import as_json
from diagnose.report.safe import escaped, masked
from diagnose.schemas.make import schemas
from tests.checkpoint.make import hf
from tests.fleet import samples as fleets
from tests.fleet.frames import typed
from tests.report.samples import ALL, FAILED, HUNG
from tests.sizes import few

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "diagnose" / "schemas"
FIXTURES = sorted(path.parent.name for path in ROOT.glob("fixtures/*/expected.yaml"))


@cache
def checker(name: str) -> jsonschema.Draft202012Validator:
    """Stricter than the file: no key may be there that it does not know."""
    schema = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    for part in (schema, *schema["$defs"].values()):
        part["additionalProperties"] = False
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def check(name: str, text: str) -> None:
    checker(name).validate(json.loads(text))


def printed(diagnosis: Diagnosis) -> str:
    return escaped(masked(diagnosis).to_json())


@pytest.mark.parametrize("name", schemas())
def test_the_files_are_what_the_classes_give(name: str) -> None:
    text = json.dumps(schemas()[name], indent=2) + "\n"
    if os.environ.get("UPDATE_EXPECTED"):
        (FOLDER / name).write_text(text, encoding="utf-8")
    assert (FOLDER / name).read_text(encoding="utf-8") == text


def test_there_is_no_other_file() -> None:
    assert {path.name for path in FOLDER.glob("*.json")} == set(schemas())


@pytest.mark.parametrize("name", ALL)
def test_every_kind_of_verdict(name: str) -> None:
    check("diagnosis-2.json", printed(ALL[name]))


@pytest.mark.parametrize("name", few(FIXTURES, 12))
def test_every_fixture(name: str) -> None:
    found = diagnose.diagnose(diagnose.load(ROOT / "fixtures" / name))
    check("diagnosis-2.json", printed(found))
    assert json.loads(found.to_json()) == found.to_dict()


@pytest.mark.parametrize("name", ALL)
def test_a_diagnosis_comes_back_from_its_json(name: str) -> None:
    again = Diagnosis.from_dict(json.loads(ALL[name].to_json()))
    assert again == replace(ALL[name], places=[])


@pytest.mark.parametrize(
    "changed", [{"schema": "diagnose/1"}, {"verdict": "fine"}, {"evidence": 3}, {"root_cause": {}}]
)
def test_what_is_no_diagnosis_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Diagnosis.from_dict(HUNG.to_dict() | changed)


def test_what_a_site_knows() -> None:
    known = Earlier(
        "run-1", "2026-11-01T00:00:00+00:00", "net.fabric", [3], ["g"], "", "job", 1.0, 2
    )
    record = SiteRecord(12, 9, True, 0.81, "high")
    check("diagnosis-2.json", printed(replace(HUNG, earlier=[known], site_record=record)))


def test_decisions() -> None:
    now = datetime(2026, 11, 30, tzinfo=UTC)
    found = decide(FAILED, load_catalog(), "run-1", "0123", 7, now).actions
    check("action-1.json", document(found))
    check("action-1.json", document([]))


def test_the_graph_and_the_grid() -> None:
    full = replace(
        HUNG,
        graph=WaitGraph({0: "culprit", 1: "waiting"}, [(1, 0, "ALLREDUCE")]),
        topology=Topology((Axis("TP", 2, ((0, 1),)),), {0: {"TP": 0}, 1: {"TP": 1}}),
        notes=["rank 1: clock 3 s ahead"],
    )
    check("diagnosis-2.json", printed(full))
    told = json.loads(printed(full))
    assert told["graph"] == {
        "state": {"0": "culprit", "1": "waiting"},
        "edges": [[1, 0, "ALLREDUCE"]],
    }
    assert told["topology"]["axes"] == [{"name": "TP", "size": 2, "groups": [[0, 1]]}]
    assert told["notes"] == ["rank 1: clock 3 s ahead"]


@pytest.mark.parametrize(
    ("key", "value"),
    [("verdict", "odd"), ("evidence", [{}]), ("phase", 1), ("onset", None), ("schema", "x")],
)
def test_what_is_wrong_is_seen(key: str, value: Any) -> None:
    told = json.loads(printed(HUNG)) | {key: value}
    with pytest.raises(jsonschema.ValidationError):
        checker("diagnosis-2.json").validate(told)


def test_checkpoints(tmp_path: Path) -> None:
    check("checkpoint-1.json", Inspection([]).to_json())
    hf.MAKERS["hf-trainer"](tmp_path / "checkpoint-100", step=100, world=4, start=1.7e9)
    found = inspect([str(tmp_path)])
    assert found.resume is not None
    check("checkpoint-1.json", found.to_json())


def test_bundles() -> None:
    probe = Probe("kernel", "not available", 0.1, 0, "root only")
    process = Process(77, "rank", rank=0, world=8, command="python", folder="rank-0")
    node = Node("n1", "0.1.0", "a", "b", {"offset_s": 0.1}, [process], [probe], ["late"])
    found = Manifest("0.1.0", "a", "b", "slurm", [node.to_dict()], ["n2: no route"])
    check("bundle-1.json", json.dumps(found.to_dict()))
    assert node.to_dict()["diagnose"] == "node/1"


@pytest.mark.parametrize("name", ["small", "hostile"])
def test_fleets(name: str) -> None:
    jobs = typed(getattr(fleets, name)())
    check("fleet-1.json", as_json(summarise(jobs)))
    check("fleet-1.json", as_json(summarise(jobs, by="host")))
