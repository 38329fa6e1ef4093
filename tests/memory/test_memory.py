"""What a memory keeps, which incidents it finds again, what its record makes of a confidence."""

from __future__ import annotations

import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from diagnose.catalog.load import load_catalog
from diagnose.diagnosis import Diagnosis, Evidence, Onset
from diagnose.errors import InputError
from diagnose.fingerprint import fingerprint
from diagnose.memory import place, recalled, store
from diagnose.memory.confirm import Subject, incident, named
from diagnose.memory.draft import _expression
from diagnose.memory.features import MAX_FEATURES, features
from diagnose.memory.recall import remembered
from diagnose.memory.site import LEAST, level, record
from diagnose.memory.store import keep
from diagnose.report.words import earlier, site_record
from tests.report.samples import FAILED, HEALTHY, HUNG, RAISED, UNKNOWN


def confirmed(file: Path, found: Diagnosis, name: str, **said: object) -> int:
    one = incident(
        Subject(name, fingerprint(found), found), load_catalog(), **said,  # type: ignore[arg-type]
    )  # fmt: skip
    return keep(file, one, features(found))


def on_another_day(found: Diagnosis, time: str) -> Diagnosis:
    return replace(found, onset=Onset(time))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "site" / "memory.sqlite"


def test_the_same_failure_is_shown_with_what_helped(file: Path) -> None:
    assert confirmed(file, HUNG, "run-17", fix="saved the tokens first") == 1
    found = remembered(on_another_day(HUNG, "2026-01-02T03:04:05"), file)
    [one] = found.earlier
    assert (one.job, one.likeness, one.cause) == ("run-17", "fingerprint", "data.preparation")
    assert (one.ranks, one.hosts, one.fix) == ([0], ["gpu-a"], "saved the tokens first")
    text = earlier(replace(one, confirmed="2026-11-30T01:02:03+00:00"))
    assert text == (
        "run-17 (2026-11-30), the same failure: data.preparation, rank 0 on gpu-a. "
        "Fix: saved the tokens first."
    )


def test_the_job_itself_is_said_to_be_that(file: Path) -> None:
    confirmed(file, HUNG, "run-17")
    assert [one.likeness for one in remembered(HUNG, file).earlier] == ["job"]


def test_confirming_again_replaces(file: Path) -> None:
    confirmed(file, HUNG, "run-17")
    assert confirmed(file, HUNG, "run-17", cause="net.fabric") == 1
    [one] = remembered(HUNG, file).earlier
    assert (one.cause, one.ranks) == ("net.fabric", [])


def test_similar_incidents_follow_and_others_are_not_shown(file: Path) -> None:
    confirmed(file, FAILED, "gpu", fix="replaced it")
    confirmed(file, RAISED, "raised", fix="fixed the data")
    line = Evidence("rank0.log", 9, "Another line altogether", "")
    alike = replace(HUNG, evidence=[*HUNG.evidence[1:], line], onset=Onset("2025-01-01T00:00:00"))
    confirmed(file, alike, "alike", fix="waited")
    assert fingerprint(alike) != fingerprint(HUNG)
    [one] = remembered(HUNG, file).earlier
    assert (one.job, one.likeness) == ("alike", "similar")
    assert 0.5 <= one.similarity < 1


def test_incidents_with_one_fix_are_one_line(file: Path) -> None:
    for day in range(1, 5):
        confirmed(file, on_another_day(HUNG, f"2025-01-0{day}"), f"run-{day}", fix="waited")
    confirmed(file, on_another_day(HUNG, "2025-02-01"), "other", fix="moved the data")
    found = remembered(HUNG, file).earlier
    assert sorted((one.fix, one.incidents) for one in found) == [
        ("moved the data", 1),
        ("waited", 4),
    ]
    assert "and 3 others, the same failure" in " ".join(map(earlier, found))


def test_a_fingerprint_of_nothing_is_no_likeness(file: Path) -> None:
    bare = replace(UNKNOWN, evidence=[])
    confirmed(file, bare, "run", cause="net.fabric")
    other = replace(bare, onset=Onset("2020-01-01"))
    assert "fingerprint" not in {one.likeness for one in remembered(other, file).earlier}


