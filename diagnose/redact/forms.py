"""Secrets that their form gives away: tokens of the issuers, keys in base64.

And what all searches for secrets share: spans, text in lower case, values that are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import NamedTuple

from diagnose.lazy import expression
from diagnose.redact.issuers import SHAPES, Shape

_LONG = 4096  # characters from which on making an automaton pays
JUDGED = 128  # characters of a value that are looked at

_PLACEHOLDER = expression(
    r"(?:none|null|nil|nan|true|false|yes|no|on|off|str|int|bool|bytes|string|undefined|unset|empty"
    r"|missing|required|redacted|hidden|masked|default|unknown|invalid|failed|expired|not[ _-]set"
    r"|\W*|%[sdr])\Z"
    r"|<[^<>]{0,64}>|\*{2}|\.{3}|…|%\(|\{[\w.]{0,64}(?:![rsa])?\}|\{\{|\[|\$[{(]|x{4}",
    re.IGNORECASE,
)
_VARIABLE = expression(r"\$[A-Z_][A-Z0-9_]*\Z")


def words(text: str) -> frozenset[str]:
    """The words of `text`, as a set to look things up in."""
    return frozenset(text.split())


def words_in(text: str, wanted: tuple[str, ...]) -> Set[str]:
    """Those of `wanted`, which are ASCII, that are in `text`; after a long one looked for at once.

    One by one in the program that collects from nodes, which only has the standard library.
    """
    if len(text) >= _LONG or wanted in _AT_ONCE:
        with suppress(ImportError):
            literals = import_module("diagnose.ingest.literals")  # by name: that program lacks it
            if wanted not in _AT_ONCE:
                _AT_ONCE[wanted] = tuple(word.encode() for word in wanted)
            found = literals.held(text.encode(errors="replace"), _AT_ONCE[wanted])
            return {word.decode() for word in found}
    return {word for word in wanted if word in text}


_AT_ONCE: dict[tuple[str, ...], tuple[bytes, ...]] = {}  # words that there is an automaton for


def lowered(text: str) -> str:
    """`text` in lower case, every character in its old place."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(c.lower() if c.isascii() else c for c in text)


def placeholder(value: str) -> bool:
    """Whether a value only stands for one: `None`, `<redacted>`, `${HF_TOKEN}`."""
    return bool(_PLACEHOLDER.match(value) or _VARIABLE.match(value))


class Span(NamedTuple):
    """Characters `start` to `end` of a text are of this kind (`hf-token`, `password`, …).

    `value` is what they are a part of, where they are not all of it.
    """

    start: int
    end: int
    kind: str
    value: str = ""


_STARTS = tuple(dict.fromkeys(shape.start for shape in SHAPES))

# What a report or a reader of long lines leaves where it cut.
_CUT = r"(?= ?(?:…|\.{3})|\Z)"
_CUT_LEAST = 4  # characters after the beginning of a token whose rest was cut off


def possible(text: str) -> tuple[Shape, ...]:
    """The forms that may occur in `text`, of any number of lines, or in a part of it."""
    starts = words_in(text, _STARTS)
    return tuple([shape for shape in SHAPES if shape.start in starts]) if starts else ()


def shaped(line: str, forms: Sequence[Shape]) -> Iterator[Span]:
    """What has one of these forms, also where the end was cut off."""
    for form in forms:
        if form.start not in line:
            continue
        whole, cut = _patterns(form)
        for match in whole.finditer(line):
            found = match.group()
            if _begins(line, match.start(), found) and _plausible(form.start, found):
                yield Span(*match.span(match.lastindex or 0), form.kind)
        for match in cut.finditer(line) if cut else ():
            if _begins(line, match.start(), "") and _random(match.group()[len(form.start) :]):
                yield Span(*match.span(), form.kind)


@cache  # when first needed: all of them take longer than a short report
def _patterns(form: Shape) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
    """What a form looks like, and where its end was cut off."""
    if not form.body:
        return re.compile(form.head), None
    whole = re.compile(f"{form.head}{form.body}{{{form.least},}}+{form.after}")
    if form.least <= _CUT_LEAST:
        return whole, None
    return whole, re.compile(f"{form.head}{form.body}{{{_CUT_LEAST},}}+{_CUT}")


def mixed(text: str) -> bool:
    """Whether both letters and digits occur."""
    return any(c.isdigit() for c in text) and any(c.isalpha() for c in text)


def drawn(text: str) -> bool:
    """Whether a short word looks drawn: none that joins words and numbers, as Llama3Chat does."""
    if len(text) < 8 or not mixed(text):
        return False
    kinds = "".join("d" if c.isdigit() else "a" if c.isalpha() else "." for c in text)
    if kinds.count("ad") + kinds.count("da") >= 4:
        return True
    small = "".join(c if c.islower() else " " for c in text).split()
    return text.lower() != text != text.upper() and max(map(len, small), default=0) <= 3


def _random(text: str) -> bool:
    """Whether a few characters look drawn, not written: digits or small and capital letters."""
    return mixed(text) or (text.lower() != text and text.upper() != text and text.isalnum())


def _begins(text: str, at: int, found: str) -> bool:
    r"""Whether no word goes on into `at`.

    The n of a written-out `\n` is none, nor what an underscore glues to a long token, as in names
    of files.
    """
    if at == 0 or not (text[at - 1].isalnum() or text[at - 1] == "_"):
        return True
    if text[at - 1] == "_":
        return len(found) >= 20 and mixed(found) and not found.islower()
    return text[max(0, at - 2) : at] in (r"\n", r"\r", r"\t")


def _plausible(start: str, found: str) -> bool:
    """What a pattern cannot say in linear time."""
    if start == "eyJ":  # three parts with dots between; five when encrypted
        parts = found.rstrip(".").split(".")
        return len(parts) in (3, 5) and min(len(parts[0]), len(parts[-2])) >= 8
    if start == "sk-":  # not a pod called sk-training-resnet50-worker-0
        rest = found[3:]
        known = rest.startswith(("proj-", "ant-", "or-v1-", "svcacct-", "admin-", "lf-"))
        return known or "-" not in rest or (mixed(rest) and rest != rest.lower())
    return True


# --- base64 of a key file ------------------------------------------------------------------------

# "PRIVATE KEY" in base64, by its place in the three bytes that make four characters.
_ENCODED = ("UFJJVkFURSBLRV", "BSSVZBVEUgS0VZ", "QUklWQVRFIEtFW")
_BEGIN = "LS0tLS1CRUdJTi"  # -----BEGIN
KEY_STARTS = (_BEGIN, *_ENCODED)  # a line with such a key has one of these
_PUBLIC = ("BDRVJUSUZJQ0FURS", "BQVUJMSUMgS0VZ", "BSU0EgUFVCTElD")  # CERTIFICATE, PUBLIC KEY …
_RUN = re.compile(r"[A-Za-z0-9+/_-](?:[A-Za-z0-9+/_-]|\\n(?=[A-Za-z0-9+/]))*={0,2}")


def encoded_keys(line: str) -> Iterator[Span]:
    """Private keys in base64, as in the secrets of Kubernetes; certificates are none."""
    if not any(map(line.__contains__, KEY_STARTS)):
        return
    for match in _RUN.finditer(line):
        found = match.group()
        begin = found.find(_BEGIN)
        private = begin >= 0 and not found.startswith(_PUBLIC, begin + len(_BEGIN))
        if private or any(part in found for part in _ENCODED):
            yield Span(*match.span(), "private-key")
