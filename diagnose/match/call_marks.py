"""What tells of NCCL's call lines, found by the automaton of the marks on its way.

Passes of their own for these literals take a tenth of the time that a log without such lines takes,
and a fifth of that of a log full of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import hyperscan as hs

from diagnose.lazy import expression

FIRST = 1 << 24  # number of the first of these literals: behind all other marks
_INIT, _CALL, _SEND, _RECV = range(FIRST, FIRST + 4)
# Of START and COMPLETE; not without the letter, see `match.marks`.
_INITS = (b"- Init S", b"- Init C")
_LITERALS = {_CALL: b"opCount ", _SEND: b"Send: opCount ", _RECV: b"Recv: opCount "}
_INIT_TEXT = b"- Init "
_ENDS = expression(rb"- Init [SC]")


@dataclass(slots=True)
class CallMarks:
    """Of a block of bytes: where `- Init S` or `C` ends, whether there are calls, also p2p."""

    inits: list[int] = field(default_factory=list)
    calls: bool = False
    p2p: bool = False

    def add(self, number: int, end: int) -> None:
        """Take what one of these literals tells, by its number and where it ends."""
        if number == _INIT:
            self.inits.append(end)
        else:
            self.calls = True
            self.p2p = self.p2p or number != _CALL


def rows() -> list[tuple[bytes, int, int]]:
    """The literals, their numbers and flags. Of calls, of which there are millions, the first."""
    once = int(hs.HS_FLAG_SINGLEMATCH)
    calls = [(text, number, once) for number, text in _LITERALS.items()]
    return [*((text, _INIT, 0) for text in _INITS), *calls]


def with_init(kinds: Collection[bytes]) -> set[bytes]:
    """The shapes of lines by which communicators may begin or be ready."""
    return {same for same in kinds if _INIT_TEXT in same}


def marks_in(kinds: Collection[bytes], inits: Iterable[tuple[int, bytes]]) -> CallMarks:
    """The same by the shapes of lines, and the place and shape of each that is `with_init`."""
    held = b"\n".join(kinds)  # the literals have no digits
    calls = _LITERALS[_CALL] in held
    p2p = calls and any(_LITERALS[number] in held for number in (_SEND, _RECV))
    ends = [at + found.end() for at, same in inits for found in _ENDS.finditer(same)]
    return CallMarks(ends, calls, p2p)
