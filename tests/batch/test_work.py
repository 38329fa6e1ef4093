from __future__ import annotations

import importlib
import io
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from diagnose.batch import run, work
from diagnose.batch.jobs import JobRef, find_jobs
from diagnose.batch.results import COLUMNS, open_results
from diagnose.batch.run import Lines, Summary, Tally, progress
from diagnose.batch.work import Options, Result, diagnose_one
from diagnose.errors import InputError
from tests.archives import PACK
from tests.batch.fleet import ROOT, Inline, hung, scan, table, write_fleet
from tests.checkpoint.make import hf
from tests.checkpoint.make.base import write


def test_a_result_is_plain_and_has_all_columns(tmp_path: Path) -> None:
    (tmp_path / "j.zip").write_bytes(PACK["job.zip"](hung(3)))
    result = diagnose_one(next(find_jobs([str(tmp_path)])), Options())
    assert pickle.loads(pickle.dumps(result)) == result
    assert set(result.row) == set(COLUMNS)
    assert (result.row["verdict"], result.row["culprit_ranks"]) == ("hung", [3])
    assert json.loads(result.document)["root_cause"]["class"] == result.row["class"]
    assert "\n" not in result.document


@pytest.mark.slow
def test_a_worker_loads_neither_arrow_nor_pandas(tmp_path: Path) -> None:
    (tmp_path / "j.zip").write_bytes(PACK["job.zip"](hung(3)))
    code = """if True:
        import sys
        from diagnose.batch.jobs import JobRef, find_jobs
        from diagnose.batch import warm
        from diagnose.batch.work import Options, diagnose_one
        print(diagnose_one(next(find_jobs(sys.argv[1:])), Options()).row["verdict"])
        print(sys.modules.keys() & {"pandas", "pyarrow"} or "neither")
    """
    told = subprocess.check_output([sys.executable, "-c", code, tmp_path], text=True)
    assert told.split() == ["hung", "neither"]


@pytest.mark.parametrize("remote", [False, True])
def test_checkpoints_in_the_folder_of_a_job(tmp_path: Path, remote: bool) -> None:
    for name, data in hung(3).items():
        write(tmp_path / "j" / name, data, 1.7e9)
    for number, step in enumerate((100, 200)):
        folder = tmp_path / f"j/out/checkpoint-{step}"
        hf.MAKERS["hf-trainer"](folder, step=step, world=4, start=1.7e9 + 600 * number)
    (folder / "trainer_state.json").unlink()
    where = str(tmp_path)
    if remote:
        memory = pytest.importorskip("fsspec").filesystem("memory")
        memory.put(f"{tmp_path}/", "/checkpoints-of-jobs", recursive=True)
        where = "memory://checkpoints-of-jobs"
    (ref,) = find_jobs([where])
    row = diagnose_one(ref, Options()).row
    assert (row["verdict"], row["culprit_ranks"]) == ("hung", [3])
    assert row["checkpoint"] == f"{where}/j/out/checkpoint-100"
    assert (row["checkpoint_step"], row["checkpoint_state"]) == (100, "partial")


def test_folders_of_one_remote_job_keep_their_names(tmp_path: Path) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    parts = ("rank-0", "rank-1")
    for part in parts:
        write(tmp_path / part / "out.log", f"{part}: initialised\n".encode(), 1.7e9)
    memory.put(f"{tmp_path}/", "/parts-of-a-job", recursive=True)

    def told(where: str) -> list[tuple[str, int | None]]:
        folders = tuple(f"{where}/{part}" for part in parts)
        found = work.sources_of(JobRef("job", "logs", folders[0], files=folders))
        return [(source.name, source.rank) for source in found]

    assert told("memory://parts-of-a-job") == [("rank-0/out.log", 0), ("rank-1/out.log", 1)]
    assert told("memory://parts-of-a-job") == told(str(tmp_path))


def test_a_bug_is_an_error_of_one_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "j.log").write_text("x\n")

    def broken(*_: object, **__: object) -> None:
        raise KeyError("rank")

    monkeypatch.setattr(work, "read", broken)
    result = diagnose_one(next(find_jobs([str(tmp_path / "j.log")])), Options())
    assert result.row["error"] == "j.log: internal error, please report it: KeyError: 'rank'"


def test_a_vanished_job_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "j.tar"
    path.write_bytes(PACK["job.tar"](hung(0)))
    ref = next(find_jobs([str(path)]))
    path.unlink()
    result = diagnose_one(ref, Options())
    assert "j.tar" in result.row["error"]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.slow
def test_memory_is_bounded(tmp_path: Path) -> None:
    code = """
import sys
from diagnose.batch import work
from diagnose.batch.jobs import JobRef
work.read = lambda *a, **k: bytes(1 << 30)
result = work.diagnose_one(JobRef("j", "log", sys.argv[1]), work.Options(memory=400 << 20))
# Not getrusage's maximum: it takes over that of the process that forked this one.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(result.row["error"], int(status["VmHWM"].split()[0]) < 400 << 10)
"""
    (tmp_path / "j.log").write_text("x\n")
    ran = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "j.log"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout == "j.log: exceeded the memory limit of a worker True\n"


