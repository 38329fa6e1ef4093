"""Prefixes that begin with a date or a time, and what loggers print behind it (FORMATS 1.6).

Function contract as in torch_prefixes. The date is read first, then whichever tail is there: level,
logger name, file:line, worker label.
"""

from __future__ import annotations

import re

from diagnose.lazy import expression
from diagnose.parse.launcher_prefixes import mpi_time, node_like
from diagnose.parse.stamps import ISO_DATE, ISO_TIME, ISO_ZONE, NO_YEAR, day, iso_day, keep, stamp
from diagnose.parse.system_prefixes import SYSLOG, syslog_tail
from diagnose.parse.who import LEVEL, NAMES, Prefix, Stamp, fill, level

_BRACKET_DATE = expression(rf"\[{ISO_DATE}(?:T|,? ){ISO_TIME}{ISO_ZONE}(?=[\]: ])")
_BRACKET_TIME = expression(rf"\[{ISO_TIME}\](?: |\Z)")
# Rich's, in the order of the USA.
_RICH = expression(rf"\[(\d\d)/(\d\d)/(\d\d) {ISO_TIME}\](?: {{1,4}}({LEVEL}))?(?: {{1,12}}|\Z)")
_DETECTRON = expression(r"\[(\d\d)/(\d\d) (\d\d:\d\d:\d\d)(?: [\w.]{1,80})?\]:? ?")
_ISO = expression(rf"{ISO_DATE}[ T]{ISO_TIME}{ISO_ZONE}(?![\d])")
_US = expression(rf"(\d\d)/(\d\d)/(\d{{4}}) {ISO_TIME}(?: ([AP]M))?(?=[ \t])")
# Spark's log4j: year, month and day in two digits each.
_LOG4J = expression(rf"(\d\d)/(\d\d)/(\d\d) {ISO_TIME}()(?= (?:{LEVEL}) [\w.$]{{1,120}}: )")
# oneCCL's, whose date has colons.
_CCL = expression(
    r"(\d{4}):(\d\d):(\d\d)-(\d\d:\d\d:\d\d):\( *(\d{1,7})\) \|(?:CCL_([A-Z]{1,8}))?\| ?"
)
_TIME = expression(rf"{ISO_TIME}(?= (?:\|? *(?:{LEVEL})\b|\[ *(?:{LEVEL})))")
# What a viewer of logs puts before every line: sure with milliseconds, or before torch's prefixes.
_CLOCK = expression(
    r"(\d\d:\d\d:\d\d)(?:[.,](\d{3}|\d{6})(?= (?!-->)\S)"
    r"|(?= (?:\[rank\d|\[default\d|\[[FEWIV]\d{3,4} |[DIWEFV]\d{4} \d\d:)))"
)
_CRI = expression(r" (stdout|stderr) ([FP])(?: |\Z)")

# Tails after "[date]".
_DEEPSPEED = expression(
    rf" ?\[ *({LEVEL}) *\]:?(?: -)?(?: |\Z)"
    r"(?:\[([^\[\]\s]{1,200}:\d{1,7})(?::[\w<>.]{1,100})?\] ?)?"
    r"(?:\[PID:(\d{1,7})\] ?)?(?:\[RANK:(\d{1,7})\] ?)?(?:\[Rank (\d{1,7})\] ?)?"
)
_TORCH_21 = expression(rf" ([\w.]{{1,120}}): \[({LEVEL})\](?: |\Z)")
_COLORLOG = expression(rf"\[[\w.\-]{{1,120}}\]\[({LEVEL})\] - ")
_HOROVOD = expression(r": ([A-Z]) (\S{1,400}:\d{1,7})\](?: |\Z)")
_SGLANG = expression(r"((?: (?:DP|TP|PP|EP|CP)\d{1,4}){1,6})\](?: |\Z)")
_RAY_CORE = expression(
    r" ([A-Z]) (\d{1,7}) \d{1,7}\] (?:\([\w ]{1,60}\) )?(?:([\w./\-]{1,200}:\d{1,7}): )?"
)

