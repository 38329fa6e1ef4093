"""The corpus of secrets and look-alikes: the samples of all kinds, and `secrets.yaml`."""

import json
import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from urllib.parse import quote, quote_plus

import yaml

from diagnose.redact.credentials import FAMILIES

_HERE = Path(__file__).parent
KINDS = _HERE.parents[1] / "diagnose" / "formats" / "secrets"


def _read(path: Path) -> str:
    """A file without the "¦" that keeps it from having the exact format of real tokens."""
    return path.read_text(encoding="utf-8").replace("¦", "")


# By family.
ROWS = {name: json.loads(_read(KINDS / f"{name}.json")) for name in (*FAMILIES, "people")}
_SAMPLES = [pair for rows in ROWS.values() for row in rows for pair in row["samples"].items()]
_NEAR_MISSES = [
    line for rows in ROWS.values() for row in rows for line in row.get("near_misses", ())
]
_CORPUS = yaml.safe_load(_read(_HERE / "secrets.yaml"))
OTHERS: list[tuple[str, str]] = [(line, redacted) for line, redacted in _CORPUS["secrets"]]
SECRETS = [*OTHERS, *_SAMPLES]
INNOCENT: list[str] = [*_CORPUS["innocent"], *_NEAR_MISSES]
DOUBTFUL: list[str] = _CORPUS["doubtful"]

MASK = re.compile(r"\[([a-z]+(?:-[a-z]+)*)-\d+\]")
PEOPLE = {"user", "email"}


def values(line: str, redacted: str) -> dict[str, str]:
    """What redaction takes out of a line: value → kind."""
    kinds = MASK.findall(redacted)
    parts = [re.escape(part) for part in re.split(MASK.pattern.replace("(", "(?:", 1), redacted)]
    match = re.fullmatch("(.+?)".join(parts), line, re.S)
    assert match is not None, redacted
    return dict(zip(match.groups(), kinds, strict=True))


# How a log writes text otherwise, and what hides a secret from who looks for it as it is.
WRITTEN: dict[str, Callable[[str], str]] = {
    "percent signs": lambda text: quote(text, safe=""),
    "a form that was sent": quote_plus,
    "percent signs twice": lambda text: quote(quote(text)),
    "entities": escape,
    "numbers of characters": lambda text: re.sub(r"[^\w\s]", lambda m: f"&#{ord(m[0])};", text),
    "escapes of JSON": lambda text: re.sub(r"[^\w\s\\]", lambda m: f"\\u{ord(m[0]):04x}", text),
    "full-width signs": lambda text: text.translate({ord("="): "\uff1d", ord(":"): "\uff1a"}),
    "look-alike letters": lambda text: text.translate(str.maketrans("aeo", "\u0430\u0435\u043e")),
}


# Of the lines of secrets those that can be written so, each in one of the ways, and its values.
PLACES: list[tuple[str, dict[str, str]]] = [
    (written(line), {written(value): kind for value, kind in values(line, redacted).items()})
    for number, (line, redacted) in enumerate(SECRETS)
    for written in [[*WRITTEN.values()][number % len(WRITTEN)]]
    if line.isascii() and "\n" not in line and written(line) != line
]
