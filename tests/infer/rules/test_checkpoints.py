"""A damaged checkpoint as the cause of a job that died while it loaded it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diagnose.checkpoint.model import Checkpoint, Inspection, State
from diagnose.infer.rules.base import Tier
from diagnose.infer.rules.checkpoints import propose

from ..rows import Row, context, matched, signature, step
from ..saved import of, trainer

LOADING = """\
[rank0]: Loading checkpoint from out/checkpoint-200
[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 3, in <module>
[rank0]:     main()
[rank0]: RuntimeError: out/checkpoint-200: the file is not what it should be
"""


def test_a_job_that_dies_over_a_damaged_checkpoint_dies_of_it(tmp_path: Path) -> None:
    trainer(tmp_path / "out", 100, 200)
    whole = of(tmp_path, LOADING)
    assert whole.root_cause.cause == "crash.exception"
    model = tmp_path / "out/checkpoint-200/model.safetensors"
    model.write_bytes(model.read_bytes()[:-100])
    found = of(tmp_path, LOADING)
    assert found.root_cause.cause == "checkpoint.partial"
    assert "model.safetensors" in found.root_cause.summary
    assert found.verdict == "failed"


def test_a_job_that_got_on_did_not_die_of_its_checkpoint(tmp_path: Path) -> None:
    trainer(tmp_path / "out", 100, 200)
    (tmp_path / "out/checkpoint-200/model.safetensors").write_bytes(b"")
    found = of(tmp_path, "{'loss': 1.0, 'epoch': 0.1, 'step': 250}\n" + LOADING)
    assert found.root_cause.cause == "crash.exception"


# --------------------------------------------------------------------------- of single events


ERROR = signature("t.error")
NAMING = matched(ERROR, text="cannot read out/checkpoint-200/model.safetensors")
LOADING_LINE: Row = {"signature": "checkpoint.saving.resume", "text": "Loading out/checkpoint-200"}


def inspected(state: State, path: str = "/run/out/checkpoint-200") -> Inspection:
    one = Checkpoint(path, "hf-trainer", 200, 4, state, ["model.safetensors: cut off"], 3, 9)
    return Inspection([one])


@pytest.mark.parametrize(
    ("rows", "state", "shown"),
    [
        ([NAMING], "partial", [0]),
        ([NAMING], "corrupt", [0]),
        ([NAMING], "whole", None),
        ([NAMING], "unknown", None),
        ([LOADING_LINE, matched(ERROR)], "corrupt", [0, 1]),
        ([matched(ERROR, text="cannot read the model")], "corrupt", None),
        ([step(1), NAMING], "corrupt", None),
        ([NAMING, step(1)], "corrupt", [0]),
        ([LOADING_LINE], "corrupt", None),  # nothing failed
    ],
)
def test_only_one_that_the_failure_or_the_load_names(
    make: Any, rows: list[Row], state: State, shown: list[int] | None
) -> None:
    found = [*propose(context(make(*rows), checkpoints=inspected(state)))]
    assert [one.rows for one in found] == ([] if shown is None else [shown])


def test_its_words(make: Any) -> None:
    (found,) = propose(context(make(NAMING), checkpoints=inspected("partial")))
    assert (found.cause, found.title) == ("checkpoint.partial", "Title of checkpoint.partial")
    assert (found.tier, found.inferred) == (Tier.LIKELY, True)
    assert found.summary == (
        "The job tried to load checkpoint-200, and checkpoint-200 is incomplete: "
        "model.safetensors: cut off"
    )


@pytest.mark.parametrize(("text", "named"), [("at out/step-5", True), ("at other/step-5", False)])
def test_a_short_name_needs_the_folder_before_it(make: Any, text: str, named: bool) -> None:
    seen = context(
        make(matched(ERROR, text=text)), checkpoints=inspected("corrupt", "/run/out/step-5/")
    )
    assert len([*propose(seen)]) == named


def test_without_checkpoints_nothing_is_proposed(make: Any) -> None:
    assert [*propose(context(make(NAMING)))] == []
