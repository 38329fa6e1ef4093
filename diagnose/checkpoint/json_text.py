"""JSON files, read within bounds of memory, and whether they were cut off."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from diagnose.checkpoint.damaged import DamagedError
from diagnose.text.ranks import counted

MAX_BYTES = 64 << 20
MAX_WEIGHT = 150 << 20  # bytes that the parsed content may take, estimated from above
SMALL = 1 << 20  # bytes whose content cannot take too much, whatever it is
_BACKSLASHES = re.compile(rb"\\++.?", re.DOTALL)
_ESCAPES = re.compile(rb"(?:\\.)+", re.DOTALL)
_STRING = re.compile(rb'"[^"]*+"?+')  # the last one of a piece may go on in the next
_CUT_OFF = "ends in the middle of its JSON text"
_PIECE = 1 << 20
_ESCAPE = len(r'"\uD83D\uDE0')  # characters from which on an escape is not cut off
# What of a literal or number can be left behind the last character that makes sense.
_CUT_OFF_WORD = re.compile(
    r"|-|t|tr|tru|f|fa|fal|fals|n|nu|nul|N|Na|-?I(?:n|nf|nfi|nfin|nfini|nfinit)?|\.|[eE][+-]?"
)


class _TooHeavy:
    """Stands for content that was checked but not kept."""


TOO_HEAVY = _TooHeavy()


def parse(data: bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The content of a JSON file; TOO_HEAVY where only its shape has been checked.

    `pairs` makes of an object what json's object_pairs_hook does. JSON lines under the name of a
    JSON file give TOO_HEAVY, too. Raises DamagedError: `partial` where the text was cut off.
    """
    if len(data) > MAX_BYTES:
        raise DamagedError("unknown", f"has {counted(len(data), 'byte')}: too many to check")
    whole = data.rstrip(b"\0")
    if len(whole) < len(data):
        zeros = counted(len(data) - len(whole), "zero byte")
        raise DamagedError("partial", f"ends in {zeros}: its end was never written")
    if len(data) > SMALL and _check_shape(data) > MAX_WEIGHT:
        return TOO_HEAVY
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.end == len(data) and error.reason == "unexpected end of data":
            raise DamagedError("partial", _CUT_OFF) from None
        raise DamagedError(
            "corrupt", f"is not valid JSON: {error.reason} at byte {error.start:,}"
        ) from None
    if not text.strip():
        raise DamagedError("partial", "is blank where JSON should be")
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        if _is_lines(text, error):
            return TOO_HEAVY
        raise _damage(text, error) from None
    except RecursionError:
        raise DamagedError("unknown", "is nested too deeply to check") from None
    except DamagedError:
        raise
    except ValueError:  # a number of thousands of digits
        raise DamagedError("corrupt", "has an unreadable number") from None


def _damage(text: str, error: json.JSONDecodeError) -> DamagedError:
    rest = text[error.pos :].rstrip()
    escape = error.msg.startswith("Invalid \\") and len(rest) < _ESCAPE
    if error.msg.startswith("Unterminated") or escape or _CUT_OFF_WORD.fullmatch(rest):
        return DamagedError("partial", _CUT_OFF)
    what = error.msg[0].lower() + error.msg[1:]
    return DamagedError("corrupt", f"is not valid JSON: {what} (line {error.lineno:,})")


def _is_lines(text: str, error: json.JSONDecodeError) -> bool:
    """Whether it is one JSON value a line, as some loggers write into files named .json."""
    first, _, rest = text.partition("\n")
    if error.msg != "Extra data" or error.pos <= len(first) or not rest.startswith(("{", "[")):
        return False
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return False
    return True


def _check_shape(data: bytes) -> int:
    """Bytes that the parsed content takes at most, about (CPython 3.11 to 3.13).

    Raises DamagedError where strings or brackets do not close.
    """
    counts = dict.fromkeys((b"{", b"[", b"}", b"]", b",", b":"), 0)
    for bare in _without_strings(data):
        for mark in counts:
            counts[mark] += bare.count(mark)
    opened, closed = counts[b"{"] + counts[b"["], counts[b"}"] + counts[b"]"]
    if opened > closed:
        raise DamagedError("partial", _CUT_OFF)
    if closed > opened:
        raise DamagedError("corrupt", "is not valid JSON: it closes more brackets than it opens")
    width = 1 if data.isascii() else 4 if max(data) >= 0xF0 else 2
    containers = 240 * counts[b"{"] + 96 * counts[b"["]
    return containers + 80 * counts[b","] + 100 * counts[b":"] + 2 * width * len(data)


def _without_strings(data: bytes) -> Iterator[bytes]:
    """The text without its strings, in pieces. Raises DamagedError where a string does not end."""
    at, inside = 0, False
    while at < len(data):
        cut = _BACKSLASHES.match(data, min(at + _PIECE, len(data)) - 1)
        end = cut.end() if cut else min(at + _PIECE, len(data))
        plain = _ESCAPES.sub(b"", data[at:end])
        if inside:
            plain = b'"' + plain
        inside = plain.count(b'"') % 2 == 1
        yield _STRING.sub(b"", plain)
        at = end
    if inside:
        raise DamagedError("partial", _CUT_OFF)
