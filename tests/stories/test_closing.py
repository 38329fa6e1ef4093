"""What the last words of programs say that no signature knows."""

from __future__ import annotations

from typing import Any

import pytest

import diagnose
from diagnose.stories.closing import closing


def edges(make: Any, *lines: str, **more: Any) -> str | None:
    rows = [{"kind": "edge", "text": line, "line": n} | more for n, line in enumerate(lines, 1)]
    return closing(make(*rows))


@pytest.mark.parametrize(
    "line",
    [
        "End",
        "*** End of run ***",
        "All tasks completed.",
        "Job sweep4 complete",
        "Job ended at Thu Jun  4 10:00:00 UTC 2026",
        "End time: 2026-06-04 10:00:00",
        "solver exited without errors",
        " STOP Normal end of execution",
        "Elapsed time = 12.5 seconds",
        "Total wall clock time used: 812.4 s",
        "===== 12 passed in 3.21s =====",
        "100% tests passed, 0 tests failed out of 12",
        "训练完成",
    ],
)
def test_of_a_program_that_ended(make: Any, line: str) -> None:
    assert edges(make, "mesh is read", line) == "ended"


@pytest.mark.parametrize(
    "line",
    [
        "[RESULT]   Algo Bandwidth : 41.2 GB/s",
        "tokens :64, inference time:0.0215",
        "best val acc: 0.912",
        "Average latency: 12.3 us",
    ],
)
def test_of_a_program_that_measured(make: Any, line: str) -> None:
    assert edges(make, "mesh is read", line) == "measured"


@pytest.mark.parametrize(
    "line",
    [
        "Done",  # as the parts of a start say it, too
        "Success",
        "Loading the dataset is done",
        "Job 4 was not finished",
        "Job sweep4 ended with an error at 10:00:00",
        "All tests completed, 3 failed",
        "Waiting until all tasks are done",
        "Theoretical bandwidth: 41.2 GB/s",
        "Requested accuracy: 0.1",
        "available memory bandwidth: 41.2 GB/s",
        "time limit: 10:00:00",
    ],
)
def test_of_nothing(make: Any, line: str) -> None:
    assert edges(make, "mesh is read", line) is None


def test_below_it_stand_rules_and_notes_alone(make: Any) -> None:
    below = ["#####", "Note: some floating-point exceptions are signalling", "real\t1m2.3s"]
    assert edges(make, "End of run", *below) == "ended"
    assert edges(make, "End of run", *below, "next case: wing") is None


def test_each_rank_says_so_in_its_own_source(make: Any) -> None:
    rows = [
        {"kind": "edge", "text": text, "line": 1, "source": f"rank{rank}.log", "rank": rank}
        for rank, text in enumerate(["End of run", "assembling the matrix"])
    ]
    assert closing(make(*rows)) is None
    assert closing(make(rows[0], rows[1] | {"text": "End of run"})) == "ended"
    assert closing(make(rows[0], rows[1] | {"rank": None})) == "ended"


def test_its_author_calls_it_no_error(make: Any) -> None:
    assert edges(make, "mesh is read", "End of run", severity="error") is None


START = "reading the input\nassembling the matrix\n"


def verdict(log: str) -> tuple[str, str, str]:
    found = diagnose.diagnose(diagnose.load_text(log))
    (decided,) = [one for one in found.reasons if (one.step, one.outcome) == ("verdict", "decided")]
    return found.verdict, found.root_cause.confidence, decided.predicate


def test_a_job_without_a_failure_has_ended_by_them() -> None:
    assert verdict(START + "End of run\n") == ("healthy", "low", "last_words")
    assert verdict(START + "writing the field\n") == ("unknown", "low", "not_at_work")


def test_what_it_measured_shows_that_it_was_at_work() -> None:
    assert verdict(START + "Average latency: 12.3 us\n") == ("running", "low", "measured")


def test_they_absolve_no_error() -> None:
    died = "./solve.sh: line 7: 4242 Segmentation fault (core dumped) ./solve\n"
    assert verdict(START + died + "Job ended at Thu Jun  4 10:00:00 UTC 2026\n")[0] == "failed"
    missed = "sweep_4.sh: line 20: cp: cannot stat 'b0': No such file or directory\n"
    assert verdict(START + missed + "Job sweep4 complete\n")[0] != "healthy"
    assert verdict(START + missed + "Launcher: exited without errors\n")[0] != "healthy"


def test_a_server_that_shuts_down_on_request_has_not_failed() -> None:
    served = (
        "INFO:     Application startup complete.\n"
        'INFO:     10.0.0.7:56492 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    )
    stopped = "INFO 05-01 10:00:00 [launcher.py:101] Shutting down FastAPI HTTP server.\n"
    assert verdict(served + stopped)[0] == "healthy"
    fatal = "ERROR 05-01 10:00:00 [core.py:586] EngineCore encountered a fatal error.\n"
    assert verdict(served + fatal + stopped)[0] == "failed"


def test_a_program_whose_last_line_is_of_its_own_stack_is_not_at_work() -> None:
    steps = "".join(f"step {n} loss {9 - n}.5\n" for n in range(5))
    stack = "#0  app::print_stack(std::ostream&) at ??:?\n#1  main in /opt/app/bin/solve\n"
    assert verdict(steps)[0] == "running"
    assert verdict(steps + stack) == ("unknown", "low", "unexplained_error")
    assert verdict(steps + stack + steps.replace("step ", "step 1"))[0] == "running"
