"""The post-mortems that `fleet --reports` writes: one page a job, whatever the jobs are called."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from diagnose.batch import run
from diagnose.batch.jobs import find_jobs, find_stored
from diagnose.batch.names import page_of
from diagnose.batch.results import open_results
from diagnose.batch.run import Tally
from diagnose.batch.work import Options
from diagnose.errors import InputError
from diagnose.fleet import read, reports, summarise
from diagnose.fleet.jobs import Jobs
from diagnose.fleet.reports import write_reports
from diagnose.report.fleet import html
from tests.batch.fleet import OOM, START, Inline


def write(folder: Path, names: list[bytes]) -> None:
    """A folder for each name, with a job that ran out of memory."""
    for rank, name in enumerate(names):
        inside = folder / os.fsdecode(name)
        inside.mkdir(parents=True)
        (inside / "train.log").write_text(START + OOM.format(rank=rank))


def scanned(out: Path, *given: Path, resume: bool = False) -> Jobs:
    with open_results(out, resume=resume) as results:
        run.scan(
            find_jobs([str(path) for path in given]), results, Inline,
            workers=1, options=Options(), progress=Tally(),
        )  # fmt: skip
    return read(out)


def written(jobs: Jobs, out: Path) -> tuple[int, list[str]]:
    said: list[str] = []
    return write_reports(jobs, out, 99, warn=said.append), said


def test_jobs_of_one_name_have_a_page_each(tmp_path: Path) -> None:
    write(tmp_path / "a", [b"j"])
    write(tmp_path / "b", [b"other", b"j"])
    out = tmp_path / "out"
    jobs = scanned(out, tmp_path / "a", tmp_path / "b")
    assert sorted(jobs.job.to_pylist()) == ["a/j", "b/j", "other"]
    assert written(jobs, out) == (3, [])
    found = summarise(jobs, results=out)
    assert set(found.reports) == {"a/j", "b/j", "other"}
    for job, rank in (("a/j", 0), ("b/j", 1)):
        text = (out / found.reports[job]).read_text(encoding="utf-8")
        assert f"[rank{rank}]" in text
        assert f"[rank{1 - rank}]" not in text
    page = html.render(found, links="")
    for job, path in found.reports.items():
        assert f'<a href="{path}">{job}</a>' in page


def test_names_of_every_kind(tmp_path: Path) -> None:
    names = [b"n" * 253, b"x\xff", rb"x\udcff", b"Case", b"case", b"-rf\n<i>"]
    write(tmp_path / "jobs", names)
    out = tmp_path / "out"
    jobs = scanned(out, tmp_path / "jobs")
    assert written(jobs, out) == (len(names), [])
    found = summarise(jobs, results=out)
    named = {job for job in jobs.job.to_pylist() if job in found.named()}
    assert set(found.reports) == named
    assert len(set(found.reports.values())) == len(named)
    pages = [path.name for path in (out / "reports").iterdir()]
    assert len({name.lower() for name in pages}) == len(names)
    assert all(len(name) < 100 and name.isascii() and name[0].isalnum() for name in pages)
    scanned(out, tmp_path / "jobs", resume=True)
    assert len(read(out)) == len(names)


def test_a_job_that_fails_costs_its_own_page_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "jobs", [b"bad", b"gone", b"good"])
    out = tmp_path / "out"
    jobs = scanned(out, tmp_path / "jobs")
    (tmp_path / "jobs/gone/train.log").unlink()
    (tmp_path / "jobs/gone").rmdir()
    real = reports.sources_of

    def broken(ref: object) -> object:
        if ref.id == "bad":  # type: ignore[attr-defined]
            raise KeyError("rank")
        return real(ref)  # type: ignore[arg-type]

    monkeypatch.setattr(reports, "sources_of", broken)
    count, said = written(jobs, out)
    assert count == 1
    assert said == [
        "no report of bad: internal error, please report it: KeyError: 'rank'",
        f"no report of gone: {tmp_path}/jobs/gone: no such file or directory",
    ]


def test_a_job_that_changed_has_a_new_page(tmp_path: Path) -> None:
    write(tmp_path / "jobs", [b"j"])
    out = tmp_path / "out"
    assert written(scanned(out, tmp_path / "jobs"), out) == (1, [])
    (page,) = (out / "reports").iterdir()
    (tmp_path / "jobs/j/train.log").write_text(START + OOM.format(rank=7))
    jobs = scanned(out, tmp_path / "jobs", resume=True)
    assert not page.exists()
    assert written(jobs, out) == (1, [])
    assert "[rank7]" in page.read_text(encoding="utf-8")


def test_the_page_of_several_logs_is_of_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "slurm-4100.out").write_text(START)
    (tmp_path / "slurm-4107.err").write_text(START)
    (tmp_path / "slurm-4107.out").write_text(OOM.format(rank=3))
    out = tmp_path / "out"
    jobs = scanned(out, tmp_path)
    source = jobs.source[jobs.verdict.of(np.arange(len(jobs))).index("failed")].as_py()
    assert source == f"{tmp_path}/slurm-4107.err"
    assert written(jobs, out) == (1, [])
    assert "[rank3]" in (out / page_of(source)).read_text(encoding="utf-8")


def test_a_job_is_found_again_by_its_source(tmp_path: Path) -> None:
    write(tmp_path / "run", [b"gpu1", b"gpu2"])
    for name in ("slurm-4100.out", "slurm-4107.err", "slurm-4107.out"):
        (tmp_path / name).write_text(START)
    found = {ref.source: ref for ref in find_jobs([str(tmp_path)])}
    assert len(found) == 3
    for source, ref in found.items():
        assert ref.tag in [again.tag for again in find_stored(source) if again.source == source]
    with pytest.raises(InputError, match="nothing: no such file or directory"):
        list(find_stored(str(tmp_path / "nothing")))


def test_pages_are_called_like_their_jobs() -> None:
    page = page_of("/a/b c/d.tar.gz")
    assert re.fullmatch(r"reports/d\.tar\.gz-[0-9a-f]{16}\.html", page)
    assert page_of("/a/...").startswith("reports/job-")
    assert page_of("/A") != page_of("/a")
    assert page_of("s3://b/x/") != page_of("s3://b/x")
