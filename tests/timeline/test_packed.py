"""Drafts as columns: what comes back is what was sent."""

from __future__ import annotations

import pickle
from dataclasses import replace

from diagnose.timeline.draft import Draft
from diagnose.timeline.event import Meaning
from diagnose.timeline.learned import Learned
from diagnose.timeline.packed import pack, unpack

PLAIN = Meaning("signature", "a.b", "cause", "error")
STEP = Meaning("progress", step=7, fields={"step": "7"}, ends_phase=True)
FIRST = Draft("a.log", 1, 0, "text é \udcff", PLAIN, attempt=0, rank=3, host="n1", pid=12, ns=5)
DRAFTS = [
    FIRST,
    replace(FIRST, line=2, offset=9, rank=0, learned=Learned.LINE, boot=True),
    Draft("b.log", 1, 0, "", STEP, document=True, mtime=1.5, utc_offset_s=-3600),
]


def test_what_is_sent_comes_back() -> None:
    assert unpack(pickle.loads(pickle.dumps(pack(DRAFTS)))) == DRAFTS
    assert unpack(pack(DRAFTS[:1])) == DRAFTS[:1]
    assert unpack(pack([])) == []


def test_lines_that_mean_the_same_share_what_they_mean() -> None:
    first, second, _ = unpack(pack(DRAFTS))
    assert first.meaning is second.meaning


def test_a_column_of_one_value_is_sent_once() -> None:
    packed = pack([FIRST] * 3)
    assert [column for column in packed.drafts if isinstance(column, list)] == [[0, 0, 0]]
    assert all(isinstance(column, tuple) for column in packed.meanings)
