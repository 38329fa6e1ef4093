"""Track numeric: what the made jobs and the recorded runs show is what their truths say."""

from __future__ import annotations

import re
from functools import cache

import pytest

from benchmarks.hangbench import numeric
from benchmarks.hangbench.case import Case, Files
from benchmarks.hangbench.numeric.record import plans
from benchmarks.hangbench.real.tape import read_tape

_LOSS = re.compile(r"(?i)(?<![a-z]_)(?<!val )\bloss['\"]?[:= ]{1,2}'?(nan|inf|[\d.]+)")
_ASIDE = re.compile(r"eval|validation|val_")  # lines of an evaluation of nothing
MARKERS = ("injected", "culprit", "truth", "hangbench", "synthetic", "sitecustomize", "/tmp")


@cache
def cases() -> list[tuple[Case, Files]]:
    return [made for seed in range(400) if (made := numeric.make(seed))]


@cache
def runs() -> list[tuple[Case, Files]]:
    return [*read_tape(numeric.TAPE)]


def text_of(files: Files) -> str:
    return "\n".join(content.decode() for content in files.values())


def test_a_seed_gives_one_case() -> None:
    for seed in range(20):
        assert numeric.make(seed) == numeric.make(seed)


@pytest.mark.slow
def test_less_than_half_fail_and_every_kind_occurs() -> None:
    failing = [case for case, _ in cases() if case.labels["control"] == "no"]
    assert 0.33 < len(failing) / len(cases()) < 0.5
    assert {case.labels["kind"] for case, _ in cases()} >= {kind.name for kind in numeric.KINDS}


def test_a_failing_job_has_bad_values_from_its_step_on() -> None:
    shown = [
        (case, text_of(files))
        for case, files in cases()
        if case.labels["kind"] == "nan" and case.labels["style"] != "megatron"
    ]
    assert len(shown) > 5
    for case, text in shown:
        losses = re.findall(r"(?i)loss\W{1,6}(nan|[\d.]+)", text)
        assert losses[0] != "nan", case.id
        assert losses[-3:].count("nan") >= 2, case.id


def test_a_healthy_job_never_ends_with_a_bad_loss() -> None:
    for case, files in cases():
        if case.labels["control"] == "no":
            continue
        lines = [line for line in text_of(files).splitlines() if not _ASIDE.search(line)]
        losses = _LOSS.findall("\n".join(lines))
        assert not {"nan", "inf"} & {*losses[-1:]}, case.id


def test_the_tape_has_all_runs_and_says_nothing_of_the_recording() -> None:
    assert len(runs()) == len(plans())
    assert sum(case.labels["control"] == "no" for case, _ in runs()) == 30
    for case, files in runs():
        text = text_of(files).lower()
        assert not [word for word in MARKERS if word in text], case.id
