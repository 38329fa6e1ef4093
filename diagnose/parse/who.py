"""What the prefixes of a line say."""

from __future__ import annotations

from dataclasses import dataclass, field

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


def level(text: str) -> str | None:
    """The level named `text` in any case, or None."""
    return NAMES.get(text.upper())
