"""One call line of `NCCL_DEBUG_SUBSYS=COLL` as text: who calls, and what is called."""

from __future__ import annotations

import re

import numpy as np

from diagnose.parse.comm_rank import CollCall
from diagnose.parse.nccl_calls import SEND
from diagnose.parse.nccl_inits import PROCESS

_OPS = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all",
    "all_to_all", "gather", "scatter", "send", "recv",
)  # fmt: skip
_DTYPES = (
    "Char", "Byte", "Int", "UInt32", "Long", "UInt64", "Half", "Float", "Double", "BFloat16",
    "Float8_e4m3fn", "Float8_e5m2",
)  # fmt: skip
CALLER = re.compile(PROCESS + rb"\Z")
_TEXT = (
    rb"([0-9a-f]{1,15}) sendbuff \S{1,20} recvbuff \S{1,20} count (\d{1,20}) datatype (\d{1,3}) op "
)
_SIZES = re.compile(_TEXT)
CALL = re.compile(
    rb" NCCL INFO \w{1,32}: opCount " + _TEXT + rb"\d{1,10} root (-?\d{1,9}) "
    rb"comm (0x[0-9a-f]{1,16}) \[nranks=(\d{1,6})\] stream"
)


def call_of(row: list[int], peer: str) -> CollCall | None:
    """A kept row without code and place, None if it is torn.

    The number kept with a collective is that of the launches that do not count; `peer` is how
    torch names the ends of a send.
    """
    line, number, op, *text = row
    found = _SIZES.search(np.array(text, np.int64).tobytes())
    if found is None:
        return None
    name = _OPS[op]
    if op >= SEND:
        name += peer.format("->" if op == SEND else "<-")
    else:
        number = int(found[1], 16) - number
    kind = int(found[3])
    dtype = _DTYPES[kind] if kind < len(_DTYPES) else str(kind)
    return CollCall(number, name, int(found[2]), dtype, line)
