"""When a job is said to stall, to recover and to have ended: by simulated logs."""

from __future__ import annotations

import pytest

from diagnose.watch.notice import Who
from diagnose.watch.pulse import GIVEN_UP_S, QUIET_S, State
from tests.watch.simulated import Simulated

TRAINING = "***** Running training *****"
SAVE = "Saving model checkpoint to out/checkpoint-1"
EVALUATION = "***** Running Evaluation *****"


@pytest.mark.parametrize("beat", [0.1, 1.0, 20.0])
def test_training_stops(beat: float) -> None:
    job = Simulated()
    job.say(TRAINING)
    job.steps(1, 40, beat)
    assert job.what() == []
    assert job.pulse.state is State.RUNNING
    assert job.until_stall(1000) <= 6 * beat + 2
    stall = job.changes[-1].stall
    assert stall is not None
    assert (stall.number, stall.phase, stall.whole, stall.old) == (1, "training", True, False)
    assert stall.limit.heartbeat == pytest.approx(beat, rel=0.3)
    assert job.pulse.state is State.STALLED


def test_a_short_silence_of_fast_steps_is_no_stall() -> None:
    job = Simulated(min_silence=30.0)
    job.steps(1, 200, 0.05)
    job.wait(20)
    job.steps(201, 300, 0.05)
    assert job.what() == []
    assert 30 <= job.until_stall(1000) <= 32


def test_a_stall_is_reported_once_and_so_is_its_end() -> None:
    job = Simulated()
    job.steps(1, 20)
    job.wait(100)
    job.steps(21, 30)
    assert job.what() == ["stalled", "recovered"]
    assert job.changes[-1].seconds == pytest.approx(101)
    assert job.pulse.stalls == 1


def test_a_pause_that_was_survived_is_none_the_next_time() -> None:
    job = Simulated()
    job.steps(1, 20)
    job.wait(30)
    job.steps(21, 40)
    job.wait(40)
    job.steps(41, 50)
    assert job.what() == ["stalled", "recovered"]


def test_steps_that_vary_raise_no_alarm() -> None:
    job = Simulated()
    for step in range(1, 200):
        job.steps(step, step, 1.0 + 2.0 * (step % 7 == 0) + 0.5 * (step % 3))
    assert job.what() == []


def test_the_first_step_has_grace() -> None:
    job = Simulated()
    job.say(TRAINING)
    job.wait(530)
    job.steps(1, 3, 60)  # and the next ones compile, too
    job.steps(4, 30)
    assert job.what() == []
    assert job.until_stall(20) <= 6 * 1 + 2


def test_a_job_that_never_begins_stalls_after_the_grace() -> None:
    job = Simulated(grace=30)
    job.say("Loading weights from disk")
    assert job.until_stall(60) == pytest.approx(31, abs=0.5)
    assert job.changes[-1].stall is not None
    assert job.changes[-1].stall.limit.heartbeat is None


def test_new_words_are_signs_of_life_before_training_and_old_ones_are_not() -> None:
    job = Simulated(grace=30)
    for name in ("tokenizer", "weights", "optimizer", "schedule"):
        job.say(f"preparing the {name}")
        job.wait(20)
    assert job.what() == []
    for second in range(8):
        job.say(f"still waiting for the lock ({second} s)")
        job.wait(5)
    assert job.what() == ["stalled"]


def test_a_checkpoint_may_take_as_long_as_the_one_before() -> None:
    job = Simulated()
    job.steps(1, 20)
    job.say(SAVE)
    job.wait(300)
    job.steps(21, 40)
    job.say(SAVE)
    job.wait(500)
    job.steps(41, 60)
    assert job.what() == []
    job.say(SAVE)
    assert job.until_stall(2000) == pytest.approx(3 * 500, rel=0.02)
    stall = job.changes[-1].stall
    assert stall is not None
    assert (stall.phase, stall.activity) == ("checkpoint", "Saving a checkpoint")


def test_a_step_printed_late_does_not_end_a_checkpoint() -> None:
    job = Simulated()
    job.steps(1, 20)
    job.say(SAVE, "[rank0]: step 21 loss 1")
    job.wait(100)
    assert job.what() == []


def test_a_checkpoint_in_the_background_does_not_hide_a_hang_for_long() -> None:
    job = Simulated()
    job.steps(1, 20)
    job.say(SAVE)
    job.steps(21, 40)
    assert job.until_stall(100) <= 6 + 2


def test_evaluations_are_no_pauses_of_training() -> None:
    job = Simulated()
    for begin in range(1, 100, 20):
        job.steps(begin, begin + 19)
        job.say(EVALUATION)
        job.wait(40)
        job.say("{'eval_loss': 0.4, 'epoch': 1.0}")
    job.steps(101, 110)
    assert job.what() == []
    assert job.until_stall(100) <= 6 + 2


def test_a_bar_has_a_heartbeat_of_its_own_in_the_first_evaluation() -> None:
    job = Simulated()
    job.steps(1, 20)
    job.say(EVALUATION)
    for batch in range(1, 30):
        job.wait(2)
        job.say(f"Evaluating:  {batch}%|█         | {batch}/100 [00:{batch:02d}<01:00,  1.0it/s]")
    assert job.until_stall(100) <= 6 * 2 + 2


def test_a_bar_that_is_full_stops_for_a_reason() -> None:
    job = Simulated()
    for batch in range(1, 21):
        job.wait(1)
        job.say(f"Map: {batch * 5}%|█         | {batch}/20 [00:{batch:02d}<01:00,  1.0 examples/s]")
    job.wait(300)
    assert job.what() == []


