"""Drafts as columns: what comes back is what was sent."""

from __future__ import annotations

import pickle
from dataclasses import replace

from diagnose.parse.stamps import Stamp
from diagnose.timeline.draft import Draft
from diagnose.timeline.event import Meaning, Work
from diagnose.timeline.learned import Learned
from diagnose.timeline.packed import pack, unpack

PLAIN = Meaning("signature", "a.b", "cause", "error")
PROGRESS, STEP = Meaning("progress", ends_phase=True), Work(step=7)
STAMP = Stamp(5, has_year=False, boot=True)
FIRST = Draft("a.log", 1, 0, "text é \udcff", PLAIN, rank=3, host="n1", pid=12, stamp=STAMP)
DRAFTS = [
    FIRST,
    replace(FIRST, line=2, offset=9, rank=0, learned=Learned.LINE),
    Draft("b.log", 1, 0, "", PROGRESS, STEP, {"step": "7"}, document=True, mtime=1.5),
]


def test_what_is_sent_comes_back() -> None:
    assert unpack(pickle.loads(pickle.dumps(pack(DRAFTS)))) == DRAFTS
    assert unpack(pack(DRAFTS[:1])) == DRAFTS[:1]
    assert unpack(pack([])) == []


def test_lines_that_mean_the_same_share_what_they_mean() -> None:
    first, second, _ = unpack(pack(DRAFTS))
    assert first.meaning is second.meaning
    assert first.work is second.work
    assert first.stamp is second.stamp


def test_a_column_of_one_value_is_sent_once() -> None:
    packed = pack([FIRST] * 3)
    columns = [
        *packed.drafts.values(),
        *(one for _, inside in packed.shared.values() for one in inside),
    ]
    assert all(isinstance(column, tuple) for column in columns)