def test_no_line_of_a_log_is_in_the_file(file: Path) -> None:
    confirmed(file, HUNG, "run", fix="export TOKEN=ghp_abcdefghijklmnopqrstuvwxyz0123456789")
    data = file.read_bytes()
    for word in (b"Watchdog", b"tokenizer", b"Timeout", b"ghp_"):
        assert word not in data
    assert b"[masked]" in data


def test_many_writers_lose_nothing(file: Path) -> None:
    confirmed(file, HUNG, "first")
    jobs = [on_another_day(HUNG, f"2025-03-{day:02d}") for day in range(1, 21)]
    with ThreadPoolExecutor(4) as pool:
        [*pool.map(lambda one: confirmed(file, one, str(one.onset.time)), jobs)]
    assert confirmed(file, FAILED, "last") == 22


def test_the_oldest_make_room(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_INCIDENTS", 3)
    for day in range(1, 7):
        count = confirmed(file, on_another_day(HUNG, f"2025-01-0{day}"), f"run-{day}")
    assert count == 3
    with sqlite3.connect(file) as db:
        assert [row[0] for row in db.execute("SELECT name FROM incidents ORDER BY id")] == [
            "run-4", "run-5", "run-6"
        ]  # fmt: skip
        ids = {row[0] for row in db.execute("SELECT DISTINCT incident FROM features")}
        assert len(ids) == 3


def test_a_damaged_file_costs_a_note_and_no_verdict(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"no database at all" * 100)
    found = remembered(HUNG, file)
    assert (found.verdict, found.earlier) == ("hung", [])
    assert found.notes[-1].startswith(f"memory not read: {file}: damaged, or not of diagnose")
    with pytest.raises(InputError, match="damaged, or not of diagnose"):
        confirmed(file, HUNG, "run")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE incidents SET ranks = '\"x\"'",
        "UPDATE incidents SET ranks = '[{}]'",
        f"UPDATE incidents SET ranks = '{'[' * 100_000}'",
        "UPDATE incidents SET hosts = 5",
        "UPDATE incidents SET name = x'00ff'",
        "UPDATE incidents SET fix = hex(zeroblob(2000000))",
        "ALTER TABLE incidents RENAME TO old; CREATE VIEW incidents AS WITH RECURSIVE c(id) AS"
        " (SELECT 1 UNION ALL SELECT id + 1 FROM c) SELECT c.id, key, name, fingerprint, verdict,"
        " class, confidence, cause, correct, ranks, hosts, fix, made, who FROM c, old",
    ],
)
def test_a_hostile_file_costs_a_note_and_no_verdict(
    file: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_MOST_STEPS", 3)
    confirmed(file, HUNG, "run")
    with sqlite3.connect(file) as db:
        db.executescript(change)
    found = remembered(HUNG, file)
    assert found.earlier == []
    assert found.notes[-1].startswith(f"memory not read: {file}: ")


def test_a_home_that_is_closed_to_us_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(self: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "stat", denied)
    assert recalled(HUNG, tmp_path / "closed" / "memory.sqlite") is HUNG


def test_without_a_file_nothing_changes(tmp_path: Path) -> None:
    assert recalled(HUNG, tmp_path / "none.sqlite") is HUNG
    assert not [*tmp_path.iterdir()]


def test_a_healthy_job_has_no_past(file: Path) -> None:
    confirmed(file, HEALTHY, "run", cause="net.fabric")
    assert remembered(HEALTHY, file) is HEALTHY


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIAGNOSE_MEMORY")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert place(None) == Path("/data/diagnose/memory.sqlite")
    monkeypatch.setenv("DIAGNOSE_MEMORY", str(tmp_path))
    assert place(None) == tmp_path / "memory.sqlite"
    assert place(Path("/x/y.db")) == Path("/x/y.db")


def test_features_are_bounded_and_leave_out_what_differs_from_run_to_run() -> None:
    many = [Evidence("a", at, f"line {'x' * at}", "") for at in range(1, 500)]
    assert len(features(replace(HUNG, evidence=many))) <= MAX_FEATURES
    moved = replace(HUNG, evidence=[replace(HUNG.evidence[0], line=7)], onset=Onset("2020-01-01"))
    assert features(moved) == features(replace(HUNG, evidence=HUNG.evidence[:1]))


# --- what a person says ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "correct", "cause"),
    [
        ({}, True, "data.preparation"),
        ({"cause": "data.preparation"}, True, "data.preparation"),
        ({"cause": "net.fabric"}, False, "net.fabric"),
        ({"wrong": True}, False, ""),
        ({"culprits": ["0"]}, True, "data.preparation"),
        ({"culprits": ["gpu-a"]}, True, "data.preparation"),
        ({"culprits": ["3"], "cause": "data.preparation"}, False, "data.preparation"),
    ],
)
def test_what_is_right(said: dict[str, object], correct: bool, cause: str) -> None:
    one = incident(Subject("run", "0", HUNG), load_catalog(), **said)  # type: ignore[arg-type]
    assert (one.correct, one.cause, one.given) == (correct, cause, "data.preparation")


