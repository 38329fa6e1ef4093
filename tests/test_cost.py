"""What a failure cost: one answer for all reports."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

import diagnose
from diagnose.batch.jobs import JobRef
from diagnose.batch.work import row_of
from diagnose.cost import gpu_hours, moment, ranks_of, span, standstill
from diagnose.diagnosis import Diagnosis, JobFacts, Onset, RootCause
from diagnose.report.html import page
from diagnose.timeline.event import Event, Timeline

START = datetime(2026, 6, 2, 8)
HUNG = Diagnosis(
    "hung",
    RootCause("unknown", "", "", "low"),
    onset=Onset("2026-06-02T08:00:00+02:00"),
    job=JobFacts(world_size=4),
)


def at(minutes: int) -> datetime:
    return START + timedelta(minutes=minutes)


def line(minutes: int, source: str, host: str | None = None) -> Event:
    since = at(minutes) - datetime(1970, 1, 1)
    return Event(time=int(since.total_seconds()) * 10**9, source=source, host=host)


@pytest.mark.parametrize(
    ("seconds", "ranks", "hours"), [(1800, 4, 2.0), (0, 4, 0.0), (None, 4, None), (60, None, None)]
)
def test_gpu_hours(seconds: float | None, ranks: int | None, hours: float | None) -> None:
    assert gpu_hours(seconds, ranks) == hours


def test_ranks_are_the_world_size_or_those_seen() -> None:
    assert ranks_of(JobFacts(world_size=8, ranks_seen=[0])) == 8
    assert ranks_of(JobFacts(ranks_seen=[0, 5])) == 6
    assert ranks_of(JobFacts(ranks_seen=[0, 1]), [6]) == 7
    assert ranks_of(JobFacts(world_size=404, ranks_seen=[]), [573]) == 574
    assert ranks_of(JobFacts()) is None


def test_a_standstill_lasts_from_the_onset_to_the_end() -> None:
    still = standstill(HUNG, at(30))
    assert still is not None
    assert (still.seconds, still.end, still.gpu_hours) == (1800.0, at(30), 2.0)
    early = standstill(HUNG, at(-5))
    assert early is not None
    assert early.seconds == 0.0


@pytest.mark.parametrize(
    ("diagnosis", "end"),
    [
        (HUNG, None),
        (replace(HUNG, onset=Onset()), at(30)),
        (replace(HUNG, verdict="healthy"), at(30)),
        (HUNG, START + timedelta(days=400)),  # clocks that are off
    ],
)
def test_no_standstill_where_nothing_is_known(diagnosis: Diagnosis, end: datetime | None) -> None:
    assert standstill(diagnosis, end) is None


def test_a_machines_own_log_is_not_the_jobs() -> None:
    job = [line(0, "rank0.log"), line(9, "rank0.log", "gpu07"), line(3, "rank1.log")]
    machine = [line(-90, "kern.log", "gpu07"), line(90, "kern.log", "gpu07")]
    assert span(Timeline([*machine, *job, Event(source="rank2.log")])) == (at(0), at(9))
    assert span(Timeline(machine)) == (at(-90), at(90))
    assert span(Timeline()) == (None, None)


@pytest.mark.parametrize("text", [None, "", "yesterday"])
def test_no_moment(text: str | None) -> None:
    assert moment(text) is None


def test_a_moment_is_in_the_jobs_own_clock() -> None:
    assert moment("2026-06-02T08:00:00.25+02:00") == START.replace(microsecond=250_000)


def test_the_post_mortem_and_the_scan_agree() -> None:
    job = diagnose.load("fixtures/torchrun-missing-rank")
    found = diagnose.diagnose(job)
    still = standstill(found, span(job.events)[1])
    assert still is not None
    facts = {fact.label: fact.value for fact in page.first_facts(found, still)}
    row = row_of(JobRef("job", "logs", "job"), job, found)
    assert (row["duration_hung_s"], row["gpu_hours_lost"]) == (still.seconds, still.gpu_hours)
    assert facts["Lost"] == f"At least {row['gpu_hours_lost']:.1f} GPU-hours"  # no size is stated
