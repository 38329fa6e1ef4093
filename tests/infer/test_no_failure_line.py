"""What a job that prints no failure shows all the same."""

from __future__ import annotations

from pathlib import Path

import diagnose
from tests.infer.rules.test_node_signs import MOVING, bundle
from tests.parse.test_ras import text as as_text
from tests.parse.test_ras_several import as_json


def test_busy_processes_are_not_at_work_where_no_counter_moves(tmp_path: Path) -> None:
    """Who waits for its GPU spins, as in a real job whose kernel never ended."""
    assert bundle(tmp_path, {}, samples=MOVING).verdict == "running"
    for number, second in enumerate((35, 45), 1):
        (tmp_path / f"ncclras-{number}.json").write_text(as_json(second, [17] * 4))
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert found.verdict != "running"
    (tmp_path / "ncclras-2.json").write_text(as_json(45, [18] * 4))
    assert diagnose.diagnose(diagnose.load(tmp_path)).verdict == "running"


_PRINTED = """\
Current thread 0x00007f59897c3b80 (most recent call first):
  File "/usr/lib/python3.11/subprocess.py", line 2004 in _try_wait
  File "/usr/lib/python3.11/subprocess.py", line 550 in run
  File "/workspace/train.py", line 23 in work
  File "<string>", line 1 in <module>
Current thread 0x00007f9175092b80 (most recent call first):
  File "/usr/lib/python3.11/multiprocessing/connection.py", line 250 in recv
  File "/workspace/train.py", line 22 in work
  File "<string>", line 1 in <module>
"""


def test_stacks_that_processes_of_one_console_printed_last_show_a_hang() -> None:
    """Somebody asked all of them where they stand, and no step came after."""
    found = diagnose.diagnose(diagnose.load_text(STEPS + _PRINTED))
    assert found.verdict == "hung"
    assert any("the stacks that processes printed last" in str(one) for one in found.reasons)
    went_on = STEPS.replace(" 16:", " 17:")
    passed = diagnose.diagnose(diagnose.load_text(STEPS + _PRINTED + went_on))
    assert passed.verdict == "running"


STEPS = "".join(f"2026-11-21 16:0{n}:00,100 INFO step {n} loss 2.{n}\n" for n in range(6))


def test_who_is_asked_whether_a_job_hangs_cannot_tell_where_all_have_launched_as_much(
    tmp_path: Path,
) -> None:
    """Devices that hang look like devices at work to RAS, and the log of a job that hangs ends."""
    (tmp_path / "train.log").write_text(STEPS)
    assert diagnose.diagnose(diagnose.load(tmp_path)).verdict == "running"
    for number in (1, 2):
        (tmp_path / f"ncclras-{number}.txt").write_text(as_text("", errors="OK"))
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert (found.verdict, found.root_cause.cause) == ("unknown", "unknown")
    assert "only_glanced" in {reason.predicate for reason in found.reasons}
    asked = f"2026-11-21 16:03:30\n{as_text('', errors='OK')}"
    (tmp_path / "ncclras-1.txt").unlink()
    (tmp_path / "ncclras-2.txt").write_text(asked)
    assert diagnose.diagnose(diagnose.load(tmp_path)).verdict == "running", "it went on since"


def test_beside_steps_all_ranks_at_one_line_are_in_a_step_or_in_a_wait(tmp_path: Path) -> None:
    stack = (
        "Process {pid}: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
        'Thread {pid} (idle): "MainThread"\n    pause (train.py:12)\n    <module> (train.py:40)\n'
    )
    for rank in range(2):
        (tmp_path / f"stacks_rank_{rank}.txt").write_text(stack.format(pid=90 + rank))
    assert diagnose.diagnose(diagnose.load(tmp_path)).verdict == "hung"
    (tmp_path / "train.log").write_text(STEPS)
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert (found.verdict, found.reasons[0].predicate) == ("unknown", "one_look")


def test_a_rank_amid_its_work_speaks_against_the_end_of_the_job(tmp_path: Path) -> None:
    """One rank may say that it finished, under no name, and another hang for it."""
    (tmp_path / "job.log").write_text(f"{STEPS}2026-11-21 16:07:00 training finished\n")
    assert diagnose.diagnose(diagnose.load(tmp_path)).verdict == "healthy"
    stack = (
        "Process 90: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
        'Thread 90 (active): "MainThread"\n    {inner}\n    <module> (train.py:40)\n'
    )
    file = tmp_path / "rank0.stack"
    file.write_text(stack.format(inner="log_step (metrics.py:31)"))
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert (found.verdict, found.reasons[0].predicate) == ("unknown", "seen_in_its_work")
    assert found.culprits.ranks == []
    ending = "destroy_process_group (torch/distributed/distributed_c10d.py:2127)"
    file.write_text(stack.format(inner=ending))
    assert diagnose.diagnose(diagnose.load(tmp_path)).verdict == "healthy"
