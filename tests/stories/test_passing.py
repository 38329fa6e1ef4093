"""A failure has passed only when its own author is seen to go on."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import diagnose
from diagnose.infer.events.failures import done, failures, went_on
from diagnose.stories import passing
from diagnose.timeline.event import Event, Timeline
from tests.infer.rows import at, ended, matched, signature, step, stories_of

OOM = signature("t.oom", "crash.gpu_oom", culprit="self", strength="decisive")


def passed(timeline: Timeline) -> bool:
    return stories_of(timeline).survived(timeline.role("cause"))


def test_steps_of_other_ranks_are_no_recovery(make: Any) -> None:
    others = [step(number, rank=rank) for number in range(5, 50) for rank in (0, 1, 2)]
    timeline = make(step(4, rank=3), matched(OOM, rank=3), *others)
    assert not passed(timeline)
    assert len(failures(stories_of(timeline)).counted) == 1
    assert stories_of(timeline).doubtful(timeline.role("cause"))


def test_a_traceback_that_was_cut_is_not_caught_by_the_steps_of_others(tmp_path: Path) -> None:
    """Its frames may read as if somebody caught it; whoever prints steps would make more."""
    line = "[default{}]:2026-06-02 08:00:{:02},184 INFO step {}/12 loss 2.49\n"
    steps = "".join(line.format(rank, n, n) for n in range(1, 5) for rank in range(4))
    others = "".join(line.format(rank, n, n) for n in range(5, 9) for rank in (0, 2, 3))
    header = "[default1]:Traceback (most recent call last):\n"
    frame = '[default1]:  File "/home/user/train.py", line 148, in midway\n'
    code = '[default1]:    print(batch["labels"])\n'
    log = tmp_path / "console.log"
    log.write_text(steps + header + others + frame + code)
    assert diagnose.diagnose(diagnose.load(log)).verdict == "failed"


def test_further_steps_of_the_rank_itself_are(make: Any) -> None:
    assert passed(make(step(4, rank=3), matched(OOM, rank=3), step(5, rank=3)))
    assert not passed(make(step(4, rank=3), matched(OOM, rank=3), step(4, rank=3)))


def test_every_rank_that_failed_has_to_go_on(make: Any) -> None:
    timeline = make(
        matched(OOM, rank=3), matched(OOM, rank=4), *(step(n, rank=3) for n in range(5)),
    )  # fmt: skip
    assert not passed(timeline)
    stories = stories_of(timeline)
    assert [one for one in timeline.role("cause") if not stories.passed(one)] == [timeline.at(1)]


def test_an_error_of_a_phase_that_its_author_ended_well_has_passed(make: Any) -> None:
    """A communicator that is created shows that what NCCL warned of before did not prevent it."""
    driver = signature("t.driver", "env.version", culprit="self", strength="decisive", phase="init")
    warned = matched(driver, rank=1, phase="init")
    created = {"role": "context", "phase": "init", "ends_phase": True, "rank": 1}
    later = step(1)
    assert passed(make(warned, created, later))
    assert not passed(make(warned, created)), "nobody was seen at work since"
    assert not passed(make(created, warned, later)), "it came afterwards"
    assert not passed(make(warned, created | {"rank": 0}, later)), "another rank's proves nothing"
    assert not passed(make(matched(OOM, rank=1), created, later)), "an error of no phase"
    nobody = {"rank": None}
    assert not passed(make(warned | nobody, created | nobody, later)), "who knows whose"


def test_its_word_of_completion_absolves_a_decisive_error_only_after_work(make: Any) -> None:
    exits = {"signal": "finished", "rank": 3, "role": "context"}
    complete = {"kind": "phase", "phase": "shutdown", "rank": 3}
    worked = [step(4, rank=3), matched(OOM, rank=3), step(4, rank=3)]
    assert not passed(make(step(4, rank=3), matched(OOM, rank=3), complete))
    assert passed(make(*worked, complete))
    assert not passed(make(*worked, exits)), "it says so as it exits, well or not"


def test_a_rank_that_ended_must_count_on_to_have_recovered(make: Any) -> None:
    gone = ended(3, exitcode="1")
    assert not passed(make(step(4, rank=3), matched(OOM, rank=3), step(5, rank=3), gone))


@pytest.mark.parametrize(
    ("steps", "is_passed"),
    [([18, 18], False), ([18, 19], False), ([18, 19, 20], True), ([1, 90], True)],
)
def test_a_stream_without_ranks_must_count_on(make: Any, steps: list[int], is_passed: bool) -> None:
    assert passed(make(step(17), matched(OOM), *(step(n) for n in steps))) is is_passed


def test_a_stream_that_lost_one_of_its_writers_did_not_go_on(make: Any) -> None:
    before = [step(n, text=f"step {n} of {w}") for n in range(4) for w in range(3)]
    for writers, is_passed in ((2, False), (3, True)):
        after = [step(n, text=f"step {n} of {w}") for n in range(4, 40) for w in range(writers)]
        assert passed(make(*before, matched(OOM), *after)) is is_passed


def test_an_unsigned_failure_among_signed_steps_may_be_of_any_rank(make: Any) -> None:
    before = [step(1, rank=rank) for rank in (0, 1)]
    both = [step(n, rank=rank) for n in (2, 3) for rank in (0, 1)]
    assert passed(make(*before, matched(OOM), *both))
    assert not passed(make(*before, matched(OOM), *both[::2]))


def test_other_files_count_only_where_clocks_order_them(make: Any) -> None:
    failed = matched(OOM, rank=3, source="rank_3.err")
    later = [step(n, rank=3, source="rank_3.out") for n in (9, 10, 11)]
    assert not passed(make(failed, *later))
    timed = [row | {"time": at(f"08:0{n}")} for n, row in enumerate([failed, *later])]
    assert passed(make(*timed))


def test_completion_counts_if_it_is_the_ranks_own(make: Any) -> None:
    for rank, is_passed in ((None, False), (3, True), (0, False)):
        lost = matched(signature("t.lost", "net.storage"), rank=3)
        timeline = make(lost, {"kind": "phase", "phase": "shutdown", "rank": rank})
        assert passed(timeline) is is_passed


@pytest.mark.parametrize(
    ("rank", "line", "is_passed"), [(3, 12, True), (None, 12, True), (4, 12, False), (3, 90, False)]
)
def test_a_handlers_words_near_by_and_further_work_are_recovery(
    make: Any, rank: int | None, line: int, is_passed: bool
) -> None:
    failed = matched(OOM, rank=3, line=10)
    handled = {"signal": "handled", "role": "context", "rank": rank, "line": line}
    assert passed(make(failed, handled, step(5, rank=0, line=99))) is is_passed
    assert not passed(make(failed, handled)), "words alone are no work"


def done_of(timeline: Timeline) -> bool:
    return done(stories_of(timeline))


def test_a_job_is_done_when_all_who_tell_of_steps_are(make: Any) -> None:
    finished = {"signal": "finished", "role": "context"}
    assert done_of(make(step(1, rank=0), finished | {"rank": 0}))
    assert not done_of(make(step(1, rank=0), step(1, rank=1), finished | {"rank": 0}))
    assert done_of(make(step(1, rank=0), step(1, rank=1), finished))


def test_a_hint_at_a_silent_rank_passes_with_the_steps_of_others(make: Any) -> None:
    hint = matched(signature("t.weak", strength="weak"), rank=5)
    steps = [step(n, rank=0) for n in range(3)]
    assert went_on(stories_of(make(hint, *steps)))
    assert not went_on(stories_of(make(step(0, rank=5), hint, *steps)))


def test_a_silent_rank_is_spoken_for_by_the_few_that_print_steps_not_by_all_the_others(
    make: Any,
) -> None:
    lost = matched(signature("t.lost", "net.storage"), rank=3)
    for ranks, is_passed in (([0], True), ([0, 1, 2, 4], False)):
        others = [step(n, rank=rank) for n in range(20) for rank in ranks]
        assert passed(make(lost, *others)) is is_passed


@pytest.mark.parametrize("seed", range(20))
def test_whoever_fails_and_however_long_others_go_on_it_has_not_passed(
    make: Any, seed: int
) -> None:
    chance = random.Random(seed)
    ranks, victim = chance.randint(2, 9), chance.randrange(9)
    victim %= ranks
    rows = [step(n, rank=r) for n in range(chance.randint(1, 3)) for r in range(ranks)]
    rows.append(matched(OOM, rank=victim))
    others = [
        step(n, rank=r)
        for n in range(3, chance.randint(5, 60))
        for r in range(ranks)
        if r != victim and chance.random() < 0.9
    ]
    timeline = make(*rows, *others, {"signal": "finished", "rank": (victim + 1) % ranks})
    assert not passed(timeline)
    assert len(failures(stories_of(timeline)).counted)


def test_a_step_after_the_word_that_a_job_is_cancelled_takes_nothing_back() -> None:
    """Slurm waits for KillWait seconds between SIGTERM and SIGKILL, and the job works on."""
    cancelled = "slurmstepd-n1: error: *** JOB 5530 ON n1 CANCELLED AT 2024-06-02T18:42:45 ***"
    bars = [
        f" 61%|######    | {n}/3750 [4:00:0{n - 2300}<2:23:22,  5.96s/it]"
        for n in range(2301, 2306)
    ]
    lines = [*bars[:4], cancelled, bars[4]]
    found = diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))
    assert (found.verdict, found.root_cause.cause) == ("failed", "user.interrupt")


@pytest.mark.slow
def test_an_error_after_which_nobody_did_anything_is_judged_by_that_alone() -> None:
    judged = []
    for folder in sorted(path.parent for path in Path("fixtures").glob("*/expected.yaml")):
        deeds = stories_of(diagnose.load(folder).events).deeds
        for event in deeds.timeline.role("cause", "effect"):
            if event.signal != "waiting" and deeds.nothing_after(event):
                judged.append((passing.passed(event, deeds), passing._by_deeds(event, deeds)))
    assert len(judged) > 100
    assert all(at_once == looked_through for at_once, looked_through in judged)


@pytest.mark.parametrize("more", [{"time": None}, {"source": "b.log", "line": 1, "time": None}])
def test_what_may_have_come_after_an_error_keeps_it_from_being_the_last(
    make: Any, more: dict[str, Any]
) -> None:
    for rows, last in (
        ([matched(OOM, rank=3), step(5, rank=3, **more)], False),
        ([step(5, rank=3), matched(OOM, rank=3)], True),
        ([matched(OOM, rank=3)], True),
    ):
        timeline = make(*rows)
        (error,) = timeline.role("cause")
        assert stories_of(timeline).deeds.nothing_after(error) == last


def test_errors_that_passed_do_not_look_at_every_later_line(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With twice as many ranks that each count on below an error, no more than twice the work."""
    looks: list[int] = []
    source = Event.source

    def looked(ranks: int) -> int:
        rows = [step(n, rank=rank) for n in (1, 2) for rank in range(ranks)]
        rows += [matched(OOM, rank=rank, strength="strong") for rank in range(ranks)]
        rows += [step(n, rank=rank) for n in range(3, 15) for rank in range(ranks)]
        stories = stories_of(make(*rows))
        looks.clear()
        assert not failures(stories).counted
        return len(looks)

    counting = property(lambda event: looks.append(0) or source.__get__(event), source.__set__)
    monkeypatch.setattr(Event, "source", counting)
    assert looked(64) < 2.5 * looked(32)
