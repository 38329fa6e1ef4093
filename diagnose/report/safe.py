"""Makes text from logs fit to be shown: hostile characters out, secrets masked, length bounded.

Every report calls `safe` once, so no report has to remember which field came from a log.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from diagnose.diagnosis import Diagnosis
from diagnose.report.redact import mask

MAX_TEXT = 2000  # characters of any one string
MAX_ITEMS = 20_000  # of any one list; ranks are the long ones

T = TypeVar("T")

# CSI, OSC/DCS/PM/APC strings with their end, two-character escapes; ECMA-48. The string form is
# bounded so that an unfinished one does not swallow the rest of a long text.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_UNPRINTABLE = re.compile(r"[^ -~]")


def clean(text: str, *, limit: int = MAX_TEXT, lines: bool = False) -> str:
    """`text` without escape codes, control, bidi and other invisible characters.

    Any white space becomes a space; with `lines` newlines stay. What is longer than `limit`
    characters ends in "…".
    """
    text = _ESCAPES.sub("", text[: 8 * limit])
    if lines:
        return "\n".join(_one_line(line, limit) for line in text.splitlines())[: limit + 1]
    return _one_line(text, limit).lstrip()


def safe(diagnosis: Diagnosis, hide: Callable[[str], str] = mask) -> Diagnosis:
    """A copy whose every string went through `clean` and `hide`; commands keep their lines.

    What is for pictures is left out.
    """
    plain = replace(diagnosis, graph=None, topology=None, places=[])
    return each(plain, lambda text, name: hide(clean(text, lines=name == "command")))


def masked(diagnosis: Diagnosis) -> Diagnosis:
    """A copy with secrets masked and nothing else changed: for JSON, which escapes by itself."""
    plain = replace(diagnosis, graph=None, topology=None, places=[])
    return each(plain, lambda text, _: mask(text))


def _one_line(text: str, limit: int) -> str:
    text = _UNPRINTABLE.sub(_printable, text).rstrip()
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _printable(match: re.Match[str]) -> str:
    char = match.group()
    if char.isspace():
        return " "
    return char if char.isprintable() else ""


def each(value: T, change: Any, name: str = "") -> T:
    """`value` with `change(text, field name)` applied to every string inside."""
    if isinstance(value, str):
        return cast(T, change(value, name))
    if isinstance(value, list):
        return cast(T, [each(item, change, name) for item in value[:MAX_ITEMS]])
    if isinstance(value, dict):
        return cast(T, {each(k, change): each(v, change) for k, v in value.items()})
    if is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: each(getattr(value, f.name), change, f.name) for f in fields(value)}
        return cast(T, replace(value, **changes))
    return value
