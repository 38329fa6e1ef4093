"""What detectors conclude beside the logs, and beside each other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import diagnose
from diagnose.diagnosis import Diagnosis
from diagnose.formats.detector_rows import written

FIXTURES = Path(__file__).parents[3] / "fixtures"
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
HANGS = ("accl", "megascale", "ncclx", "ray-train", "torchcomms")
FAULTS = [
    pytest.param(name, number, id=f"{name}-{number}")
    for name, tool in TOOLS.items()
    for number, sample in enumerate(tool["samples"])
    if name not in HANGS and "row" in sample
]
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


def watchdogs(*ranks: int) -> str:
    return "world_size: 8\n" + "".join(
        WATCHDOG.replace("rank3", f"rank{rank}").replace("Rank 3", f"Rank {rank}") for rank in ranks
    )


def test_where_a_detector_and_the_logs_disagree_both_are_shown(tmp_path: Path) -> None:
    """NVRx blames ranks 3 and 5, which wait by the logs; that rank 2 is silent is no proof."""
    result = judged(tmp_path, {"job.log": watchdogs(0, 1, 3, 4, 5, 6, 7)}, ("nvrx", 0))
    assert result.root_cause.summary.endswith(
        "Analyses disagree: the logs blame rank 2; NVRx attribution blames ranks 3, 5."
    )
    assert (result.root_cause.confidence, result.culprits.ranks) == ("low", [])
    assert {one.source for one in result.evidence} == {"job.log", "nvrx.log"}


def test_what_the_logs_observe_outweighs_a_detector(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    shutil.copytree(FIXTURES / "flight-recorder-mismatch", folder)
    result = judged(folder, {"nvrx.log": "INFO fr_attribution: hanging ranks: [5, 6]\n"})
    assert (result.root_cause.cause, result.root_cause.confidence) == ("desync.mismatch", "high")
    assert result.culprits.ranks == [3]
    assert "the logs blame rank 3; NVRx attribution blames ranks 5-6" in result.root_cause.summary


def test_logs_that_blame_one_of_those_a_detector_does_are_no_contradiction(tmp_path: Path) -> None:
    result = judged(tmp_path, {"job.log": watchdogs(0, 1, 2, 4, 5, 6, 7)}, ("nvrx", 0))
    assert "disagree" not in result.root_cause.summary


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


@pytest.mark.parametrize(("tool", "number"), FAULTS)
def test_a_fault_beside_work_is_a_note(tool: str, number: int, tmp_path: Path) -> None:
    later = STEPS.replace(" 04:", " 05:")  # the samples state 04:05 or no time
    result = judged(tmp_path / "on", {"job.log": later}, (tool, number))
    assert (result.verdict, result.culprits.hosts) == ("running", [])
    done = later + "2026-02-03 05:20:00 [INFO] Training completed.\n"
    result = judged(tmp_path / "well", {"job.log": done}, (tool, number))
    assert (result.verdict, result.culprits.hosts) == ("healthy", [])
    assert result.notes


def test_a_fault_after_all_work_is_a_failure(tmp_path: Path) -> None:
    earlier = STEPS.replace(" 04:", " 03:")
    result = judged(tmp_path, {"job.log": earlier}, ("gpud", 0))
    assert (result.verdict, result.root_cause.cause) == ("failed", "hw.gpu")
    assert result.culprits.hosts == ["node-7"]


def test_what_an_epilog_prints_of_an_old_fault_is_a_note(tmp_path: Path) -> None:
    log = STEPS.replace(" 04:", " 05:") + TOOLS["slurm"]["samples"][2]["text"]
    result = judged(tmp_path, {"job.log": log})
    assert (result.verdict, result.culprits.hosts) == ("running", [])


def test_a_hang_stated_without_a_time_is_a_hang_of_a_job_that_did_not_end(tmp_path: Path) -> None:
    result = judged(tmp_path / "on", {"job.log": STEPS}, ("megascale", 1))
    assert (result.verdict, result.root_cause.cause) == ("hung", "hw.gpu")
    done = STEPS + "2026-02-03 04:20:00 [INFO] Training completed.\n"
    assert judged(tmp_path / "well", {"job.log": done}, ("megascale", 1)).verdict == "healthy"


def test_drained_nodes_are_no_cause_where_the_logs_name_no_host(tmp_path: Path) -> None:
    log = STEPS.replace(" 04:", " 05:") + WATCHDOG.replace(" 04:", " 05:")
    alone = judged(tmp_path / "alone", {"job.log": log})
    for number in range(6):
        result = judged(tmp_path / str(number), {"job.log": log}, ("slurm", number))
        assert result.root_cause.cause == alone.root_cause.cause
        assert result.culprits == alone.culprits
        assert result.notes == ["Slurm reports faults of hosts that these logs do not name: node-7"]


def test_a_fault_of_another_day_is_no_cause(tmp_path: Path) -> None:
    log = WATCHDOG.replace("0203", "0213").replace("E203", "E0213")
    old = judged(tmp_path, {"job.log": STEPS.replace("02-03", "02-13") + log}, ("gpud", 0))
    assert old.root_cause.cause != "hw.gpu"
    (note,) = [one for one in old.notes if one.startswith("gpud of node-7")]
    assert note.endswith("(at another time than the job)")


def test_processes_of_a_job_that_ended_are_dead_for_ras(tmp_path: Path) -> None:
    done = STEPS + "2026-02-03 04:20:00 [INFO] Training completed.\n"
    for number in (0, 2, 5):
        sample = TOOLS["ncclras"]["samples"][number]["text"].replace(" 04:0", " 04:2")
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "job.log").write_text(done)
        (folder / "ras.log").write_text(sample)
        assert diagnose.diagnose(diagnose.load(folder)).verdict == "healthy"


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ("Traceback (most recent call last):\n  File \"/app/train.py\", line 8, in <module>\n"
         "    main()\nValueError: too many values to unpack (expected 2)\n", "crash.exception"),
        ("slurmstepd: error: *** STEP 4711.0 ON node-1 CANCELLED AT 2026-02-03T05:20:10 DUE TO "
         "TIME LIMIT ***\n", "scheduler.limit"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("tool", "number"), [("dcgm", 0), ("hyperpod", 3), ("nvrx", 2)])
def test_a_fault_that_nobody_dates_is_no_rival_of_what_the_log_states(
    tool: str, number: int, end: str, cause: str, tmp_path: Path
) -> None:
    result = judged(tmp_path, {"job.log": STEPS.replace(" 04:", " 05:") + end}, (tool, number))
    assert (result.root_cause.cause, result.culprits.hosts) == (cause, [])


@pytest.mark.parametrize("nodes", ["node-[6-8]", "node-[1,7]", "node-7.example.org"])
def test_nodes_that_slurm_lists_together_are_those_of_the_job(nodes: str, tmp_path: Path) -> None:
    log = "srun: error: node-7: task 3: Exited with exit code 1\n"
    reason = f"GPU 3 Xid 79         root      2026-02-03T04:05:06 {nodes}\n"
    result = judged(tmp_path, {"job.log": log, "sinfo.txt": reason})
    assert result.root_cause.cause == "hw.gpu"
    assert [one.partition(".")[0] for one in result.culprits.hosts] == ["node-7"]


def test_a_faulty_gpu_explains_no_dumps_of_different_calls(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    shutil.copytree(FIXTURES / "flight-recorder-mismatch", folder)
    result = judged(folder, {}, ("dcgm", 0))
    assert (result.root_cause.cause, result.culprits.ranks) == ("desync.mismatch", [3])