# Tails after a bare date.
# OpenMMLab's: 05/01 10:00:00 - mmengine - INFO - .
_MONTH_DAY = expression(r"(\d\d)/(\d\d) (\d\d:\d\d:\d\d)(?= - )")
_NAME_OF_DATE = expression(r"\[[A-Za-z][\w.\- ]{0,60}\] ?(?=\d{4}-\d\d-\d\d[ T]\d\d:)")
# The machine before what its program prints.
_HOST_COLUMN = expression(rf" \[?([\w.\-]{{1,128}})\]?(?= \[?(?:{LEVEL}|[rR]ank[ =:]?\d{{1,7}})\b)")
_LOGURU = expression(rf" \| (?P<level>{LEVEL}) {{0,8}}\| (?P<origin>[^|\s]{{1,200}}) -(?: |\Z)")
_RANK_COLUMN = expression(r" [|\-] [rR]ank[ :=]?(\d{1,7})(?= [|\-] )")
# What stands there, by groups that are named as in `who.fill`; the first that matches is taken.
_TAILS = (
    # A host, the level and the global rank, as formatters of training programs put them.
    expression(
        rf" (?:\S{{1,120}} )?(?P<level>{LEVEL}) \[?[Rr]ank[ =:](?P<rank>\d{{1,7}})\]?:?(?: |\Z)"
    ),
    # The rank before the level, and the logger behind it; an exception is none.
    expression(
        rf" \[[rR]ank[ =:]?(?P<rank>\d{{1,7}})\]:? \[?(?P<level>{LEVEL})\]?:?(?: -)?(?: |\Z)"
        r"(?:(?P<origin>(?!\S{0,120}(?:Error|Exception):)[a-z_][\w.\-/]{0,120}): )?"
    ),
    _LOGURU,
    expression(
        rf" - (?:[\w.\-/:]{{1,120}} - )?\[?(?P<level>{LEVEL})\]?(?: -|:)(?: |\Z)"
        r"(?:[\w.\-/]{1,120} - )?"
    ),
    # Weights & Biases' own log: level, thread, pid and place.
    expression(
        rf" (?P<level>{LEVEL}) +[\w\- ()]{{1,80}}:(?P<pid>\d{{1,7}}) "
        r"\[(?P<origin>[\w.]{1,80}\.py):[\w<>]{1,80}\(\):\d{1,7}\] "
    ),
    # Airflow's and TensorFlow's: the place, then or before it the level.
    expression(rf" \{{(?P<origin>[\w.]{{1,80}}:\d{{1,7}})\}} (?P<level>{LEVEL}) - "),
    expression(r": (?P<level>[DIWEF]) (?P<origin>\S{1,400}:\d{1,7})\](?: |\Z)"),
    expression(
        rf"[ \t](?:\[ ?(?P<level>{LEVEL}) {{0,4}}\]|\| ?(?P<level__2>{LEVEL}) {{0,4}}\|"
        rf"|(?P<level__3>{LEVEL})\b):?(?: -)?(?:[ \t]{{1,4}}|\Z)"
        r"(?:\[?(?P<origin>[\w./\-]{1,200}\.(?:py|cc|cpp|cu):\d{1,7})\]?(?: --| -|:|\])?(?: |\Z))?"
        r"(?:W-\d{1,6}-\S{1,120} [\w.$]{1,120} - )?"  # the worker and logger of TorchServe
    ),
    # Mask R-CNN, `logging` with its name in front of the level.
    expression(rf" (?P<origin>[A-Za-z_][\w.\-/]{{0,120}}):? {{1,4}}(?P<level>{LEVEL}):(?: |\Z)"),
)
_PLAIN = expression(r"(?:: | - |[ \t]|\Z)")

_TP = expression(r"TP(\d{1,4})")


