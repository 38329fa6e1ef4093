"""Prefixes of Python loggers and frameworks (FORMATS 1.6), and dates in front of anything.

Function contract as in torch_prefixes. Most of these forms are a date followed by a tail: level,
logger name, file:line, worker label. The date is read first, then whichever tail is there.
"""

from __future__ import annotations

import re

from diagnose.lazy import expression
from diagnose.parse.launcher_prefixes import mpi_time
from diagnose.parse.levels import LEVEL, NAMES, level
from diagnose.parse.stamps import ISO_DATE, ISO_TIME, ISO_ZONE, NO_YEAR, day, iso_day, keep, stamp
from diagnose.parse.system_prefixes import SYSLOG, syslog_tail
from diagnose.parse.who import Prefix, Stamp

_BRACKET_DATE = expression(rf"\[{ISO_DATE}[ T]{ISO_TIME}{ISO_ZONE}(?=[\]: ])")
_BRACKET_TIME = expression(rf"\[{ISO_TIME}\](?: |\Z)")
_DETECTRON = expression(r"\[(\d\d)/(\d\d) (\d\d:\d\d:\d\d)(?: [\w.]{1,80})?\]:? ?")
_ISO = expression(rf"{ISO_DATE}[ T]{ISO_TIME}{ISO_ZONE}(?![\d])")
_US = expression(rf"(\d\d)/(\d\d)/(\d{{4}}) {ISO_TIME}()(?=[ \t])")
# Spark's log4j: year, month and day in two digits each.
_LOG4J = expression(rf"(\d\d)/(\d\d)/(\d\d) {ISO_TIME}()(?= (?:{LEVEL}) [\w.$]{{1,120}}: )")
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
_NAME_OF_DATE = expression(r"\[[A-Za-z][\w.\-]{0,60}\] (?=\d{4}-\d\d-\d\d[ T]\d\d:)")
_LOGURU = expression(rf" \| ({LEVEL}) {{0,8}}\| ([^|\s]{{1,200}}) -(?: |\Z)")
_RANK_COLUMN = expression(r" [|\-] [rR]ank[ :=]?(\d{1,7})(?= [|\-] )")
_DASHES = expression(
    rf" - (?:[\w.\-/:]{{1,120}} - )?\[?({LEVEL})\]?(?: -|:)(?: |\Z)(?:[\w.\-/]{{1,120}} - )?"
)
_WORD = expression(
    rf"[ \t](?:\[ ?({LEVEL}) {{0,4}}\]|\| ?({LEVEL}) {{0,4}}\||({LEVEL})\b)"
    r":?(?: -)?(?:[ \t]{1,4}|\Z)"
    r"(?:\[?([\w./\-]{1,200}\.(?:py|cc|cpp|cu):\d{1,7})\]?(?: --| -|:|\])?(?: |\Z))?"
    r"(?:W-\d{1,6}-\S{1,120} [\w.$]{1,120} - )?"  # the worker and logger of TorchServe
)
# Mask R-CNN, `logging` with its name in front of the level.
_NAMED = expression(rf" ([A-Za-z_][\w.\-/]{{0,120}}):? {{1,4}}({LEVEL}):(?: |\Z)")
# A host, the level and the global rank, as formatters of training programs put them.
_RANKED = expression(rf" (?:\S{{1,120}} )?({LEVEL}) \[?[Rr]ank[ =:](\d{{1,7}})\]?:?(?: |\Z)")
# The rank before the level, and the logger behind it; an exception is none.
_RANK_LEVEL = expression(
    rf" \[[rR]ank[ =:]?(\d{{1,7}})\]:? \[?({LEVEL})\]?:?(?: -)?(?: |\Z)"
    r"(?:((?!\S{0,120}(?:Error|Exception):)[a-z_][\w.\-/]{0,120}): )?"
)
_PLAIN = expression(r"(?:: | - |[ \t]|\Z)")

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
_SWIFT = expression(r":([A-Za-z_][\w.\-]{0,80})\](?: |\Z)")
_NEMO = expression(
    rf"\[NeMo ([DIWEC]) {ISO_DATE} {ISO_TIME} (?:rank:(\d{{1,7}}) )?"
    r"([\w./\-]{1,120}:\d{1,7})(?: rank:(\d{1,7}))?\](?: |\Z)"
)
_DETERMINED = expression(
    rf"<[a-z]{{0,8}}> {{1,9}}\[{ISO_DATE}[ T]{ISO_TIME}{ISO_ZONE}\](?: [0-9a-f]{{8}})?"
    r"(?: \[rank=(\d{1,7})\])? \|\| ?"
)
_HUGECTR = expression(
    rf"\[HCTR\]\[{ISO_TIME}\]\[({LEVEL})\](?:\[RK(\d{{1,7}})\])?(?:\[[\w #]{{1,40}}\])?: ?"
)
_ACCELERATE = expression(r"\[RANK (\d{1,7})\](?: |\Z)")

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
        return _done(prefix, printed, "horovod", tail.end(), tail[1], tail[2])
    tail = _SGLANG.match(line, end)
    if tail:
        tensor_parallel = _TP.search(tail[1])
        if tensor_parallel:
            prefix.group_rank = int(tensor_parallel[1])
        prefix.actor = tail[1].strip()
        return _done(prefix, printed, "sglang", tail.end())
    tail = _RAY_CORE.match(line, end)
    if tail:
        prefix.pid = int(tail[2])
        return _done(prefix, printed, "ray-core", tail.end(), tail[1], tail[3])
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


