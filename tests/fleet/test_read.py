"""A results folder as a typed frame, and what is said of one that is none."""

import json
import os
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest

from diagnose.batch.results import open_results
from diagnose.batch.work import Result
from diagnose.errors import InputError
from diagnose.fleet import read
from diagnose.fleet.summary import summarise
from diagnose.ingest.names import RESULTS
from diagnose.report.fleet import words

from .frames import BEGIN, failed, frame, keep, row, shown, typed


def one(**values: object) -> pd.Series:
    return shown(typed(frame(row("j", **values)))).iloc[0]


def test_there_and_back(tmp_path: Path) -> None:
    rows = (
        failed("a", 1, hosts=["n1", "n2"], culprit_hosts=["n2"], labels={"user": "x"}, notes=["b"]),
        row("b", 2, versions={"torch": "2.6.0"}),
    )
    keep(tmp_path, *rows)
    jobs = shown(read(tmp_path))
    assert shown(read(tmp_path / RESULTS)).equals(jobs)
    assert jobs.equals(shown(typed(frame(*rows))))
    assert list(jobs["job"]) == ["a", "b"]
    assert jobs["hosts"][0] == ["n1", "n2"]
    assert jobs["culprit_hosts"][0] == ["n2"]
    assert jobs["labels"][0] == {"user": "x"}
    assert jobs["versions"][1] == {"torch": "2.6.0"}
    assert list(jobs["troubled"]) == [True, False]


def test_a_folder_without_results_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"{RESULTS} does not exist: give the folder that"):
        read(tmp_path)
    for name in ("jobs.parquet", "diagnoses", "manifest.json"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match="of an earlier version: scan into another folder"):
        read(tmp_path)


def test_a_damaged_file_says_how_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / RESULTS
    path.write_bytes(b"half of it")
    with pytest.raises(InputError, match=r"damaged, .*; move it away"):
        read(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match=rf"{RESULTS} is not a regular file"):
        read(tmp_path)


@pytest.mark.parametrize(
    "diagnosis", ["{}", "[]", "1", '{"evidence": 1}', '{"evidence": [1]}', '{"evidence": []}',
                  '{"evidence": [{"text": null}]}'],
)  # fmt: skip
def test_a_diagnosis_of_another_shape_tells_nothing(tmp_path: Path, diagnosis: str) -> None:
    values = row("a", verdict="failed", **{"class": "unknown"}, started=None, ended=None)
    with open_results(tmp_path, resume=False) as results:
        results.add(Result(values, diagnosis))
    assert list(shown(read(tmp_path))["ending"]) == ["No failure found"]


def test_a_scan_without_jobs_yet(tmp_path: Path) -> None:
    with open_results(tmp_path, resume=False) as results:
        for complete, why in (
            (None, "the first jobs of `diagnose scan` are not done, or it was stopped"),
            (False, "the first jobs of `diagnose scan` are not done, or it was stopped"),
            (True, "`diagnose scan` found nothing to diagnose"),
        ):
            if complete is not None:
                results.describe(complete=complete)
            with pytest.raises(InputError, match=f"{tmp_path} holds no jobs yet: {why}"):
                read(tmp_path)


def test_jobs_of_one_name_are_told_apart() -> None:
    sources = {
        "/a/x/j": "j", "/b/x/j": "j", "/c/j": "j", "/d/only": "only", "/e/c/j": "c/j",
        "s3://b/9.tar": "4107", "s3://b/8.tar": "4107", "same": "twice",
    }  # fmt: skip
    rows = [row(job, source=source) for source, job in sources.items()]
    jobs = shown(typed(frame(*rows, row("twice", source="same"))))
    assert list(jobs["job"]) == [
        "a/x/j", "b/x/j", "/c/j", "only", "e/c/j", "b/9.tar", "b/8.tar", "same", "same",
    ]  # fmt: skip


@pytest.mark.parametrize("mtime", [1e10, 7.3e9, 1e300, -1e300, float("inf"), float("nan")])
def test_a_time_that_cannot_be(mtime: float) -> None:
    assert one(mtime=mtime, onset=None, ended=None)["day"] == ""
    for far in ("9999-01-01T00:00:00", "0001-01-01T00:00:00", "2262-04-11T23:47:16"):
        assert one(mtime=mtime, onset=far, ended=None)["day"] == ""
        plain = frame(row("j", mtime=mtime, ended=None))
        plain["onset"] = pd.Series([pd.Timestamp(far).as_unit("us")])
        assert shown(typed(plain))["day"][0] == ""


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '"x"', None, "[" * 100_000])
def test_broken_json_is_no_label(text: str | None) -> None:
    assert one(labels=text)["labels"] == {}


