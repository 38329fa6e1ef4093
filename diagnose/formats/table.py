"""Rows of formats, from YAML or from the table that was made of it.

A start has no time for YAML: `prefixes.json` beside the folder holds the same, and is used where
its checksum is that of the files. `python -m diagnose.formats.table` writes it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from diagnose.lazy import expression

PREFIXES = Path(__file__).with_name("prefixes")
KEYS = frozenset(
    {"name", "tail", "match", "layer", "loose", "then", "holds", "check", "hook", "decode",
     "yields", "unless_known", "stays", "peeks", "tag", "samples", "refused"}
)  # fmt: skip
# What an expression may name in %{…}; those in lower case are groups of the same name.
_LEVELS = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|NOTICE|TRACE|SUCCESS"  # longest first
PIECES = {
    "date": r"(?P<date>\d{4}[-/]\d\d[-/]\d\d)",
    "time": r"(?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9})(?!\d))?",
    "zone": r"(?P<zone>Z|[+-]\d\d:?\d\d| UTC|)",
    "level": f"(?P<level>{_LEVELS})",
    "LEVELS": _LEVELS,
    "MONTHS": "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec",
    "WEEKDAYS": "Mon|Tue|Wed|Thu|Fri|Sat|Sun",
    "DAEMONS": "slurm|srun|systemd|earlyoom|kubelet|sshd|containerd|dockerd",
}
_PIECE = expression(r"%\{(\w+)\}")
_GROUP = expression(r"\(\?P<(\w+)>")
_GROUPS = frozenset(
    {"rank", "local_rank", "group_rank", "task", "dev", "pid", "host", "pod", "actor", "origin",
     "stream", "level", "priority", "time", "fraction", "zone", "half", "date", "year", "yy",
     "month", "month_name", "day", "month_day", "seconds", "microseconds", "unread", "path"}
)  # fmt: skip
_WHO = frozenset({"rank", "local_rank", "task", "dev", "host", "pod", "pid", "actor"})
_WHEN = frozenset({"time", "seconds", "microseconds"})
_BEYOND = frozenset({"tail", "then", "check", "hook", "decode", "stays"})
_LEFT_OUT = frozenset({"samples", "refused", "loose", "tag"})
OTHER = "é"  # stands for all characters beyond ASCII
_CHARACTERS = (*map(chr, range(0x20, 0x7F)), "\t", OTHER)


def numbered(pattern: str) -> str:
    """An expression of which a group that is there again becomes `name__2`."""
    seen: Counter[str] = Counter()

    def named(found: re.Match[str]) -> str:
        seen[found[1]] += 1
        return found[0] if seen[found[1]] == 1 else f"(?P<{found[1]}__{seen[found[1]]}>"

    return _GROUP.sub(named, pattern)


def starts(pattern: str) -> list[str]:
    """With which characters a match may begin, then with which behind a `[`."""
    import regex  # noqa: PLC0415  (only where the table is made)

    begins = partial(regex.compile(pattern).match, partial=True)
    firsts = [one for one in _CHARACTERS if begins(one)]
    seconds = [one for one in _CHARACTERS if "[" in firsts and begins("[" + one)]
    return ["".join(firsts), "".join(seconds)]


def written(folder: Path = PREFIXES) -> list[dict[str, Any]]:
    """The rows as the files of a folder have them, in the order in which they are tried."""
    import yaml  # noqa: PLC0415  (only where the table is made)

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    rows: list[dict[str, Any]] = []
    for path in files(folder):
        for row in yaml.load(path.read_bytes(), loader) or ():
            match = _PIECE.sub(lambda piece: PIECES[piece[1]], row["match"])
            if unknown := (row.keys() - KEYS) | (set(_GROUP.findall(match)) - _GROUPS):
                raise ValueError(f"{path.name}: unknown key or group {min(unknown)}")
            rows.append({**row, "match": numbered(match)})
    return sorted(rows, key=lambda row: row.get("loose", 0))


class Table(NamedTuple):
    """What is made of the rows: these without samples, and the expression of their tags."""

    rows: list[dict[str, Any]]
    tags: str


@cache
def prefixes(folder: Path = PREFIXES) -> Table:
    """The rows of prefixes, each with what it may start with."""
    return kept(folder) or _made(folder)


def kept(folder: Path = PREFIXES) -> Table | None:
    """The same from the table; None where that is another one's, or not there."""
    try:
        stated, *found = json.loads(folder.with_suffix(".json").read_bytes())
    except (OSError, ValueError):
        return None
    return Table(*found) if stated == checksum(folder) else None


def _tags(given: Iterable[Mapping[str, Any]]) -> str:
    """An expression of bytes for what names a process in front of a line, of all these rows.

    It is the `tag` of a row, or what it matches where it says who wrote a line and no time, and
    needs no more than an expression for it.
    """
    found = (row.get("tag", _GROUP.sub("(?:", row["match"])) for row in given if _names(row))
    return "|".join(filter(None, found))


def _names(row: Mapping[str, Any]) -> bool:
    if "tag" in row or _BEYOND.intersection(row):
        return "tag" in row
    groups = set(_GROUP.findall(row["match"]))
    return not groups.isdisjoint(_WHO) and groups.isdisjoint(_WHEN)


def _made(folder: Path) -> Table:
    found = written(folder)
    rows = [
        {key: value for key, value in row.items() if key not in _LEFT_OUT}
        | ({} if "tail" in row else {"starts": starts(row["match"])})
        for row in found
    ]
    return Table(rows, _tags(found))


def files(folder: Path) -> list[Path]:
    """The files of a folder of rows, in order."""
    return sorted(folder.glob("*.yaml"))


def checksum(folder: Path) -> int:
    """What tells whether a table is that of these files."""
    found = 0
    for path in files(folder):
        found = zlib.crc32(path.read_bytes(), zlib.crc32(path.name.encode(), found))
    return found


if __name__ == "__main__":
    made, tags = _made(PREFIXES)
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in made)
    text = f"[{checksum(PREFIXES)}, [\n{lines}\n],\n{json.dumps(tags)}]\n"
    PREFIXES.with_suffix(".json").write_text(text, encoding="utf-8")
