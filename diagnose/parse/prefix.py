"""Who wrote a line and when: peels the known prefixes off its front.

Prefixes stack, outside in: `<CRI time> stderr F [default3]:[rank11]:[E820 10:00:00.1 a.cpp:1] …`.
They are rows of `formats/prefixes/*.yaml`, each an expression whose groups are named as what they
fill. `peel` looks at the first character (or the second, behind a bracket) to choose the few rows
that can start so, and repeats behind each prefix found. Every number keeps its kind.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from diagnose.formats import table
from diagnose.lazy import expression
from diagnose.parse.path import node_like, read_path
from diagnose.parse.stamps import (
    ISO_DATE,
    ISO_TIME,
    ISO_ZONE,
    NO_TIME,
    Stamp,
    iso_day,
    refusals,
    stamp,
    time_reader,
)
from diagnose.parse.tracebacks import TRACEBACK

__all__ = ["Prefix", "Row", "Stamp", "glued_rank", "peel", "peel_steps", "place_in_group"]

NAMES = {
    "DEBUG": "DEBUG", "TRACE": "DEBUG", "V": "DEBUG", "D": "DEBUG",
    "INFO": "INFO", "NOTICE": "INFO", "SUCCESS": "INFO", "I": "INFO",
    "WARNING": "WARNING", "WARN": "WARNING", "W": "WARNING",
    "ERROR": "ERROR", "ERR": "ERROR", "E": "ERROR",
    "CRITICAL": "FATAL", "FATAL": "FATAL", "F": "FATAL", "C": "FATAL",
    "EMERG": "FATAL", "ALERT": "FATAL", "CRIT": "FATAL", "ABORT": "FATAL",
    "CALL": "DEBUG", "VERSION": "INFO", "ATTN": "INFO",
}  # fmt: skip

# Syslog priorities 0-7: emerg alert crit err warning notice info debug.
SYSLOG_LEVELS = ("FATAL", "FATAL", "FATAL", "ERROR", "WARNING", "INFO", "INFO", "DEBUG")


@dataclass(slots=True)
class Prefix:
    """What the prefixes of one line say, each kind of number kept apart.

    `rank` is global. `local_rank`, `group_rank` (inside a process group), `task` (launcher task
    id, e.g. srun --label), `dev` (CUDA device) are what their names say and never mixed.
    `message` is the rest of the line, left out where lines share what was peeled. `level` is one
    of FATAL ERROR WARNING INFO DEBUG. `pod`: `host` is the name of a Kubernetes pod, and of no
    machine. `repeated` is Ray's "[repeated Nx across cluster]" count
    (1 = none).
    """

    message: str
    stamp: Stamp | None = None
    rank: int | None = None
    local_rank: int | None = None
    group_rank: int | None = None
    task: int | None = None
    dev: int | None = None
    host: str | None = None
    pid: int | None = None
    level: str | None = None
    origin: str | None = None  # file:line of the logger call, e.g. ProcessGroupNCCL.cpp:607
    actor: str | None = None
    repeated: int = 1
    stream: str | None = None
    names: list[str] = field(default_factory=list)  # prefix families found, outermost first
    pod: bool = False
    traceback: str | None = None  # that a record holds, of which `message` is the last line


def level(text: str) -> str | None:
    """The level named `text` in any case, or None."""
    return NAMES.get(text.upper())


def keep(prefix: Prefix, found: Stamp) -> None:
    """Give `prefix` this time unless an outer prefix gave one that says as much.

    The outermost time is the one all lines of a source share, whoever wrote them; it yields only
    where it lacks the date (or counts from boot) and the inner one does not.
    """
    known = prefix.stamp
    if known is None or (not known.has_date and found.has_date):
        prefix.stamp = found


_LAYERS = 12  # prefixes stacked on one line; more is a hostile line
_REACH = 500  # characters within which what a row `holds` must follow; build paths can be long
_MAX_PID = 4_194_304  # Linux' limit: a larger number in this place is a thread id
_MAX_PRIORITY = 191  # of syslog: facility 23, level 7
_PARTS = 6  # of one prefix: its beginning, and columns
# What may stand left of a launcher's label: another's column, a collector's time. Anything else
# means that we are inside of what a process wrote, and behind the innermost is its message.
FIRST, OUTER, HOST, LAUNCHER, LOGGER, INNERMOST = range(6)
_DEPTHS = {
    "first": FIRST, "outer": OUTER, "host": HOST, "launcher": LAUNCHER, "innermost": INNERMOST,
}  # fmt: skip

_IN_GROUP = expression(r"\[(?:Rank|PG [^\[\]\n]{1,256}? Rank) (\d{1,7})\]")
# Ray's, of a line that several processes printed.
_REPEATED = expression(
    r" \[repeated (\d{1,9})x across (?:cluster|all nodes)\](?: \(Ray [^\n]{0,400})?\s{0,8}\Z"
)
_INSIDE = (OUTER, LOGGER, INNERMOST)
_MAY_FOLLOW = (*[(*_INSIDE, HOST, LAUNCHER)] * 3, *[_INSIDE] * 3)  # what may stand behind which
# A tag in front of a logger's line that another process's bar is before.
_GLUED_RANK = expression(rf"[^\s:](?={table.read().match_of('rank')}\[[FEWIV][ \d])\D+(\d+)")

_Found = re.Match[str]
_Put = Callable[[Prefix, str], None]


def _number(name: str) -> _Put:
    return lambda prefix, text: setattr(prefix, name, int(text))


def _text(name: str) -> _Put:
    return lambda prefix, text: setattr(prefix, name, text)


def _pid(prefix: Prefix, text: str) -> None:
    if (number := int(text)) <= _MAX_PID:
        prefix.pid = number


def _level(prefix: Prefix, text: str) -> None:
    prefix.level = NAMES.get(text.upper()) or prefix.level


def _priority(prefix: Prefix, text: str) -> None:
    prefix.level = SYSLOG_LEVELS[int(text) & 7]


def _pod(prefix: Prefix, text: str) -> None:
    """A pod, where no machine is known: ranks share the host that a logger prints."""
    if not prefix.host:
        prefix.host, prefix.pod = text, True


def _other_host(prefix: Prefix, text: str) -> None:
    prefix.host = prefix.host or text


_PUTS: Mapping[str, _Put] = {
    **{name: _number(name) for name in ("rank", "local_rank", "group_rank", "task", "dev")},
    **{name: _text(name) for name in ("host", "origin", "actor", "stream")},
    "pid": _pid, "pod": _pod, "level": _level, "priority": _priority,
}  # fmt: skip


def _machine(found: _Found, hosts: Collection[str]) -> bool:
    return found["host"] in hosts or node_like(found["host"])


def _urgency(found: _Found, _hosts: Collection[str]) -> bool:
    """Whether the number before a syslog message can be one."""
    possible = int(found["priority"]) <= _MAX_PRIORITY
    refusals.count += not possible
    return possible


def _wrote(path: str, prefix: Prefix) -> bool:
    """Whether the name of a file tells who wrote it, with which `prefix` is then filled."""
    hints = read_path(path)
    known = {
        name: value
        for name in ("rank", "local_rank", "task", "host", "pid")
        if (value := getattr(hints, name)) is not None
    }
    for name, value in known.items():
        setattr(prefix, name, value)
    return bool(known)


_CHECKS: Mapping[str, Callable[[_Found, Collection[str]], bool]] = {
    "machine": _machine, "priority": _urgency,
}  # fmt: skip
_HOOKS: Mapping[str, Callable[[_Found, Prefix], bool]] = {
    # That of a line with its number is what nobody else writes.
    "path": lambda found, prefix: _wrote(found["path"], prefix) or found[0][-2].isdigit(),
}


class Row:
    """One way to write a prefix, or what stands behind its beginning."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.pattern: str = row["match"]
        groups = re.findall(r"\(\?P<(\w+)>", self.pattern)
        self.match: Callable[[str, int], _Found | None] = self._first_match
        self.depth = _DEPTHS[row["layer"]] if "layer" in row else LOGGER
        self.decode: str = row.get("decode", "")
        self.peeks: bool = row.get("peeks", False)
        self._name: str | None = row.get("name")
        self._tail = "tail" in row
        self._then: str | None = row.get("then")
        self._stays: bool = row.get("stays", False)
        self._holds: str = row.get("holds", "")
        self._check = _CHECKS[row["check"]] if "check" in row else None
        self._hook = _HOOKS[row["hook"]] if "hook" in row else None
        self._unless_known: str | None = row.get("unless_known")
        self._time = time_reader(groups)
        self.timeless = self._time is None and self._then is None
        self._unread = "unread" in groups
        puts = {**_PUTS, "host": _other_host} if row.get("yields") == "host" else _PUTS
        kinds = [(group, group.partition("__")[0]) for group in groups]
        self._puts = [(group, puts[kind]) for group, kind in kinds if kind in puts]

    def _first_match(self, line: str, at: int) -> _Found | None:
        """Compiled when it is first used: that takes longer than most uses."""
        match, holds = re.compile(self.pattern).match, self._holds
        if holds:
            self.match = lambda line, at: (
                match(line, at) if line.find(holds, at, at + _REACH) >= 0 else None
            )
        else:
            self.match = match
        return self.match(line, at)

    def take(self, line: str, at: int, prefix: Prefix, hosts: Collection[str] = ()) -> int:
        """The position behind this prefix, with which `prefix` is filled.

        At `at` where it is part of the message; -1, and nothing filled, if it is not there.
        """
        found = self.match(line, at)
        return -1 if found is None else self.taken(found, prefix, hosts)

    def taken(self, found: _Found, prefix: Prefix, hosts: Collection[str] = ()) -> int:
        """The same of what was found."""
        if self._unless_known is not None and getattr(prefix, self._unless_known) is not None:
            return -1
        printed = self._accepted(found, hosts)
        if printed is None or not (self._hook is None or self._hook(found, prefix)):
            return -1
        if self._then is None:
            self._fill(prefix, found, printed)
            return found.start() if self._stays else found.end()
        then: str | None = self._then
        end = found.end()
        parts = [(self, found, printed)]
        while then is not None and len(parts) < _PARTS:
            for row in _tables()[1][then]:
                tail = row.match(found.string, end)
                printed = tail and row._accepted(tail, ())
                if tail is not None and printed is not None:
                    parts.append((row, tail, printed))
                    end, then = tail.end(), row._then
                    break
            else:
                return -1
        for row, match, printed in parts:
            row._fill(prefix, match, printed)
        return end

    def _accepted(self, found: _Found, hosts: Collection[str]) -> Stamp | None:
        """The time that was found; None where its numbers are none, or a word no machine."""
        if self._check is not None and not self._check(found, hosts):
            return None
        return NO_TIME if self._time is None else self._time(found)

    def _fill(self, prefix: Prefix, found: _Found, printed: Stamp) -> None:
        if printed is not NO_TIME:
            keep(prefix, printed)
        for group, put in self._puts:
            text = found[group]
            if text is not None:
                put(prefix, text)
        if self._name is not None and not self._stays:
            prefix.names[len(prefix.names) - self._tail :] = [self._name]

    def unread(self, line: str, at: int) -> tuple[int, int]:
        """Where in such a prefix the digits are that tell nothing; at its start without any."""
        found = self.match(line, at) if self._unread else None
        return found.span("unread") if found and found["unread"] else (at, at)