def _done(
    prefix: Prefix, printed: Stamp, family: str, end: int, severity: str = "", origin: str = ""
) -> int:
    keep(prefix, printed)
    prefix.level = level(severity) or prefix.level
    prefix.origin = origin or prefix.origin
    prefix.names.append(family)
    return end


def bracket_time(line: str, at: int, prefix: Prefix) -> int:
    """`[10:00:00.123456] ` of LLaMA2-Accessory (no date); `[05/01 10:00:00 d2.engine]: `."""
    found = _BRACKET_TIME.match(line, at)
    if found:
        printed = stamp(0, found[1], found[2], has_date=False, has_year=False)
        return -1 if printed is None else _done(prefix, printed, "time", found.end())
    found = _DETECTRON.match(line, at)
    if found is None:
        return -1
    printed = stamp(day(NO_YEAR, int(found[1]), int(found[2])), found[3], has_year=False)
    return -1 if printed is None else _done(prefix, printed, "detectron2", found.end())


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
        time, fraction, offset = found[4], found[5], ""
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
    if tail and (tail[2] == "kernel" or tail[3]):
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


def named_date(line: str, at: int, prefix: Prefix) -> int:
    """`[titan] ` of a logger that puts a name before its `2024-05-01 10:00:00,123`."""
    found = _NAME_OF_DATE.match(line, at)
    if found is None:
        return -1
    prefix.names.append("named")
    return found.end()


def _bare_time(line: str, at: int, prefix: Prefix) -> int:
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
    column = _RANK_COLUMN.match(line, at)
    if column:
        prefix.rank, at = int(column[1]), column.end()
    tail = _RANKED.match(line, at)
    if tail:
        prefix.level, prefix.rank = NAMES[tail[1]], int(tail[2])
        return tail.end()
    tail = _RANK_LEVEL.match(line, at)
    if tail:
        prefix.rank, prefix.level = int(tail[1]), NAMES[tail[2]]
        prefix.origin = tail[3] or prefix.origin
        return tail.end()
    tail = _LOGURU.match(line, at)
    if tail:
        prefix.level, prefix.origin = NAMES[tail[1]], tail[2]
        prefix.names[-1] = "loguru"
        return tail.end()
    tail = _DASHES.match(line, at)
    if tail:
        prefix.level = NAMES[tail[1]]
        return tail.end()
    tail = _WORD.match(line, at)
    if tail:
        prefix.level = NAMES[tail[1] or tail[2] or tail[3]]
        prefix.origin = tail[4] or prefix.origin
        return tail.end()
    tail = _NAMED.match(line, at)
    if tail:
        prefix.level, prefix.origin = NAMES[tail[2]], tail[1]
        return tail.end()
    tail = _PLAIN.match(line, at)
    return tail.end() if tail else at


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
                return _done(prefix, printed, "verl", dated.end(), found[1])
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
    return _done(prefix, printed, "vllm", found.end(), found[1], found[6])


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
        return _done(prefix, printed, "llama-factory", tail.end(), severity, tail[4])
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
    return _done(prefix, printed, "ascend", tail.end(), severity)


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
    return _done(prefix, printed, "nemo", found.end(), found[1], found[6])


def accelerate(line: str, at: int, prefix: Prefix) -> int:
    """`[RANK 0] ` of accelerate's get_logger (1.13+)."""
    found = _ACCELERATE.match(line, at)
    if found is None:
        return -1
    prefix.rank = int(found[1])
    prefix.names.append("accelerate")
    return found.end()


def determined(line: str, at: int, prefix: Prefix) -> int:
    """`<info>    [2021-12-07 10:42:15] 1d0cefc1 [rank=1] || ` of Determined's task logs."""
    found = _DETERMINED.match(line, at)
    printed = found and stamp(iso_day(found[1]), found[2], found[3], found[4])
    if not found or printed is None:
        return -1
    if found[5]:
        prefix.rank = int(found[5])
    return _done(prefix, printed, "determined", found.end())


def hugectr(line: str, at: int, prefix: Prefix) -> int:
    """`[HCTR][06:36:44.205][INFO][RK0][main]: ` of HugeCTR; RK is the rank of MPI."""
    found = _HUGECTR.match(line, at)
    printed = found and stamp(0, found[1], found[2], has_date=False, has_year=False)
    if not found or printed is None:
        return -1
    if found[4]:
        prefix.rank = int(found[4])
    return _done(prefix, printed, "hugectr", found.end(), found[3])
