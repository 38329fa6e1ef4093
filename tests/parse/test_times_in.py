"""Times and durations amid words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from diagnose.parse.stamps import duration_in, time_in


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("CANCELLED AT 2026-05-13T07:47:28 DUE TO TIME LIMIT", "2026-05-13T07:47:28"),
        ("[2026-03-23, 22:29:36 UTC] {timeout.py:68}", "2026-03-23T22:29:36"),
        ("Job 7 started on n1 at Sun Jul 12 04:01:23 2026", "2026-07-12T04:01:23"),
        ("begun Sun Jul 12 04:01:23 PM UTC 2026", "2026-07-12T16:01:23"),
        ("step 12 of 40", None),
        ("2026-13-41 99:00:00", None),
    ],
)
def test_times(text: str, when: str | None) -> None:
    found = time_in(text)
    told = None if found is None else datetime.fromtimestamp(found / 1e9, UTC)
    assert (told and told.replace(tzinfo=None).isoformat()) == when


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("execution took longer than 45m0s seconds", 2700),
        ("maximum execution time of 60 minutes.", 3600),
        ("2026-10-18T23:51:06Z run.sh[1]: timeout 5395 reached, exit status 124", 5395),
        ("job killed: walltime 2379 exceeded limit 2340", 2379),
        ("walltime 01:30:00 exceeded", 5400),
        ("real\t82m13.245s", 4933),
        ("    Run time :                  5412 sec.", 5412),
        ("no time at all", None),
    ],
)
def test_durations(text: str, seconds: int | None) -> None:
    assert duration_in(text) == seconds