def bracket_date(line: str, at: int, prefix: Prefix) -> int:
    """`[2024-05-01 10:00:00,123]` and what the loggers that start so put after it.

    DeepSpeed `[INFO] [file:line:func] [Rank 0] ` (a global rank), axolotl `[INFO] [mod:line]
    [PID:n] [RANK:n] ` (a LOCAL rank), torch 2.1-2.3 `name: [ERROR] `, colorlog `[name][INFO] - `,
    inside the bracket Horovod `: W file:line]`, SGLang ` TP3]` and Ray's C++ ` W pid tid]`;
    alone it is Megatron's or NCCL's (2.26+).
    """
    found = _BRACKET_DATE.match(line, at)
    if found is None:
        return -1
    printed = stamp(iso_day(found[1]), found[2], found[3], found[4])
    if printed is None:
        return -1
    end = found.end()
    if line.startswith("]", end):
        keep(prefix, printed)
        return _after_bracket(line, end + 1, prefix)
    tail = _HOROVOD.match(line, end)
    if tail:
        return done(prefix, printed, "horovod", tail.end(), tail[1], tail[2])
    tail = _SGLANG.match(line, end)
    if tail:
        tensor_parallel = _TP.search(tail[1])
        if tensor_parallel:
            prefix.group_rank = int(tensor_parallel[1])
        prefix.actor = tail[1].strip()
        return done(prefix, printed, "sglang", tail.end())
    tail = _RAY_CORE.match(line, end)
    if tail:
        prefix.pid = int(tail[2])
        return done(prefix, printed, "ray-core", tail.end(), tail[1], tail[3])
    return -1


def _after_bracket(line: str, at: int, prefix: Prefix) -> int:
    tail = _DEEPSPEED.match(line, at)
    if tail:
        name, origin, pid, local, rank = tail.groups()
        if rank is not None and origin is None:  # no logger of ours: an in-group rank
            prefix.level = NAMES[name]
            prefix.names.append("date")
            return tail.start(5) - len("[Rank ")
        if rank is not None:
            prefix.rank = int(rank)
        if local is not None:
            prefix.local_rank = int(local)
        if pid is not None:
            prefix.pid = int(pid)
        prefix.level = NAMES[name]
        prefix.origin = origin or prefix.origin
        family = "axolotl" if pid or local else "deepspeed" if origin else "date"
        prefix.names.append(family)
        return tail.end()
    for family, form in (("torch-logger", _TORCH_21), ("colorlog", _COLORLOG)):
        if tail := form.match(line, at):
            prefix.level = NAMES[tail[tail.re.groups]]
            prefix.names.append(family)
            return tail.end()
    end = mpi_time(line, at, prefix)
    if end >= 0:
        return end
    prefix.names.append("date")
    return _tail(line, at, prefix)


def bracket_time(line: str, at: int, prefix: Prefix) -> int:
    """`[10:00:00.123456] ` of LLaMA2-Accessory (no date); `[05/01 10:00:00 d2.engine]: `.

    Also `[05/01/24 10:00:00] INFO     ` of Rich.
    """
    found = _BRACKET_TIME.match(line, at)
    if found:
        printed = stamp(0, found[1], found[2], has_date=False, has_year=False)
        return -1 if printed is None else done(prefix, printed, "time", found.end())
    found = _RICH.match(line, at)
    if found:
        printed = stamp(day(2000 + int(found[3]), int(found[1]), int(found[2])), found[4], found[5])
        end = found.end()
        return -1 if printed is None else done(prefix, printed, "rich", end, found[6] or "")
    found = _DETECTRON.match(line, at)
    if found is None:
        return -1
    printed = stamp(day(NO_YEAR, int(found[1]), int(found[2])), found[3], has_year=False)
    return -1 if printed is None else done(prefix, printed, "detectron2", found.end())


