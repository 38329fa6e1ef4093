"""Prefixes of Python loggers and frameworks that begin with a level or a name (FORMATS 1.6).

Function contract as in torch_prefixes. See also dated_prefixes.
"""

from __future__ import annotations

import re

from diagnose.lazy import expression
from diagnose.parse.dated_prefixes import done
from diagnose.parse.stamps import ISO_DATE, ISO_TIME, ISO_ZONE, NO_YEAR, day, iso_day, keep, stamp
from diagnose.parse.who import LEVEL, NAMES, Prefix

# Level first.
_LEVEL_COLON = expression(rf"({LEVEL}):")
_VERL = expression(rf"{ISO_DATE}[ T]{ISO_TIME}:")
_LOGGER = expression(r"[A-Za-z_][\w.\-]{0,120}:(?! )")
_VLLM = expression(rf"({LEVEL}) (\d\d)-(\d\d) {ISO_TIME} \[?([^\]\s]{{1,200}}:\d{{1,7}})\](?: |\Z)")
_BRACKET_LEVEL = expression(rf"\[ *({LEVEL}) *(?=[\]|:])")
_TRANSFORMERS = expression(
    rf"\|([^\]|\s]{{1,200}}:\d{{1,7}})\](?: |\Z)(?:{ISO_DATE} {ISO_TIME} >>(?: |\Z))?"
)
_LLAMA_FACTORY = expression(rf"\|{ISO_DATE} {ISO_TIME}\] (?:(\S{{1,200}}:\d{{1,7}}) >>(?: |\Z))?")
_ASCEND = expression(
    rf"\] {ISO_DATE}-{ISO_TIME}{ISO_ZONE} \(PID:(\d{{1,9}}), Device:(-?\d{{1,5}}), "
    r"RankID:(-?\d{1,7})\) "
)
# Ascend's, of the host and of the device: module, process, milli- and microseconds.
_PLOG = expression(
    r"\[ ?([A-Z]{4,8})\] ?[A-Z][A-Z0-9_]{1,24}\((\d{1,9})[,:][^()\n]{0,120}\): ?"
    rf"{ISO_DATE}-(\d\d:\d\d:\d\d)\.(\d{{3}})\.(\d{{3}}) ?(?:\[([\w./\-]{{1,200}}:\d{{1,7}})\] ?)?"
)
# How programs in Go log: a field for the time, one for the level.
_LOGFMT = expression(rf"(?:time|ts)=\"?{ISO_DATE}T{ISO_TIME}{ISO_ZONE}\"? (?:level=(\w{{1,10}}) )?")
_SWIFT = expression(r":([A-Za-z_][\w.\-]{0,80})\](?: |\Z)")
_NEMO = expression(
    rf"\[NeMo ([DIWEC]) {ISO_DATE} {ISO_TIME} (?:rank:(\d{{1,7}}) )?"
    r"([\w./\-]{1,120}:\d{1,7})(?: rank:(\d{1,7}))?\](?: |\Z)"
)
_DETERMINED = expression(
    rf"(?:<[a-z]{{0,8}}> {{1,9}})?\[{ISO_DATE}[ T]{ISO_TIME}{ISO_ZONE}\](?: [0-9a-f]{{8}})?"
    r"(?: \[rank=(\d{1,7})\])? \|\| ?"
)
_HUGECTR = expression(
    rf"\[HCTR\]\[{ISO_TIME}\]\[({LEVEL})\](?:\[RK(\d{{1,7}})\])?(?:\[[\w #]{{1,40}}\])?: ?"
)


def level_first(line: str, at: int, prefix: Prefix) -> int:
    """`WARNING:logger:msg`, verl `INFO:2024-..,123:msg`, vLLM `INFO 01-02 10:00:00 f.py:1] msg`.

    A plain `ERROR: msg` gives its level and stays in the message.
    """
    found = _LEVEL_COLON.match(line, at)
    if found:
        dated = _VERL.match(line, found.end())
        if dated:
            printed = stamp(iso_day(dated[1]), dated[2], dated[3])
            if printed is not None:
                return done(prefix, printed, "verl", dated.end(), found[1])
        named = _LOGGER.match(line, found.end())
        prefix.level = NAMES[found[1]]
        if named is None:
            return -1
        prefix.names.append("python")
        return named.end()
    found = _VLLM.match(line, at)
    if found is None:
        return -1
    midnight = day(NO_YEAR, int(found[2]), int(found[3]))
    printed = stamp(midnight, found[4], found[5], has_year=False)
    if printed is None:
        return -1
    return done(prefix, printed, "vllm", found.end(), found[1], found[6])


