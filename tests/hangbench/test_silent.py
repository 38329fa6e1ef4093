"""Track silent: what the made jobs show is what their truths say."""

import re
from collections import Counter
from datetime import datetime
from functools import cache
from itertools import pairwise

import pytest

from benchmarks.hangbench import silent
from benchmarks.hangbench.case import Case, Files
from benchmarks.hangbench.words.endings import ENDINGS
from benchmarks.hangbench.words.programs import PROGRAMS

STAMP = re.compile(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d|\d\d/\d\d/20\d\d \d\d:\d\d:\d\d")
PROGRESS = re.compile(
    r"step[ =:\[]|iter |iteration +\d|Epoch \[|train_inner|\[\d+\] grad|'loss'|Epoch\(train\)"
    r"|completed step|Train Epoch|Epoch \d+/|it/s|s/it|Train: \d|iter:"
)
NOT_PROGRESS = re.compile(
    r"heartbeat|alive;|logwatch|Liveness|checkpoint|at iteration \d|Training starts|from iteration"
    r"|shards:|Map |gradient acc|Total|next step|loop at step|compiling|Evaluating|validation"
)
MARKERS = ("injected", "culprit", "synthetic", "hangbench", "truth", "silent", "fault ")


@cache
def cases() -> list[tuple[Case, Files]]:
    return [made for seed in range(180) if (made := silent.make(seed))]


@cache
def many_labels() -> list[dict[str, str]]:
    more = [made[0].labels for seed in range(180, 460) if (made := silent.make(seed))]
    return [case.labels for case, _ in cases()] + more


def stamps(text: str) -> list[datetime]:
    """The time of each progress line."""
    found = []
    for line in text.splitlines():
        stamp = STAMP.search(line)
        if stamp and PROGRESS.search(line) and not NOT_PROGRESS.search(line):
            form = "%m/%d/%Y %H:%M:%S" if "/" in stamp[0] else "%Y-%m-%d %H:%M:%S"
            found.append(datetime.strptime(stamp[0].replace("T", " "), form))
    return sorted(found)


def lines_of(files: Files) -> str:
    return "\n".join(content.decode() for content in files.values())


@pytest.mark.slow
def test_a_seed_gives_one_case():
    for seed in range(20):
        assert silent.make(seed) == silent.make(seed)
    assert len({str(files) for _, files in cases()}) == len(cases())


def test_two_thirds_of_the_seeds_give_a_case_and_a_third_of_those_is_a_control():
    assert len(cases()) > 110
    controls = sum(case.labels["control"] != "no" for case, _ in cases())
    assert 0.33 < controls / len(cases()) < 0.6


def test_every_ending_and_every_program_occurs():
    endings = {labels["ending"] for labels in many_labels()}
    assert {one.name for one in ENDINGS} <= endings
    assert {"monitor", "watcher", "heartbeat", "probe", "nothing"} <= endings
    assert {one.name for one in PROGRAMS} == {labels["style"] for labels in many_labels()}


def test_every_control_and_kind_of_pause_occurs():
    assert {"worked", "cut", "pause", "pause cut"} <= {one["control"] for one in many_labels()}
    assert set(silent.PAUSES) <= {one["ending"] for one in many_labels()}


def test_the_onset_of_a_silence_of_all_is_the_time_of_the_last_progress():
    checked = 0
    for case, files in cases():
        if case.labels["who"] != "all" or case.truth.onset is None:
            continue
        last = stamps(lines_of(files))[-1]
        assert abs((last - datetime.fromisoformat(case.truth.onset)).total_seconds()) <= 1, case
        checked += 1
    assert checked > 15


def test_the_onset_of_one_rank_is_that_of_its_last_progress():
    checked = 0
    for case, files in cases():
        if case.labels["who"] != "one" or case.truth.onset is None or case.form != "files":
            continue
        rank = case.truth.culprits[0]
        own = [name for name in files if re.search(rf"(?:\D|^)0*{rank}(\.\w+|/\w+(\.\w+)?)$", name)]
        last = stamps("\n".join(files[name].decode() for name in own))[-1]
        assert abs((last - datetime.fromisoformat(case.truth.onset)).total_seconds()) <= 1, case
        checked += 1
    assert checked >= 3


def test_the_silence_is_long_against_the_interval():
    for case, files in cases():
        if case.labels["who"] != "all" or case.truth.onset is None:
            continue
        all_stamps = [
            datetime.fromisoformat(one.replace("T", " "))
            for one in STAMP.findall(lines_of(files))
            if "/" not in one
        ]
        onset = datetime.fromisoformat(case.truth.onset)
        times = stamps(lines_of(files))
        usual = max((b - a).total_seconds() for a, b in pairwise(times))
        if all_stamps and max(all_stamps) > onset:
            assert (max(all_stamps) - onset).total_seconds() > 10 * usual


def test_controls_have_no_gap_but_the_announced_pause():
    checked = 0
    for case, files in cases():
        control = case.labels["control"]
        times = stamps(lines_of(files))
        if control == "no" or len(times) < 8:
            continue
        gaps = sorted((b - a).total_seconds() for a, b in pairwise(times))
        steps = [gap for gap in gaps if gap > 1] or [1]
        usual = steps[len(steps) // 2]
        long = [gap for gap in gaps if gap > 3 * usual + 2]
        assert len(long) <= (1 if control.startswith("pause") else 0), (case, long, usual)
        checked += 1
    assert checked > 15


def test_truths_are_consistent():
    for case, _ in cases():
        truth = case.truth
        if truth.culprits:
            assert truth.determines != "none"
            assert set(truth.culprits) <= set(truth.suspects) <= set(range(case.world))
        else:
            assert truth.determines == "none"
        if case.labels["control"] != "no":
            assert "hung" not in truth.verdicts
        else:
            assert truth.verdicts[0] == "hung"


def test_nothing_tells_that_the_job_was_made():
    for case, files in cases():
        text = ("\n".join(files) + lines_of(files)).lower()
        assert not [word for word in MARKERS if word in text], case.id


@pytest.mark.parametrize("form", ["console", "files", "slurm", "kubectl", "ray", "torchrun"])
def test_each_form_of_evidence_occurs(form):
    assert Counter(case.form for case, _ in cases())[form] >= 4
