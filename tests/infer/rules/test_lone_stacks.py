"""Stacks of processes whose ranks nothing tells."""

from __future__ import annotations

import pytest

import diagnose


def told(*frames: str) -> diagnose.Diagnosis:
    head = 'Thread 0x7FA6E7C01740 (idle): "MainThread"'
    return diagnose.diagnose(diagnose.load_text("\n".join([head, *frames]) + "\n"))


@pytest.mark.parametrize(
    ("frame", "cause"),
    [
        ("    __next__ (torch/utils/data/dataloader.py:648)", "data.loader"),
        ("    __next__ (acme/data/iterators.py:648)", "data.loader"),
        ("    save_file (safetensors/torch.py:286)", "slow.storage"),
    ],
)
def test_what_the_process_is_busy_with_is_a_lead(frame: str, cause: str) -> None:
    result = told(
        "    wait (threading.py:302)", "    get (queue.py:170)", frame, "    main (t.py:1)"
    )
    assert (result.verdict, result.root_cause.cause) == ("hung", cause)
    assert result.root_cause.confidence == "low"
    assert result.culprits.ranks == []


def test_who_only_waits_or_computes_shows_nothing() -> None:
    assert (
        told("    all_reduce (torch/distributed/distributed_c10d.py:2)").root_cause.cause
        == "unknown"
    )
    assert told("    forward (model.py:2)", "    main (t.py:1)").root_cause.cause == "unknown"