def test_progress_in_a_pipe_is_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    lines = progress(stream)
    assert isinstance(lines, Lines)
    monkeypatch.setattr("diagnose.batch.run.LINE_SECONDS", 0)
    clock = iter([0.0, *[10.0] * 20])
    monkeypatch.setattr("diagnose.batch.run.time.monotonic", lambda: next(clock))
    refs = [next(find_jobs([__file__]))] * 4
    lines.start(refs, 3)
    size = refs[0].size
    lines.done(Result({"verdict": "hung", "size": size}))
    lines.done(Result({"verdict": None, "size": size, "error": "bad"}))
    lines.end(Summary(read=2, unchanged=3, errors=1, interrupted=True))
    told = stream.getvalue().splitlines()
    mib = f"{2 * size / 2**20:.1f} MiB"
    assert told[0] == f"scan: 4 jobs, {4 * size / 2**20:.1f} MiB, 3 unchanged"
    assert told[2] == f"scan: 2/4 jobs · 0.2 jobs/s · {mib} · 1 hung · 1 error · ETA 0:00:10"
    assert told[3] == (
        f"interrupted: 2 of 4 jobs in 0:00:10, 3 unchanged · 0.2 jobs/s · {mib} · 1 hung"
        " · 1 error · ETA 0:00:10; --resume continues"
    )


def test_a_job_that_is_not_fully_readable_is_counted_once() -> None:
    stream = io.StringIO()
    lines = Lines(stream)
    lines.start([next(find_jobs([__file__]))] * 3, 0)
    lines.done(Result({"verdict": "hung"}))
    lines.done(Result({"verdict": "failed", "error": "member damaged"}))
    lines.done(Result({"verdict": None, "error": "bad"}))
    lines.end(Summary(read=3))
    assert stream.getvalue().endswith(
        " · 1 hung · 1 failed · 1 error (1 other job not fully readable)\n"
    )


def test_a_scan_that_does_not_start_prints_no_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError), open_results(tmp_path / "out", resume=False) as results:
        run.scan(
            find_jobs([str(tmp_path / "gone")]), results, Inline,
            workers=1, options=Options(), progress=progress(sys.stderr),
        )  # fmt: skip
    assert capsys.readouterr().err == ""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3 server on loopback, with a bucket; its URL."""
    moto = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    _, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    from diagnose.ingest import place as places

    places._file_system.cache_clear()
    fs = places._file_system("s3")
    fs.clear_instance_cache()
    places._file_system.cache_clear()
    places._file_system("s3").makedirs("fleet", exist_ok=True)
    yield "s3://fleet"
    places._file_system.cache_clear()
    server.stop()


@pytest.mark.slow
def test_a_bucket_gives_what_its_files_give(bucket: str, tmp_path: Path) -> None:
    from diagnose.ingest import place as places

    write_fleet(tmp_path / "jobs", 6)
    for name, data in hung(2).items():
        path = tmp_path / "jobs" / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    fs = places._file_system("s3")
    fs.put(f"{tmp_path}/jobs/", "fleet/2025/", recursive=True)
    refs = list(find_jobs([f"{bucket}/2025"]))
    assert [(ref.id, ref.kind, ref.size) for ref in refs] == [
        (ref.id, ref.kind, ref.size) for ref in find_jobs([str(tmp_path / "jobs")])
    ]
    assert all(ref.tag for ref in refs)
    scan(tmp_path / "jobs", tmp_path / "local")
    from diagnose.batch import run
    from diagnose.batch.results import open_results
    from tests.batch.fleet import Inline

    out = tmp_path / "remote"
    for resume, expected in ((False, 7), (True, 0)):
        with open_results(out, resume=resume) as results:
            summary = run.scan(
                find_jobs([f"{bucket}/2025"]), results, Inline,
                workers=1, options=Options(), progress=Tally(),
            )  # fmt: skip
        assert summary.read == expected
    where = ["source", "mtime", "tag"]
    remote, local = (table(path).drop(columns=where) for path in (out, tmp_path / "local"))
    pd.testing.assert_frame_equal(remote, local)
    assert table(out)["source"].iloc[0].startswith("s3://fleet/2025/41000_ann.")


@pytest.mark.slow
def test_a_bucket_that_is_not_there_is_said(bucket: str) -> None:

    with pytest.raises(InputError, match="s3://nobody/x"):
        list(find_jobs(["s3://nobody/x"]))


@pytest.mark.slow
def test_what_workers_are_copies_of_has_done_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc.freeze", lambda: None)
    monkeypatch.setattr("gc.set_threshold", lambda *_: None)
    done: list[Result] = []
    monkeypatch.setattr(
        work, "diagnose_one", lambda ref, options: done.append(diagnose_one(ref, options))
    )
    monkeypatch.delitem(sys.modules, "diagnose.batch.warm", raising=False)
    importlib.import_module("diagnose.batch.warm")
    assert [result.row["verdict"] for result in done] == ["hung"]
