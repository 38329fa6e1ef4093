from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from diagnose.batch import run
from diagnose.batch.jobs import JobRef, find_jobs
from diagnose.batch.results import described, diagnoses, open_results, tables
from diagnose.batch.run import Tally
from diagnose.batch.work import Result
from diagnose.errors import InputError
from diagnose.runtime.workers import WorkerDiedError
from tests.archives import PACK, TEXT, hostile
from tests.batch.fleet import Inline, healthy, hung, scan, start_scan, table, write_fleet
from tests.runtime.test_workers import alive

COUNT = 12


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("fleet") / "jobs"
    return folder, write_fleet(folder, COUNT)


@pytest.fixture(scope="session")
def whole(fleet: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of an unbroken scan."""
    out = tmp_path_factory.mktemp("whole") / "results"
    scan(fleet[0], out)
    return out


def test_one_row_a_job_and_its_diagnosis(fleet: tuple[Path, dict[str, str]], whole: Path) -> None:
    frame = table(whole)
    assert dict(zip(frame["job"], frame["class"], strict=True)) == fleet[1]
    assert frame["error"].isna().all()
    stall = frame[frame["job"] == "41000_ann"].iloc[0]
    assert (stall["verdict"], stall["culprit_ranks"], stall["culprit_hosts"]) == (
        "hung", (0,), ("gpu001",),
    )  # fmt: skip
    assert stall["onset"] == pd.Timestamp("2025-11-03 08:00:09.99")
    assert stall["started"] == pd.Timestamp("2025-11-03 08:00:00")
    assert stall["ended"] == pd.Timestamp("2025-11-03 08:30:10")
    assert stall["duration_hung_s"] == pytest.approx(1800.01)
    assert stall["gpu_hours_lost"] == pytest.approx(1800.01 * 4 / 3600)
    assert (stall["hosts"], stall["ranks"]) == (("gpu001", "gpu002"), 4)
    assert json.loads(stall["labels"]) == {"job_id": "41000"}
    assert frame.loc[frame["verdict"] == "healthy", "gpu_hours_lost"].eq(0).all()
    told = {one["source"]: one for one in diagnoses(whole)}
    assert sorted(told) == list(frame["source"])
    assert told[stall["source"]]["job"] == "41000_ann"
    assert told[stall["source"]]["diagnosis"]["schema"] == "diagnose/2"
    assert told[stall["source"]]["diagnosis"]["culprits"]["ranks"] == [0]
    assert [one["job"] for one in diagnoses(whole, [stall["source"]])] == ["41000_ann"]
    scanned = described(whole)
    assert scanned["complete"] is True
    assert {scanned["catalog"]} == set(frame["catalog"])


def test_the_same_failure_has_the_same_fingerprint(whole: Path) -> None:
    frame = table(whole)
    marks = frame.groupby("class")["fingerprint"].unique()
    assert [len(found) for found in marks] == [1, 1, 1]
    assert len({found[0] for found in marks}) == 3


def test_unchanged_jobs_are_not_read_again(tmp_path: Path) -> None:
    write_fleet(tmp_path / "jobs", 6)
    out = tmp_path / "out"
    assert scan(tmp_path / "jobs", out).read == 6
    before = table(out)
    again = scan(tmp_path / "jobs", out, _no_executor, resume=True)
    assert (again.read, again.unchanged) == (0, 6)
    (tmp_path / "jobs" / "41000_ann.tar").write_bytes(PACK["job.tar"](healthy()))
    (tmp_path / "jobs" / "41900_ann.tar").write_bytes(PACK["job.tar"](hung(2)))
    third = scan(tmp_path / "jobs", out, resume=True)
    assert (third.read, third.unchanged) == (2, 5)
    after = table(out)
    assert list(after["job"]) == sorted([*before["job"], "41900_ann"])
    verdicts = dict(zip(after["job"], after["verdict"], strict=True))
    assert (verdicts["41000_ann"], verdicts["41900_ann"]) == ("healthy", "hung")
    assert sorted(one["source"] for one in diagnoses(out)) == list(after["source"])


def test_results_inside_the_archive_are_no_job(tmp_path: Path) -> None:
    write_fleet(tmp_path, 2)
    out = tmp_path / "results"
    assert scan(tmp_path, out).read == 2
    assert scan(tmp_path, out, resume=True).read == 0
    assert len(table(out)) == 2
    assert len(list(find_jobs([str(tmp_path)], job_glob="*"))) == 2


def test_results_beside_the_logs_of_a_job_do_not_change_it(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(TEXT.decode())
    out = tmp_path / "results"
    [before] = find_jobs([str(tmp_path)])
    scan(tmp_path, out)
    [after] = find_jobs([str(tmp_path)])
    assert (after.kind, after.tag) == ("folder", before.tag)
    [row] = table(out).to_dict("records")
    assert pd.isna(row["error"])


def test_a_new_catalog_reads_everything_again(
    fleet: tuple[Path, dict[str, str]], whole: Path
) -> None:
    catalog = table(whole)["catalog"].iloc[0]
    ref = next(find_jobs([str(fleet[0])]))
    with open_results(whole, resume=True) as results:
        assert results.done(ref, catalog)
        assert not results.done(ref, "another")
        for change in ({"size": 1}, {"mtime": 1.0}, {"tag": "x"}, {"tag": ""}):
            assert not results.done(replace(ref, **change), catalog)


def test_results_are_not_overwritten_by_mistake(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds results already: --resume"):
        open_results(whole, resume=False)
    with (
        open_results(tmp_path, resume=False),
        pytest.raises(InputError, match="another scan is writing there"),
    ):
        open_results(tmp_path, resume=True)


@pytest.mark.slow
def test_a_local_pool_gives_the_same_table(
    fleet: tuple[Path, dict[str, str]], whole: Path, tmp_path: Path
) -> None:
    summary = scan(fleet[0], tmp_path, run.local(2))
    assert (summary.read, summary.errors) == (COUNT, 0)
    pd.testing.assert_frame_equal(table(tmp_path), table(whole))


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_hostile_archives_cost_one_error_each(every: int, tmp_path: Path) -> None:
    write_fleet(tmp_path / "jobs", 6)
    cases = dict(list(hostile().items())[::every])
    for number, (_, case) in enumerate(cases.items()):
        (tmp_path / "jobs" / f"bad{number:03d}.{case.file.partition('.')[2]}").write_bytes(
            case.data
        )
    tally = Tally()
    scan(tmp_path / "jobs", tmp_path / "out", tally=tally)
    frame = table(tmp_path / "out").set_index("job")
    good = frame[~frame.index.str.startswith("bad")]
    assert len(good) == 6
    assert good["error"].isna().all()
    assert good["verdict"].notna().all()
    bad = frame[frame.index.str.startswith("bad")]
    assert len(bad) == len(cases) >= 30 // every
    for (kind, case), error in zip(cases.items(), bad["error"], strict=True):
        if case.says:
            assert isinstance(error, str), kind
            assert re.match(r"(?:no log to read: )?bad\d\d\d\.", error), kind
            assert "\n" not in error
            assert len(error) < 700
        elif case.good:
            assert pd.isna(error), kind
    assert tally.jobs == 6 + len(cases)
    assert tally.errors == frame["verdict"].isna().sum()
    assert tally.errors + tally.partly == frame["error"].notna().sum()
    verdicts = sum(count for name, count in tally.verdicts.items() if name)
    assert verdicts + tally.errors == tally.jobs


def test_a_job_that_kills_its_worker_twice_is_given_up(tmp_path: Path) -> None:
    write_fleet(tmp_path / "jobs", 6)
    (tmp_path / "jobs" / "kill.log").write_text("x\n")
    summary = scan(tmp_path / "jobs", tmp_path / "out", _killed_by_one, workers=2)
    frame = table(tmp_path / "out").set_index("job")
    assert (summary.read, summary.errors) == (7, 1)
    assert frame.loc["kill.log", "error"] == (
        "kill.log: its worker died 2 times (killed, out of memory, or stuck): given up"
    )
    assert frame.drop("kill.log")["error"].isna().all()


def test_workers_that_never_start_are_no_jobs_fault(tmp_path: Path) -> None:
    write_fleet(tmp_path / "jobs", 3)
    with pytest.raises(InputError, match="workers do not start"):
        scan(tmp_path / "jobs", tmp_path / "out", _stillborn)
    with open_results(tmp_path / "out", resume=False) as results:
        assert results.known == {}


def test_a_job_that_cannot_be_written_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_fleet(tmp_path / "jobs", 3)
    from diagnose.batch import results

    monkeypatch.setattr(results, "_value", lambda *_: object())  # which SQLite refuses
    with pytest.raises(InputError, match=r"diagnose\.sqlite: "):
        scan(tmp_path / "jobs", tmp_path / "out")
    monkeypatch.undo()
    assert scan(tmp_path / "jobs", tmp_path / "out", resume=True).read == 3
    assert table(tmp_path / "out")["source"].is_unique


def some(results: Path) -> bool:
    """Whether there are jobs."""
    try:
        return next(tables(results), None) is not None
    except InputError:  # not yet made
        return False


def _kill_and_resume(source: Path, out: Path, moments: list[float]) -> None:
    resume = False
    for moment in moments:
        process = start_scan(source, out, resume=resume)
        time.sleep(moment)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        resume = True
    process = start_scan(source, out, resume=True)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said


@pytest.mark.slow
def test_after_kill_9_no_worker_is_left_and_the_scan_goes_on(
    fleet: tuple[Path, dict[str, str]], whole: Path, tmp_path: Path
) -> None:
    process = start_scan(fleet[0], tmp_path, resume=False)
    while not some(tmp_path):
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    end = time.monotonic() + 10
    while alive(process.pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert alive(process.pid) == []
    assert 0 < len(table(tmp_path)) < COUNT
    summary = scan(fleet[0], tmp_path, resume=True)
    assert (summary.read + summary.unchanged, summary.errors) == (COUNT, 0)
    pd.testing.assert_frame_equal(table(tmp_path), table(whole))
    assert sorted(d["source"] for d in diagnoses(tmp_path)) == list(table(whole)["source"])


@pytest.mark.slow
def test_kill_9_at_20_moments(tmp_path: Path) -> None:
    write_fleet(tmp_path / "jobs", 60)
    scan(tmp_path / "jobs", tmp_path / "whole")
    rng = random.Random(5)
    out = tmp_path / "out"
    _kill_and_resume(tmp_path / "jobs", out, [rng.uniform(0.3, 6) for _ in range(20)])
    pd.testing.assert_frame_equal(table(out), table(tmp_path / "whole"))


@pytest.mark.slow
def test_ctrl_c_commits_what_is_done(
    fleet: tuple[Path, dict[str, str]], whole: Path, tmp_path: Path
) -> None:
    process = start_scan(fleet[0], tmp_path, resume=False)
    while not some(tmp_path):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers too
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.splitlines()[0].startswith(f"scan: {COUNT} jobs, ")
    assert said.splitlines()[-1].startswith("interrupted: ")
    assert said.splitlines()[-1].endswith("; --resume continues")
    assert "Traceback" not in said
    assert described(tmp_path)["complete"] is False
    scan(fleet[0], tmp_path, resume=True)
    pd.testing.assert_frame_equal(table(tmp_path), table(whole))


def test_the_lock_of_results_is_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"kept")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".lock").symlink_to(victim)
    with pytest.raises(InputError, match=r"cannot write results to .*symbolic links"):
        open_results(tmp_path / "out", resume=False)
    assert victim.read_bytes() == b"kept"


def _no_executor() -> Executor:
    raise AssertionError("nothing is to be read")


def _killed_by_one() -> Executor:
    return _Killed()


class _Killed(Inline):
    """One job kills its worker, or none comes up."""

    broken = False

    def submit(self, fn: object, /, *args: object, **kwargs: object):  # type: ignore[no-untyped-def]
        from concurrent.futures import Future

        ref = args[0] if args else None
        if self.broken or (isinstance(ref, JobRef) and ref.id == "kill.log"):
            future: Future[Result] = Future()
            future.set_exception(WorkerDiedError("a worker died"))
            return future
        return super().submit(fn, *args, **kwargs)


def _stillborn() -> Executor:
    found = _Killed()
    found.broken = True
    return found


@pytest.mark.slow
def test_dask_with_a_killed_worker_gives_the_same(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    write_fleet(tmp_path / "jobs", 60)
    scan(tmp_path / "jobs", tmp_path / "whole")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        killer = _KillOne(cluster)
        with run.dask(cluster.scheduler_address) as (make, workers):
            assert workers == 2
            summary = scan(tmp_path / "jobs", tmp_path / "out", make, tally=killer)
    assert killer.killed
    assert summary.read == 60
    pd.testing.assert_frame_equal(table(tmp_path / "out"), table(tmp_path / "whole"))


class _KillOne(Tally):
    """Kills a worker of a Dask cluster after ten jobs."""

    def __init__(self, cluster: object) -> None:
        super().__init__()
        self.cluster = cluster
        self.killed = 0

    def done(self, result: Result) -> None:
        super().done(result)
        if self.jobs == 10:
            nanny = next(iter(self.cluster.workers.values()))  # type: ignore[attr-defined]
            self.killed = nanny.pid
            os.kill(nanny.pid, signal.SIGKILL)
