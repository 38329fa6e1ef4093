"""Where each rank's stack is, as events of the timeline."""

from __future__ import annotations

from diagnose.catalog.load import load_catalog
from diagnose.infer.stacks.classify import places
from diagnose.infer.stacks.groups import described, fold, place_rows
from diagnose.parse.stacks import read_stacks
from diagnose.timeline.build import build

DUMP = """\
# rank {rank}
Process {pid}: python train.py
Thread {pid} (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:3252)
    step (train.py:41)
"""
SAYS = (
    "waiting in a collective (all_reduce) at train.py:41: "
    "all_reduce in torch/distributed/distributed_c10d.py"
)


def test_one_event_per_rank() -> None:
    text = "".join(DUMP.format(rank=rank, pid=100 + rank) for rank in (3, 1))
    classes = fold(places(read_stacks(text.encode(), "all.txt")))
    timeline = build([], load_catalog(), place_rows(classes))
    assert [
        (e.rank, e.pid, e.kind, e.signal, e.op, e.fields, e.text, e.source, e.time)
        for e in timeline
    ] == [
        (3, 103, "place", "stands", "ALLREDUCE", {"site": "train.py:41"}, SAYS, "all.txt", None),
        (1, 101, "place", "stands", "ALLREDUCE", {"site": "train.py:41"}, SAYS, "all.txt", None),
    ]
    assert described(classes[0].places[0]) == SAYS
