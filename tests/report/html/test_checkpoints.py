from diagnose.checkpoint.model import Checkpoint, Inspection, Resume
from diagnose.report.html import render
from diagnose.report.html.tables import MAX_REASONS, MAX_ROWS, checkpoints
from diagnose.report.safe import scrubber

from .jobs import pasted

SCRUB = scrubber(redact=True)


def one(step: int, state: str = "whole", *reasons: str) -> Checkpoint:
    path = f"/out/checkpoint-{step}"
    return Checkpoint(path, "HF Trainer", step, 8, state, list(reasons), 1200, 5 << 30)  # type: ignore[arg-type]


def test_rows_say_which_is_whole_and_which_to_resume_from() -> None:
    found = Inspection(
        [one(100), one(2000, "partial", "a.pt: is empty", "b.pt: is empty", "odd")],
        Resume("/out/checkpoint-100", 100, "--resume"),
    )
    whole, cut = checkpoints(found, SCRUB)
    assert (whole.name, whole.step, whole.files, whole.size) == (
        "checkpoint-100",
        "100",
        "1,200",
        "5.0 GiB",
    )
    assert (whole.state, whole.chosen, whole.reasons) == ("intact", True, [])
    assert (cut.state, cut.chosen) == ("incomplete", False)
    assert cut.reasons == ["a.pt, b.pt: is empty.", "odd."]


def test_both_lists_are_bounded() -> None:
    many = [one(step, "partial", *(f"reason {n}" for n in range(50))) for step in range(500)]
    rows = checkpoints(Inspection(many), SCRUB)
    assert [row.name for row in rows] == [
        f"checkpoint-{step}" for step in range(500 - MAX_ROWS, 500)
    ]
    assert len(rows[0].reasons) == MAX_REASONS + 1
    assert rows[0].reasons[-1] == "… and 44 more."


def test_without_checkpoints_there_is_no_section() -> None:
    assert checkpoints(None, SCRUB) == []
    job, diagnosis = pasted("step 1\n")
    assert 'id="checkpoints"' not in render(job, diagnosis)
    job.checkpoints = Inspection([one(1, "corrupt", "<b>a.pt</b>: cut")])
    page = render(job, diagnosis)
    assert 'href="#checkpoints"' in page
    assert '<li class="why">&lt;b&gt;a.pt&lt;/b&gt;: cut.</li>' in page
