"""What a slow rank and a slowdown make of a verdict: the job works, whoever is slow."""

from __future__ import annotations

from pathlib import Path

import pytest

import diagnose
from diagnose.diagnosis import Diagnosis

BEGIN = "2026-06-02 08:00:00,000 [rank{0}] INFO train: rank {0} of world size 4: training 200 steps"
STEP = (
    "2026-06-02 08:{1:02d}:{2:02d},{0}00 [rank{0}] INFO train: step {3}/200 loss=2.1 "
    "data_time={4:.3f} fwd={5:.3f} allreduce={6:.3f} step_time={7:.3f}"
)


def lines(slow: int | None, since: int = 0, *, data: bool = False, whole: float = 1.0) -> str:
    """A log of four ranks, of which one may be slow from a step on."""
    text = [BEGIN.format(rank) for rank in range(4)]
    for step in range(1, 61):
        late = slow is not None and step >= since
        grown = whole if step >= since else 1.0
        for rank in range(4):
            mine = late and rank == slow
            own = [0.05 + 0.5 * (mine and data), (0.2 + 0.3 * (mine and not data)) * grown]
            longest = 0.3 * grown + (0.5 if late and data else 0.3 if late else 0.0)
            wait = longest - sum(own)
            at = 10 * step
            row = STEP.format(rank, at // 60, at % 60, step, *own, wait, longest)
            text.append(row)
    return "\n".join(text) + "\n"


def diagnosed(folder: Path, text: str) -> Diagnosis:
    (folder / "train.log").write_text(text, encoding="utf-8")
    return diagnose.diagnose(diagnose.load([folder]))


def test_a_slow_rank_is_named_and_the_job_still_runs(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, lines(2, since=31))
    assert found.verdict == "running"
    assert (found.root_cause.cause, found.root_cause.confidence) == ("slow.straggler", "medium")
    assert found.root_cause.title == "Rank 2 is slower than its peers"
    assert found.root_cause.summary == (
        "Rank 2 needs 2.5 x as long as its peers for its forward pass since step 31 "
        "(500 ms, 200 ms). All wait for that: a step takes 2.0 x as long as without it. "
        "Since step 31 a step takes 600 ms, 2.0 x as long as the 300 ms before."
    )
    assert (found.culprits.ranks, found.culprits.kind) == ([2], "slow")
    assert found.progress is not None
    assert found.progress.seconds_a_step == 0.6
    assert found.progress.earlier_seconds_a_step == 0.3
    assert found.evidence[0].text.startswith("2026-06-02 08:10:00,200 [rank2]")
    reasons = [(one.step, one.outcome, one.predicate) for one in found.reasons]
    assert ("verdict", "decided", "at_work_at_end") in reasons
    assert ("culprits", "named", "slow_own_work") in reasons


def test_a_rank_that_waits_for_its_data_has_a_slow_loader(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, lines(1, data=True))
    assert (found.verdict, found.root_cause.cause) == ("running", "data.loader")
    assert found.culprits.ranks == [1]
    assert not any("timeout" in step.do for step in found.remedies)


def test_a_job_that_became_slower_names_nobody(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, lines(None, since=41, whole=3.0))
    assert (found.verdict, found.root_cause.cause) == ("running", "none")
    assert found.root_cause.title == "Steps take 3.0 x as long since step 41"
    assert [step.do.split(",")[0] for step in found.remedies][:3] == [
        "Compare what the nodes do since then with before",
        "Print the times of the parts of a step on each rank",
        "See whether it still makes steps.",
    ]
    assert found.culprits.ranks == []
    assert ("verdict", "won", "slower_since") in [
        (one.step, one.outcome, one.predicate) for one in found.reasons
    ]


def test_an_even_job_is_as_it_was(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, lines(None))
    assert (found.verdict, found.root_cause.cause) == ("running", "none")
    assert "slow" not in found.root_cause.title


def test_a_job_that_died_keeps_its_cause(tmp_path: Path) -> None:
    error = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    found = diagnosed(tmp_path, lines(2) + error + "\n")
    assert (found.verdict, found.root_cause.cause) == ("failed", "crash.gpu_oom")
    assert found.culprits.ranks == [0]


def test_what_else_is_reported_of_its_node_is_the_cause(tmp_path: Path) -> None:
    hot = "2026-06-02 08:04:00,000 [rank2] WARNING monitor: HW Thermal Slowdown    : Active"
    found = diagnosed(tmp_path, lines(2) + hot + "\n" + lines(2).splitlines()[-4] + "\n")
    assert found.culprits.ranks == [2]
    assert found.root_cause.cause == "slow.straggler"


@pytest.mark.parametrize("name", ["gpu.log", "nvidia-smi.csv"])
def test_gpus_that_were_watched_say_which_is_held_down(tmp_path: Path, name: str) -> None:
    head = "timestamp, index, clocks.current.sm [MHz], clocks_event_reasons.hw_thermal_slowdown"
    rows = [
        f"2026/06/02 08:{at:02d}:00.000, {gpu}, {'700' if gpu == 2 else '1980'} MHz, "
        f"{'Active' if gpu == 2 else 'Not Active'}"
        for at in range(10)
        for gpu in range(4)
    ]
    (tmp_path / name).write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    found = diagnosed(tmp_path, lines(2))
    assert (found.root_cause.cause, found.root_cause.confidence) == ("slow.straggler", "medium")
    assert "holds GPU 2 at 700 MHz; others run at 1,980 MHz" in found.root_cause.summary


def test_a_detector_that_names_the_same_rank_again_and_again_is_a_lead(tmp_path: Path) -> None:
    step = "2026-06-02 08:{0:02d}:00,000 [rank0] INFO train: step {1}/1000 loss=2.1"
    warning = (
        "STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. "
        "Affected ranks: Rank={0} Node=node7 Score=0.52"
    )
    for named, ranks in (((13, 13, 13), [13]), ((13, 2, 13), []), ((13, 13), [])):
        text = [step.format(at, 10 * at) for at in range(1, 31)]
        for number, rank in enumerate(named, 1):
            text.insert(9 * number, warning.format(rank))
        found = diagnosed(tmp_path, "\n".join(text) + "\n")
        assert (found.verdict, found.culprits.ranks) == ("running", ranks)
        assert found.root_cause.cause == ("slow.straggler" if ranks else "none")
