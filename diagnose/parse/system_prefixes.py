"""Prefixes of the system's logs: syslog, journal, dmesg, /dev/kmsg (FORMATS 1.7).

Function contract as in torch_prefixes.
"""

from __future__ import annotations

import re

from diagnose.lazy import expression
from diagnose.parse.launcher_prefixes import mpi, mpi_time, node_like
from diagnose.parse.stamps import (
    ISO_DATE,
    ISO_TIME,
    ISO_ZONE,
    MONTHS,
    NO_YEAR,
    WEEKDAYS,
    day,
    iso_day,
    keep,
    since_boot,
    stamp,
)
from diagnose.parse.who import LEVEL, NAMES, SYSLOG_LEVELS, Prefix

# Host, process and pid behind a time.
SYSLOG = expression(r" ([\w.\-]{1,128}) ([\w./\-()@]{1,80})(?:\[(\d{1,7})\])?:(?: |\Z)")
_HOST = expression(r" ([\w.\-]{1,128}) ")
# Daemons whose name is part of the messages the catalog knows: it stays in the message.
_DAEMONS = ("slurm", "srun", "systemd", "earlyoom", "kubelet", "sshd", "containerd", "dockerd")

_RFC3164 = expression(
    r"([A-Z][a-z]{2}) +(\d{1,2}) (?:(\d{4}) )?(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?"
    r"(Z|[+-]\d\d:?\d\d|)(?= |\Z)"
)
_RFC5424 = expression(
    rf"<\d{{1,3}}>1 {ISO_DATE}T{ISO_TIME}{ISO_ZONE} "
    r"(\S{1,255}) (\S{1,48}) (\S{1,128}) \S{1,32} (?:-|(?:\[[^\]\n]{0,512}\]){1,8})(?: |\Z)"
)
_PRIORITY = expression(r"<(\d{1,3})>")
_CTIME = expression(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?"
    r"(?: (UTC|GMT|[A-Z]{3,4}))? (\d{4})(?!\d)"
)
_BOOT = expression(
    r"\[ {0,8}(\d{1,10})\.(\d{6}|\d{3}(?=\](?:  | ?\w)))\](?:\[ *[TC]\d{1,7}\])?(?: |\Z)"
)
# journalctl's short-full.
_FULL = expression(
    rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) {ISO_DATE} {ISO_TIME}(?: ([A-Z]{{3,4}}|[+-]\d\d))?(?= )"
)
_DELTA = expression(r"\[ {1,8}[+-]\d{1,6}\.\d{6}\](?: |\Z)")
_DMESG_H = expression(r"\[([A-Z][a-z]{2}) ?(\d{1,2}) (\d\d:\d\d)\](?: |\Z)")
_FACILITY = expression(r"[a-z]{2,8} {0,6}:(emerg|alert|crit|err|warn|notice|info|debug) {0,6}: ")
_FACILITY_LEVELS = dict(
    zip(
        ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"),
        SYSLOG_LEVELS,
        strict=True,
    )
)
_KMSG = expression(r"(\d{1,3}),\d{1,20},(\d{1,16}),[^;,\s]{1,32}(?:,[^;\n]{1,64})?;")
_UNIX = expression(r"(\d{9,10})\.(\d{6})(?= )")
_FABRIC = expression(
    r"\[([A-Z][a-z]{2}) +(\d{1,2}) (\d{4}) (\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\]"
    rf"(?: \[({LEVEL})\](?: \[tid \d{{1,9}}\])?)?(?: |\Z)"
)


def month_first(line: str, at: int, prefix: Prefix) -> int:
    """`Oct 10 03:06:53 host kernel: ` of syslog and journalctl; the year is rarely there.

    A word behind the time is taken for the host if a process with a colon follows, or if it looks
    like the name of a machine.
    """
    found = _RFC3164.match(line, at)
    if found is None or found[1] not in MONTHS:
        return -1
    year = int(found[3]) if found[3] else NO_YEAR
    midnight = day(year, MONTHS[found[1]], int(found[2]))
    printed = stamp(midnight, found[4], found[5], found[6], has_year=bool(found[3]))
    if printed is None:
        return -1
    keep(prefix, printed)
    return after_time(line, found.end(), prefix)


def after_time(line: str, at: int, prefix: Prefix) -> int:
    """` host proc[pid]: ` or ` host ` or ` ` behind a system log's time."""
    tail = SYSLOG.match(line, at)
    if tail:
        return syslog_tail(tail, prefix, "syslog")
    prefix.names.append("syslog")
    host = _HOST.match(line, at)
    if host and node_like(host[1]):
        prefix.host = host[1]
        return host.end()
    return at + 1 if line.startswith(" ", at) else at


def syslog_tail(tail: re.Match[str], prefix: Prefix, family: str) -> int:
    """Take host, process and pid from a match of SYSLOG; the process may stay (see _DAEMONS)."""
    prefix.host = tail[1]
    if tail[3]:
        prefix.pid = int(tail[3])
    prefix.names.append(family)
    return tail.start(2) if tail[2].startswith(_DAEMONS) else tail.end()


