"""Files of NCCL's Inspector plugin: one JSON object a line for every COMPLETED collective.

Format: output version v4.0 (NCCL 2.28 on), one file a process with all its communicators:
`header` (id, rank, n_ranks), `metadata` (hostname, pid, dump_timestamp_us) and `coll_perf` (coll,
coll_sn, sizes and times) or `p2p_perf`. What hangs is never written, and small messages or calls
whose kernel was not timed are not either: only how far a rank got tells something, absence proves
nothing.

`coll_sn` counts the calls of one operation in one communicator, so how far a rank got is the sum
of the last numbers of its operations, comparable between its ranks. If the numbers of different
operations never fall from one line to the next, they come from one counter, and the last counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from diagnose.parse.comm_rank import MAX_COMM, MAX_SEQ, CommRank

MAX_COMMS = 4096  # communicators of one process; more are left out
MAX_LINE = 1 << 20
_MAX_OPS = 32

_HEAD = re.compile(
    rb'\{\s*"header"\s*:\s*\{[^{}]{1,2000}\}\s*,\s*"metadata"\s*:\s*\{'
    rb'[^{}]{0,1000}"inspector_output_format_version"'
)
_LINE = re.compile(
    rb'\s*+\{\s*+"header"\s*:\s*\{\s*"id"\s*:\s*"?(\w{1,40})"?\s*,\s*"rank"\s*:\s*(\d{1,9})\s*,'
    rb'\s*"n_ranks"\s*:\s*(\d{1,9})\b[^{}]{0,2000}\}\s*,\s*"metadata"\s*:\s*\{[^{}]{1,2000}\}'
    rb'\s*,\s*"coll_perf"\s*:\s*\{\s*"coll"\s*:\s*"(\w{1,32})"'
    rb'\s*,\s*"coll_sn"\s*:\s*(\d{1,18})\b\s*,'
)

_Fields = tuple[bytes, ...]


@dataclass(slots=True)
class _Comm:
    rank: int
    size: int
    last: dict[bytes, int] = field(default_factory=dict)  # operation → its last number
    before: tuple[bytes, int] = (b"", -1)
    own_counters: bool = False
    line: int = 0
    raw: bytes = b""


def is_inspector(head: bytes) -> bool:
    """Whether a file that begins with `head` (4 KiB) is one of the Inspector."""
    return _HEAD.match(head.lstrip()[:4096]) is not None


def read_inspector(chunks: Iterable[bytes], name: str) -> list[CommRank]:
    """How far the ranks of one file got, per communicator: `completed` is what they finished.

    `chunks` are pieces of the file in order, cut anywhere (lines with their ends are such pieces).
    Lines that are damaged or cut off are passed over. Memory does not grow with the file.
    """
    comms: dict[tuple[bytes, bytes], _Comm] = {}
    for number, line in _lines(chunks):
        found = _LINE.match(line) if line.rstrip().endswith(b"}") else None
        fields = found.groups() if found else _slowly(line)
        if fields is not None:
            _take(comms, fields, number, line)
    ranks = [_comm_rank(key, comm, name) for (key, _), comm in comms.items()]
    return sorted(ranks, key=lambda one: (one.comm, one.comm_rank or 0))


def _lines(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Whole lines with their numbers from 1; overlong ones come out empty."""
    rest, number, overlong = b"", 0, False
    for chunk in chunks:
        first, *more = chunk.split(b"\n")
        rest = b"" if overlong else rest + first
        for line in more:
            number += 1
            yield number, b"" if overlong else rest
            rest, overlong = line, False
        if len(rest) > MAX_LINE:
            rest, overlong = b"", True
    if rest:
        yield number + 1, rest


def _slowly(line: bytes) -> _Fields | None:
    """The fields of a line whose keys are in another order; None if it has none."""
    if b'"coll_perf"' not in line or len(line) > MAX_LINE:
        return None
    try:
        record = json.loads(line)
        header, perf = record["header"], record["coll_perf"]
        values = (header["id"], header["rank"], header["n_ranks"], perf["coll"], perf["coll_sn"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    fields = tuple(str(value)[:64].encode() for value in values)
    numbered = all(field.isdigit() for field in (*fields[1:3], fields[4]))
    return fields if numbered and fields[3].isalnum() else None


def _take(
    comms: dict[tuple[bytes, bytes], _Comm], fields: _Fields, number: int, line: bytes
) -> None:
    key, rank, size, op, sn = fields
    count = int(sn)
    if max(int(rank), int(size)) > MAX_COMM or count >= MAX_SEQ:
        return
    comm = comms.get((key, rank))
    if comm is None:
        if len(comms) >= MAX_COMMS:
            return
        comm = comms[key, rank] = _Comm(int(rank), int(size))
    if op not in comm.last and len(comm.last) >= _MAX_OPS:
        return
    if op != comm.before[0] and count <= comm.before[1]:
        comm.own_counters = True
    comm.before = op, count
    comm.last[op] = max(count, comm.last.get(op, 0))
    comm.line, comm.raw = number, line


def _comm_rank(key: bytes, comm: _Comm, name: str) -> CommRank:
    host, pid = _who(comm.raw)
    done = sum(comm.last.values()) if comm.own_counters else max(comm.last.values())
    return CommRank(
        name, comm.line, _comm_name(key), comm.rank, comm.size, host=host, pid=pid, completed=done
    )


def _who(line: bytes) -> tuple[str | None, int | None]:
    try:
        metadata: Any = json.loads(line)["metadata"]
        host, pid = metadata.get("hostname"), metadata.get("pid")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None, None
    return (
        host[:255] if isinstance(host, str) else None,
        pid if type(pid) is int and 0 <= pid < 10**9 else None,
    )


def _comm_name(key: bytes) -> str:
    """As `commId` in NCCL's own lines: 0x… without leading zeros."""
    text = key.decode("ascii", "replace")
    return f"0x{int(text, 16):x}" if re.fullmatch(r"(?:0x)?[0-9a-fA-F]{1,16}", text) else text