def test_who_is_behind_stopped_first() -> None:
    job = Simulated()
    job.steps(1, 20, ranks=4)
    job.wait(1)
    job.say(*(f"[rank{rank}]: step 21 loss 1" for rank in (0, 1, 3)))
    job.until_stall(20)
    stall = job.changes[-1].stall
    assert stall is not None
    assert stall.first == (Who(rank=2),)


def test_who_was_silent_earlier_stopped_first() -> None:
    job = Simulated()
    for _ in range(30):
        job.wait(1)
        for rank in range(3):
            if rank != 1 or job.now < 26:
                job.say(f"[rank{rank}]: {{'loss': {job.now:.2f}, 'epoch': {job.now:.3f}}}")
    job.until_stall(20)
    stall = job.changes[-1].stall
    assert stall is not None
    assert stall.first == (Who(rank=1),)


def test_nobody_is_blamed_where_all_stop_at_once() -> None:
    job = Simulated()
    job.steps(1, 20, ranks=4)
    job.until_stall(20)
    assert job.changes[-1].stall is not None
    assert job.changes[-1].stall.first == ()


@pytest.mark.parametrize("every_rank", [False, True])
def test_one_rank_stops_while_others_go_on(every_rank: bool) -> None:
    job = Simulated(every_rank=every_rank)
    job.steps(1, 20, ranks=3)
    for step in range(21, 40):
        job.wait(1)
        job.say(*(f"[rank{rank}]: step {step} loss 1" for rank in (0, 2)))
    if not every_rank:
        assert job.what() == []
        return
    assert job.what() == ["stalled"]
    stall = job.pulse.stall
    assert stall is not None
    assert (stall.first, stall.whole) == ((Who(rank=1),), False)
    job.steps(40, 44, ranks=3)
    assert job.what() == ["stalled", "recovered"]


def test_when_the_others_stop_as_well_it_is_the_same_stall() -> None:
    job = Simulated(every_rank=True)
    job.steps(1, 20, ranks=3)
    for step in range(21, 40):
        job.wait(1)
        job.say(*(f"[rank{rank}]: step {step} loss 1" for rank in (0, 2)))
    job.wait(20)
    assert job.what() == ["stalled", "stalled"]
    assert job.pulse.stalls == 1


def test_progress_in_unknown_words() -> None:
    job = Simulated()
    for number in range(1, 40):
        job.wait(1)
        job.say(f"finished minibatch {number} of this fine run, loss 0.{number}")
    assert job.pulse.state is State.RUNNING
    assert job.until_stall(20) <= 6 + 2


def test_a_line_printed_again_is_no_progress() -> None:
    job = Simulated()
    job.steps(1, 20)
    for _ in range(10):
        job.wait(1)
        job.say("[rank0]: step 20 loss 0.20")
    assert job.what() == ["stalled"]


def test_a_job_that_ended() -> None:
    job = Simulated()
    job.steps(1, 20)
    job.say("Training completed. Do not forget to share your model on huggingface.co/models =)")
    assert not job.pulse.over(job.now + QUIET_S - 1)
    assert job.pulse.over(job.now + QUIET_S)
    job.wait(QUIET_S)
    assert job.what() == []


def test_a_part_that_ended_is_not_the_job() -> None:
    job = Simulated()
    job.say("Training completed. Do not forget to share your model on huggingface.co/models =)")
    job.steps(1, 3)
    assert not job.pulse.over(job.now + 100)


def test_a_crash_gets_time_to_end() -> None:
    job = Simulated()
    job.steps(1, 20)
    job.say("[rank1]: Traceback (most recent call last):", "[rank1]: ValueError: bad batch")
    job.wait(9)
    assert job.what() == []
    assert job.until_stall(30) < 20
    assert not job.pulse.over(job.now)
    assert job.pulse.over(job.now + GIVEN_UP_S)


def test_what_follows_an_error_is_no_sign_of_life() -> None:
    job = Simulated(grace=30)
    job.say("preparing")
    job.say("[rank1]: ValueError: bad batch")
    for name in ("one", "two", "three", "four", "five"):
        job.wait(10)
        job.say(f"frame of a stack called {name}")
    assert job.what() == ["stalled"]


def test_a_new_attempt_starts_from_the_beginning() -> None:
    job = Simulated()
    job.say(TRAINING)
    job.steps(1, 20)
    job.pulse.restart(job.now)
    job.pulse.restart(job.now)  # said by a file and by a line
    assert job.pulse.attempt == 1
    job.wait(300)
    job.say(TRAINING)
    job.wait(2)
    job.steps(1, 20)
    assert job.what() == ["attempt"]
    assert job.until_stall(20) <= 6 + 2


def test_a_server_without_requests_is_silent_for_good_reason() -> None:
    job = Simulated(grace=30)
    job.say("INFO:     Application startup complete.", "INFO:     Uvicorn running on http://0:80")
    job.say('INFO:     127.0.0.1:41234 - "POST /v1/completions HTTP/1.1" 200 OK')
    job.wait(1000)
    assert job.what() == []


def test_a_machine_that_was_busy_proves_nothing() -> None:
    job = Simulated()
    job.steps(1, 20)
    job.now += 50
    assert job.pulse.check(job.now, 0.25) == []
    job.say("[rank0]: step 21 loss 1")
    job.wait(3)
    assert job.what() == []


@pytest.mark.slow
def test_memory_is_bounded() -> None:
    job = Simulated()
    for number in range(5000):
        job.say(f"[rank{number}]: step 1 loss 1")
    assert len(job.pulse.authors) == len(job.pulse._paces) == 4096


def test_what_is_old_already_is_said_to_be() -> None:
    job = Simulated()
    job.steps(1, 20)
    job.now += 3600
    (change,) = job.pulse.begin(job.now)
    assert change.stall is not None
    assert change.stall.old
    assert job.pulse.stalls == 0
