"""What a results folder holds, and what is said of one that is damaged or another's."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from diagnose.batch.jobs import JobRef
from diagnose.batch.names import page_of
from diagnose.batch.results import (
    COLUMNS,
    described,
    diagnoses,
    export,
    folder_of,
    open_results,
    tables,
)
from diagnose.batch.work import Result
from diagnose.errors import InputError
from diagnose.ingest.names import RESULTS

REFS = [JobRef(f"j{n}", "log", f"/a/j{n}", 10 + n, 1000.0 + n, f"t{n}") for n in range(6)]
ALL = Counter(ref.source for ref in REFS)


def result(ref: JobRef, **values: Any) -> Result:
    row = {"job": ref.id, "source": ref.source, "labels": "{}", "verdict": "failed"}
    row |= {"size": ref.size, "mtime": ref.mtime, "tag": ref.tag, "catalog": "c"}
    document = json.dumps({"evidence": [{"text": f"the end of {ref.id}"}]})
    return Result(row | values, document)


def resume(folder: Path, refs: Iterable[JobRef] = REFS) -> list[str]:
    """The ids of the jobs that were read."""
    with open_results(folder, resume=True) as results:
        todo = [ref for ref in refs if not results.done(ref, "c")]
        for ref in todo:
            results.add(result(ref))
    return [ref.id for ref in todo]


def rows(folder: Path) -> list[dict[str, Any]]:
    return pa.concat_tables(tables(folder)).to_pylist()


def held(folder: Path) -> tuple[Counter[str], Counter[str]]:
    """The sources of the rows and of the diagnoses."""
    found = Counter(row["source"] for row in rows(folder))
    return found, Counter(one["source"] for one in diagnoses(folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert resume(tmp_path) == [ref.id for ref in REFS]
    assert resume(tmp_path) == []
    return tmp_path


def test_a_job_is_held_once(folder: Path) -> None:
    assert held(folder) == (ALL, ALL)
    changed = [replace(ref, tag="new") if ref.id in ("j0", "j3") else ref for ref in REFS]
    assert resume(folder, changed) == ["j0", "j3"]
    assert held(folder) == (ALL, ALL)
    (one,) = diagnoses(folder, ["/a/j3"])
    assert (one["job"], one["diagnosis"]["evidence"][0]["text"]) == ("j3", "the end of j3")
    with open_results(folder, resume=True) as results:
        results.add(replace(result(REFS[0]), document="", final=False))
        results.describe(archives=["/a"], complete=True)
    assert held(folder)[1] == ALL - Counter(["/a/j0"])
    assert resume(folder) == ["j0", "j3"]
    assert described(folder)["complete"] is True


def test_who_may_only_read_needs_no_log_beside_the_file(folder: Path) -> None:
    assert [path.name for path in folder.iterdir() if path.name != ".lock"] == [RESULTS]
    assert (folder / RESULTS).read_bytes()[18:20] == b"\1\1"  # no WAL (sqlite.org/fileformat2)


def test_a_scan_without_a_job_leaves_no_folder_that_it_made(tmp_path: Path) -> None:
    new = tmp_path / "new"
    with open_results(new, resume=False) as results:
        results.describe(archives=["/gone"])
    assert not new.exists()
    mine = tmp_path / "mine"
    mine.mkdir()
    with open_results(mine, resume=False) as results:
        results.describe(archives=[])
    assert mine.exists()


def _noise(path: Path) -> None:
    path.write_bytes(b"\0\xff" * 500)


def _amid(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:8192] + b"\xff" * 4096 + data[12288:])


def _another(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE jobs (id)")


@pytest.mark.parametrize("spoil", [_noise, _amid, _another])
def test_a_damaged_file_is_left_alone(folder: Path, spoil: Callable[[Path], None]) -> None:
    path = folder / RESULTS
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"diagnose\.sqlite: damaged, or .*; move it away"):
        open_results(folder, resume=True)
    assert path.read_bytes() == before
    path.rename(path.with_suffix(".damaged"))
    assert resume(folder) == [ref.id for ref in REFS]


def test_a_file_that_is_in_use_is_no_damage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0.1))
    with closing(sqlite3.connect(folder / RESULTS, isolation_level=None)) as reader:
        reader.execute("PRAGMA journal_mode = DELETE")  # as where there is no write-ahead log
        reader.execute("BEGIN")
        assert reader.execute("SELECT * FROM jobs").fetchone()
        with (
            pytest.raises(InputError, match=r"used by another program .*try again"),
            open_results(folder, resume=True) as results,
        ):
            results.describe(complete=False)
    assert resume(folder) == []


def test_results_of_an_earlier_version_are_refused(tmp_path: Path) -> None:
    for name in ("jobs.parquet", "diagnoses"):
        (tmp_path / name).mkdir()
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="holds results of an earlier version"):
        open_results(tmp_path, resume=True)


def test_the_lock_is_never_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(InputError, match=r"\.lock: too many levels"):
        open_results(tmp_path / "r", resume=True)
    assert (tmp_path / "victim").read_text() == "precious"


def test_results_are_read_while_they_are_written(tmp_path: Path) -> None:
    with open_results(tmp_path, resume=True) as results:
        results.add(result(REFS[0]))
        read: list[str] = []
        thread = threading.Thread(target=lambda: read.extend(held(tmp_path)[0]))
        thread.start()
        thread.join()
        assert read == ["/a/j0"]


def test_names_that_are_not_utf8_are_known_again(tmp_path: Path) -> None:
    refs = [
        JobRef(os.fsdecode(name), "folder", os.fsdecode(b"/a/" + name), 1, 1.0, "t")
        for name in (b"x\xff", b"x\xfe", rb"x\udcff", b"x")
    ]
    assert resume(tmp_path, refs) == [ref.id for ref in refs]
    for _ in range(2):
        assert resume(tmp_path, refs) == []
    found, told = held(tmp_path)
    assert found == told
    assert sorted(found.values()) == [1, 1, 1, 1]
    changed = [replace(ref, tag="new") for ref in refs]
    assert resume(tmp_path, changed) == [ref.id for ref in refs]
    assert held(tmp_path) == (found, found)


def test_half_characters_in_any_text_can_be_stored(tmp_path: Path) -> None:
    whole = replace(result(REFS[0]), document='{"text": "a\udcffb\\\\ud800"}')
    whole.row.update({"job": "\udcff", "hosts": ["gpu\udcff"], "error": "no \udcff"})
    with open_results(tmp_path, resume=True) as results:
        results.add(whole)
    (row,) = rows(tmp_path)
    assert (row["job"], row["hosts"], row["error"]) == (r"\udcff", [r"gpu\udcff"], r"no \udcff")
    (one,) = diagnoses(tmp_path)
    assert one == {
        "job": r"\udcff", "source": "/a/j0", "diagnosis": {"text": r"a\udcffb\ud800"},
    }  # fmt: skip


def test_numbers_that_no_column_holds_are_left_out(tmp_path: Path) -> None:
    most = (1 << 63) - 1
    numbers = {"culprit_ranks": [most + 1, most, 10**30], "ranks": 10**20, "checkpoint_step": most}
    with open_results(tmp_path, resume=True) as results:
        results.add(result(REFS[0], **numbers))
    (row,) = rows(tmp_path)
    assert (row["culprit_ranks"], row["ranks"], row["checkpoint_step"]) == ([most], None, most)


def test_the_page_of_a_job_that_was_read_again_is_removed(folder: Path) -> None:
    pages = [folder / page_of(ref.source) for ref in REFS[:2]]
    pages[0].parent.mkdir()
    mine = pages[0].with_name("mine.html")
    for path in (*pages, mine):
        path.touch()
    resume(folder, [replace(REFS[0], tag="new"), *REFS[1:]])
    assert [path.exists() for path in (*pages, mine)] == [False, True, True]


def test_tables_are_exported(folder: Path, tmp_path: Path) -> None:
    with open_results(folder, resume=True) as results:
        results.add(result(REFS[0], hosts=["a", "b"], onset=pd.Timestamp("2025-06-02 08:00:01.5")))
    for name, read in (("t.parquet", pd.read_parquet), ("t.csv", pd.read_csv)):
        export(folder, tmp_path / name)
        frame = read(tmp_path / name).set_index("job")
        assert list(frame.reset_index().columns) == [*COLUMNS]
        assert len(frame) == len(REFS)
        hosts = frame.loc["j0", "hosts"]
        assert list(json.loads(hosts) if isinstance(hosts, str) else hosts) == ["a", "b"]
        assert pd.Timestamp(frame.loc["j0", "onset"]) == pd.Timestamp("2025-06-02 08:00:01.5")
    with pytest.raises(InputError, match="cannot write"):
        export(folder, tmp_path / "none" / "t.csv")
    empty = tmp_path / "empty"
    with open_results(empty, resume=True) as results:
        results.add(result(REFS[0]))
    with sqlite3.connect(empty / RESULTS) as db:
        db.execute("DELETE FROM jobs")
    export(empty, tmp_path / "e.parquet")
    assert len(pd.read_parquet(tmp_path / "e.parquet")) == 0


def test_the_folder_or_its_file_may_be_given(folder: Path) -> None:
    assert folder_of(folder) == folder_of(folder / RESULTS) == folder
