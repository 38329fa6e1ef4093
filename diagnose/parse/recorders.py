"""Reads what recorders of other stacks than torch's kept of the calls of one rank.

`clog` is the log of torchcomms' ClogHook, a line for each event (`C1|Q|work_id=7|+0.5`); calls are
numbered in the order in which a communicator was given them, graph replays are left out. `ncclx` is
what NCCLX's ncclCommDump gives for one communicator or all of a process: texts of JSON by key.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from diagnose.parse.comm_rank import MAX_COMM, MAX_SEQ, CollCall, CommRank
from diagnose.parse.detectors import MAX_BYTES, recorder_of, values

_KEEP = 8  # calls of a communicator
_MAX_SIGNATURES = 100_000
_DIGITS = 18
_P2P = frozenset({"send", "recv", "batch_op_issue"})  # which not all ranks of a communicator call
_EVENT = re.compile(r"(?:G\d{1,20}\|)?(C\d{1,12})\|([QE])\|")
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def read_recorder(data: bytes, name: str) -> list[CommRank]:
    """How far the rank got in each communicator. Raises ValueError where nothing says so."""
    text = data[:MAX_BYTES].decode(errors="replace")
    read = {"clog": _clog, "ncclx": _ncclx}[recorder_of(data[: 64 << 10])]
    found = [*read(text, name)]
    if not found:
        raise ValueError(f"{name}: names no communicator and its rank")
    return found


@dataclass(slots=True)
class _Calls:
    """The calls of one communicator that were read so far."""

    launched: int = 0
    completed: int = 0
    last: deque[CollCall] = field(default_factory=lambda: deque(maxlen=_KEEP))


def _clog(text: str, name: str) -> Iterator[CommRank]:
    places: dict[str, tuple[int, dict[str, str]]] = {}
    signatures: dict[str, tuple[str, dict[str, str]]] = {}
    calls: dict[str, _Calls] = defaultdict(_Calls)
    for number, line in enumerate(text.splitlines(), 1):
        if event := _EVENT.match(line):
            op, stated = signatures.get(event[1], ("", {}))
            own = calls[stated.get("comm", "")]
            if not op or op in _P2P:
                continue
            if event[2] == "E":
                own.completed += 1
                continue
            own.launched += 1
            count, dtype = _number(stated.get("in_count")), stated.get("dtype", "")
            own.last.append(CollCall(own.launched, op, count or -1, dtype, number))
            continue
        first, _, rest = line.partition("|")
        if first == "new_comm":
            stated = _stated(rest)
            places[stated.get("comm", "")] = number, stated
        elif rest.startswith("sig|") and len(signatures) < _MAX_SIGNATURES:
            op = rest.split("|", 2)[1].removesuffix("_single")
            signatures[first] = op, _stated(rest)
    for comm, (number, stated) in places.items():
        rank, size = (_number(stated.get(key)) for key in ("rank", "world_size"))
        if rank is not None and size is not None and rank < size <= MAX_COMM:
            own = calls[comm]
            yield CommRank(
                name, number, comm, rank, size, calls=[*own.last], launched=own.launched,
                completed=min(own.completed, own.launched),
            )  # fmt: skip


def _stated(text: str) -> dict[str, str]:
    """The fields of a line that have a name."""
    pairs = (part.partition("=") for part in text.split("|"))
    return {key: value for key, sign, value in pairs if sign}


def _number(text: str | None) -> int | None:
    plain = text is not None and text.isascii() and text.isdigit() and len(text) <= _DIGITS
    return int(text) if plain and text else None


def _ncclx(text: str, name: str) -> Iterator[CommRank]:
    for value in values(text, name):
        for one in _dumps(value):
            dump = {key: _plain(part) for key, part in one.items()}
            rank, size, comm = dump.get("rank"), dump.get("nRanks"), dump.get("commHash")
            if not isinstance(rank, int) or not isinstance(size, int) or not 0 <= rank < size:
                continue
            past, waiting = (
                [call for key in keys for call in _calls(dump.get(key))]
                for keys in (("CT_pastColls",), ("CT_pendingColls", "CT_currentColls"))
            )
            both = sorted({call.seq: call for call in (*past, *waiting)}.values(), key=_seq)
            if size <= MAX_COMM:
                yield CommRank(
                    name, 1, str(comm), rank, size, calls=both[-_KEEP:],
                    launched=max(map(_seq, both), default=0),
                    completed=max(map(_seq, past), default=0),
                )  # fmt: skip


def _dumps(value: object) -> Iterator[Mapping[str, Any]]:
    """The dumps of single communicators: this one, or what it holds by their hashes."""
    if isinstance(value, dict):
        inner = [one for one in value.values() if isinstance(one, dict) and "rank" in one]
        yield from [value] if "rank" in value else inner


def _plain(value: object) -> object:
    """A value that may be written as a text of JSON."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def _calls(found: object) -> Iterator[CollCall]:
    for call in found if isinstance(found, list) else ():
        seq = call.get("opCount", call.get("collId")) if isinstance(call, dict) else None
        if not isinstance(seq, int) or not 0 <= seq < MAX_SEQ:
            continue
        op = _WORD.sub("_", str(call.get("opName", ""))[:40]).lower()
        count = call.get("count")
        if op not in _P2P:
            # Its first call has the number 0.
            size = count if isinstance(count, int) else -1
            yield CollCall(seq + 1, op, size, str(call.get("dataType", ""))[:40], 1)


def _seq(call: CollCall) -> int:
    return call.seq