def test_what_cannot_be_meant() -> None:
    with pytest.raises(InputError, match=r"unknown cause class 'net.fabrik'; did you mean"):
        incident(Subject("run", "0", HUNG), load_catalog(), cause="net.fabrik")
    with pytest.raises(InputError, match="say with --cause CLASS what it was"):
        incident(Subject("run", "0", UNKNOWN), load_catalog())


def test_ranks_and_hosts() -> None:
    assert named(["3,0-1", "node-7"]) == ([0, 1, 3], ["node-7"])
    for bad in ("7-3", "0-9999999", "a b", "$(reboot)", ""):
        with pytest.raises(InputError, match="--culprit"):
            named([bad])


def test_a_drafted_expression_is_short_also_without_words() -> None:
    line = "agent:" + "x1y-2.z/" * 60 + "failed"
    regex = _expression(line, set())
    assert len(regex) <= 180
    assert re.match(regex, line)


# --- the record of a site -------------------------------------------------------------------------


def test_a_few_verdicts_are_no_record() -> None:
    assert record([("hw.gpu", "high", LEAST - 1, 0)], "hw.gpu", "high") is None


def test_a_class_that_is_wrong_here_loses_confidence() -> None:
    rows = [("hw.gpu", "high", 30, 10), ("net.fabric", "high", 30, 30)]
    bad, good = record(rows, "hw.gpu", "high"), record(rows, "net.fabric", "high")
    assert bad is not None
    assert good is not None
    assert (bad.confirmed, bad.correct, bad.of_class) == (30, 10, True)
    assert bad.share < 0.7 < good.share
    levels = [level(share, "high") for share in (bad.share, 0.98, 0.93, 0.1)]
    assert levels == ["low", "high", "medium", "low"]


def test_other_classes_speak_for_one_that_nobody_confirmed() -> None:
    found = record([("hw.gpu", "high", 40, 20)], "net.fabric", "high")
    assert found is not None
    assert (found.of_class, found.confirmed) == (False, 40)
    assert level(found.share, "high") == "low"


def test_a_confidence_never_rises_above_what_the_evidence_says() -> None:
    many = record([("hw.gpu", "low", 400, 400)], "hw.gpu", "low")
    assert many is not None
    assert many.share > 0.97
    assert (level(many.share, "low"), level(many.share, "medium")) == ("low", "medium")


def test_unknown_verdicts_claim_nothing() -> None:
    unknown = ("unknown", "low", 40, 0)
    assert record([unknown, ("hw.gpu", "high", LEAST - 1, 0)], "hw.gpu", "high") is None
    right = ("hw.gpu", "high", LEAST, LEAST)
    assert record([unknown, right], "hw.gpu", "high") == record([right], "hw.gpu", "high")


@pytest.mark.slow
def test_the_verdict_says_so_and_why(file: Path) -> None:
    for day in range(1, 31):
        confirmed(file, on_another_day(HUNG, f"2025-01-{day:02d}"), f"run-{day}", wrong=day % 3 > 0)
    found = remembered(on_another_day(HUNG, "2026-01-01"), file)
    assert found.root_cause.confidence == "low"
    assert found.site_record is not None
    assert found.site_record.stated == "high"
    assert site_record(found) == (
        "10 of 30 confirmed verdicts of data.preparation at high confidence were right: "
        "low instead of high"
    )
    own = [one for one in found.reasons if one.predicate == "site_record"]
    assert [(one.step, one.subject) for one in own] == [("confidence", "low")]


def test_the_job_itself_is_no_record_of_itself(file: Path) -> None:
    for day in range(1, LEAST):
        confirmed(file, on_another_day(HUNG, f"2025-01-{day:02d}"), f"run-{day}", wrong=True)
    confirmed(file, HUNG, "this", wrong=True)
    assert remembered(HUNG, file).site_record is None
