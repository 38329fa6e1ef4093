from __future__ import annotations

import errno
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

import diagnose
from diagnose.collect import bundle
from diagnose.collect.bundle import Manifest, Node
from diagnose.errors import InputError

FIXTURES = Path(__file__).parents[2] / "fixtures"

NODE = Node("node1", "0.1.0", "2026-06-02T08:00:00.000Z", "2026-06-02T08:00:09.000Z")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "made"
    bundle.reserve(made / bundle.MANIFEST)
    (made / NODE.folder / "rank-0").mkdir(parents=True)
    (made / NODE.folder / "rank-0" / "stack-1.txt").write_text("Process 1: python\n")
    (made / "link").symlink_to("/etc/passwd")
    bundle.write_manifest(made, Manifest("0.1.0", "a", "b", nodes=[NODE.to_dict()]))
    return made


def test_the_manifest_takes_the_room_that_was_kept(tmp_path: Path) -> None:
    bundle.reserve(tmp_path / "new" / bundle.MANIFEST)
    assert (tmp_path / "new" / bundle.MANIFEST).stat().st_size == 64 << 10
    bundle.write_manifest(tmp_path / "new", Manifest("0.1.0", "a", "b", "slurm", [], ["n2: gone"]))
    assert json.loads((tmp_path / "new" / bundle.MANIFEST).read_text()) == {
        "schema": "diagnose-bundle/1", "tool": "0.1.0", "started": "a", "ended": "b",
        "via": "slurm", "nodes": [], "problems": ["n2: gone"],
    }  # fmt: skip


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz", ".tar.zst"])
def test_an_archive_has_one_folder_and_only_files(
    folder: Path, tmp_path: Path, suffix: str
) -> None:
    target = tmp_path / f"job-7{suffix}"
    assert bundle.is_archive(target)
    bundle.pack(folder, target)
    plain: Any = target.open("rb")
    with plain:
        if suffix.endswith("zst"):
            import zstandard

            plain = zstandard.ZstdDecompressor().stream_reader(plain)
        with tarfile.open(fileobj=plain, mode="r|*") as archive:
            names = {member.name: (member.uname, member.mode) for member in archive}
    assert names == {
        "job-7/manifest.json": ("", 0o600),
        "job-7/nodes/node1/rank-0/stack-1.txt": ("", 0o600),
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["made", target.name])


