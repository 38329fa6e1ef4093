"""Jobs that nobody could explain, grouped by how they end, and those that could not be read.

What differs from job to job (numbers, addresses, paths, hosts) is taken out of the text; what then
reads alike is one group, and its `pattern` is a first draft of the signature to write.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from diagnose.fleet.causes import hours
from diagnose.fleet.columns import UNKNOWN, Coded, span, split, total
from diagnose.fleet.jobs import Jobs

MAX_EXAMPLES = 5
MAX_KEY = 300  # characters of a normalised text
_HIDDEN = "\x00"

# In this order; each is written as its name in the normalised text and as its regex in the pattern.
_VARIABLE = (
    ("uuid", r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", r"[0-9a-fA-F-]{36}"),
    (
        "time",
        r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?",
        r"\S+(?: \S+)?",
    ),
    ("time", r"\b\d\d:\d\d:\d\d(?:[.,]\d{1,9})?", r"\S+"),
    ("address", r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b", r"\S+"),
    ("path", r"(?<![\w.])(?:[\w.-]{0,40}:/)?/[\w.+=@-]{1,200}(?:/[\w.+=@-]{1,200})*/?", r"\S+"),
    ("hex", r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,64}\b", r"\w+"),
    ("n", r"\d+(?:[.,]\d+)*", r"[\d.,]+"),
)


@dataclass(frozen=True, slots=True)
class Gap:
    """Jobs that end alike. `text` is normalised, `example` as it stood, `pattern` a regex."""

    text: str
    pattern: str
    example: str
    jobs: int
    gpu_hours_lost: float | None
    first_seen: str | None
    last_seen: str | None
    frameworks: list[str]
    examples: list[str]


def unknowns(jobs: Jobs) -> list[Gap]:
    """The groups of jobs of class `unknown` that were read in full, the largest first."""
    rows = jobs.troubled & jobs.cause.where(UNKNOWN.__eq__) & ~jobs.error.where(bool)
    return _grouped(jobs, np.flatnonzero(rows), jobs.ending, frozenset(jobs.hosts.values))


def unreadable(jobs: Jobs) -> list[Gap]:
    """The groups of errors of archives that could not be read, or not enough for a verdict."""
    in_part = jobs.troubled & jobs.cause.where(UNKNOWN.__eq__) & jobs.error.where(bool)
    errors = jobs.error.renamed(lambda text: text or "no error was recorded")
    return _grouped(jobs, np.flatnonzero(jobs.unreadable | in_part), errors, frozenset())


def _grouped(jobs: Jobs, rows: np.ndarray, texts: Coded[str], hosts: frozenset[str]) -> list[Gap]:
    rows = jobs.in_time(rows)
    codes, which = np.unique(texts.codes[rows], return_inverse=True)
    normal = Coded(which, [texts.values[code] for code in codes.tolist()]).renamed(
        lambda text: normalise(text, hosts)
    )
    found = []
    for code, at in split(normal.codes):
        group, text = rows[at], normal.values[code]
        first, last = span(jobs.time[group])
        names = np.unique(jobs.frameworks.among(group)).tolist()
        found.append(
            Gap(
                text=text,
                pattern=pattern(text),
                example=texts.of(group[-1:])[0],
                jobs=len(group),
                gpu_hours_lost=hours(total(jobs.gpu_hours_lost[group])),
                first_seen=first,
                last_seen=last,
                frameworks=sorted(jobs.frameworks.values[name] for name in names),
                examples=jobs.names(group[-MAX_EXAMPLES:])[::-1],
            )
        )
    found.sort(key=lambda gap: (-gap.jobs, -(gap.gpu_hours_lost or 0.0), gap.text))
    return found


def normalise(text: str, hosts: Collection[str] = frozenset()) -> str:
    """One line with `<n>`, `<path>`, `<host>` … for what differs from job to job."""
    line = " ".join(text[: 4 * MAX_KEY].replace(_HIDDEN, "").split())
    line = re.sub(
        r"[A-Za-z][\w.-]{0,252}", lambda m: f"<{_HIDDEN}h>" if m[0] in hosts else m[0], line
    )
    for place, (_, wanted, _) in enumerate(_VARIABLE):
        line = re.sub(wanted, f"<{_HIDDEN}{chr(65 + place)}>", line)
    line = line.replace(f"<{_HIDDEN}h>", "<host>")
    for place, (name, _, _) in enumerate(_VARIABLE):
        line = line.replace(f"<{_HIDDEN}{chr(65 + place)}>", f"<{name}>")
    return line if len(line) <= MAX_KEY else line[: MAX_KEY - 1].rstrip() + "…"


def pattern(normal: str) -> str:
    """A regular expression for lines like a normalised one: a draft for `match` of a signature."""
    regexes = {name: regex for name, _, regex in reversed(_VARIABLE)} | {"host": r"\S+"}
    parts = re.split(r"<(uuid|time|address|path|hex|n|host)>", normal.removesuffix("…"))
    return "".join(
        regexes[part] if index % 2 else re.escape(part).replace(r"\ ", " ")
        for index, part in enumerate(parts)
    )
