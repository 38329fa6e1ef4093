"""What is left of a text without what differs from run to run: numbers, addresses, paths, times."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache

from diagnose.lazy import expression

_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_DAYS = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_DOMAINS = "internal|local|cluster|svc|lan"
# In this order: what is inside another form comes later.
_IDS = [
    (expression(r"(?i)\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<id>"),
    (expression(r"(?i)\b[a-z][a-z0-9+.\-]{1,15}://[^\s'\",)\]]+"), "<url>"),
]
_PATHS = [
    (expression(r"(?<![\w.])(?:~|\.{1,2})?(?:/[\w.@%+=:,~\-]+)+/?"), "<path>"),
    (expression(r"\b[A-Za-z]:\\[^\s'\"]+"), "<path>"),
]
_ADDRESSES = [
    (expression(r"(?i)\b0x[0-9a-f]+\b"), "<hex>"),
    (expression(r"(?i)\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{6,}\b"), "<hex>"),
    (expression(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?:<\d+>)?"), "<ip>"),
    (expression(rf"(?<![\w.\-])[\w\-]+(?:\.[\w\-]+){{0,8}}\.(?:{_DOMAINS})\b"), "<host>"),
]
_NUMBERS = [
    (expression(rf"\b(?:{_DAYS}|{_MONTHS})\b"), "<d>"),
    (expression(r"[+-]?\d+(?:[.,:]\d+)*(?:e[+-]?\d+)?"), "<n>"),
    (expression(r"\[<n>(?:, ?<n>)*(?:, ?\.\.\.)?\]|<n>(?:[,;|] ?<n>)+"), "<n>"),
    (expression(r"\s+"), " "),
]
_NAME = expression(r"(?<![\w.\-])\w[\w.\-]*")
_TEXTS = [*_IDS, *_PATHS, *_ADDRESSES, *_NUMBERS]
# Of a value that a run states, what another run of the same job states differently.
_VALUES = [
    *_IDS,
    *_ADDRESSES,
    (expression(r"(?:/var)?/tmp/\S*"), "<path>"),
    (expression(r"\d{4}-?\d\d-?\d\d(?:[T_ -]?\d\d[:-]?\d\d(?:[:-]?\d\d)?)?"), "<d>"),
    (expression(r"(?<=[/_.\-])\d{5,}(?![\w.])"), "<n>"),
    (expression(r"\b1[5-9]\d{8}(?:\d{3})?(?:\.\d+)?\b"), "<d>"),  # seconds since 1970
]


def alike(text: str, hosts: Iterable[str] = ()) -> str:
    """A message without what differs from run to run; `hosts` are names to leave out as well.

    Who asks for many lines gives a frozenset: there may be thousands of hosts.
    """
    known, other = _names(frozenset(hosts))
    if known:
        text = _NAME.sub(lambda found: _without(found[0], known), text)
    if other is not None:
        text = other.sub("<host>", text)
    for form, instead in _TEXTS:
        text = form.sub(instead, text)
    return text.strip()


def _without(name: str, hosts: Collection[str]) -> str:
    """A name as <host>, if it is one or begins with one up to a dot."""
    end = len(name)
    while end > 0:
        if name[:end] in hosts:
            return f"<host>{name[end:]}"
        end = name.rfind(".", 0, end)
    return name


@lru_cache(8)
def _names(hosts: frozenset[str]) -> tuple[frozenset[str], re.Pattern[str] | None]:
    """Names as programs write them, and an expression for the few that have other characters."""
    known = frozenset(filter(_NAME.fullmatch, hosts))
    others = sorted(filter(None, hosts - known), key=len, reverse=True)
    form = rf"(?<![\w.\-])(?:{'|'.join(map(re.escape, others))})(?![\w\-])"
    return known, re.compile(form) if others else None


def lasting(value: str) -> str:
    """A stated value without what another run of the same job states differently."""
    for form, instead in _VALUES:
        value = form.sub(instead, value)
    return value