def test_an_archive_that_cannot_be_written_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(bundle, "add_folder", full)
    with pytest.raises(InputError, match=r"cannot write .*/a\.tar\.gz: no space left on device"):
        bundle.pack(folder, tmp_path / "a.tar.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    with pytest.raises(InputError, match="no such file or directory"):
        bundle.pack(folder, tmp_path / "no" / "a.tar")


def test_names(tmp_path: Path) -> None:
    assert not bundle.is_archive(tmp_path / "out")
    assert bundle.name_of(Path("/x/job.tar.zst")) == "job"
    assert bundle.name_of(Path("/x/out")) == "out"
    assert bundle.name_of(Path("/x/.tar")) == "bundle"


STACK = """\
Process {pid}: python -u train.py

Thread {pid} (idle): "MainThread"
    {frame}
    train (/w/train.py:{line})
    main (/w/train.py:90)
"""
WAITS = "all_reduce (/e/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:3252)"


def test_without_stacks_the_kernel_names_the_rank(folder: Path) -> None:
    sample = {"voluntary": 5, "involuntary": 1}
    for rank in range(2):
        document = {
            "diagnose": "activity/1", "pid": 100 + rank, "rank": rank, "role": "rank",
            "activity": "stopped" if rank else "waiting", "cpu": 0.0, "samples": [sample, sample],
        }  # fmt: skip
        place = folder / NODE.folder / f"rank-{rank}"
        place.mkdir(exist_ok=True)
        (place / "activity.json").write_text(json.dumps(document))
    (folder / NODE.folder / "rank-0" / "stack-1.txt").unlink()
    result = diagnose.diagnose(diagnose.load(folder))
    assert (result.verdict, result.culprits.ranks) == ("hung", [1])
    assert result.root_cause.summary == (
        "Rank 1 is stopped by a signal (state T): SIGSTOP or SIGTSTP; it goes on with SIGCONT."
    )
    shown = {one.text: one.why for one in result.evidence}
    assert shown == {
        "rank 1: stopped by a signal (state T): SIGSTOP or SIGTSTP; it goes on with SIGCONT":
            "Process of the outlier rank",
        "rank 0: without a stack: it sleeps": "",
    }  # fmt: skip


def test_a_bundle_is_a_job(folder: Path, tmp_path: Path) -> None:
    """Stacks and what processes did, and no log at all; any packing reads alike."""
    processes = []
    for rank in range(4):
        pid, place = 100 + rank, folder / NODE.folder / f"rank-{rank}"
        place.mkdir(exist_ok=True)
        stopped = rank == 2
        frame, line = ("read (/w/rows.py:7)", 51) if stopped else (WAITS, 60)
        (place / "stack-1.txt").write_text(STACK.format(pid=pid, frame=frame, line=line))
        sample = {"at": 1.0, "state": "T" if stopped else "S", "voluntary": 5, "involuntary": 1}
        document = {
            "diagnose": "activity/1", "pid": pid, "rank": rank, "role": "rank",
            "activity": "stopped" if stopped else "waiting", "cpu": 0.0, "seconds": 5.0,
            "samples": [sample, sample], "waits": [], "busy": [],
        }  # fmt: skip
        (place / "activity.json").write_text(json.dumps(document))
        processes.append({"pid": pid, "rank": rank, "role": "rank", "local_rank": rank})
    node = {**NODE.to_dict(), "processes": processes}
    (folder / NODE.folder / "node.json").write_text(json.dumps(node))
    (folder / NODE.folder / "process.json").write_text('{"diagnose": "process/1"}')
    (folder / "link").unlink()
    told = []
    for suffix in ("", ".tar", ".tar.zst"):
        target = folder
        if suffix:
            target = tmp_path / f"b{suffix}"
            bundle.pack(folder, target)
        told.append(diagnose.diagnose(diagnose.load(target)))
    first = told[0]
    assert (first.verdict, first.root_cause.cause) == ("hung", "stall.host")
    assert (first.culprits.ranks, first.culprits.hosts) == ([2], ["node1"])
    assert first.root_cause.summary == (
        "Ranks 0-1, 3 wait in all_reduce; rank 2 is stopped by a signal (state T) at rows.py:7: "
        "SIGSTOP or SIGTSTP; it goes on with SIGCONT."
    )
    assert first.culprits.why == "its process: stopped by a signal (state T)"
    for other in told[1:]:
        assert (other.root_cause, other.culprits) == (first.root_cause, first.culprits)


def idle(folder: Path, ranks: int, *, ran: int | None = None) -> None:
    """Ranks without a stack that slept between two looks, but for one; all print the same step."""
    for rank in range(ranks):
        samples = [{"voluntary": n * (rank == ran), "involuntary": 1} for n in range(2)]
        document = {
            "diagnose": "activity/1", "pid": 100 + rank, "rank": rank, "role": "rank",
            "activity": "waiting", "cpu": 0.0, "samples": samples,
            "waits": [{"thread": 100 + rank, "state": "S", "wchan": "futex", "call": "futex"}],
        }  # fmt: skip
        place = folder / NODE.folder / f"rank-{rank}"
        place.mkdir(exist_ok=True)
        (place / "activity.json").write_text(json.dumps(document))
        (place / "stack-1.txt").unlink(missing_ok=True)
        log = place / "stdout.log"
        log.write_text(f"[rank{rank}]: step 41 loss 2.5\n" * 3)
        os.utime(log, (1_900_000_000 - rank, 1_900_000_000 - rank))


def test_a_job_of_which_no_rank_runs_hangs_since_its_last_line(folder: Path) -> None:
    idle(folder, 3)
    found = diagnose.diagnose(diagnose.load(folder))
    assert (found.verdict, found.root_cause.cause, found.culprits.ranks) == ("hung", "unknown", [])
    assert found.root_cause.confidence == "low"
    assert found.root_cause.summary == (
        "Ranks 0-2 did not run at all between two looks; no stack shows who holds them up."
    )
    assert (found.onset.time, found.onset.why) == (
        "2030-03-17T17:46:40", "when the last log of a rank was written",
    )  # fmt: skip


def test_one_rank_that_runs_is_no_hang_by_itself(folder: Path) -> None:
    idle(folder, 3, ran=1)
    assert diagnose.diagnose(diagnose.load(folder)).verdict != "hung"


def test_who_collected_is_told_to_take_what_lacks_and_from_which_processes(folder: Path) -> None:
    idle(folder, 3)
    shell = [line for step in diagnose.diagnose(diagnose.load(folder)).remedies for run in step.run
             for line in run.lines if run.kind == "shell"]  # fmt: skip
    assert "pip install py-spy" in shell
    assert any("echo 100,101,102 |" in line for line in shell)
    assert not [line for line in shell if "diagnose collect" in line]


def test_a_node_that_reports_of_all_ranks_is_not_the_host_of_all() -> None:
    """RAS names all ranks on every node; where all are at one line, it is no lead."""
    job = diagnose.load(FIXTURES / "gpu-node-cut-off")
    assert job.ranks["host"].to_dict() == {rank: f"gpu-node-{rank}" for rank in range(4)}
    result = diagnose.diagnose(job)
    assert "Stack of the outlier rank" not in {one.why for one in result.evidence}
    assert [step.do for step in result.remedies if step.do.startswith("Start at")] == []
    assert result.onset.why == "no dump says when an operation began"
