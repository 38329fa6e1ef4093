"""Every fixture is read and diagnosed as its expected.yaml says, in whatever order it is read."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import diagnose
from diagnose.catalog.load import load_catalog
from diagnose.diagnosis import Diagnosis
from diagnose.ingest import find_sources
from diagnose.job.load import read
from tests.sizes import few

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
NAMES = sorted(path.parent.name for path in FIXTURES.glob("*/expected.yaml"))
CONFIDENCE = ["low", "medium", "high"]
KEYS = {"verdict", "class", "culprits", "hosts", "phase", "confidence_floor", "note"}
STORIES = {
    "axolotl-kto-freeze",
    "axolotl-orpo-gemma2",
    "ms-swift-simpo-step0",
    "llama2-accessory-first-save",
}


def expected(name: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((FIXTURES / name / "expected.yaml").read_text("utf-8"))
    return data


def files(name: str) -> list[Path]:
    """The job's own files: everything but the expectation."""
    found = sorted(path for path in (FIXTURES / name).rglob("*") if path.is_file())
    return [path for path in found if path.name != "expected.yaml"]


def verdict_of(result: Diagnosis) -> tuple[object, ...]:
    """What must not depend on the order of reading."""
    root, culprits = result.root_cause, result.culprits
    return (
        result.verdict,
        root.cause,
        root.signature,
        root.confidence,
        culprits.ranks,
        culprits.hosts,
        culprits.kind,
        result.phase,
        result.onset.time,
    )


def test_the_stories_and_enough_healthy_jobs_are_there() -> None:
    assert set(NAMES) >= STORIES
    assert sum(expected(name)["verdict"] == "healthy" for name in NAMES) >= 5


@pytest.mark.parametrize("name", NAMES)
def test_expectation_is_well_formed(name: str) -> None:
    want = expected(name)
    assert set(want) <= KEYS
    assert {"verdict", "class", "confidence_floor", "note"} <= set(want)
    assert set(want["class"]) <= set(load_catalog().classes) | {"none", "unknown"}
    assert sum(path.stat().st_size for path in files(name)) < 60_000


@pytest.mark.parametrize("name", NAMES)
def test_diagnosis_is_as_expected(name: str) -> None:
    want = expected(name)
    result = diagnose.diagnose(diagnose.load(FIXTURES / name))
    root = result.root_cause
    assert root.cause in want["class"], result.to_json()
    assert result.verdict == want["verdict"]
    if want.get("culprits") is not None:
        assert result.culprits.ranks == want["culprits"]
    if want.get("hosts") is not None:
        assert result.culprits.hosts == want["hosts"]
    if want.get("phase") is not None:
        assert result.phase == want["phase"]
    assert CONFIDENCE.index(root.confidence) >= CONFIDENCE.index(want["confidence_floor"])
    if result.verdict != "healthy":
        assert result.evidence, "a verdict quotes the lines that carry it"
        assert result.remedies, "a verdict says what to do"


@pytest.mark.parametrize("name", few([name for name in NAMES if len(files(name)) > 1], 6))
def test_order_of_files_does_not_matter(name: str) -> None:
    sources = find_sources([FIXTURES / name])
    verdicts = set()
    for seed in range(3):
        shuffled = random.Random(seed).sample(sources, len(sources))
        verdicts.add(repr(verdict_of(diagnose.diagnose(read(shuffled)))))
    verdicts.add(repr(verdict_of(diagnose.diagnose(read(sources[::-1])))))
    assert len(verdicts) == 1, verdicts


@pytest.mark.parametrize("name", few([name for name in NAMES if name.startswith("lab-")], 3))
def test_name_of_the_folder_does_not_matter(name: str, tmp_path: Path) -> None:
    renamed = tmp_path / "zz job (copy)"
    shutil.copytree(FIXTURES / name, renamed)
    plain = tmp_path / "a"
    shutil.copytree(FIXTURES / name, plain)
    results = [diagnose.diagnose(diagnose.load(folder)) for folder in (plain, renamed)]
    assert verdict_of(results[0]) == verdict_of(results[1])