Steps = list[tuple[Row, int]]  # who took what up to where


@cache
def _tables() -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
    """The rows by the characters that they may start with, and the tails by their names."""
    by_start: dict[str, list[Row]] = defaultdict(list)
    tails: dict[str, list[Row]] = defaultdict(list)
    for row in table.read().rows:
        one = Row(row)
        if "tail" in row:
            tails[row["tail"]].append(one)
            continue
        firsts, seconds = row["starts"]
        for start in (*firsts.replace("[", ""), *map("[".__add__, seconds)):
            by_start[start].append(one)
    return by_start, tails


def peel(line: str, hosts: Collection[str] = ()) -> Prefix:
    """Peel every known prefix off `line` (no newline), from the left until none matches.

    Expects clean text: escape codes and paste marks removed, split at carriage returns. `hosts`
    are names of the job's machines: with them, `name: ` of pdsh is recognised for names that do
    not look like a machine's. `message` is what remains, unchanged; decoded for JSON and XML
    records, and without Ray's "[repeated …]" at the end.
    """
    return peel_steps(line, hosts)[0]


def peel_steps(line: str, hosts: Collection[str] = ()) -> tuple[Prefix, Steps]:
    """The same, and which rows took what of the line, or of what was decoded."""
    prefix, at, depth, decode = Prefix(message=line), 0, FIRST, ""
    steps: Steps = []
    by_start = _tables()[0]
    while len(steps) < _LAYERS and at < len(line) and depth != INNERMOST:
        for row in by_start.get(_start(line, at), ()):
            found = row.match(line, at)
            if found is None or (prefix.names and row.depth not in _MAY_FOLLOW[depth]):
                continue
            if row.decode == "json":
                message = json_line(line[at:], prefix)
                if message is None:
                    continue
                line, at, end = message, -1, 0
            else:
                end = row.taken(found, prefix, hosts)
            if end >= 0:
                break
        else:
            break
        if end <= at:
            break
        steps.append((row, end))
        at, depth, decode = end, max(depth, row.depth), row.decode or decode
    if steps:
        prefix.message = line[at:] if decode != "xml" else _xml_text(line[at:], prefix.stream)
    if prefix.message.startswith(("[Rank ", "[PG ")) and (place := place_in_group(prefix.message)):
        prefix.group_rank = int(prefix.message[slice(*place)])
    if "] " in prefix.message[-200:] or prefix.message.endswith("]"):
        prefix.message, prefix.repeated = repeated(prefix.message)
    return prefix, steps


