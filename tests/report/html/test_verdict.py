from diagnose.cost import span, standstill
from diagnose.report.html import verdict

from .jobs import fixture


def facts(name: str) -> dict[str, tuple[str, str]]:
    job, diagnosis = fixture(name)
    still = standstill(diagnosis, span(job.events)[1])
    return {fact.label: (fact.value, fact.note) for fact in verdict.facts(diagnosis, still)}


def test_facts_of_a_hang() -> None:
    assert facts("torchrun-missing-rank") == {
        "To blame": ("Rank 5: never reached the collective", "Rank 5 of 8 printed no timeout."),
        "Began": ("2 June 2026, 08:15:11", "The first watchdog line, minus the 601 s it waited."),
        "Hung for": ("11 min 3 s", "Until the last line of the logs, 08:26:14."),
        "Lost": ("1.5 GPU-hours", "8 ranks, one GPU each, from the onset."),
        "Phase": ("Training", ""),
        "Progress": ("Step 14 · 12 s a step", ""),
        "Restart": (
            "Restart unchanged",
            "Nothing argues against one retry with capture enabled; if it stops at the same point, "
            "do not retry again.",
        ),
        "Longer timeout": (
            "Unknown",
            "It helps only if the blocking rank was still making progress.",
        ),
    }


def test_a_healthy_job_lost_nothing() -> None:
    assert set(facts("healthy-transformers")) == {"Last phase"}


def test_an_unknown_onset_is_said() -> None:
    found = facts("mpi-segfault")
    assert found["Began"][0] == "Unknown"
    assert "Lost" not in found


def test_labels() -> None:
    _, diagnosis = fixture("torchrun-missing-rank")
    assert verdict.label(diagnosis) == "The job hung · medium confidence"
