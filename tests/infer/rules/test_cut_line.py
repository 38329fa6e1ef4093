"""Logs that break off in the middle of the message that says why."""

from __future__ import annotations

import pytest

import diagnose

STEP = "step 3 loss 2.0\n"


def told(text: str) -> diagnose.Diagnosis:
    return diagnose.diagnose(diagnose.load_text(text))


@pytest.mark.parametrize(
    ("last", "cause", "signature"),
    [
        ("RuntimeError: Gloo connectFullMesh fai", "net.socket", "torch.gloo.full-mesh"),
        (
            "[rank0]: RuntimeError: Expected to have finished reduction in the prior iter",
            "desync.conditional",
            "torch.ddp.unused-parameters",
        ),
    ],
)
def test_the_beginning_of_a_known_message_tells_its_cause(
    last: str, cause: str, signature: str
) -> None:
    found = told(STEP + last).root_cause
    assert (found.cause, found.signature) == (cause, signature)
    assert found.confidence != "high"
    assert found.summary.startswith("The log breaks off in the middle of a message: ")


@pytest.mark.parametrize(
    "last",
    [
        "RuntimeError: Gloo",  # too little
        '  File "/opt/torch/gloo/connectFullMesh failed wi',  # a place
        "RuntimeError: the quick brown fox jumps over the la",  # nobody's message
    ],
)
def test_what_is_too_short_or_a_place_or_unknown_tells_nothing(last: str) -> None:
    assert "breaks off" not in told(STEP + last).root_cause.summary


def test_only_the_last_line_can_be_cut() -> None:
    found = told("RuntimeError: Gloo connectFullMesh fai\n" + STEP).root_cause
    assert found.confidence == "low"  # its words suggest a class, and it proves none


def test_a_whole_message_above_it_is_believed() -> None:
    above = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    found = told(above + "RuntimeError: Gloo connectFullMesh fai").root_cause
    assert found.cause == "crash.gpu_oom"