def weekday_first(line: str, at: int, prefix: Prefix) -> int:
    """`Thu Oct 10 03:06:53 2024`, also with a zone's name, and then Open MPI's tag if there.

    Or `Thu 2024-10-10 03:06:53 UTC host proc[pid]: ` of journalctl's short-full.
    """
    full = _FULL.match(line, at)
    if full:
        zone = "Z" if full[4] in ("UTC", "GMT") else ""
        printed = stamp(iso_day(full[1]), full[2], full[3], zone)
        if printed is None:
            return -1
        keep(prefix, printed)
        return after_time(line, full.end(), prefix)
    found = _CTIME.match(line, at)
    if found is None or not _ctime(found, prefix):
        return -1
    end = found.end()
    prefix.names.append("ctime")
    if line.startswith("<", end):
        return max(end, mpi_time(line, end, prefix))
    if line.startswith("[", end):
        return max(end, mpi(line, end, prefix))
    if line.startswith(": ", end):
        return end + 2
    return end + 1 if line.startswith(" ", end) else end


def _ctime(found: re.Match[str], prefix: Prefix) -> bool:
    month = MONTHS.get(found[1])
    if month is None:
        return False
    midnight = day(int(found[6]), month, int(found[2]))
    offset = "Z" if found[5] in ("UTC", "GMT") else ""
    printed = stamp(midnight, found[3], found[4], offset)
    if printed is None:
        return False
    keep(prefix, printed)
    return True


def bracket_boot(line: str, at: int, prefix: Prefix) -> int:
    """`[12345.678901] ` since boot (or since 1970: UCX), `[  +0.000316] ` since the last line.

    A delta says nothing about the time. Behind the former, journalctl's short-monotonic has
    ` host proc: `.
    """
    found = _BOOT.match(line, at)
    if found is None:
        found = _DELTA.match(line, at)
        if found is None:
            return -1
        prefix.names.append("dmesg")
        return found.end()
    printed = since_boot(found[1], found[2])
    if printed is None:
        return -1
    keep(prefix, printed)
    tail = SYSLOG.match(line, found.end() - 1)
    if tail and not prefix.names and (tail[2] == "kernel" or tail[3]):
        return syslog_tail(tail, prefix, "journal")
    prefix.names.append("dmesg")
    return found.end()


def bracket_named(line: str, at: int, prefix: Prefix) -> int:
    """`[Thu Oct 10 03:06:53 2024] ` of dmesg -T, `[Jul 23 2024 07:53:55] [ERROR] [tid 841] ` of
    the fabric manager, `[Oct10 03:06] ` of dmesg -H.
    """
    if line[at + 1 : at + 4] in WEEKDAYS:
        found = _CTIME.match(line, at + 1)
        if found is None or not line.startswith("]", found.end()) or not _ctime(found, prefix):
            return -1
        prefix.names.append("dmesg")
        return found.end() + (2 if line.startswith(" ", found.end() + 1) else 1)
    if line[at + 1 : at + 4] not in MONTHS:
        return -1
    found = _FABRIC.match(line, at)
    if found:
        printed = stamp(day(int(found[3]), MONTHS[found[1]], int(found[2])), found[4], found[5])
        family = "fabricmanager"
        prefix.level = NAMES[found[6]] if found[6] else prefix.level
    else:
        found = _DMESG_H.match(line, at)
        if found is None:
            return -1
        midnight = day(NO_YEAR, MONTHS[found[1]], int(found[2]))
        printed = stamp(midnight, found[3] + ":00", has_year=False)
        if printed is not None:
            printed.resolution_ns *= 60
        family = "dmesg"
    if printed is None:
        return -1
    keep(prefix, printed)
    prefix.names.append(family)
    return found.end()


def facility(line: str, at: int, prefix: Prefix) -> int:
    """`kern  :err   : ` of dmesg -x."""
    found = _FACILITY.match(line, at)
    if found is None:
        return -1
    prefix.level = _FACILITY_LEVELS[found[1]]
    prefix.names.append("facility")
    return found.end()


def kmsg(line: str, at: int, prefix: Prefix) -> int:
    """`6,1234,56789,-;` of /dev/kmsg: priority, sequence number, microseconds since boot."""
    found = _KMSG.match(line, at)
    if found is None:
        return -1
    microseconds = found[2].zfill(7)
    printed = since_boot(microseconds[:-6], microseconds[-6:])
    if printed is None:
        return -1
    keep(prefix, printed)
    prefix.level = SYSLOG_LEVELS[int(found[1]) & 7]
    prefix.names.append("kmsg")
    return found.end()


def unix_time(line: str, at: int, prefix: Prefix) -> int:
    """`1728529613.123456 host kernel: ` of journalctl's short-unix."""
    found = _UNIX.match(line, at)
    if found is None:
        return -1
    printed = since_boot(found[1], found[2])
    if printed is None:
        return -1
    keep(prefix, printed)
    return after_time(line, found.end(), prefix)


def priority(line: str, at: int, prefix: Prefix) -> int:
    """`<165>1 2024-..T..Z host app pid id - ` (RFC 5424), or `<34>` in front of another form."""
    found = _RFC5424.match(line, at)
    if found:
        printed = stamp(iso_day(found[1]), found[2], found[3], found[4])
        if printed is None:
            return -1
        keep(prefix, printed)
        prefix.host = None if found[5] == "-" else found[5]
        if found[7].isdecimal() and len(found[7]) < 9:
            prefix.pid = int(found[7])
        prefix.level = SYSLOG_LEVELS[int(line[at + 1 : line.index(">", at)]) & 7]
        prefix.names.append("syslog")
        return found.end()
    found = _PRIORITY.match(line, at)
    if found is None or int(found[1]) > 191 or prefix.names:
        return -1
    prefix.level = SYSLOG_LEVELS[int(found[1]) & 7]
    prefix.names.append("priority")
    return found.end()
