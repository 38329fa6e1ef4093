import random

import numpy as np

import diagnose
from diagnose.report.html.clock import _between, prepare
from diagnose.text.times import moment

from .jobs import fixture, pasted, watchdog

LOG = f"""\
[rank0]: 2026-06-02 08:00:00,000 INFO start
[default0]:***** Running training *****
[rank0]: 2026-06-02 08:10:00,000 INFO epoch done
{watchdog(1)}
"""


def places(text: str, onset: str | None = None) -> dict[int, str]:
    job = diagnose.load_text(text)
    events = prepare(job, onset)
    placed = {event.line: events.at[event.index] for event in events.timeline}
    return {line: f"{moment(at * 10**6):%H:%M:%S}" for line, at in placed.items() if at is not None}


def test_a_line_without_a_time_stands_between_its_neighbours() -> None:
    assert places(LOG)[2] == "08:05:00"


def test_what_has_no_time_came_before_the_onset() -> None:
    lines = [
        watchdog(0, "08:00:00"),
        *["***** Running training *****"] * 3,
        watchdog(1, "09:00:00"),
    ]
    found = places("\n".join(lines), "2026-06-02T08:07:00")
    assert found[5] == "09:00:00"
    assert max(found[line] for line in (2, 3, 4)) <= "08:07:00"


def test_a_bar_tells_its_own_time() -> None:
    job, diagnosis = fixture("torchrun-missing-rank")
    events = prepare(job, diagnosis.onset.time)
    bars = events.timeline.by_signature["tqdm.bar.steps"]
    first, last = (events.at[bars[end].index] or 0 for end in (0, -1))
    assert last - first == 156_000  # 00:12 to 02:48
    assert {event.time for event in bars} == {None}
    assert last <= 1_780_388_111_184  # the onset


def test_without_any_time_the_axis_is_the_line_number() -> None:
    job, diagnosis = pasted("[rank1]: ValueError: no\n[rank0]: ok\n")
    events = prepare(job, diagnosis.onset.time)
    assert not events.clocked
    assert (events.begin, events.end) == (1, 2)


def test_a_source_without_a_clock_beside_one_with_a_clock_has_no_place(tmp_path) -> None:
    (tmp_path / "rank0.log").write_text(watchdog(0) + "\n")
    (tmp_path / "rank1.log").write_text("RuntimeError: CUDA out of memory\n")
    events = prepare(diagnose.load(tmp_path), None)
    assert events.unplaced == ["rank1.log"]
    assert events.begin == events.end


def test_only_the_attempt_that_was_diagnosed_is_drawn() -> None:
    job, diagnosis = fixture("lab-restart-other-fault")
    attempts = {event.attempt for event in prepare(job, diagnosis.onset.time).last_attempt}
    assert attempts - {None} == {1}


def test_between_known_times_lines_pass_evenly() -> None:
    """The same as numpy's linear interpolation, to the last digit."""
    chance = random.Random(7)
    for _ in range(200):
        lines = sorted(chance.choices(range(1, 60), k=chance.randint(1, 12)))
        stamps = sorted(chance.choices(range(10**12, 10**12 + 10**6), k=len(lines)))
        asked = range(63)
        expected = np.interp(asked, np.array(lines, float), stamps).astype(int).tolist()
        assert [*_between(asked, lines, stamps)] == expected
