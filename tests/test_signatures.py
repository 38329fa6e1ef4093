"""Every entry of the catalog at work: its examples, read like a log, give its events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import diagnose
from diagnose.catalog.entries import entry_of, is_word
from diagnose.catalog.load import load_catalog
from diagnose.catalog.schema import Example, KnownIssue, Signature
from diagnose.ingest import find_sources, text_source
from diagnose.job.load import read

ROOT = Path(__file__).resolve().parent.parent
CATALOG = load_catalog(examples=True)
HEALTHY = sorted(path.name for path in (ROOT / "fixtures").glob("healthy-*"))
# Real logs have other lines; an automaton that loses its way behind them shows only so.
AROUND = "the job begins\nand its log goes on like this\n{}\nand on\n"

Event = tuple[Signature, dict[str, str]]


def events(form: str, signatures: Sequence[Signature]) -> dict[str, list[Event]]:
    """What each example of these gave, by "id number"; all read as one job."""
    sources = [
        replace(text_source(form.format(example.line)), name=f"{signature.id} {number}")
        for signature in signatures
        for number, example in enumerate(signature.examples)
    ]
    frame = read(sources).timeline
    frame = frame[frame["signature"].notna()]
    found: dict[str, list[Event]] = defaultdict(list)
    columns = (frame["source"], frame["signature"], frame["fields"])
    for source, id_, fields in zip(*columns, strict=True):
        entry = entry_of(CATALOG, str(id_))
        assert entry is not None
        found[str(source)].append((entry, fields))
    return found


def yields_to(signature: Signature, other: Signature) -> bool:
    """A catch-all gives way to a special entry on the same line, and to a word.

    So it does to one that knows that the message tells of no failure. Trouble in words that no
    entry knows gives way to all that know some.
    """
    if signature.signal == "trouble":
        return other.signal != "trouble"
    if other.role == "context" and not other.generic and other.not_evidence_of:
        return signature.generic
    special = (not other.generic or is_word(other.id)) and other.role in (
        "cause",
        "effect",
        "aftermath",
    )
    return signature.generic and special


@pytest.mark.parametrize(
    ("form", "each"),
    [
        pytest.param(AROUND, 1, id="in-a-log"),
        pytest.param("{}\n", 8, id="some-alone"),
        pytest.param("{}\n", 1, id="alone", marks=pytest.mark.slow),
    ],
)
def test_examples_give_their_events(form: str, each: int) -> None:
    """All entries in one test: thousands of tests would cost more than what they look at."""
    signatures = CATALOG.signatures[::each]
    found = events(form, signatures)
    silent = [
        (signature.id, example.line)
        for signature in signatures
        for number, example in enumerate(signature.examples)
        # a paste of nothing else is taken as a quotation
        if not (form == "{}\n" and example.line.startswith(" > "))
        and not gives(signature, example, found[f"{signature.id} {number}"])
    ]
    assert silent == []


def gives(signature: Signature, example: Example, found: list[Event]) -> bool:
    """Whether the entry tells the example with its captures, or yields to another one."""
    own = [fields for entry, fields in found if entry.id == signature.id]
    if not own:
        return any(yields_to(signature, entry) for entry, _ in found)
    return any(example.captures.items() <= fields.items() for fields in own)


ISSUES = [
    pytest.param(issue, text, id=f"{issue.id}-{number}")
    for issue in CATALOG.known_issues
    for number, text in enumerate(issue.examples)
]
NEAR_MISSES = [
    pytest.param(issue, text, id=f"{issue.id}-{number}")
    for issue in CATALOG.known_issues
    for number, text in enumerate(issue.near_miss)
]


@pytest.mark.parametrize(("issue", "text"), ISSUES)
def test_known_issues_are_diagnosed(issue: KnownIssue, text: str) -> None:
    result = diagnose.diagnose(diagnose.load_text(text))
    named = {result.root_cause.cause}
    if issue.confidence == "low":  # a hint: what lines say or show wins over it
        named |= {alternative.cause for alternative in result.alternatives}
    assert issue.cause in named, result.root_cause.summary


@pytest.mark.parametrize(("issue", "text"), NEAR_MISSES)
def test_near_misses_are_not_named_by_the_issue(issue: KnownIssue, text: str) -> None:
    result = diagnose.diagnose(diagnose.load_text(text))
    assert result.root_cause.signature != issue.id


def test_there_are_enough_healthy_jobs() -> None:
    assert len(HEALTHY) >= 5


@pytest.mark.parametrize("name", HEALTHY)
def test_no_cause_matches_a_healthy_job(name: str) -> None:
    files = [path for path in (ROOT / "fixtures" / name).rglob("*") if path.is_file()]
    sources = find_sources([path for path in files if path.name != "expected.yaml"])
    frame: pd.DataFrame = read(sources).timeline
    causes = frame.loc[(frame["role"] == "cause").fillna(False), ["signature", "text"]]
    assert causes.to_numpy().tolist() == []