def _start(line: str, at: int) -> str:
    """The character there, and the one behind it where it is a bracket."""
    first = line[at]
    if first != "[":
        return first if first <= "~" else table.OTHER
    second = line[at + 1 : at + 2]
    return first + (second if second <= "~" else table.OTHER)


def _xml_text(text: str, stream: str | None) -> str:
    """The text of Open MPI's <stdout rank="3">…</stdout>, with its four escapes undone."""
    text = text.removesuffix(f"</{stream}>")
    for escape, character in (("&lt;", "<"), ("&gt;", ">"), ("&#010;", ""), ("&amp;", "&")):
        text = text.replace(escape, character)
    return text


def place_in_group(message: str) -> tuple[int, int] | None:
    """Where a message names a rank: `[Rank k] ` or `[PG ID 0 PG GUID 0(default_pg) Rank k] `.

    A rank inside the process group (and in several releases that of whichever group logged first
    in the process), so never a global rank; the text stays part of the message.
    """
    found = _IN_GROUP.match(message)
    return found.span(1) if found else None


def repeated(message: str) -> tuple[str, int]:
    """The message without Ray's ` [repeated 7x across cluster]` and how often it was printed."""
    at = message.rfind(" [repeated ")
    found = _REPEATED.match(message, at) if at >= 0 else None
    return (message[:at], int(found[1])) if found else (message, 1)


