"""Lines that are one JSON object (FORMATS 1.4, 1.6, 1.7).

Docker's json-file, JSON loggers, `journalctl -o json` and stern's `-o json`.
"""

from __future__ import annotations

import json
from typing import Any

from diagnose.lazy import expression
from diagnose.parse.levels import SYSLOG_LEVELS, level
from diagnose.parse.stamps import ISO_DATE, ISO_TIME, ISO_ZONE, iso_day, keep, stamp
from diagnose.parse.tracebacks import TRACEBACK
from diagnose.parse.who import Prefix, Stamp

_LIMIT = 1 << 20  # characters; longer lines are left alone
_MESSAGE = ("log", "msg", "message", "MESSAGE", "text", "event", "textPayload")
_TIME = ("time", "ts", "timestamp", "@timestamp", "asctime")
_LEVEL = ("level", "levelname", "severity", "log_level", "log.level")
_RANK = ("rank", "RANK", "global_rank", "process_index")
_LOCAL_RANK = ("local_rank", "LOCAL_RANK")
_HOST = ("host", "hostname", "host.name", "node", "_HOSTNAME", "podName")
_PID = ("pid", "process", "_PID")
_RAISED = (
    "exc_info", "exc_text", "exception", "stack_trace", "error.stack_trace", "traceback", "stack",
)  # fmt: skip
_ISO = expression(rf"{ISO_DATE}[ T]{ISO_TIME}{ISO_ZONE}\Z")
_STREAMS = frozenset({"stdout", "stderr"})
_RANK_LIMIT = 10_000_000


def json_line(line: str, prefix: Prefix) -> str | None:
    """Fill `prefix` from a JSON object on `line` and give its message; None if it is not one.

    The message may have several lines (an escaped traceback); one trailing newline goes. Objects
    without a message are left alone: a metrics record is its own message.
    """
    if len(line) > _LIMIT or not line.rstrip().endswith("}"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    payload = record.get("jsonPayload")  # Google Cloud Logging: what the program logged itself
    record = {**record, **payload} if isinstance(payload, dict) else record
    message = _text(record, _MESSAGE)
    if message is None:
        return None
    found = _time(record)
    if found is not None:
        keep(prefix, found)
    labels = record.get("labels")  # of the Elastic Common Schema: what a program adds of its own
    about = {**labels, **record} if isinstance(labels, dict) else record
    rank, local_rank = _number(about, _RANK), _number(about, _LOCAL_RANK)
    prefix.rank = rank if rank is not None else prefix.rank
    prefix.local_rank = local_rank if local_rank is not None else prefix.local_rank
    prefix.host = _text(record, _HOST) or prefix.host
    pid = _number(record, _PID)
    prefix.pid = pid if pid is not None else prefix.pid
    name = _text(record, _LEVEL)
    prefix.level = (level(name) if name else None) or prefix.level
    urgency = record.get("PRIORITY")  # journald: syslog's numbers, as text
    if isinstance(urgency, str) and len(urgency) == 1 and urgency in "01234567":
        prefix.level = SYSLOG_LEVELS[int(urgency)]
    stream = record.get("stream")
    prefix.stream = stream if stream in _STREAMS else prefix.stream
    prefix.names.append(_family(record))
    prefix.traceback = _traceback(record, message)
    if prefix.traceback is not None:
        return _raised(prefix.traceback)[-1]
    return message.removesuffix("\n")


def _traceback(record: dict[str, Any], message: str) -> str | None:
    """The traceback that a record holds, with what was raised below it."""
    error = record.get("error")
    nested = _text(error, ("stack_trace",)) if isinstance(error, dict) else None
    for text in (_text(record, _RAISED), nested, message):
        if text and TRACEBACK in text and len(_raised(text)) > 1:
            return text
    return None


def _raised(text: str) -> list[str]:
    """The lines of a traceback that are not of a frame; the last is of the exception."""
    return [line for line in text.splitlines() if line[:1].strip()]


def _family(record: dict[str, Any]) -> str:
    if "log" in record and "stream" in record:
        return "docker"
    if "__REALTIME_TIMESTAMP" in record:
        return "journal"
    return "stern" if "podName" in record else "json"


def _text(record: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        value = record.get(key)
        if isinstance(value, str):
            return value
    return None


def _number(record: dict[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        value = record.get(key)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 9:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _RANK_LIMIT:
            return value
    return None


def _time(record: dict[str, Any]) -> Stamp | None:
    journal = record.get("__REALTIME_TIMESTAMP")  # microseconds since 1970, as text
    if isinstance(journal, str) and journal.isascii() and journal.isdigit() and len(journal) < 18:
        return Stamp(int(journal) * 1000, utc_offset_s=0, resolution_ns=1000)
    for key in _TIME:
        value = record.get(key)
        if isinstance(value, str):
            found = _ISO.match(value)
            if found:
                return stamp(iso_day(found[1]), found[2], found[3], found[4])
        elif isinstance(value, int | float) and not isinstance(value, bool):
            return _since_1970(value)
    return None


def _since_1970(value: float) -> Stamp | None:
    """Seconds, or by size milli-, micro- or nanoseconds since 1970."""
    for unit in (1_000_000_000, 1_000_000, 1000, 1):
        if 946_684_800 <= value * unit / 1_000_000_000 < 7_000_000_000:
            if isinstance(value, int):
                return Stamp(value * unit, utc_offset_s=0, resolution_ns=unit)
            ns = round(value * unit / 1000) * 1000  # a float of today's seconds holds microseconds
            return Stamp(ns, utc_offset_s=0, resolution_ns=max(1000, unit // 1_000_000))
    return None
