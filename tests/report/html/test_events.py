import pandas as pd

import diagnose
from diagnose.report.html.events import prepare

from .jobs import fixture, pasted, watchdog

LOG = f"""\
[rank0]: 2026-06-02 08:00:00,000 INFO start
[default0]:***** Running training *****
[rank0]: 2026-06-02 08:10:00,000 INFO epoch done
{watchdog(1)}
"""


def places(text: str, onset: str | None = None) -> dict[int, str]:
    job = diagnose.load_text(text)
    rows = prepare(job, onset).frame.dropna(subset=["at"]).drop_duplicates("line")
    times = pd.to_datetime(rows["at"].astype("int64"), unit="ms").dt.strftime("%H:%M:%S")
    return dict(zip(rows["line"].tolist(), times, strict=True))


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
    rows = prepare(job, diagnosis.onset.time).frame
    bars = rows[rows["signature"] == "tqdm.steps"].drop_duplicates("line")
    first, last = bars["at"].iloc[0], bars["at"].iloc[-1]
    assert last - first == 156_000  # 00:12 to 02:48
    assert bars["guessed"].all()
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
    assert set(prepare(job, diagnosis.onset.time).last_attempt["attempt"].dropna()) == {1}
