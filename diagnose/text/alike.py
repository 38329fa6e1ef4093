"""What is left of a text without what differs from run to run: numbers, addresses, paths, times."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
    """A message without what differs from run to run; `hosts` are names to leave out as well."""
    for host in sorted(filter(None, hosts), key=len, reverse=True):
        text = re.sub(rf"(?<![\w.\-]){re.escape(host)}(?![\w\-])", "<host>", text)
    for form, instead in _TEXTS:
        text = form.sub(instead, text)
    return text.strip()


def lasting(value: str) -> str:
    """A stated value without what another run of the same job states differently."""
    for form, instead in _VALUES:
        value = form.sub(instead, value)
    return value
