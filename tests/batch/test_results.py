"""What a results folder holds after a disk, a kill or a person has damaged a part of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from diagnose.batch import parts
from diagnose.batch.jobs import JobRef
from diagnose.batch.pages import page_of
from diagnose.batch.parts import DamagedError, name
from diagnose.batch.results import Results, diagnoses, open_results
from diagnose.batch.work import Result
from diagnose.errors import InputError

REFS = [JobRef(f"j{n}", "log", f"/a/j{n}", 10 + n, 1000.0 + n, f"t{n}") for n in range(6)]


def result(ref: JobRef, **values: Any) -> Result:
    row = {"job": ref.id, "source": ref.source, "labels": "{}", "verdict": "failed"}
    row |= {"size": ref.size, "mtime": ref.mtime, "tag": ref.tag, "catalog": "c"}
    document = json.dumps({"evidence": [{"text": f"the end of {ref.id}"}]})
    return Result(row | values, document)


def resume(folder: Path, refs: Iterable[JobRef] = REFS) -> tuple[list[str], list[str]]:
    """Scan two jobs a part; the ids of the jobs that were read, and what was said."""
    said: list[str] = []
    with open_results(folder, resume=True, warn=said.append) as results:
        todo = [ref for ref in refs if not results.done(ref, "c")]
        results.forget({ref.source for ref in todo})
        for start in range(0, len(todo), 2):
            results.commit([result(ref) for ref in todo[start : start + 2]])
    return [ref.id for ref in todo], said


def held(folder: Path) -> tuple[Counter[str], Counter[str]]:
    """The sources of the rows and of the diagnoses."""
    rows: Counter[str] = Counter()
    for number in parts.numbers(folder / parts.TABLE):
        rows.update(parts.read_table(folder, number)["source"].to_pylist())
    return rows, Counter(one["source"] for one in diagnoses(folder))


ALL = Counter(ref.source for ref in REFS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert resume(tmp_path) == ([ref.id for ref in REFS], [])
    assert resume(tmp_path) == ([], [])
    return tmp_path


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


def table_of(folder: Path, number: int = 1) -> Path:
    return folder / parts.TABLE / name(number, "parquet")


def diagnoses_of(folder: Path, number: int = 1) -> Path:
    return folder / parts.DIAGNOSES / name(number, "jsonl.zst")


def cut(size: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        os.truncate(path, size if size >= 0 else path.stat().st_size + size)

    return damage


def rewritten(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        pq.write_table(change(pq.read_table(path)), path)

    return damage


def packed(change: Callable[[list[bytes]], Sequence[bytes]]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        lines = zstandard.decompress(path.read_bytes()).splitlines(keepends=True)
        path.write_bytes(zstandard.compress(b"".join(change(lines))))

    return damage


def instead(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


def noise(path: Path) -> None:
    path.write_bytes(b"\0\xff" * 500)


TABLES: dict[str, Callable[[Path], None]] = {
    "empty": cut(0),
    "cut": cut(400),
    "end cut": cut(-1),
    "noise": noise,
    "column gone": rewritten(lambda table: table.drop_columns(["verdict"])),
    "column of another type": rewritten(
        lambda t: t.set_column(0, "job", pa.array(range(len(t)), pa.int64()))
    ),
    "another table": lambda path: pq.write_table(pa.table({"x": [1]}), path),
    "pipe": instead(os.mkfifo),
    "device": instead(lambda path: path.symlink_to("/dev/zero")),
    "folder": instead(Path.mkdir),
}
LINES: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "empty": (cut(0), ["j2", "j3"]),
    "cut to 50 bytes": (cut(50), ["j2", "j3"]),
    "noise": (noise, ["j2", "j3"]),
    "missing": (Path.unlink, ["j2", "j3"]),
    "pipe": (instead(os.mkfifo), ["j2", "j3"]),
    "no JSON": (packed(lambda lines: [lines[0], b"{nonsense}\n"]), ["j3"]),
    "line cut": (packed(lambda lines: [lines[0], lines[1][:-9]]), ["j3"]),
    "line of another shape": (packed(lambda lines: [lines[0], b'["source"]\n']), ["j3"]),
    "source is no text": (
        packed(lambda lines: [b'{"source": 1, "diagnosis": 2}\n', lines[0]]),
        ["j2", "j3"],
    ),
    "line gone": (packed(lambda lines: lines[1:]), ["j2"]),
    "not text": (packed(lambda lines: [lines[0], b"\xff" + lines[1]]), ["j3"]),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_damaged_table_costs_its_jobs_one_reading_and_a_line(folder: Path, kind: str) -> None:
    TABLES[kind](table_of(folder))
    again, said = resume(folder)
    assert again == ["j2", "j3"]
    assert len(said) == 1
    assert said[0].startswith(f"{table_of(folder)} is damaged (")
    assert said[0].endswith("moved aside as .part-00001.parquet.damaged, its jobs are read again")
    assert resume(folder) == ([], [])
    assert held(folder) == (ALL, ALL)
    names = [path.name for path in (folder / parts.TABLE).iterdir()]
    assert ".part-00001.parquet.damaged" in names


@pytest.mark.parametrize("kind", LINES)
def test_damaged_diagnoses_cost_their_jobs_one_reading_and_a_line(folder: Path, kind: str) -> None:
    damage, lost = LINES[kind]
    damage(diagnoses_of(folder))
    again, said = resume(folder)
    assert again == lost
    assert len(said) == 1
    assert said[0].startswith(f"{diagnoses_of(folder)} is ")
    assert said[0].endswith(f": {len(lost)} of its jobs are read again")
    assert resume(folder) == ([], [])
    assert held(folder) == (ALL, ALL)


@pytest.mark.parametrize("kind", LINES)
def test_a_changed_job_beside_damaged_diagnoses(folder: Path, kind: str) -> None:
    damage, lost = LINES[kind]
    damage(diagnoses_of(folder))
    changed = [replace(ref, tag="new") if ref.id in ("j0", "j3") else ref for ref in REFS]
    again, said = resume(folder, changed)
    assert again == sorted({"j0", "j3", *lost})
    assert len(said) == 1
    assert resume(folder, changed) == ([], [])
    assert held(folder) == (ALL, ALL)


def test_a_row_stays_where_the_job_of_a_lost_diagnosis_is_gone(folder: Path) -> None:
    cut(50)(diagnoses_of(folder))
    rest = [ref for ref in REFS if ref.id not in ("j2", "j3")]
    assert (resume(folder, rest)[0], resume(folder, rest)) == ([], ([], []))
    assert held(folder) == (ALL, Counter(ref.source for ref in rest))
    assert resume(folder)[0] == ["j2", "j3"]


def test_all_parts_at_once(folder: Path) -> None:
    for number in (0, 2):
        cut(10)(table_of(folder, number))
    cut(10)(diagnoses_of(folder, 1))
    again, said = resume(folder)
    assert (again, len(said)) == ([ref.id for ref in REFS], 3)
    assert held(folder) == (ALL, ALL)


@pytest.mark.parametrize("path_of", [table_of, diagnoses_of])
def test_what_may_not_be_read_is_not_damaged(
    folder: Path, path_of: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = path_of(folder), os.open

    def denied(given: Any, *rest: Any) -> int:
        if given == path:
            raise PermissionError(13, "Permission denied", str(given))
        return real(given, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", denied)
        with pytest.raises(InputError, match=f"{path}: permission denied"):
            resume(folder)
    assert resume(folder) == ([], [])
    assert held(folder) == (ALL, ALL)


def test_foreign_files_are_left_alone(folder: Path) -> None:
    for inside in (parts.TABLE, parts.DIAGNOSES):
        for other in ("notes.txt", "part-1.parquet", "part-000001.parquet", "part-x.jsonl.zst"):
            (folder / inside / other).write_text("mine")
    (folder / "manifest.json").write_text("[")
    assert resume(folder) == ([], [])
    assert held(folder) == (ALL, ALL)
    assert (folder / parts.TABLE / "notes.txt").read_text() == "mine"


def test_the_lock_is_never_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(InputError, match=r"\.lock: too many levels"):
        open_results(tmp_path / "r", resume=True)
    assert (tmp_path / "victim").read_text() == "precious"


def test_any_flipped_byte_is_seen_or_harmless(folder: Path) -> None:
    rows = parts.read_table(folder, 1).to_pylist()
    lines = list(parts.lines(folder, 1))
    for path, read, whole in (
        (table_of(folder), lambda: parts.read_table(folder, 1).to_pylist(), rows),
        (diagnoses_of(folder), lambda: list(parts.lines(folder, 1)), lines),
    ):
        data = path.read_bytes()
        seen = 0
        for place in range(0, len(data), max(1, len(data) // 400)):
            path.write_bytes(data[:place] + bytes([data[place] ^ 0x21]) + data[place + 1 :])
            try:
                assert read() == whole, (path.name, place)
            except DamagedError:
                seen += 1
        path.write_bytes(data)
        assert seen > 100


def test_names_that_are_not_utf8_are_known_again(tmp_path: Path) -> None:
    refs = [
        JobRef(os.fsdecode(name), "folder", os.fsdecode(b"/a/" + name), 1, 1.0, "t")
        for name in (b"x\xff", b"x\xfe", rb"x\udcff", b"x")
    ]
    assert resume(tmp_path, refs)[0] == [ref.id for ref in refs]
    for _ in range(2):
        assert resume(tmp_path, refs) == ([], [])
    rows, told = held(tmp_path)
    assert rows == told
    assert sorted(rows.values()) == [1, 1, 1, 1]
    changed = [replace(ref, tag="new") for ref in refs]
    assert resume(tmp_path, changed)[0] == [ref.id for ref in refs]
    assert held(tmp_path) == (rows, rows)


def test_half_characters_in_any_text_can_be_stored(tmp_path: Path) -> None:
    ref = REFS[0]
    whole = replace(result(ref), document='{"text": "a\udcffb\\\\ud800"}')
    whole.row.update({"job": "\udcff", "hosts": ["gpu\udcff"], "error": "no \udcff"})
    with open_results(tmp_path, resume=True) as results:
        results.commit([whole])
    row = parts.read_table(tmp_path, 0).to_pylist()[0]
    assert (row["job"], row["hosts"], row["error"]) == (r"\udcff", [r"gpu\udcff"], r"no \udcff")
    (one,) = diagnoses(tmp_path)
    assert one == {
        "job": r"\udcff", "source": "/a/j0", "diagnosis": {"text": r"a\udcffb\ud800"},
    }  # fmt: skip


def test_numbers_that_no_column_holds_are_left_out(tmp_path: Path) -> None:
    most = (1 << 63) - 1
    numbers = {"culprit_ranks": [most + 1, most, 10**30], "ranks": 10**20, "checkpoint_step": most}
    with open_results(tmp_path, resume=True) as results:
        results.commit([result(REFS[0], **numbers), result(REFS[1])])
    row = parts.read_table(tmp_path, 0).to_pylist()[0]
    assert (row["culprit_ranks"], row["ranks"], row["checkpoint_step"]) == ([most], None, most)


def test_the_page_of_a_job_that_was_read_again_is_removed(folder: Path) -> None:
    pages = [folder / page_of(ref.source) for ref in REFS[:2]]
    pages[0].parent.mkdir()
    mine = pages[0].with_name("mine.html")
    for path in (*pages, mine):
        path.touch()
    resume(folder, [replace(REFS[0], tag="new"), *REFS[1:]])
    assert [path.exists() for path in (*pages, mine)] == [False, True, True]


def test_a_part_damaged_while_the_scan_runs_is_told(folder: Path) -> None:
    with open_results(folder, resume=True) as results:
        assert isinstance(results, Results)
        cut(5)(table_of(folder))
        with pytest.raises(InputError, match=r"part-00001\.parquet was damaged just now"):
            results.forget({"/a/j2"})


def test_a_table_is_made_without_pandas_which_reads_it_afterwards(tmp_path: Path) -> None:
    code = """if True:
        import sys
        from pathlib import Path
        from diagnose.batch import parts
        table = parts.table_of([dict.fromkeys(parts.SCHEMA.names) | {"job": "j", "hosts": ["a"]}])
        print("pandas" in sys.modules)
        Path(sys.argv[1], "t.parquet").write_bytes(parts.write_table(table))
        import pandas
        row = pandas.read_parquet(sys.argv[1]).iloc[0]
        print(row["job"], *row["hosts"], table.to_pandas()["job"][0])
    """
    told = subprocess.check_output([sys.executable, "-c", code, tmp_path], text=True)
    assert told == "False\nj a j\n"