def glued_rank(line: str) -> int | None:
    """The rank of a `[rank3]:[E…` that is glued behind other text; None if there are several."""
    found = set(_GLUED_RANK.findall(line)) if "[rank" in line else set()
    return int(found.pop()) if len(found) == 1 else None


# --- lines that are one JSON object (FORMATS 1.4, 1.6, 1.7) ---------------------------------------

_LIMIT = 1 << 20  # characters; longer lines are left alone
_MESSAGE = ("log", "msg", "message", "MESSAGE", "text", "event", "textPayload")
_TIME = ("time", "ts", "timestamp", "@timestamp", "asctime")
_LEVEL = ("level", "levelname", "severity", "log_level", "log.level")
_RANK = ("rank", "RANK", "global_rank", "process_index")
_LOCAL_RANK = ("local_rank", "LOCAL_RANK")
_POD = ("podName", "pod_name")
_HOST = (*_POD, "host", "hostname", "host.name", "node", "_HOSTNAME")
# Where collectors of logs put what they know of who wrote a line, the surest last: Google Cloud,
# fluentd and filebeat on Kubernetes, and labels that a program adds of its own.
_ABOUT = (("resource", "labels"), ("kubernetes",), ("kubernetes", "labels"), ("labels",))
_PID = ("pid", "process", "_PID")
_RAISED = (
    "exc_info", "exc_text", "exception", "stack_trace", "error.stack_trace", "traceback", "stack",
)  # fmt: skip
_ISO = expression(rf"{ISO_DATE}[ T]{ISO_TIME}{ISO_ZONE}\Z")
_STREAMS = frozenset({"stdout", "stderr"})
_RANK_LIMIT = 10_000_000