def bracket_level(line: str, at: int, prefix: Prefix) -> int:
    """Transformers `[INFO|trainer.py:12] 2024-.. >> `, LLaMA-Factory, ms-swift, plain `[INFO] `.

    Also torch_npu's `[ERROR] 2024-06-01-10:00:00 (PID:3345, Device:3, RankID:3) `, whose rank is
    -1 where the job has only one.
    """
    found = _BRACKET_LEVEL.match(line, at)
    if found is None:
        return -1
    end, severity = found.end(), found[1]
    tail = _TRANSFORMERS.match(line, end)
    if tail:
        printed = stamp(iso_day(tail[2]), tail[3], tail[4]) if tail[2] else None
        if printed is not None:
            keep(prefix, printed)
        return _named(prefix, "transformers", tail.end(), severity, tail[1])
    tail = _LLAMA_FACTORY.match(line, end)
    if tail:
        printed = stamp(iso_day(tail[1]), tail[2], tail[3])
        if printed is None:
            return -1
        return done(prefix, printed, "llama-factory", tail.end(), severity, tail[4])
    tail = _SWIFT.match(line, end)
    if tail:
        family = "ms-swift" if tail[1] == "swift" else "python"
        return _named(prefix, family, tail.end(), severity)
    tail = _ASCEND.match(line, end)
    if tail:
        return _ascend(prefix, tail, severity)
    if line.startswith("]", end):
        end += 2 if line.startswith(":", end + 1) else 1
        end += line.startswith(" ", end)
        return _named(prefix, "level", end, severity)
    return -1


def _ascend(prefix: Prefix, tail: re.Match[str], severity: str) -> int:
    printed = stamp(iso_day(tail[1]), tail[2], tail[3], tail[4])
    if printed is None:
        return -1
    prefix.pid, device, rank = int(tail[5]), int(tail[6]), int(tail[7])
    prefix.dev = device if device >= 0 else None
    prefix.rank = rank if rank >= 0 else None
    return done(prefix, printed, "ascend", tail.end(), severity)


def _named(prefix: Prefix, family: str, end: int, severity: str, origin: str = "") -> int:
    prefix.level = NAMES[severity]
    prefix.origin = origin or prefix.origin
    prefix.names.append(family)
    return end


def nemo(line: str, at: int, prefix: Prefix) -> int:
    """`[NeMo I 2024-05-01 10:00:00 module:12] `, with `rank:3` in the debug variant."""
    found = _NEMO.match(line, at)
    if found is None:
        return -1
    printed = stamp(iso_day(found[2]), found[3], found[4])
    if printed is None:
        return -1
    rank = found[5] or found[7]
    if rank:
        prefix.rank = int(rank)
    return done(prefix, printed, "nemo", found.end(), found[1], found[6])


def determined(line: str, at: int, prefix: Prefix) -> int:
    """`<info>    [2021-12-07 10:42:15] 1d0cefc1 [rank=1] || ` of Determined's task logs.

    The level may be missing.
    """
    found = _DETERMINED.match(line, at)
    printed = found and stamp(iso_day(found[1]), found[2], found[3], found[4])
    if not found or printed is None:
        return -1
    if found[5]:
        prefix.rank = int(found[5])
    return done(prefix, printed, "determined", found.end())


def hugectr(line: str, at: int, prefix: Prefix) -> int:
    """`[HCTR][06:36:44.205][INFO][RK0][main]: ` of HugeCTR; RK is the rank of MPI."""
    found = _HUGECTR.match(line, at)
    printed = found and stamp(0, found[1], found[2], has_date=False, has_year=False)
    if not found or printed is None:
        return -1
    if found[4]:
        prefix.rank = int(found[4])
    return done(prefix, printed, "hugectr", found.end(), found[3])


def plog(line: str, at: int, prefix: Prefix) -> int:
    """`[ERROR] HCCL(12345,python):2025-07-01-12:00:01.123.456 [file.cc:12]` of Ascend's logs.

    MindSpore prints the thread behind the process.
    """
    found = _PLOG.match(line, at)
    printed = found and stamp(iso_day(found[3]), found[4], found[5] + found[6])
    if not found or printed is None:
        return -1
    prefix.pid = int(found[2])
    return done(prefix, printed, "plog", found.end(), found[1], found[7])


def logfmt(line: str, at: int, prefix: Prefix) -> int:
    """`time="2024-05-01T10:00:00Z" level=info ` of programs in Go."""
    found = _LOGFMT.match(line, at)
    printed = found and stamp(iso_day(found[1]), found[2], found[3], found[4])
    if not found or printed is None:
        return -1
    return done(prefix, printed, "logfmt", found.end(), found[5] or "")
