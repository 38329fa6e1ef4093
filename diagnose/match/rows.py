"""The expressions of a catalog by their numbers, and the literals of NCCL's call lines.

What Hyperscan is given of them is made where it is compiled, in `match.build`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import hyperscan as hs

from diagnose.catalog.schema import Signature
from diagnose.catalog.stored import sizes
from diagnose.lazy import Lazy, expression

DATABASES = ("marks", "bulk", "rest", "words", "everywhere", "sampled-first", "sampled-all")
LITERAL = ("marks", "words")

_GROUP_NAME = expression(r"\(\?P<\w+>")
Row = tuple[bytes, int, int]  # what Hyperscan searches, its number, its flags
_GREEDY_TAIL = expression(
    r"(?<!\\)(?P<open>\(\?:)?(?P<atom>\.|\\[SwdD]|\[\^?(?:\\.|[^]\\])+\])(?P<times>[*+])(?(open)\))\Z"
)


class Pattern(NamedTuple):
    """One regular expression of a signature; `anchored` ones search the peeled message."""

    signature: int
    expression: str
    anchored: bool
    ignore_case: bool


def name_of(revision: str) -> str:
    """The name of the file in which the databases of a catalog are kept."""
    return f"{revision}.matcher"


# NCCL's call lines are marks too, whose numbers come after those of all others.
INIT, CALL, _SEND, _RECV = range(1 << 24, (1 << 24) + 4)
_INITS = (b"- Init S", b"- Init C")  # of START and COMPLETE; not without the letter, as above
_COLLECTIVES = (
    b"AllReduce", b"AllGather", b"ReduceScatter", b"Broadcast", b"Reduce", b"AlltoAll",
    b"AllToAll", b"Gather", b"Scatter",
)  # fmt: skip
FIRST_CALLS = tuple(b" %s: opCount 0 " % name for name in _COLLECTIVES)  # of a communicator
CALLS = {CALL: b"opCount ", _SEND: b"Send: opCount ", _RECV: b"Recv: opCount "}


def call_rows() -> list[Row]:
    """The rows of NCCL's calls. Of the calls themselves, of which there are millions, the first."""
    once = int(hs.HS_FLAG_SINGLEMATCH)
    calls = [(text, number, once) for number, text in CALLS.items()]
    return [*((text, INIT, 0) for text in (*_INITS, *FIRST_CALLS)), *calls]


class _Patterns(Lazy[Pattern]):
    def __init__(self, signatures: Sequence[Signature]) -> None:
        self._signatures = signatures
        self._starts = [0, *accumulate(sizes(signatures))]
        super().__init__(self._starts[-1])

    def make(self, index: int) -> Pattern:
        """The expression of a number."""
        number = bisect_right(self._starts, index) - 1
        signature = self._signatures[number]
        expression = signature.match[index - self._starts[number]]
        return Pattern(number, expression, expression.startswith("^"), signature.ignore_case)


def patterns_of(signatures: Sequence[Signature]) -> Sequence[Pattern]:
    """Every expression of the catalog, in a fixed order; its index is its number."""
    return _Patterns(signatures)


def hyperscan_form(expression: str) -> bytes:
    """What Hyperscan searches: no group names, and no outer anchors.

    `^` means the start of the message behind the prefixes, which only the confirmation knows;
    `$` means the end of a line, which a carriage return may also end.
    """
    bare = _GROUP_NAME.sub("(?:", expression.removeprefix("^"))
    if bare.endswith("$") and not bare.endswith("\\$"):
        bare = bare[:-1]
    # A greedy tail would report every further byte of the line as another match.
    tail = _GREEDY_TAIL.search(bare)
    if tail is not None:
        kept = tail["atom"] if tail["times"] == "+" else ""
        bare = bare[: tail.start()] + kept
    return bare.encode()


def pattern_flags(pattern: Pattern, *, first: bool) -> int:
    """Hyperscan flags of one pattern; `first` reports its first match in a block only."""
    flags = int(hs.HS_FLAG_MULTILINE)
    if pattern.ignore_case:
        flags |= hs.HS_FLAG_CASELESS
    if first:
        flags |= hs.HS_FLAG_SINGLEMATCH
    return flags


_SAME = bytes.maketrans(b"123456789", b"000000000")


def shape(data: bytes) -> bytes:
    """The shape of a line, or of several: as long, with each digit made a 0."""
    return data.translate(_SAME)
