"""What the prefixes of a line say: the records that families of prefixes fill, and how rows do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from diagnose.lazy import expression

# For regular expressions: longest first, so that WARNING is not read as WARN.
LEVEL = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|NOTICE|TRACE|SUCCESS"

NAMES = {
    "DEBUG": "DEBUG", "TRACE": "DEBUG", "V": "DEBUG", "D": "DEBUG",
    "INFO": "INFO", "NOTICE": "INFO", "SUCCESS": "INFO", "I": "INFO",
    "WARNING": "WARNING", "WARN": "WARNING", "W": "WARNING",
    "ERROR": "ERROR", "ERR": "ERROR", "E": "ERROR",
    "CRITICAL": "FATAL", "FATAL": "FATAL", "F": "FATAL", "C": "FATAL",
}  # fmt: skip

# Syslog priorities 0-7: emerg alert crit err warning notice info debug.
SYSLOG_LEVELS = ("FATAL", "FATAL", "FATAL", "ERROR", "WARNING", "INFO", "INFO", "DEBUG")


@dataclass(slots=True)
class Stamp:
    """A time as printed, before the job's clock is known.

    `ns` is nanoseconds since 1970 of the printed wall-clock time taken as if it were UTC. What
    the print leaves out is flagged: `has_year` / `has_date` (a missing year is given as 1972, a
    leap year so that Feb 29 has a place; a missing date as 1970-01-01). `utc_offset_s` is the zone
    in seconds where one was printed. `resolution_ns` is the size of the last printed digit.
    `boot` marks seconds since boot (dmesg): `ns` then counts from boot.
    """

    ns: int
    has_date: bool = True
    has_year: bool = True
    utc_offset_s: int | None = None
    resolution_ns: int = 1_000_000_000
    boot: bool = False


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


Family = Callable[[str, int, Prefix], int]  # gives the position behind the prefix, or -1

_COUNTED = frozenset({"rank", "local_rank", "group_rank", "task", "dev", "pid"})


def fill(prefix: Prefix, found: re.Match[str]) -> None:
    """Give a prefix what the groups hold, which are named as its fields: `level`, `level__2`.

    Several ranks share the host that a logger prints; what the launcher put before it, a pod or a
    host of its own, tells more of them apart and stays. A group `pod` is a host that is a pod.
    """
    for group, text in found.groupdict().items():
        name = group.partition("__")[0]
        if name == "pod" and text is not None:
            prefix.pod, name = not prefix.host, "host"
        if text is not None and not (name == "host" and prefix.host):
            value = int(text) if name in _COUNTED else NAMES[text] if name == "level" else text
            setattr(prefix, name, value)


def row(family: str, pattern: str, *, first: bool = False) -> Family:
    """The family that one expression tells; see `fill`. `first`: only at the start of a line."""
    form = expression(pattern)

    def peeled(line: str, at: int, prefix: Prefix) -> int:
        found = form.match(line, at) if not (first and prefix.names) else None
        if found is None:
            return -1
        fill(prefix, found)
        prefix.names.append(family)
        return found.end()

    return peeled


def level(text: str) -> str | None:
    """The level named `text` in any case, or None."""
    return NAMES.get(text.upper())
