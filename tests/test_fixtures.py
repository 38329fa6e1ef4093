"""Every fixture is read and diagnosed as its expected.yaml says, in whatever order it is read."""

from __future__ import annotations

import random
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import diagnose
from diagnose.catalog.load import load_catalog
from diagnose.diagnosis import STEPS, WELL, Diagnosis
from diagnose.infer.rules import INFERRED, KNOWN, STATED
from diagnose.ingest import find_sources
from diagnose.job.load import read
from tests.sizes import few

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
NAMES = sorted(path.parent.name for path in FIXTURES.glob("*/expected.yaml"))
LEADS = ("learned", "busy", "inconclusive")  # where no rule of a stage says anything
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


@cache
def diagnosis(name: str) -> Diagnosis:
    return diagnose.diagnose(diagnose.load(FIXTURES / name))


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
    result = diagnosis(name)
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


@pytest.mark.parametrize("name", NAMES)
def test_why_is_said_with_rule_lines_and_what_the_others_lost_to(name: str) -> None:
    result = diagnosis(name)
    steps = {step: [one for one in result.reasons if one.step == step] for step in STEPS}
    decided = [one.subject for one in steps["verdict"] if one.outcome == "decided"]
    assert decided == [result.verdict]
    reached = [one.subject for one in steps["confidence"] if one.outcome == "reached"]
    assert reached == [result.root_cause.confidence]
    if result.verdict in WELL:
        return
    (won,) = (one for one in steps["verdict"] if one.outcome == "won")
    assert (won.subject, won.signature) == (result.root_cause.cause, result.root_cause.signature)
    assert won.rule in {*STATED, *INFERRED, *KNOWN, *LEADS}
    assert won.places or not result.evidence
    lost = [one for one in steps["rival"] if one.outcome == "lost"]
    assert [one.subject for one in lost][:4] == [other.cause for other in result.alternatives]
    for one in lost:
        assert one.rule
        assert one.beaten_by
        assert one.predicate
    named = [one for one in steps["culprits"] if one.outcome == "named"]
    assert bool(named) == bool(result.culprits.ranks or result.culprits.hosts)


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
