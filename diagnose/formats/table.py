"""Rows of formats, from YAML or from the table that was made of it.

A start has no time for YAML: `prefixes.json`, `stacks.json`, `frames.json`, `pace.json` and
`statements.json` beside the folders hold the same. In a checkout, where files change, each is used
as long as its checksum is that of the files. `python -m diagnose.formats.table` writes them.
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

FOLDER = Path(__file__).parent
PREFIXES, STACKS, FRAMES, PACE, STATEMENTS = (
    FOLDER / name for name in ("prefixes", "stacks", "frames", "pace", "statements")
)
KEYS = frozenset(
    {"name", "tail", "match", "layer", "loose", "then", "holds", "check", "hook", "decode",
     "yields", "unless_known", "stays", "peeks", "tag", "glued", "samples", "refused"}
)  # fmt: skip
_STACK_KEYS = frozenset(
    {
        "tool",
        "what",
        "match",
        "ending",
        "inside",
        "outside",
        "holds",
        "native",
        "set",
        "samples",
        "refused",
    }
)
_FRAME_KEYS = frozenset(
    {"piece", "is", "level", "state", "phase", "helper", "func", "file", "native", "own",
     "backward", "samples", "refused"}
)  # fmt: skip
_PACE_KEYS = frozenset(
    {"phase", "is", "names", "form", "match", "holds", "column", "samples", "refused"}
)
_STATEMENT_KEYS = frozenset({"kind", "piece", "is", "holds", "match", "of", "names", "samples"})
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
_STACK_GROUPS = frozenset(
    {"func", "file", "module", "lineno", "tid", "name", "status", "number", "pid", "command",
     "rank", "host", "indent"}
)  # fmt: skip
_PACE_GROUPS = frozenset(
    {"rate", "seconds", "tokens", "name", "rank", "ms", "least", "least_rank", "most", "most_rank",
     "step", "total"}
)  # fmt: skip
_EXPRESSIONS = ("match", "ending", "func", "file")
_WHO = frozenset({"rank", "local_rank", "task", "dev", "host", "pod", "pid", "actor"})
_WHEN = frozenset({"time", "seconds", "microseconds"})
_BEYOND = frozenset({"tail", "then", "check", "hook", "decode", "stays"})
_LEFT_OUT = frozenset({"samples", "refused", "loose", "tag", "glued"})
_IN_A_CHECKOUT = (FOLDER.parents[1] / "pyproject.toml").is_file()
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
    keys, groups = _KNOWN.get(folder.name, (KEYS, _GROUPS))
    pieces, rows = {**PIECES}, []
    for path in files(folder):
        for row in yaml.load(path.read_bytes(), loader) or ():
            found = {key: _filled(row[key], pieces) for key in _EXPRESSIONS if key in row}
            named = {
                group.partition("__")[0]
                for text in found.values()
                for group in _GROUP.findall(text)
            }
            if unknown := (row.keys() - keys) | (named - groups):
                raise ValueError(f"{path.name}: unknown key or group {min(unknown)}")
            if "piece" in row:
                words = row["is"]
                pieces[row["piece"]] = words if isinstance(words, str) else "|".join(words)
            else:
                rows.append({**row, **found})
    return sorted(rows, key=lambda row: row.get("loose", 0))


def _filled(pattern: str, pieces: Mapping[str, str]) -> str:
    return numbered(_PIECE.sub(lambda piece: pieces[piece[1]], pattern))


_KNOWN = {
    STACKS.name: (_STACK_KEYS, _STACK_GROUPS),
    FRAMES.name: (_FRAME_KEYS, frozenset[str]()),
    PACE.name: (_PACE_KEYS, _PACE_GROUPS),
    STATEMENTS.name: (_STATEMENT_KEYS, frozenset({"name", "value"})),
}


class Table(NamedTuple):
    """What is made of the rows: these without samples, and the expression of their tags.

    `glued` are tags that begin a line right behind other text, too: a literal, and what follows it.
    """

    rows: list[dict[str, Any]]
    tags: str
    glued: list[list[str]]

    def match_of(self, name: str) -> str:
        """The expression of the first row of this name, without its groups."""
        row = next(row for row in self.rows if row.get("name") == name)
        return _GROUP.sub("(?:", row["match"])


@cache
def read(folder: Path = PREFIXES) -> Table:
    """The rows of a folder, each with what it may start with."""
    return kept(folder) or _made(folder)


def kept(folder: Path = PREFIXES) -> Table | None:
    """The same from the table; None where that is another one's, or not there."""
    try:
        stated, *found = json.loads(folder.with_suffix(".json").read_bytes())
    except (OSError, ValueError):
        return None
    return Table(*found) if is_current(stated, folder) else None


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
        | ({"starts": starts(row["match"])} if "match" in row and "tail" not in row else {})
        for row in found
    ]
    glued = [row["glued"] for row in found if "glued" in row]
    return Table(rows, "" if folder.name in _KNOWN else _tags(found), glued)


def files(folder: Path) -> list[Path]:
    """The files of a folder of rows, in order."""
    return sorted(folder.glob("*.yaml"))


def is_current(stated: int | None, folder: Path) -> bool:
    """Whether a table with this checksum is that of the files; in an installed package it is."""
    return stated is not None and (not _IN_A_CHECKOUT or stated == checksum(folder))


def checksum(folder: Path) -> int:
    """What tells whether a table is that of these files."""
    found = 0
    for path in files(folder):
        found = zlib.crc32(path.read_bytes(), zlib.crc32(path.name.encode(), found))
    return found


if __name__ == "__main__":
    for each in (PREFIXES, STACKS, FRAMES, PACE, STATEMENTS):
        made, tags, glued = _made(each)
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in made)
        text = f"[{checksum(each)}, [\n{lines}\n],\n{json.dumps(tags)},\n{json.dumps(glued)}]\n"
        each.with_suffix(".json").write_text(text, encoding="utf-8")
        if each == PREFIXES:  # for what masks, also on nodes, where only these files are
            (FOLDER / "secrets" / "tags.json").write_text(json.dumps(tags) + "\n", encoding="utf-8")
