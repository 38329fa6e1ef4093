"""What one line tells, before the others are known."""

from __future__ import annotations

import pytest

import diagnose
from diagnose.ingest import text_source
from diagnose.job.load import read
from diagnose.parse.prefix import glued_rank
from diagnose.text.times import moment
from diagnose.timeline.readings import events_of_scans

from .told import ERROR, WATCHDOG, matches, of, timeline


def test_a_watchdog_line_fills_the_fields_of_a_collective() -> None:
    text = f"begin\n[rank3]:[E602 08:25:12.625763863 x.cpp:632] {WATCHDOG.format(seq=7)}\n"
    event = of(diagnose.load_text(text).events, "Watchdog")
    assert (event.source, event.line, event.offset, event.rank) == ("<paste>", 2, 6, 3)
    said = (event.kind, event.role, event.severity, event.signal)
    assert said == ("collective", "effect", "error", "timeout")
    assert (event.op, event.seq, event.size_in, event.size_out) == ("ALLREDUCE", 7, 1000, 1000)
    assert (event.timeout_ms, event.elapsed_ms) == (600_000, 600_007)
    # the digits behind the seconds are another clock's
    assert event.time is not None
    assert moment(event.time).strftime("%m-%d %H:%M:%S.%f") == "06-02 08:25:12.000000"
    assert event.fields["seq"] == "7"


def test_lines_about_many_tasks_become_events_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("diagnose.timeline.readings._TASKS_LIMIT", 10)
    exits = timeline(log="srun: error: node1: tasks 0-7: Killed\n" * 4).signalling("exit")
    lines = [event.line for event in exits]
    assert [lines.count(line) for line in (1, 2, 3, 4)] == [8, 3, 1, 1]


@pytest.mark.parametrize(
    ("line", "general"),
    [
        (ERROR, True),
        ("OSError: [Errno 28] No space left on device", False),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", False),
    ],
)
def test_a_general_entry_yields_to_a_special_one_on_the_same_line(line: str, general: bool) -> None:
    job = diagnose.load_text(f"[rank0]: {line}\n")
    catch_alls = {signature.id for signature in job.catalog.signatures if signature.generic}
    found = {event.signature for event in matches(job.events)}
    assert found, "the line is known"
    assert bool(found & catch_alls) is general


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("node07 systemd-logind[811]: The system will reboot now!", "host.power.shutdown"),
        ("RuntimeError: No route to host", "word.errno.ehostunreach.raised"),
    ],
)
def test_a_weak_word_yields_to_an_entry_that_names_a_cause(line: str, entry: str) -> None:
    assert [event.signature for event in matches(timeline(log=line + "\n"))] == [entry]


def test_each_state_of_a_bar_has_the_line_it_is_on() -> None:
    bar = "Map:  {0}%|###   | {0}/100 [09:5{1}<00:10, 1.0 examples/s]"
    text = "x\n" + "\r".join(bar.format(n, n % 10) for n in (1, 50, 97)) + "\n"
    found = matches(timeline(job=text))
    assert {event.line for event in found} == {2}
    assert (found[-1].phase, found[-1].elapsed_ms) == ("preprocessing", 597_000)


# --------------------------------------------------------------------------- bounds


TOO_LONG = (
    "[rank3]:[E602 08:25:12.123456 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, "
    "Timeout(ms)={0}) ran for {0} milliseconds before timing out.\n"
)
NO_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU {0} has a\n"
)


@pytest.mark.parametrize("number", [10**9 - 1, 10**13, 2**62 - 1, 2**63, 10**400])
def test_absurd_durations_and_ranks_are_not_told(number: int) -> None:
    text = TOO_LONG.format(number) + NO_MEMORY.format(number) + "[rank1]: step 3\n"
    job = read([text_source(text)])
    told = {time for event in job.events for time in (event.timeout_ms, event.elapsed_ms)}
    assert told == ({None, number} if number <= 10**12 else {None})
    assert {event.local_rank for event in job.events} == {None}
    assert job.events.ranks == [1, 3]
    assert diagnose.diagnose(job).verdict == "failed"


def test_first_and_last_lines_carry_the_level_of_their_logger() -> None:
    job = read([text_source("2026-06-02 08:00:00,000 ERROR trainer quiet\nquiet too\n", "a.log")])
    found = [*events_of_scans(job.scans, job.catalog.signatures)]
    edges = [draft for draft in found if draft.meaning.kind == "edge"]
    assert {(draft.line, draft.meaning.severity) for draft in edges} == {(1, "error"), (2, None)}


def test_a_long_line_is_cut() -> None:
    event = of(diagnose.load_text(f"{ERROR} {'x' * 5000}\n").events, ERROR)
    assert len(event.text) == 1000


def test_a_tag_behind_a_bar_names_who_printed_the_error_but_not_the_bar() -> None:
    glued = "  0%|          | 0/60 [00:00<?, ?it/s][rank0]:[E ProcessGroupNCCL.cpp:563] "
    found = timeline(job=glued + WATCHDOG.format(seq=7) + "\n")
    told = {event.signal or event.kind: event.rank for event in matches(found)}
    assert (told["timeout"], told["progress"]) == (0, None)


def test_a_line_of_several_ranks_is_nobody_s() -> None:
    text = f"50%[rank0]:[E a.cpp:1] x 60%[rank1]:[E a.cpp:1] {WATCHDOG.format(seq=7)}\n"
    assert glued_rank(text) is None
    assert glued_rank("50%[rank0]: said of [rank0]") is None


@pytest.mark.parametrize(
    "line",
    [
        'error("*** %s ON %s CANCELLED AT %s DUE TO PREEMPTION ***", entity, node, time_str);',
        'logger.error(f"CUDA out of memory. Tried to allocate {size} on rank {rank}")',
        'raise RuntimeError("Timed out initializing process group in store based barrier %s" % r)',
    ],
)
def test_a_line_of_a_program_tells_no_failure(line: str) -> None:
    roles = {event.role for event in matches(timeline(job=f"step 1 loss 2.0\n    {line}\n"))}
    assert not roles & {"cause", "effect", "aftermath"}


def test_a_time_in_the_message_of_a_line_without_one_in_front(tmp_path) -> None:
    line = (
        "slurmstepd: error: *** JOB 71 ON n1 CANCELLED AT 2026-01-02T03:04:05 DUE TO PREEMPTION ***"
    )
    (tmp_path / "job.log").write_text(f"step 1 loss 2.0\n{line}\n")
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert found.onset.time == "2026-01-02T03:04:05"


@pytest.mark.parametrize(
    ("form", "kind", "phase"),
    [
        ("shard {}/8 loaded", "phase", "model_load"),
        ("Loading part {}/8 of the model", "phase", "model_load"),
        ("step {}/8 loss 2.1 data loaded by the model in 3 ms", "progress", "training"),
    ],
)
def test_counted_parts_of_a_model_are_no_steps(form: str, kind: str, phase: str) -> None:
    lines = "".join(form.format(number) + "\n" for number in range(1, 4))
    job = diagnose.load_text("Starting\n" + lines)
    found = [event for event in job.events if event.line in (2, 3, 4) and event.phase]
    assert {(event.kind, event.phase) for event in found} == {(kind, phase)}
