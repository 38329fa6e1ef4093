"""The JSON of `ncclras -f json` (NCCL 2.28.7 on), single, appended by a loop, or of monitor mode.

NCCL 2.28.9 writes `"nvml_dev": 3` without the comma before the status of a missing rank; 2.29 does
not any more. A report that is cut off is closed where its last whole part ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from diagnose.parse.ras_snapshot import (
    MAX_DEVICES,
    MAX_NOTED,
    MAX_RANKS,
    MAX_TEXT,
    Comm,
    Found,
    Rank,
    RasError,
    RasProcess,
    Snapshot,
    hash_name,
)

MAX_CONTAINERS = 1_000_000
JSON_BEGIN = re.compile(r"^\{", re.MULTILINE)

_NEXT = re.compile(r"\s*\{")
_MAX_DEPTH = 64
_MAX_NUMBER = 10**9  # of ranks, processes and codes, as text has them
_NO_COMMA = re.compile(r'("nvml_dev":\s*-?\d{1,9})(\s*"status")')
_RANK_KEY = re.compile(r'"rank"\s*:')
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_HASH = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})\Z")
_CODES = ("init_state", "async_error")  # ncclResult_t: 0 success, 7 in progress


def read_json(text: str, name: str) -> Found:
    """All reports and events in `text`. Raises RasError where it is too much."""
    if text.count("{") + text.count("[") > MAX_CONTAINERS:
        raise RasError(f"{name}: refused: too many containers")
    text = _NO_COMMA.sub(r"\1,\2", text)
    starts = [match.start() for match in JSON_BEGIN.finditer(text)]
    found, line, counted = Found(), 1, 0
    for start, following in zip(starts, [*starts[1:], len(text)], strict=True):
        line += text.count("\n", counted, start)
        counted = start
        _part(text[start:following], line, found)
    return found


def _part(text: str, line: int, found: Found) -> None:
    """Read what begins at a brace at the start of a line, and lasts until the next such."""
    decoder, end, counted = json.JSONDecoder(), 0, 0
    while begin := _NEXT.match(text, end):
        start, cut = begin.end() - 1, False
        line += text.count("\n", counted, start)
        counted = start
        try:
            document, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            document, end, cut = _closed(text[start:]), len(text), True
        event, peer = document.get("event"), document.get("peer")
        if isinstance(event, str):
            found.event(event, _process(peer) if isinstance(peer, dict) else None, line)
        elif isinstance(document.get("communicators"), list):
            snapshot = _snapshot(document, _rank_lines(text, start, end, line), line)
            snapshot.cut = cut
            found.snapshots.append(snapshot)


def _closed(text: str) -> dict[str, Any]:
    """What is whole of an object that is cut off or damaged somewhere."""
    closing: list[str] = []
    end, missing = 0, ""
    for token in _TOKEN.finditer(text):
        if token[0] in "{[":
            closing.append("}" if token[0] == "{" else "]")
            if len(closing) > _MAX_DEPTH:
                break
        elif token[0] in "}]":
            if not closing or closing.pop() != token[0]:
                break
            end, missing = token.end(), "".join(reversed(closing))
    try:
        document = json.loads(text[:end] + missing)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _rank_lines(text: str, start: int, end: int, line: int) -> Iterator[int]:
    """Lines of the keys `rank`, which stand in the order in which the ranks are read."""
    for key in _RANK_KEY.finditer(text, start, end):
        line += text.count("\n", start, key.start())
        start = key.start()
        yield line


def _snapshot(document: Mapping[str, Any], lines: Iterator[int], line: int) -> Snapshot:
    snapshot = Snapshot(line, _string(document, "nccl_version"), _string(document, "timestamp"))
    ras = document.get("ras")
    timeouts = _number(ras, "timeouts_count") if isinstance(ras, dict) else None
    if timeouts:
        snapshot.errors.append((line, f"{timeouts} communication timeouts while gathering data"))
    silent: dict[RasProcess, bool] = {}
    left = MAX_RANKS
    for communicator in _dicts(document, "communicators"):
        comm = _comm(communicator, snapshot, line)
        statuses = set()
        for member in _dicts(communicator, "ranks"):
            number, at, left = _number(member, "rank"), next(lines, line), left - 1
            if number is not None and left >= 0:
                comm.ranks[number] = rank = Rank(at, _process(member), _counts(member))
                statuses.add(_status(member, number, rank, comm, snapshot))
        for member in _dicts(communicator, "missing_ranks"):
            number, at, left = _number(member, "rank"), next(lines, line), left - 1
            if number is None or left < 0:
                continue
            flags = _flags(member)
            dead = flags.get("considered_dead") is True
            gone = dead or flags.get("unresponsive") is True
            rank = comm.ranks[number] = Rank(at, _process(member), missing=True, gone=gone)
            comm.errors.add("INCOMPLETE")
            if rank.process is not None:
                silent[rank.process] = dead or silent.get(rank.process, False)
        comm.status = ",".join(sorted(statuses))
        counted = {tuple(sorted(r.counts.items())) for r in comm.ranks.values() if r.counts}
        if len(statuses) > 1 or len(counted) > 1:
            comm.errors.add("MISMATCH")
    snapshot.dead = [process for process, dead in silent.items() if dead]
    snapshot.missing = [process for process, dead in silent.items() if not dead]
    if left < 0:
        snapshot.notes.append(f"more than {MAX_RANKS:,} ranks: the others are left out")
    return snapshot


def _comm(communicator: Mapping[str, Any], snapshot: Snapshot, line: int) -> Comm:
    value = _HASH.match(_string(communicator, "hash"))
    key = hash_name(value[1]) if value else ""
    if key in snapshot.comms:  # hashes may be alike; the second one tells them apart
        key += "/" + _string(communicator, "secondary_hash")
    comm = snapshot.comms[key] = Comm(key, _number(communicator, "size"), line)
    return comm


def _counts(member: Mapping[str, Any]) -> dict[str, int] | None:
    counts = member.get("collective_counts")
    if not isinstance(counts, dict):
        return None
    known = {op[:32]: counts[op] for op in [*counts][:32]}
    return {op: count for op, count in known.items() if type(count) is int and count >= 0}


def _status(
    member: Mapping[str, Any], number: int, rank: Rank, comm: Comm, snapshot: Snapshot
) -> str:
    """The status in the words of the text; notes an error."""
    flags = _flags(member)
    codes = {key: _number(flags, key) or 0 for key in _CODES}
    if any(code not in (0, 7) for code in codes.values()):
        comm.errors.add("ERROR")
        if len(snapshot.errors) < MAX_NOTED:
            nonzero = ", ".join(f"{key} {code}" for key, code in codes.items() if code)
            snapshot.errors.append((rank.line, f"rank {number} of {comm.hash}: {nonzero}"))
    if flags.get("abort_flag") is True:
        return "ABORT"
    if flags.get("finalize_called") is True or flags.get("destroy_flag") is True:
        return "FINALIZE"
    return "INIT" if codes["init_state"] == 7 else "RUNNING"


def _process(member: Mapping[str, Any]) -> RasProcess | None:
    host, pid = _string(member, "host"), _number(member, "pid")
    devices = member.get("cuda_devs", [member.get("cuda_dev")])
    devices = devices[:MAX_DEVICES] if isinstance(devices, list) else []
    known = tuple(device for device in devices if type(device) is int)
    return RasProcess(host, pid, known) if host and pid is not None else None


def _flags(member: Mapping[str, Any]) -> Mapping[str, Any]:
    flags = member.get("status")
    return flags if isinstance(flags, dict) else {}


def _dicts(document: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = document.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _string(document: Mapping[str, Any], key: str) -> str:
    value = document.get(key)
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def _number(document: Mapping[str, Any], key: str) -> int | None:
    value = document.get(key)
    return value if type(value) is int and 0 <= value < _MAX_NUMBER else None
