"""How processes ended: exit codes and signals, in whatever words a launcher reports them."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace

from diagnose.timeline.event import Event, Fields

_SIGNAL_WORDS = {
    "killed": signal.SIGKILL, "segmentation fault": signal.SIGSEGV, "aborted": signal.SIGABRT,
    "bus error": signal.SIGBUS, "terminated": signal.SIGTERM, "interrupt": signal.SIGINT,
    "hangup": signal.SIGHUP, "illegal instruction": signal.SIGILL,
    "floating point exception": signal.SIGFPE, "out of memory": signal.SIGKILL,
}  # fmt: skip
_MAX_CODE = 2**32  # Windows prints NTSTATUS values
_NEXT_LINES = 2  # of a block that names who ended, and then how


def exit_code(fields: Fields) -> int | None:
    """The exit code of captures; negative is a signal (also 128+N as shells report it)."""
    named = fields.get("signal")
    if named:
        if named.isdigit():
            return -int(named) if named.isascii() and len(named) < 4 else None
        member = getattr(signal, f"SIG{named.upper().removeprefix('SIG')}", None)
        if member is None:
            member = _SIGNAL_WORDS.get(named.lower())
        if member is not None:
            return -int(member)
    try:
        code = int(fields["exitcode"])
    except (KeyError, ValueError):
        return None
    if not -_MAX_CODE < code < _MAX_CODE:
        return None
    return 128 - code if 128 < code < 128 + 65 else code


def exits_named(exits: Sequence[Event]) -> Iterator[Event]:
    """These ends; one whose line has the code only is that of the rank named on the line above."""
    before: Event | None = None
    for event in exits:
        if event.rank is None and before is not None and _right_above(before, event):
            event = replace(event, rank=before.rank, host=before.host)  # noqa: PLW2901
        yield event
        before = event


def _right_above(named: Event, coded: Event) -> bool:
    """Whether one line names a rank that ended, and the next one how."""
    apart = coded.line - named.line if coded.source == named.source else 0
    return 0 < apart <= _NEXT_LINES and named.rank is not None and exit_code(named.fields) is None
