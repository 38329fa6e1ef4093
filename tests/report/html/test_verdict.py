from diagnose.report.html import verdict
from diagnose.report.html.events import prepare

from .jobs import fixture


def facts(name: str) -> dict[str, tuple[str, str]]:
    job, diagnosis = fixture(name)
    still = verdict.standstill(diagnosis, prepare(job, diagnosis.onset.time))
    return {fact.label: (fact.value, fact.note) for fact in verdict.facts(diagnosis, still)}


def test_facts_of_a_hang() -> None:
    assert facts("torchrun-missing-rank") == {
        "To blame": ("Rank 5: never joined", "Rank 5 of 8 printed no timeout."),
        "Began": ("2 June 2026, 08:15:11", "The first watchdog line, minus the 601 s it waited."),
        "Stood still": ("11 min 3 s", "Until the last line of the failure, 08:26:14."),
        "Lost": ("1.5 GPU-hours", "8 ranks, one GPU each, from the onset on."),
        "Phase": ("Training", ""),
        "Restart": (
            "Restart as it is",
            "Nothing known speaks against one retry with capturing switched on; if it stops at "
            "the same place, do not retry again.",
        ),
        "Longer timeout": ("No", "Waiting longer would not change the end."),
    }


def test_a_healthy_job_lost_nothing() -> None:
    assert set(facts("healthy-transformers")) == {"Last phase"}


def test_an_unknown_onset_is_said() -> None:
    found = facts("two-hosts-collate-error")
    assert found["Began"][0] == "Not known"
    assert "Lost" not in found


def test_labels() -> None:
    _, diagnosis = fixture("torchrun-missing-rank")
    assert verdict.label(diagnosis) == "The job hung · medium confidence"
