"""Track calm: what the made jobs show is what their truths say."""

import re
from functools import cache

import pytest

from benchmarks.hangbench import calm
from benchmarks.hangbench.calm.fatal import DIED, EXITS, RAISED
from benchmarks.hangbench.calm.harmless import HARMLESS
from benchmarks.hangbench.case import Case, Files
from benchmarks.hangbench.words.layouts import LAYOUTS

MARKERS = ("injected", "culprit", "truth", "hangbench", "synthetic", "harmless", "calm")


@cache
def cases() -> list[tuple[Case, Files]]:
    return [made for seed in range(300) if (made := calm.make(seed))]


@cache
def many() -> list[tuple[Case, Files]]:
    return cases() + [made for seed in range(300, 660) if (made := calm.make(seed))]


def deaths() -> list[tuple[Case, Files]]:
    return [(case, files) for case, files in cases() if case.labels["control"] == "no"]


def text_of(files: Files) -> str:
    return "\n".join(content.decode() for content in files.values())


@pytest.mark.slow
def test_a_seed_gives_one_case():
    for seed in range(20):
        assert calm.make(seed) == calm.make(seed)
    assert len({str(files) for _, files in cases()}) == len(cases())


def test_half_of_the_cases_are_healthy():
    assert len(cases()) > 270
    assert 0.4 < len(deaths()) / len(cases()) < 0.6


@pytest.mark.slow
def test_every_fatal_text_and_form_occurs():
    texts = {case.labels["text"] for case, _ in many()}
    words = {text.partition(": ")[2] for text in texts}
    for known in (RAISED, DIED, EXITS):
        missing = {getattr(one, "words", None) or one[0] for one in known} - words
        assert len(missing) <= len(known) // 5, missing
    forms = {case.labels["fatal"] for case, _ in many()}
    assert forms >= {
        "signed",
        "traceback",
        "logged",
        "json",
        "bare",
        "native",
        "launcher",
        "kernel",
    }


def test_there_are_many_harmless_texts_and_kinds_and_most_occur():
    assert len(HARMLESS) >= 80
    kinds = {one.kind for one in HARMLESS}
    assert len(kinds) >= 25
    assert len(kinds - {case.labels["text"] for case, _ in many()}) <= 3


def test_every_layout_order_and_ending_occurs():
    labels = [case.labels for case, _ in many()]
    assert {one["layout"] for one in labels} == {one.name for one in LAYOUTS}
    assert {one["buffered"] for one in labels} == {"direct", "buffered", "redraw"}
    assert {one["after"] for one in labels} == {"nothing", "agent", "complete", "silence"}
    assert {one["lines"] for one in labels} == {"1", "4"}


def _death_and_rest(case: Case, files: Files) -> tuple[str, list[str]] | None:
    """The prefix of the dead rank's lines, and its lines after the last of the fatal text."""
    rank = case.truth.culprits[0]
    prefix = {
        "template": f"[rank{rank}]: ",
        "tee": f"[default{rank}]:",
        "hydra": f"[{rank}] ",
        "compose": f"worker-{rank} ",
        "label": f"{rank:{len(str(case.world - 1))}d}: ",
    }.get(case.labels["layout"])
    if prefix is None or case.labels["fatal"] not in ("signed", "traceback"):
        return None
    own = [line for line in text_of(files).splitlines() if line.startswith(prefix)]
    starts = [place for place, line in enumerate(own) if "Traceback (most" in line]
    assert len(starts) == 1, case
    return prefix, own[starts[0] :]


def test_the_dead_rank_prints_nothing_more_unless_it_was_buffered_or_redrawn():
    checked = {"direct": 0, "buffered": 0, "redraw": 0}
    for case, files in many():
        found = _death_and_rest(case, files) if case.labels["control"] == "no" else None
        if not found:
            continue
        own = found[1]
        steps = [line for line in own if re.search(r"(step|iter)\D+\d|\d+/\d+ \[\d", line)]
        order = case.labels["buffered"]
        checked[order] += 1
        if order == "direct":
            assert not [line for line in steps if "File" not in line and "nan at" not in line], case
        elif order == "redraw":
            assert 1 <= len(steps) <= 2, case
    assert min(checked.values()) >= 2, checked


def test_buffered_output_of_a_rank_comes_whole_after_its_traceback():
    checked = 0
    for case, files in many():
        if case.labels["buffered"] != "buffered" or case.form != "files":
            continue
        rank = case.truth.culprits[0]
        own = next(
            content.decode()
            for name, content in files.items()
            if re.search(rf"(?:\D|^)0*{rank}(\.\w+|/\w+)$", name)
        )
        head = own[: own.index("Traceback (most recent")]
        assert not re.search(r"(step|iter)\D+\d|'loss'|Epoch \[|Train Epoch", head), case
        assert len(own.encode()) < 12_000
        checked += 1
    assert checked >= 2


def test_a_death_is_never_called_well_and_a_healthy_job_blames_nobody():
    for case, _ in cases():
        truth = case.truth
        if case.labels["control"] == "no":
            assert truth.verdicts[0] == "failed"
            assert not {"healthy", "running"} & set(truth.verdicts)
            assert len(truth.culprits) == 1
            assert set(truth.culprits) <= set(truth.suspects) <= set(range(case.world))
        else:
            assert set(truth.verdicts) <= {"healthy", "running"}
            assert truth.determines == "none"
            assert not truth.culprits


def test_the_rank_is_determined_only_where_the_files_name_it():
    for case, files in deaths():
        if case.truth.determines != "rank":
            continue
        rank = case.truth.culprits[0]
        shown = "\n".join(files) + text_of(files)
        assert re.search(rf"(?<!\d)0*{rank}(?!\d)", shown), case


def test_a_healthy_job_works_on_after_its_frightening_line():
    for case, files in cases():
        if case.labels["control"] == "no" or len(files) > 1:
            continue
        numbers = [int(one) for one in re.findall(r"step[ :=]+(\d+)", text_of(files))]
        if len(numbers) > 30:
            assert numbers[-1] > numbers[0]


def test_nothing_tells_that_the_job_was_made():
    for case, files in cases():
        text = ("\n".join(files) + text_of(files)).lower()
        assert not [word for word in MARKERS if word in text], case.id
