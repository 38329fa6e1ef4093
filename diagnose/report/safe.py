"""Makes text from logs fit to be shown: hostile characters out, secrets masked, length bounded.

Every report calls `safe` once, so no report has to remember which field came from a log. Text is
cut after masking: half a secret may no longer look like one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from diagnose.diagnosis import Diagnosis
from diagnose.lazy import expression
from diagnose.redact.redactor import Redactor, secrets_only

MAX_TEXT = 2000  # characters of any one string
MAX_ITEMS = 20_000  # of any one list; ranks are the long ones
MAX_RAW = 64_000  # characters of any one string that are searched for secrets

T = TypeVar("T")

# CSI, OSC/DCS/PM/APC strings with their end, two-character escapes; ECMA-48. The string form is
# bounded so that an unfinished one does not swallow the rest of a long text.
_ESCAPES = expression(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_UNPRINTABLE = expression(r"[^ -~]")
_INVISIBLE = expression(r"[^ -~\n]")


def clean(text: str, *, limit: int = MAX_TEXT, lines: bool = False) -> str:
    """`text` without escape codes, control, bidi and other invisible characters.

    Any white space becomes a space; with `lines` newlines stay. What is longer than `limit`
    characters ends in "…".
    """
    text = text[: 8 * limit]
    if text.isprintable():  # as most are: one line with nothing in it to take out
        text = cut(text.rstrip(), limit)
        return text if lines else text.lstrip()
    text = _ESCAPES.sub("", text)
    if lines:
        return "\n".join(_one_line(line, limit) for line in text.splitlines())[: limit + 1]
    return _one_line(text, limit).lstrip()


def safe(diagnosis: Diagnosis, redactor: Redactor | None, *, why: bool = False) -> Diagnosis:
    """A copy whose every string is clean, masked and bounded; what is copied keeps its indentation.

    What is for pictures is left out, and the reasons where nobody asks `why`. Without `redactor`
    secrets stay.
    """
    plain = replace(diagnosis, graph=None, topology=None, places=[])
    if not why:
        plain = replace(plain, reasons=[])
    if redactor is not None:
        learn(plain, redactor)

    def one(text: str, name: str) -> str:
        return shown(text, redactor, lines=name == "lines")

    return each(plain, one)


def shown(
    text: str, redactor: Redactor | None, limit: int = MAX_TEXT, *, lines: bool = False
) -> str:
    """`text` clean, then masked (a secret may lie over lines), then in one line, then cut."""
    if redactor is None:
        return clean(text, limit=limit, lines=lines)
    hidden = redactor.text(clean(text, limit=MAX_RAW, lines=True))
    return cut(hidden if lines else hidden.replace("\n", " ").strip(), limit)


def masked(diagnosis: Diagnosis, redactor: Redactor | None = None) -> Diagnosis:
    """A copy with secrets masked and nothing else changed: for JSON, which escapes by itself."""
    return masked_strings(replace(diagnosis, places=[]), redactor)


def masked_strings(value: T, redactor: Redactor | None = None) -> T:
    """Like `masked`, for any value; the default `redactor` leaves people."""
    redactor = redactor or secrets_only()
    hidden = {text: _masked(text, redactor) for text in learn(value, redactor)}
    return each(value, lambda text, _name: hidden[text])


def _masked(text: str, redactor: Redactor) -> str:
    hidden = redactor.text(text)
    if text.isprintable():
        return hidden
    # What an escape code or an invisible character cuts in two is found without it.
    bare = clean(text, limit=MAX_RAW, lines=True)
    found = redactor.text(bare)
    return hidden if found == bare else found


def learn(value: object, redactor: Redactor) -> Iterable[str]:
    """Let a redactor know all secrets in the strings of a value; gives these, each once."""
    texts: dict[str, None] = {}
    _collect(value, texts)
    for text in texts:
        redactor.learn(clean(text, limit=MAX_RAW, lines=True))
    return texts


def _collect(value: object, texts: dict[str, None]) -> None:
    if isinstance(value, str):
        texts[value] = None
    elif isinstance(value, list | tuple):
        for item in () if _numbers(value) else value[:MAX_ITEMS]:
            _collect(item, texts)
    elif isinstance(value, dict):
        for key, item in value.items():
            _collect(key, texts)
            _collect(item, texts)
    elif is_dataclass(value):
        for field in fields(value):
            _collect(getattr(value, field.name), texts)


def masked_line(text: str, limit: int) -> str:
    """One clean line for a message: secrets masked, then cut."""
    return shown(text, secrets_only(), limit)


def cut(text: str, limit: int) -> str:
    """At most `limit` characters; what is longer ends in "…"."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def escaped(document: str) -> str:
    """A JSON document in which every invisible character is written as its code."""
    return document if document.isprintable() else _INVISIBLE.sub(_code, document)


def _code(match: re.Match[str]) -> str:
    char = match.group()
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _one_line(text: str, limit: int) -> str:
    return cut(_UNPRINTABLE.sub(_printable, text).rstrip(), limit)


def _printable(match: re.Match[str]) -> str:
    char = match.group()
    if char.isspace():
        return " "
    return char if char.isprintable() else ""


def _numbers(values: Sequence[object]) -> bool:
    """Whether they are but numbers, as in lists of thousands of ranks: these stay as they are."""
    return {*map(type, values)} == {int}


def _items(values: Sequence[object], change: Any, name: str) -> list[object]:
    kept = values[:MAX_ITEMS]
    return [*kept] if _numbers(kept) else [each(value, change, name) for value in kept]


def each(value: T, change: Any, name: str = "") -> T:
    """`value` with `change(text, field name)` applied to every string inside."""
    if isinstance(value, str):
        return cast(T, change(value, name))
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, list):
        return cast(T, _items(value, change, name))
    if isinstance(value, tuple):
        return cast(T, tuple(_items(value, change, name)))
    if isinstance(value, dict):
        return cast(T, {each(k, change): each(v, change) for k, v in value.items()})
    if is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: each(getattr(value, f.name), change, f.name) for f in fields(value)}
        return cast(T, replace(value, **changes))
    return value
