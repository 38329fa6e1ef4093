"""Lines that are one JSON object (FORMATS 1.4, 1.6, 1.7).

Docker's json-file, JSON loggers, `journalctl -o json` and stern's `-o json`.
"""

from __future__ import annotations

import json
from typing import Any

from diagnose.lazy import expression
from diagnose.parse.stamps import ISO_DATE, ISO_TIME, ISO_ZONE, iso_day, keep, refusals, stamp
from diagnose.parse.tracebacks import TRACEBACK
from diagnose.parse.who import SYSLOG_LEVELS, Prefix, Stamp, level

_LIMIT = 1 << 20  # characters; longer lines are left alone
_MESSAGE = ("log", "msg", "message", "MESSAGE", "text", "event", "textPayload")
_TIME = ("time", "ts", "timestamp", "@timestamp", "asctime")
_LEVEL = ("level", "levelname", "severity", "log_level", "log.level")
_RANK = ("rank", "RANK", "global_rank", "process_index")
_LOCAL_RANK = ("local_rank", "LOCAL_RANK")
_POD = ("podName", "pod_name")
_HOST = (*_POD, "host", "hostname", "host.name", "node", "_HOSTNAME")
# Where collectors of logs put what they know of who wrote a line, the surest last: Google Cloud,
# fluentd and filebeat on Kubernetes, and labels that a program adds of its own.
_ABOUT = (("resource", "labels"), ("kubernetes",), ("kubernetes", "labels"), ("labels",))
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
    without a message or a traceback are left alone: a metrics record is its own message.
    """
    if len(line) > _LIMIT or not line.rstrip().endswith("}"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        refusals.count += 1  # a number with a leading zero is none
        return None
    if not isinstance(record, dict):
        return None
    payload = record.get("jsonPayload")  # Google Cloud Logging: what the program logged itself
    record = {**record, **payload} if isinstance(payload, dict) else record
    message = _text(record, _MESSAGE)
    traceback = _traceback(record, message)
    if message is None and traceback is None:
        return None
    found = _time(record)
    if found is not None:
        keep(prefix, found)
    about = _about(record)
    rank, local_rank = _number(about, _RANK), _number(about, _LOCAL_RANK)
    prefix.rank = rank if rank is not None else prefix.rank
    prefix.local_rank = local_rank if local_rank is not None else prefix.local_rank
    prefix.host = _text(about, _HOST) or prefix.host
    prefix.pod = prefix.pod or _text(about, _POD) is not None
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
    prefix.traceback = traceback
    if traceback is not None:
        return _raised(traceback)[-1]
    return None if message is None else message.removesuffix("\n")


def _about(record: dict[str, Any]) -> dict[str, Any]:
    """The record and its labels in one; of `k8s-pod/rank` the name is `rank`."""
    about: dict[str, Any] = {}
    for path in _ABOUT:
        found: Any = record
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, dict):
            about |= {key.rpartition("/")[2]: value for key, value in found.items()}
    if isinstance(pod := about.get("pod"), dict):
        about["pod_name"] = pod.get("name")
    return {**about, **record}


def _traceback(record: dict[str, Any], message: str | None) -> str | None:
    """The traceback that a record holds, with what was raised below it."""
    error = record.get("error")
    nested = _text(error, ("stack_trace",)) if isinstance(error, dict) else None
    in_parts = next((record[key] for key in _RAISED if isinstance(record.get(key), list)), None)
    for text in (_text(record, _RAISED), nested, in_parts and _joined(in_parts), message):
        if text and TRACEBACK in text and len(_raised(text)) > 1:
            return text
    return None


def _joined(raised: list[Any]) -> str | None:
    """A traceback that structlog wrote as data (`dict_tracebacks`), as Python prints it.

    The exception that ended it comes first there, and last in what Python prints.
    """
    blocks = []
    for one in reversed(raised):
        frames = one.get("frames") if isinstance(one, dict) else None
        if not isinstance(frames, list) or not isinstance(one.get("exc_type"), str):
            return None
        where = [
            f'  File "{frame.get("filename")}", line {frame.get("lineno")}, in {frame.get("name")}'
            for frame in frames
            if isinstance(frame, dict)
        ]
        name, value = one["exc_type"], str(one.get("exc_value") or "")
        blocks.append("\n".join([f"{TRACEBACK}:", *where, f"{name}: {value}" if value else name]))
    return "\n\n".join(blocks)


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
