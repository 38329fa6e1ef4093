"""Reader of torch elastic's error.json (FORMATS 3.3): what a rank's entry point raised."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_LIMIT = 8 << 20  # bytes; a traceback is a few kilobytes
_DEEPEST = 4  # a parent that copies its child's file may wrap `message` once more


@dataclass(frozen=True, slots=True)
class ElasticError:
    """One error file. `type` is the exception's class as printed ("RuntimeError"), if any.

    `timestamp` is in seconds since 1970 (UTC); `error_code` is set where the parent wrote one.
    """

    message: str
    type: str | None = None
    traceback: str | None = None
    timestamp: float | None = None
    error_code: int | None = None


def read_error_json(data: bytes | str) -> list[ElasticError]:
    """The errors in one error.json; empty if it is none, is cut off or is too large.

    Accepts `{"message": {"message", "extraInfo": {"py_callstack", "timestamp"}, "errorCode"}}` of
    `@record` and `{"message": text, "timestamp": int}` of the C++ handler; several objects, one a
    line, give one error each.
    """
    if len(data) > _LIMIT:
        return []
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    whole = _load(text)
    records = [whole] if whole is not None else [_load(line) for line in text.splitlines()]
    found = [_error(record) for record in records if record is not None]
    return [error for error in found if error is not None]


def _load(text: str) -> dict[str, Any] | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _error(record: dict[str, Any]) -> ElasticError | None:
    code, stamp, traceback = None, None, None
    message: object = record
    for _ in range(_DEEPEST):
        if not isinstance(message, dict):
            break
        extra = message.get("extraInfo")
        info = extra if isinstance(extra, dict) else {}
        code = _whole(message.get("errorCode")) if code is None else code
        for holder in (info, message):
            stamp = _seconds(holder.get("timestamp")) if stamp is None else stamp
        stack = info.get("py_callstack")
        traceback = stack if traceback is None and isinstance(stack, str) else traceback
        message = message.get("message")
    if not isinstance(message, str):
        return None
    return ElasticError(message, _type(message), traceback, stamp, code)


def _type(message: str) -> str | None:
    name, colon, _ = message.partition(":")
    name = name.strip()
    dotted = name.replace(".", "").replace("_", "")
    if len(name) < 120 and dotted.isalnum() and not name[0].isdigit():
        last = name.rpartition(".")[2]
        if colon or last.endswith(("Error", "Exception", "Interrupt", "Exit")):
            return name
    return None


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 < seconds < 2**33 else None


def _whole(value: object) -> int | None:
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 9:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
