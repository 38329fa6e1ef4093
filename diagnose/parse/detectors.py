"""Reads what other detectors state: records of their JSON documents, as rows say.

A document is one or several JSON values, one after the other. Every object in it is a record; a row
takes the one that has its first key, if all its expressions match. What a key names, the record or
the nearest object around it has: `status.conditions` are two keys, `@path` is where the object is,
and of a list in between each item counts. Groups of the expressions are captures of the catalog.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from operator import itemgetter
from typing import Any

from diagnose.formats.detector_rows import rows
from diagnose.parse.prefix import peel

MAX_BYTES = 64 << 20
_MAX_DEPTH = 64
_MAX_RECORDS = 500_000  # objects of one document that are looked at
_MAX_VALUES = 2_000_000  # and lists
_MAX_CLAIMS = 2_000
_MAX_DEVICES = 100_000  # of a rank table
_MAX_TEXT = 500  # characters of a record that is shown
_MAX_VALUE = 2_000
_LOGS = 100_000  # objects of a document in which lines of logs may be
_MAX_LOGS = 2_000  # of one document
_MAX_LINES = 100_000  # of one log
_MAX_SEARCHED = 1 << 20  # characters of a document of which the lines of records are looked for
_BLANKS = re.compile(r"[\s,\x1e]*")
_HOSTS = re.compile(r"(?:[^\s,\[\]]|\[[^\s\[\]]{0,2000}\])+")
_NUMBERS = r"\d{1,9}(?:-\d{1,9})?"
_RANGES = re.compile(rf"([^\[\]]*)\[({_NUMBERS}(?:,{_NUMBERS})*)\]([^\[\]]*)")
_OPTIONAL = "?"  # behind a key that may lack
_LISTS = ("host", "rank")  # captures of which each part is one


@dataclass(frozen=True, slots=True)
class Claim:
    """What a detector states of a host, a rank or a device.

    `signature` is the id of the row, `text` the record, which begins in `line`, `fields` what was
    captured of it.
    """

    source: str
    line: int
    signature: str
    text: str
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Report:
    """What a document of the detector `tool` states.

    `concludes`: it is the tool's business to find what is wrong; `calm`: it found nothing.
    """

    tool: str
    claims: list[Claim] = field(default_factory=list)
    concludes: bool = True
    calm: bool = False


def kind_of(head: bytes) -> str:
    """The name of the detector of which this is the beginning of a document; "" of none."""
    return next((tool["name"] for tool in rows().tools if _begins(tool, head)), "")


def recorder_of(head: bytes) -> str:
    """What reads documents of this beginning that record calls and conclude nothing; mostly ""."""
    return next((tool["recorder"] for tool in rows().tools if _begins(tool, head)), "")


def keeps_logs(head: bytes) -> bool:
    """Whether documents of this beginning hold lines of logs; see `logs_of`."""
    tool = _tool_of(head)
    return tool is not None and bool(tool["logs"])


def _begins(tool: Mapping[str, Any], head: bytes) -> bool:
    return all(word.encode() in head for word in tool["recognised"])


def read_report(data: bytes, name: str, host: str | None = None) -> Report:
    """Read a document; `host` is whose it is where it names nobody.

    Raises ValueError where it is none, or cannot be read.
    """
    tool = _tool_of(data)
    if tool is None:
        raise ValueError(f"{name}: no report of a known detector")
    text = data[:MAX_BYTES].decode(errors="replace")
    of_lines = bool(tool["records"]) and not any(tool_of(id_) for id_, _ in tool["records"])
    most = _MAX_DEVICES if of_lines else _MAX_CLAIMS
    claims: dict[tuple[str, str], Claim] = {}
    for number, chain in enumerate(_objects(values(text, name))):
        if number >= _MAX_RECORDS or len(claims) >= most:
            break
        for id_, record in tool["records"]:
            found = _captured(_compiled(record), chain) if next(iter(record)) in chain[-1] else None
            if found is None:
                continue
            fields = found
            if host and (tool["own_host"] or not {"host", "rank", "server"} & fields.keys()):
                fields = {"host": host, **found}
            for one in _each(fields):
                shown = json.dumps(_scalars(chain[-1]), ensure_ascii=False)[:_MAX_TEXT]
                line = _line_of(text, one, chain[-1]) if len(claims) < _MAX_CLAIMS else 1
                claim = Claim(name, line, id_, shown, one)
                claims.setdefault((id_, repr(sorted(one.items()))), claim)
            break
    calm = not claims and bool(tool["records"]) and not of_lines
    return Report(tool["tool"], [*claims.values()], not of_lines, calm)


def logs_of(data: bytes, name: str) -> Iterator[tuple[str, str]]:
    """The logs of which a document holds lines: names, and the lines in the order of their times.

    A tool that keeps of a log what it needs has these under several keys, some lines twice.
    """
    tool = _tool_of(data)
    if tool is None or not tool["logs"]:
        return
    names, keys = tool["logs"]["name"], [key.split(".") for key in tool["logs"]["lines"]]
    try:
        objects = [
            *islice(_objects(values(data[:MAX_BYTES].decode(errors="replace"), name)), _LOGS)
        ]
    except ValueError:
        return  # its reader tells
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for chain in objects:
        held = chain[-1].get(names)
        if isinstance(held, str) and (held in found or len(found) < _MAX_LOGS):
            texts = [one for key in keys for one in _named(chain[-1], key) if isinstance(one, str)]
            found[held] |= dict.fromkeys(line for one in texts for line in one.splitlines() if line)
    for held, lines in found.items():
        yield held, "".join(f"{line}\n" for line in _in_order(islice(lines, _MAX_LINES)))


def _in_order(lines: Iterable[str]) -> list[str]:
    """Lines by their times; one without a time stays below that before it."""
    timed, time = [], 0
    for line in lines:
        stamp = peel(line[:_MAX_VALUE]).stamp
        time = time if stamp is None else stamp.ns
        timed.append((time, line))
    timed.sort(key=itemgetter(0))
    return [line for _, line in timed]


def _tool_of(data: bytes) -> Mapping[str, Any] | None:
    kind = kind_of(data[: 64 << 10])
    return next((one for one in rows().tools if one["name"] == kind), None)


def _named(record: Mapping[str, Any], key: Sequence[str]) -> list[Any]:
    """What a key names in a record; of a list in between each item counts."""
    found: list[Any] = [record]
    for part in key:
        inner = [one[part] for one in found if isinstance(one, dict) and part in one]
        found = [one for own in inner for one in (own if isinstance(own, list) else [own])]
    return found


def values(text: str, name: str) -> Iterator[Any]:
    """The JSON values of a text, until one is cut off. Raises ValueError where the first one is."""
    decoder, at, first = json.JSONDecoder(), 0, True
    while (at := _BLANKS.match(text, at).end()) < len(text):  # type: ignore[union-attr]
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            if first:
                raise ValueError(f"{name}: not valid JSON") from error
            return
        first = False
        yield value


Chain = list[dict[str, Any]]  # an object behind those around it; each knows its "@path"


def _objects(found: Iterable[Any]) -> Iterator[Chain]:
    """Every object with those around it, outermost first."""
    # Of each level the values that are still to come: hostile ones are millions beside each other.
    levels: list[tuple[Chain, Iterator[tuple[str, Any]]]] = [([], _parts(found, ""))]
    looked_at = 0
    while levels and looked_at < _MAX_VALUES:
        around, parts = levels[-1]
        path, value = next(parts, ("", None))
        looked_at += 1
        if value is None:
            levels.pop()
        elif isinstance(value, list):
            levels.append((around, _parts(value, path)))
        elif len(around) < _MAX_DEPTH:
            inner = [*around, {**value, "@path": path}]
            yield inner
            levels.append((inner, _parts(value, path)))


def _parts(value: Iterable[Any], path: str) -> Iterator[tuple[str, Any]]:
    """The objects and lists in a value, and where each is."""
    named = value.items() if isinstance(value, dict) else (("", one) for one in value)
    return (
        (f"{path}/{key}" if key else path, one)
        for key, one in named
        if isinstance(one, dict | list)
    )


def _compiled(record: Mapping[str, str]) -> list[tuple[list[str], bool, re.Pattern[str]]]:
    return [
        (key.removesuffix(_OPTIONAL).split("."), key.endswith(_OPTIONAL), _expression(value))
        for key, value in record.items()
    ]


@cache
def _expression(text: str) -> re.Pattern[str]:
    return re.compile(text)


def _captured(
    record: list[tuple[list[str], bool, re.Pattern[str]]], chain: Chain
) -> dict[str, str] | None:
    """What the expressions of a row capture; None where one of them does not match."""
    fields: dict[str, str] = {}
    for key, optional, expression in record:
        text = _value(chain, key)
        match = expression.fullmatch(text) if text is not None else None
        if match is not None:
            fields |= {name: part for name, part in match.groupdict().items() if part}
        elif not optional:
            return None
    return fields


def _value(chain: Chain, key: list[str]) -> str | None:
    """What a key names in the innermost object that has it, as a text."""
    for around in reversed(chain):
        found = _named(around, key)
        if texts := [_text(one) for one in found if not isinstance(one, dict | list)]:
            return ", ".join(texts)[:_MAX_VALUE]
    return None


def _text(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: ""}[value]
    return " ".join(str(value).split())


def _each(fields: dict[str, str]) -> Iterator[dict[str, str]]:
    """The captures for each host or rank of a list, which are claims of their own."""
    listed = next((name for name in _LISTS if "," in fields.get(name, "")), None)
    if listed is None:
        yield fields
        return
    for part in fields[listed].split(","):
        yield {**fields, listed: part.strip()}


def _scalars(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in record.items()
        if key != "@path" and not isinstance(value, dict | list)
    }


def _line_of(text: str, fields: Mapping[str, str], record: Mapping[str, Any]) -> int:
    """The line in which a record is, by the longest of its texts; 1 where that is not found."""
    texts = [one for key, one in record.items() if isinstance(one, str) and key != "@path"]
    longest = max([*texts, fields.get("host", "")], key=len)
    searched = longest and len(text) <= _MAX_SEARCHED
    at = text.find(json.dumps(longest, ensure_ascii=False)[1:-1]) if searched else -1
    return text.count("\n", 0, max(at, 0)) + 1


def hosts_in(text: str) -> list[str]:
    """The hosts of a list, of which Slurm writes some as `node-[1-3,7]`; one of these a name."""
    found: list[str] = []
    for part in _HOSTS.findall(text):
        ranges = _RANGES.fullmatch(part)
        if ranges is None:
            found.append(part)
        else:
            begin, numbers, end = ranges.groups()
            found += [f"{begin}{number}{end}" for number in _numbers(numbers)]
    return found[:_MAX_CLAIMS]


def _numbers(text: str) -> Iterator[str]:
    """`08` to `11` of `08-11`, and so on for each part."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        for number in islice(range(int(first), int(last or first) + 1), _MAX_CLAIMS):
            yield f"{number:0{len(first)}}"


def around(id_: str | None) -> tuple[list[re.Pattern[str]], list[re.Pattern[str]]] | None:
    """The expressions of lines above and below that complete a line of this signature."""
    found = about(id_)
    above, below = ([*map(re.compile, found.get(key, ()))] for key in ("above", "below"))
    return (above, below) if above or below else None


def about(id_: str | None) -> Mapping[str, Any]:
    """What `detector_rows` has of a signature; nothing of one that is no detector's."""
    return rows().about.get(id_ or "", {})


def tool_of(id_: str | None) -> str | None:
    """Whose claim a signature is; None of those that no detector states."""
    return about(id_).get("tool")
