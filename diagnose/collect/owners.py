"""Processes that may not be looked at: whose they are, and the command that may look at them."""

from __future__ import annotations

import os
import pwd
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from diagnose.collect import proc
from diagnose.collect.seen import Seen, is_launcher, is_python
from diagnose.text.ranks import counted, plural

_NAMED = 4
# As a shell finds it: sudo has a PATH of its own.
_COMMAND = 'sudo "$(command -v diagnose)" collect'


def refused(pids: Iterable[int]) -> list[str]:
    """A line for each process that was asked for and may not be looked at."""
    return [f"process {pid} is of {owner(pid)}: {_COMMAND} --pid {pid}" for pid in pids]


def jobs(closed: Sequence[int], seen: Mapping[int, Seen]) -> list[str]:
    """A line for each user with processes that look like ranks, else how many there are at all.

    Ranks are Python below a launcher, or several with one command.
    """
    alike = Counter((seen[pid].parent, *seen[pid].words) for pid in closed)
    found: dict[str, list[int]] = defaultdict(list)
    for pid in closed:
        one, over = seen[pid], seen.get(seen[pid].parent)
        together = alike[(one.parent, *one.words)] > 1 or (over is not None and is_launcher(over))
        if together and is_python(one) and not is_launcher(one):
            found[owner(pid)].append(pid)
    if closed and not found:
        return [f"processes of other users that may not be looked at: {len(closed)}"]
    return [
        f"{counted(len(pids), 'Python process', 'Python processes')} of {whose} "
        f"{plural(len(pids), 'looks', 'look')} like a job "
        f"(pid {', '.join(map(str, pids[:_NAMED]))}{', …' * (len(pids) > _NAMED)}): {_COMMAND}"
        for whose, pids in found.items()
    ]


def owner(pid: int) -> str:
    """`user alice`, as well as this machine knows it."""
    number = uid(pid)
    with suppress(KeyError):
        return f"user {pwd.getpwuid(number).pw_name}" if number is not None else "another user"
    return f"user {number}"


def uid(pid: int) -> int | None:
    """The user that a process runs as; None if it has ended."""
    with suppress(OSError, ValueError, LookupError):
        return int(proc.keyed(proc.PROC / str(pid) / "status")["Uid"].split()[0])
    with suppress(OSError):
        return os.stat(proc.PROC / str(pid)).st_uid  # noqa: PTH116
    return None
