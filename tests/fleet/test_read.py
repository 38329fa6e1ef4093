"""A results folder as a typed frame, and what is said of one that is none."""

import json
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest

from diagnose.errors import InputError
from diagnose.fleet import read
from diagnose.fleet.read import COLUMNS, typed

from .frames import BEGIN, EMPTY, failed, frame, row


def one(**values: object) -> pd.Series:
    return typed(frame(row("j", **values))).iloc[0]


def test_parquet_there_and_back(tmp_path: Path) -> None:
    rows = frame(
        failed("a", 1, hosts=["n1", "n2"], culprit_hosts=["n2"], labels={"user": "x"}, notes=["b"]),
        row("b", 2, versions={"torch": "2.6.0"}),
    )
    rows.to_parquet(tmp_path / "jobs.parquet")
    jobs = read(tmp_path)
    assert read(tmp_path / "jobs.parquet").equals(jobs)
    assert list(jobs["job"]) == ["a", "b"]
    assert jobs["hosts"][0] == ["n1", "n2"]
    assert jobs["culprit_hosts"][0] == ["n2"]
    assert jobs["labels"][0] == {"user": "x"}
    assert jobs["versions"][1] == {"torch": "2.6.0"}
    assert jobs["notes"][0] == ["b"]
    assert list(jobs["troubled"]) == [True, False]


def test_a_folder_without_results_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"jobs\.parquet does not exist: give the folder that"):
        read(tmp_path)


def test_a_damaged_file_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "jobs.parquet").write_bytes(b"PAR1 half of it")
    with pytest.raises(InputError, match=r"cannot be read .*--resume"):
        read(tmp_path)


def test_another_table_names_the_missing_columns(tmp_path: Path) -> None:
    frame(row("a")).drop(columns=["class", "hosts"]).to_parquet(tmp_path / "jobs.parquet")
    with pytest.raises(InputError, match="lacks the columns class, hosts: "):
        read(tmp_path)


def test_no_jobs_at_all(tmp_path: Path) -> None:
    frame(row("a")).head(0).to_parquet(tmp_path / "jobs.parquet")
    with pytest.raises(InputError, match="holds no jobs"):
        read(tmp_path)


def test_the_columns_are_those_of_the_contract() -> None:
    assert set(COLUMNS) <= set(EMPTY)


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '"x"', None, "[" * 100_000])
def test_broken_json_is_no_label(text: str | None) -> None:
    assert one(labels=text)["labels"] == {}


def test_hosts_have_one_name_each() -> None:
    jobs = typed(
        frame(
            row("a", hosts=["n1.cluster.local", "n2", "localhost"]),
            row("b", hosts=["n1", "n3.cluster.local"], culprit_hosts=["n2.cluster.local"]),
            row("c", hosts=["10.0.0.7", "10.0.0.8"]),
        )
    )
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
    assert list(jobs["incident"]) == [0, 0, 1, 2, 3, 4, 5, 6, 7]


def test_the_results_of_a_scan(tmp_path: Path) -> None:
    """What `diagnose.batch` stores is what is read here, with the first evidence of unknowns."""
    from diagnose.batch.results import open_results
    from diagnose.batch.work import Result

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
        found.commit(results)
    jobs = read(tmp_path)
    assert list(jobs["ending"]) == ["frobnicator 7 gave up", "Why?"]
    assert list(jobs["day"]) == ["2025-06-02"] * 2
    assert list(jobs["troubled"]) == [True, True]