def bare_date(line: str, at: int, prefix: Prefix) -> int:
    """`2024-05-01T10:00:00.123Z` and the like, then the tail of CRI, loguru, logging, syslog."""
    found = _ISO.match(line, at)
    if found:
        midnight, time, fraction, offset = iso_day(found[1]), found[2], found[3], found[4]
    else:
        found = _US.match(line, at) or _LOG4J.match(line, at)
        if found is None:
            return _bare_time(line, at, prefix)
        midnight = _day_of(found)
        time, fraction, offset = _of_half_day(found[4], found[6]), found[5], ""
    printed = stamp(midnight, time, fraction, offset)
    if printed is None:
        return -1
    end = found.end()
    tail = _CRI.match(line, end)
    if tail:
        keep(prefix, printed)
        prefix.stream = tail[1]
        prefix.names.append("cri" if tail[2] == "F" else "cri-partial")
        return tail.end()
    tail = SYSLOG.match(line, end) if line[at + 10] == "T" else None
    if tail and (tail[2] == "kernel" or tail[3] or (offset and node_like(tail[1]))):
        keep(prefix, printed)
        return syslog_tail(tail, prefix, "syslog")
    if not _PLAIN.match(line, end) and not line.startswith(("\t", "[", "<"), end):
        return -1
    keep(prefix, printed)
    prefix.names.append("iso")
    return _tail(line, end, prefix)


def _day_of(found: re.Match[str]) -> int | None:
    """Midnight of a day with slashes: the year last, or first in two digits."""
    first, second, third = int(found[1]), int(found[2]), int(found[3])
    if len(found[3]) == 2:
        return day(2000 + first, second, third)
    return day(third, second, first) if first > 12 else day(third, first, second)


def _of_half_day(time: str, half: str) -> str:
    """A time of day with AM or PM as a clock of 24 hours shows it."""
    if not half:
        return time
    return f"{int(time[:2]) % 12 + 12 * (half == 'PM'):02d}{time[2:]}"


def named_date(line: str, at: int, prefix: Prefix) -> int:
    """`[titan] ` of a logger that puts a name before its `2024-05-01 10:00:00,123`."""
    found = _NAME_OF_DATE.match(line, at)
    if found is None:
        return -1
    prefix.names.append("named")
    return found.end()


def _bare_time(line: str, at: int, prefix: Prefix) -> int:
    found = _CCL.match(line, at)
    if found:
        midnight = day(int(found[1]), int(found[2]), int(found[3]))
        printed = stamp(midnight, found[4])
        if printed is None:
            return -1
        prefix.pid = int(found[5])
        return done(prefix, printed, "oneccl", found.end(), found[6] or "")
    found = _MONTH_DAY.match(line, at)
    if found:
        midnight = day(NO_YEAR, int(found[1]), int(found[2]))
        printed = stamp(midnight, found[3], has_year=False)
        if printed is None:
            return -1
        keep(prefix, printed)
        prefix.names.append("date")
        return _tail(line, found.end(), prefix)
    found = _TIME.match(line, at) or _CLOCK.match(line, at)
    if found is None:
        return -1
    printed = stamp(0, found[1], found[2], has_date=False, has_year=False)
    if printed is None:
        return -1
    keep(prefix, printed)
    prefix.names.append("time")
    return _tail(line, found.end(), prefix)


def _tail(line: str, at: int, prefix: Prefix) -> int:
    """Rank, level, logger name and place behind a time; else the separator alone."""
    host = _HOST_COLUMN.match(line, at)
    if host and node_like(host[1]):
        prefix.host, at = prefix.host or host[1], host.end()
    column = _RANK_COLUMN.match(line, at)
    if column:
        prefix.rank, at = int(column[1]), column.end()
    for form in _TAILS:
        tail = form.match(line, at)
        if tail:
            fill(prefix, tail)
            if form is _LOGURU:
                prefix.names[-1] = "loguru"
            return tail.end()
    tail = _PLAIN.match(line, at)
    return tail.end() if tail else at


def done(
    prefix: Prefix, printed: Stamp, family: str, end: int, severity: str = "", origin: str = ""
) -> int:
    """Give a prefix what such a form tells; its end."""
    keep(prefix, printed)
    prefix.level = level(severity) or prefix.level
    prefix.origin = origin or prefix.origin
    prefix.names.append(family)
    return end
