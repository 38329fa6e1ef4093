"""What recorders of other stacks than torch's kept of a rank's calls."""

from __future__ import annotations

import pytest

from diagnose.parse.comm_rank import CollCall
from diagnose.parse.recorders import read_recorder

CLOG = b"""\
V|1|base_timestamp=1770091506.000
new_comm|comm=world|rank=1|world_size=4
new_comm|comm=pairs|rank=0|world_size=2
C1|sig|all_gather_single|in_count=8|out_count=32|dtype=bf16|async_op=t|comm=world
C2|sig|send|in_count=8|out_count=0|dtype=f32|peer=1|async_op=f|comm=pairs
C1|Q|work_id=1|+0.001
C1|S|+0.002
C1|E|+0.003
G4|C1|Q|work_id=2|+0.004
C2|Q|work_id=3|+0.005
G4|R1|C1|E|+0.006
"""


def test_clog() -> None:
    world, pairs = read_recorder(CLOG, "clog.1.log")
    assert (world.comm, world.comm_rank, world.size, world.line) == ("world", 1, 4, 2)
    assert (world.launched, world.completed) == (2, 1)
    assert world.calls == [
        CollCall(1, "all_gather", 8, "bf16", 6),
        CollCall(2, "all_gather", 8, "bf16", 9),
    ]
    assert (pairs.comm, pairs.launched, pairs.calls) == ("pairs", 0, [])  # sends count nowhere


def test_ncclx() -> None:
    data = (
        b'{"1f": {"commHash": "\\"1f\\"", "rank": "2", "nRanks": "4", '
        b'"CT_pastColls": "[{\\"opName\\": \\"ReduceScatter\\", '
        b'\\"opCount\\": 6, \\"count\\": 8}]", '
        b'"CT_currentColls": [{"opName": "AllReduce", "opCount": 7}, {"opName": "Send"}, 3]}}'
    )
    (found,) = read_recorder(data, "dump.json")
    assert (found.comm, found.comm_rank, found.size) == ("1f", 2, 4)
    assert (found.launched, found.completed) == (8, 7)
    assert [(call.seq, call.op, call.size) for call in found.calls] == [
        (7, "reduce_scatter", 8),
        (8, "all_reduce", -1),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"V|1|base_timestamp=1\nnew_comm|comm=world|rank=9|world_size=4\n",
        b"V|1|base_timestamp=1\nC1|Q|work_id=1|+0.1\nC1|sig\n|\n",
        b'{"commHash": "1", "CT_pastColls": "[", "rank": "-1", "nRanks": "2"}',
    ],
)
def test_damaged(data: bytes) -> None:
    with pytest.raises(ValueError, match="names no communicator"):
        read_recorder(data, "x")