def test_hosts_have_one_name_each() -> None:
    found = typed(
        frame(
            row("a", hosts=["n1.cluster.local", "n2", "localhost"]),
            row("b", hosts=["n1", "n3.cluster.local"], culprit_hosts=["n2.cluster.local"]),
            row("c", hosts=["10.0.0.7", "10.0.0.8"]),
        )
    )
    jobs = shown(found)
    assert list(jobs["hosts"]) == [
        ["n1", "n2"],
        ["n1", "n3.cluster.local"],
        ["10.0.0.7", "10.0.0.8"],
    ]
    assert jobs["culprit_hosts"][1] == ["n2"]


def test_too_few_hosts_for_the_ranks_are_not_all_hosts() -> None:
    assert one(hosts=["n1"], ranks=16)["hosts"] == ["n1"]
    assert one(hosts=["n1"], ranks=17)["hosts"] == []


@pytest.mark.parametrize(
    ("verdict", "error", "troubled", "unreadable"),
    [
        ("failed", None, True, False),
        ("failed", "one member is cut", True, False),
        ("healthy", "one member is cut", False, False),
        ("unknown", None, True, False),
        ("unknown", "one member is cut", True, False),
        (None, "not an archive", False, True),
        ("nonsense", None, False, True),
    ],
)
def test_what_counts(verdict: str, error: str, troubled: bool, unreadable: bool) -> None:
    job = one(verdict=verdict, error=error)
    assert (job["troubled"], job["unreadable"]) == (troubled, unreadable)


def test_time_is_onset_else_end_else_begin_else_the_archive() -> None:
    times = {
        "onset": "2025-06-04T10:00:00",
        "ended": "2025-06-05T10:00:00Z",
        "started": "2025-06-03",
    }
    for name, day in (("onset", "04"), ("ended", "05"), ("started", "03")):
        job = one(**times)
        assert job["day"] == f"2025-06-{day}"
        assert job["week"] == "2025-06-02"
        times[name] = None  # type: ignore[assignment]
    mtime = (BEGIN + timedelta(days=9)).timestamp()
    assert one(**times, mtime=mtime)["day"] == "2025-06-11"


def test_a_time_of_the_files_is_known_as_such() -> None:
    bare = {"onset": None, "ended": None, "started": None, "mtime": BEGIN.timestamp()}
    jobs = typed(frame(failed("dated", 1.0), failed("by its file", 1.0, **bare)))
    assert [*jobs.by_file] == [False, True]
    overview = summarise(jobs).overview
    assert overview.dated_by_file == 1
    assert words.title(overview).endswith(" (1 dated by their files)")


def test_a_clock_ahead_of_the_archive_is_not_believed() -> None:
    mtime = BEGIN.timestamp()
    assert one(onset="2099-01-01T00:00:00", ended=None, mtime=mtime)["day"] == "2025-06-02"
    assert one(onset="2099-01-01T00:00:00", ended=None, mtime=0.0)["day"] == "2099-01-01"


def test_retries_are_one_incident() -> None:
    same = {"hosts": ["n2", "n1"], "class": "hw.gpu"}
    jobs = typed(
        frame(
            failed("a", 1.1, **same),
            failed("b", 1.9, **same),
            failed("other day", 2.1, **same),
            failed("other hosts", 1.1, **same | {"hosts": ["n1", "n3"]}),
            failed("other failure", 1.1, **same, fingerprint="f"),
            row("healthy", 1.1, hosts=["n1", "n2"]),
            row("healthy too", 1.1, hosts=["n1", "n2"]),
            failed("nobody knows where", 1.1),
            failed("nor here", 1.1),
        )
    )
    assert jobs.incident.tolist() == [0, 0, 2, 3, 4, 5, 6, 7, 8]


def test_the_results_of_a_scan(tmp_path: Path) -> None:
    """What `diagnose.batch` stores is what is read here, with the first evidence of unknowns."""
    lines = {"x": ["frobnicator 7 gave up", "later"], "y": []}
    results = []
    for name, quoted in lines.items():
        values = row(name, verdict="failed", **{"class": "unknown"}, started=None, ended=None)
        values |= {"source": name, "onset": BEGIN.replace(tzinfo=None)}
        diagnosis = {
            "evidence": [{"text": text} for text in quoted], "root_cause": {"summary": "Why?"},
        }  # fmt: skip
        results.append(Result(values, json.dumps(diagnosis)))
    with open_results(tmp_path, resume=False) as found:
        for result in results:
            found.add(result)
    jobs = shown(read(tmp_path))
    assert list(jobs["ending"]) == ["frobnicator 7 gave up", "Why?"]
    assert list(jobs["day"]) == ["2025-06-02"] * 2
    assert list(jobs["troubled"]) == [True, True]