def json_line(line: str, prefix: Prefix) -> str | None:
    """Fill `prefix` from a JSON object on `line` and give its message; None if it is not one.

    The message may have several lines (an escaped traceback); one trailing newline goes. Objects
    without a message or a traceback are left alone: a metrics record is its own message.
    """
    if len(line) > _LIMIT or not line.rstrip().endswith("}"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        refusals.count += 1  # a number with a leading zero is none
        return None
    if not isinstance(record, dict):
        return None
    payload = record.get("jsonPayload")  # Google Cloud Logging: what the program logged itself
    record = {**record, **payload} if isinstance(payload, dict) else record
    message = _json_text(record, _MESSAGE)
    traceback = _json_traceback(record, message)
    if message is None and traceback is None:
        return None
    found = _json_time(record)
    if found is not None:
        keep(prefix, found)
    about = _json_about(record)
    rank, local_rank = _json_number(about, _RANK), _json_number(about, _LOCAL_RANK)
    prefix.rank = rank if rank is not None else prefix.rank
    prefix.local_rank = local_rank if local_rank is not None else prefix.local_rank
    prefix.host = _json_text(about, _HOST) or prefix.host
    prefix.pod = prefix.pod or _json_text(about, _POD) is not None
    pid = _json_number(record, _PID)
    prefix.pid = pid if pid is not None else prefix.pid
    name = _json_text(record, _LEVEL)
    prefix.level = (level(name) if name else None) or prefix.level
    urgency = record.get("PRIORITY")  # journald: syslog's numbers, as text
    if isinstance(urgency, str) and len(urgency) == 1 and urgency in "01234567":
        prefix.level = SYSLOG_LEVELS[int(urgency)]
    stream = record.get("stream")
    prefix.stream = stream if stream in _STREAMS else prefix.stream
    prefix.names.append(_family(record))
    prefix.traceback = traceback
    if traceback is not None:
        return _raised(traceback)[-1]
    return None if message is None else message.removesuffix("\n")


def _json_about(record: dict[str, Any]) -> dict[str, Any]:
    """The record and its labels in one; of `k8s-pod/rank` the name is `rank`."""
    about: dict[str, Any] = {}
    for path in _ABOUT:
        found: Any = record
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, dict):
            about |= {key.rpartition("/")[2]: value for key, value in found.items()}
    if isinstance(pod := about.get("pod"), dict):
        about["pod_name"] = pod.get("name")
    return {**about, **record}


def _json_traceback(record: dict[str, Any], message: str | None) -> str | None:
    """The traceback that a record holds, with what was raised below it."""
    error = record.get("error")
    nested = _json_text(error, ("stack_trace",)) if isinstance(error, dict) else None
    in_parts = next((record[key] for key in _RAISED if isinstance(record.get(key), list)), None)
    for text in (_json_text(record, _RAISED), nested, in_parts and _joined(in_parts), message):
        if text and TRACEBACK in text and len(_raised(text)) > 1:
            return text
    return None


def _joined(raised: list[Any]) -> str | None:
    """A traceback that structlog wrote as data (`dict_tracebacks`), as Python prints it.

    The exception that ended it comes first there, and last in what Python prints.
    """
    blocks = []
    for one in reversed(raised):
        frames = one.get("frames") if isinstance(one, dict) else None
        if not isinstance(frames, list) or not isinstance(one.get("exc_type"), str):
            return None
        where = [
            f'  File "{frame.get("filename")}", line {frame.get("lineno")}, in {frame.get("name")}'
            for frame in frames
            if isinstance(frame, dict)
        ]
        name, value = one["exc_type"], str(one.get("exc_value") or "")
        blocks.append("\n".join([f"{TRACEBACK}:", *where, f"{name}: {value}" if value else name]))
    return "\n\n".join(blocks)


def _raised(text: str) -> list[str]:
    """The lines of a traceback that are not of a frame; the last is of the exception."""
    return [line for line in text.splitlines() if line[:1].strip()]


def _family(record: dict[str, Any]) -> str:
    if "log" in record and "stream" in record:
        return "docker"
    if "__REALTIME_TIMESTAMP" in record:
        return "journal"
    return "stern" if "podName" in record else "json"


def _json_text(record: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        value = record.get(key)
        if isinstance(value, str):
            return value
    return None


def _json_number(record: dict[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        value = record.get(key)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 9:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _RANK_LIMIT:
            return value
    return None


def _json_time(record: dict[str, Any]) -> Stamp | None:
    journal = record.get("__REALTIME_TIMESTAMP")  # microseconds since 1970, as text
    if isinstance(journal, str) and journal.isascii() and journal.isdigit() and len(journal) < 18:
        return Stamp(int(journal) * 1000, utc_offset_s=0, resolution_ns=1000)
    for key in _TIME:
        value = record.get(key)
        if isinstance(value, str):
            found = _ISO.match(value)
            if found:
                return stamp(iso_day(found[1]), found[2], found[3], found[4])
        elif isinstance(value, int | float) and not isinstance(value, bool):
            return _since_1970(value)
    return None


def _since_1970(value: float) -> Stamp | None:
    """Seconds, or by size milli-, micro- or nanoseconds since 1970."""
    for unit in (1_000_000_000, 1_000_000, 1000, 1):
        if 946_684_800 <= value * unit / 1_000_000_000 < 7_000_000_000:
            if isinstance(value, int):
                return Stamp(value * unit, utc_offset_s=0, resolution_ns=unit)
            ns = round(value * unit / 1000) * 1000  # a float of today's seconds holds microseconds
            return Stamp(ns, utc_offset_s=0, resolution_ns=max(1000, unit // 1_000_000))
    return None
