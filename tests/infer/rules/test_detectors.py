"""What detectors conclude beside the logs, and beside each other."""

from __future__ import annotations

from pathlib import Path

import diagnose
from diagnose.diagnosis import Diagnosis
from diagnose.formats.detector_rows import written

TOOLS = written()
STEPS = "".join(
    f"2026-02-03 04:0{step // 10}:{step % 10}0 [INFO] [rank0] step {step}/60 loss: 1.{step}\n"
    for step in range(60)
)
WATCHDOG = (
    "[rank3]:[E203 04:15:00.1 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, "
    "Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
)
NODE_DOWN = "2026-02-03T04:06:00 slurmctld: error: Nodes node-7 not responding, setting DOWN\n"


def judged(folder: Path, logs: dict[str, str], *samples: tuple[str, int]) -> Diagnosis:
    found = [(tool, TOOLS[tool]["samples"][number]) for tool, number in samples]
    files = logs | {one.get("file", f"{tool}.log"): one["text"] for tool, one in found}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return diagnose.diagnose(diagnose.load(folder))


def test_a_claim_alone_is_of_medium_confidence(tmp_path: Path) -> None:
    result = judged(tmp_path, {"job.log": WATCHDOG}, ("nvsentinel", 0))
    assert (result.root_cause.cause, result.root_cause.confidence) == ("hw.gpu", "medium")
    assert result.culprits.hosts == ["node-7"]


def test_logs_that_agree_make_it_high(tmp_path: Path) -> None:
    logs = {"slurmctld.log": NODE_DOWN}
    assert judged(tmp_path / "logs", logs).root_cause.confidence == "medium"
    result = judged(tmp_path / "both", logs, ("npd", 3))
    assert (result.root_cause.cause, result.root_cause.confidence) == ("hw.node", "high")
    assert result.culprits.hosts == ["node-7"]


def test_detectors_that_disagree_are_both_shown(tmp_path: Path) -> None:
    result = judged(tmp_path, {}, ("nvsentinel", 0), ("megascale", 0))
    assert result.root_cause.summary.endswith(
        "Detectors disagree: NVSentinel blames node-7; Megascale's hang digest blames tpu-host-3."
    )
    assert result.root_cause.confidence == "low"
    assert result.culprits.hosts == ["node-7", "tpu-host-3"]


def test_one_detector_may_blame_several(tmp_path: Path) -> None:
    result = judged(tmp_path, {}, ("megascale", 1))
    assert result.culprits.hosts == ["tpu-host-3", "tpu-host-5"]
    assert result.root_cause.confidence == "medium"


def test_faults_of_other_hosts_of_a_cluster_are_a_note(tmp_path: Path) -> None:
    log = "srun: error: node-1: task 3: Killed\n"
    result = judged(tmp_path, {"job.log": log}, ("nvsentinel", 0))
    assert result.culprits.hosts == ["node-1"]
    assert result.notes == [
        "NVSentinel reports faults of hosts that these logs do not name: node-7"
    ]


def test_a_slow_rank_is_no_failure_of_a_job_at_work(tmp_path: Path) -> None:
    result = judged(tmp_path, {"job.log": STEPS}, ("traceml", 0))
    assert (result.verdict, result.notes) == (
        "running",
        ["TraceML of rank 2: Rank 2 waits for input."],
    )


def test_a_report_that_nothing_is_wrong_changes_no_verdict(tmp_path: Path) -> None:
    done = STEPS + "2026-02-03 04:20:00 [INFO] Training completed.\n"
    reports = {
        f"{name}/{one['file']}": one["text"]
        for name, tool in TOOLS.items()
        for one in tool["refused"]
        if isinstance(one, dict)
    }
    assert judged(tmp_path / "well", {"job.log": done, **reports}).verdict == "healthy"
    assert judged(tmp_path / "on", {"job.log": STEPS, **reports}).verdict == "running"
