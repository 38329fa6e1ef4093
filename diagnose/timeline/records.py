"""Records of several lines: a logger puts its prefix in front of the first one only.

The lines of a traceback are those of who wrote the line that it begins on, or the error right above
it, as far as they have no prefix of their own. So much is written at once, and rarely torn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from diagnose.match.lines import Reading
from diagnose.parse.tracebacks import TRACEBACK
from diagnose.parse.who import Prefix

_REACH = 300  # lines of one traceback
_ERRORS = ("ERROR", "FATAL")
_NATIVE = frozenset({"c10", "nccl", "glog", "dmesg", "kmsg"})  # never with a traceback
_PLACE = attrgetter("line", "offset")
_PARTS = (" ", "\t", TRACEBACK)  # with which lines of a traceback begin, up to its exception


def with_authors(
    lines: Sequence[Reading], others: Iterable[Reading] = ()
) -> Iterator[tuple[Reading, Prefix]]:
    """Lines in their order, each with what says who wrote it: its own prefix or its record's.

    `others` are lines of the same source that tell nothing, but where a record begins or ends.
    """
    error = record = None
    numbers = {line.line for line in lines}
    between = [line for line in others if line.line not in numbers]
    for line in sorted([*lines, *between], key=_PLACE):
        if line.prefix.names:
            named = _names_author(line.prefix)
            record = line if named and TRACEBACK in line.text else None
            error = line if named and _by_python(line.prefix) else None
        elif line.text.startswith(TRACEBACK):
            below = error is not None and line.line == error.line + 1
            record = error if below else None
        if record is not None and line.line > record.line + _REACH:
            record = None
        if line.line in numbers:
            yield line, line.prefix if record is None else record.prefix
        if record is not line and not line.text.startswith(_PARTS):
            record = None  # its exception, or somebody else's line


def _by_python(prefix: Prefix) -> bool:
    """Whether a logger of Python wrote an error, which may go on with the exception."""
    return prefix.level in _ERRORS and _NATIVE.isdisjoint(prefix.names)


def _names_author(prefix: Prefix) -> bool:
    known = (prefix.rank, prefix.local_rank, prefix.group_rank, prefix.task, prefix.pid)
    return any(number is not None for number in known)
