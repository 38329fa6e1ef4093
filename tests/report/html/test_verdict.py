from dataclasses import replace

from diagnose.cost import span, standstill
from diagnose.report.html import page

from .jobs import fixture


def facts(name: str) -> dict[str, tuple[str, str]]:
    job, diagnosis = fixture(name)
    still = standstill(diagnosis, span(job.events)[1])
    return {fact.label: (fact.value, fact.note) for fact in page.first_facts(diagnosis, still)}


def test_facts_of_a_hang() -> None:
    assert facts("torchrun-missing-rank") == {
        "To blame": ("Rank 5: never reached the collective", "Rank 5 of 8 printed no timeout."),
        "Began": ("2 June 2026, 08:15:11", "The first watchdog line, minus the 601 s it waited."),
        "Hung for": ("11 min 3 s", "Until the last line of the logs, 08:26:14."),
        "Lost": ("At least 1.5 GPU-hours", "At least 8 ranks, one GPU each, from the onset."),
        "Phase": ("Training", ""),
        "Progress": ("Step 14 · 12 s a step", ""),
        "Restart": (
            "Restart the job",
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
    assert page.label(diagnosis) == "The job hung · medium confidence"


def test_a_hang_of_which_nothing_later_is_known_has_no_length() -> None:
    """Dumps alone: their last time is that of the last call, not the end of the hang."""
    assert {"Hung for", "Lost"}.isdisjoint(facts("flight-recorder-mismatch"))


def test_the_gpu_hours_of_a_stated_world_size_are_all() -> None:
    job, diagnosis = fixture("torchrun-missing-rank")
    stated = replace(diagnosis, job=replace(diagnosis.job, world_size=8))
    still = standstill(stated, span(job.events)[1])
    (lost,) = [fact for fact in page.first_facts(stated, still) if fact.label == "Lost"]
    assert (lost.value, lost.note) == ("1.5 GPU-hours", "8 ranks, one GPU each, from the onset.")
