"""Prefixes of torch itself: its loggers, the rank's excepthook, torchrun (FORMATS 1.1-1.3).

As in the other families, a function takes the line, where to look and the Prefix to fill, and
gives the position after the prefix, or -1 (Prefix untouched) if it is not there.
"""

from __future__ import annotations

from diagnose.lazy import expression
from diagnose.parse.stamps import NO_YEAR, day, keep, stamp
from diagnose.parse.who import NAMES, Prefix

# The 9 digits after the seconds are CLOCK_MONOTONIC, not a fraction of the second: dropped.
_C10 = expression(
    r"\[([FEWIV])(?:(\d{3,4}) (\d\d:\d\d:\d\d)\.(?P<monotonic>\d{6,9}))? (?:\d{1,20} )?"
    r"([\w.\-/]{1,300}\.(?:cpp|hpp|h|cuh?|cc|py):\d{1,7})\](?: |\Z)"
)
_GLOG = expression(
    r"([DIWEFV])(\d{4}|\d{8}) (\d\d:\d\d:\d\d)\.(\d{6}) +(\d{1,20}) ([^\s\]]{1,300})\](?: |\Z)"
)
_RANK = expression(r"\[rank(?:(\d{1,7})\](?::|(?= ))|[:= ]{1,2}(\d{1,7})\](?::| \|\|)?)")
_ROLE = expression(r"\[([A-Za-z_]\w{0,63}?)(\d{1,6})\](?:<(\d{1,6})>: ?|:)")
_TITAN = expression(r"\[titan\] |(?=\d{4}-\d\d-\d\d[ T])")
_IN_GROUP = expression(r"\[(?:Rank|PG [^\[\]\n]{1,256}? Rank) (\d{1,7})\]")

# A tag in front of a logger's line that another process's bar stands before.
_GLUED_RANK = expression(r"[^\s:]\[rank(\d{1,7})\]:(?=\[[FEWIV][ \d])")

# Words with a number in brackets and a colon that are no torchrun role.
_NO_ROLE = frozenset(
    {"epoch", "step", "iter", "iteration", "batch", "layer", "stage", "fold", "gpu", "cuda", "node"}
)
_MAX_PID = 4_194_304  # Linux' limit: a larger number in this place is a thread id


def c10(line: str, at: int, prefix: Prefix) -> int:
    """`[E820 11:47:24.069865760 ProcessGroupNCCL.cpp:607] `, before 2.4 without the time."""
    found = _C10.match(line, at)
    if found is None:
        return -1
    severity, month_day, time, _, origin = found.groups()
    if month_day is not None:
        number = int(month_day)  # month*100+day, not padded
        printed = stamp(day(NO_YEAR, number // 100, number % 100), time, has_year=False)
        if printed is None:
            return -1
        keep(prefix, printed)
    prefix.level = NAMES[severity]
    prefix.origin = origin
    prefix.names.append("c10")
    return found.end()


def monotonic(line: str, at: int) -> tuple[int, int]:
    """Where in such a prefix the digits are that tell no time; at its start if there are none."""
    found = _C10.match(line, at)
    return found.span("monotonic") if found and found["monotonic"] else (at, at)


def glog(line: str, at: int, prefix: Prefix) -> int:
    """`E0517 08:24:03.805000 140617718325696 torch/distributed/api.py:826] `.

    torch's python loggers (2.4+), glog builds of c10, absl and klog share the form. The number is
    a pid only with torch's loggers (they print a path), and there only if it can be one.
    """
    found = _GLOG.match(line, at)
    if found is None:
        return -1
    severity, date_digits, time, fraction, number, origin = found.groups()
    has_year = len(date_digits) == 8
    year = int(date_digits[:4]) if has_year else NO_YEAR
    midnight = day(year, int(date_digits[-4:-2]), int(date_digits[-2:]))
    printed = stamp(midnight, time, fraction, has_year=has_year)
    if printed is None or ":" not in origin:
        return -1
    keep(prefix, printed)
    if "/" in origin and ".py:" in origin and int(number) <= _MAX_PID:
        prefix.pid = int(number)
    prefix.level = NAMES[severity]
    prefix.origin = origin
    prefix.names.append("glog")
    return found.end()


def rank(line: str, at: int, prefix: Prefix) -> int:
    """`[rank3]:` in front of c10 and python loggers, `[rank3]: ` of the excepthook.

    Also Lightning's `[rank: 3] `, Determined's `[rank=3] || `, and `[rank3] ` of those who print
    like them. torchtitan names its torchrun role "rank", so that its `[rank3]:` is a LOCAL rank:
    recognised by what follows, or by a second `[rankN]:`.
    """
    found = _RANK.match(line, at)
    if found is None:
        return -1
    end = found.end()
    if found[1] is None:
        prefix.rank = int(found[2])
        prefix.names.append("lightning")
        return end + 1 if line.startswith(" ", end) else end
    number = int(found[1])
    if line.startswith("[rank", end) and _RANK.match(line, end):
        prefix.local_rank = number
        prefix.names.append("torchrun")
        return end
    titan = _TITAN.match(line, end)
    if titan:
        prefix.local_rank = number
        prefix.names.append("torchrun")
        return titan.end()
    prefix.rank = number
    prefix.names.append("rank")
    return end + 1 if line.startswith(" ", end) else end


def role(line: str, at: int, prefix: Prefix) -> int:
    """`[default3]:` of `torchrun --tee`, other roles, and the template `[trainer8]<0>: `."""
    found = _ROLE.match(line, at)
    if found is None:
        return -1
    name, number, local = found.groups()
    end = found.end()
    if local is not None:
        prefix.rank, prefix.local_rank = int(number), int(local)
    elif name == "default" or (
        # torchrun writes no space after the colon; "[word1]: text" is somebody's own print.
        name.lower() not in _NO_ROLE and (name == "trainer" or not line.startswith(" ", end))
    ):
        prefix.local_rank = int(number)
    else:
        return -1
    prefix.names.append("torchrun")
    return end


def in_group(message: str) -> int | None:
    """The k of a message starting `[Rank k] ` or `[PG ID 0 PG GUID 0(default_pg) Rank k] `.

    A rank inside the process group (and in several releases that of whichever group logged first
    in the process), so never a global rank; the text stays part of the message.
    """
    found = _IN_GROUP.match(message)
    return int(found[1]) if found else None


def place_in_group(message: str) -> tuple[int, int] | None:
    """Where such a message tells this rank."""
    found = _IN_GROUP.match(message)
    return found.span(1) if found else None


def glued_rank(line: str) -> int | None:
    """The rank of a `[rank3]:[E…` that is glued behind other text; None if there are several."""
    found = set(_GLUED_RANK.findall(line)) if "[rank" in line else set()
    return int(found.pop()) if len(found) == 1 else None
