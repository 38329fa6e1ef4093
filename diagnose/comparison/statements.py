"""What lines state of a run by name: versions, environment, arguments, machines.

How lines do that, and which names say nothing of a run, are rows of `formats/statements/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from diagnose.comparison.model import Kind
from diagnose.formats import table
from diagnose.parse.path import node_like

_LINE = 32 << 10  # characters of a line that are looked at; one may hold all arguments
_LONG = 200  # characters of a value
_HOST = "host"
_MARKS = ("=", ": ", "--", " ..", "ersion", " to ", " on ")


class Stated(NamedTuple):
    """What a line says of its run; the value is "" where a name alone is there."""

    kind: Kind
    name: str
    value: str


def statements(message: str) -> Iterator[Stated]:
    """What a message states, each name once."""
    text = message[:_LINE]
    seen = set()
    for kind, holds, form in _forms():
        if kind == _HOST or holds not in text:
            continue
        for found in form.finditer(text):
            name, value = found["name"].rstrip("-."), (found["value"] or "").strip("'\"")
            name = name.lower() if kind == "version" else name
            if name not in seen and not _passing(name):
                seen.add(name)
                yield Stated(kind, name, value.rstrip(".:")[:_LONG])


def hosts_in(message: str) -> Iterator[str]:
    """The machines that a message names where it says that they are some."""
    for kind, _, form in _forms():
        for found in form.finditer(message[:_LINE]) if kind == _HOST else ():
            name = found["name"].rstrip(".-")
            if node_like(name):
                yield name


def may_state(message: str) -> bool:
    """Whether a message may state anything, whatever its numbers."""
    return any(mark in message for mark in _MARKS) or message.count(".") > 1


def _passing(name: str) -> bool:
    """Whether it is a measurement, or says what belongs to one run."""
    *ahead, last = name.lower().replace("-", "_").replace(".", "_").split("_")
    if last in _names("run"):
        return ahead[-1:] != ["per"]
    return last in _names("moment") and not (name.startswith("--") or name.isupper())


@cache
def _forms() -> list[tuple[Kind, str, re.Pattern[str]]]:
    rows = table.read(table.STATEMENTS).rows
    return [
        (row["kind"], row.get("holds", ""), re.compile(row["match"]))
        for row in rows
        if "kind" in row
    ]


@cache
def _names(of: str) -> frozenset[str]:
    rows = table.read(table.STATEMENTS).rows
    return frozenset(name for row in rows if row.get("of") == of for name in row["names"])
