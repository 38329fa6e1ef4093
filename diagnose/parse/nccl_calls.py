"""Finding NCCL's call lines in a block of bytes with numpy: no Python per line (FORMATS 4.3).

    node01:4001:4901 [0] NCCL INFO AllReduce: opCount 1f sendbuff 0x7f… recvbuff 0x7f… count 1024
    datatype 7 op 0 root 0 comm 0x55… [nranks=8] stream 0x55…

Each call has one `=`. From there the communicator is looked for at the distances seen before, and
from the start of the line ` NCCL INFO `: logs have few layouts. Only lines of a new layout are
searched one by one. Words are read eight bytes at a time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.uint8]

# A call reaches at most so far before and behind its `=`.
REACH = 1024
TEXT = 240  # bytes from the name of the operation to `=`
_PREFIX = 256  # bytes of `host:pid:tid [dev]` with what is glued to it
_LAYOUTS = 64  # remembered
_LEARNED = 8  # layouts learned of one block before the rest is searched one by one


def word(text: bytes) -> int:
    """The first eight bytes of `text` as the number that the block's words hold."""
    return int.from_bytes(text[:8].ljust(8, b"\0"), "little")


SEND, RECV = word(b"Send:"), word(b"Recv:")
_OPS = (
    b"AllReduce:", b"AllGather:", b"ReduceScatter:", b"Broadcast:", b"Reduce:", b"Send:", b"Recv:",
    b"AlltoAll:", b"AllToAll:", b"Gather:", b"Scatter:",
)  # fmt: skip
_INFO = len(b" NCCL INFO ")
_CALL = re.compile(rb" NCCL INFO (?:%b) opCount " % b"|".join(_OPS))
_INIT = re.compile(rb"- Init (?:START|COMPLETE)")
_LOW = [(1 << (8 * n)) - 1 for n in range(9)]
_LOW_BYTES = np.array(_LOW, np.uint64)  # keeps the first n bytes of a word
_HIGH_BYTES = np.array([_LOW[8] ^ _LOW[8 - n] for n in range(9)], np.uint64)  # the last n
_LOW7 = np.uint64(0x7F7F7F7F7F7F7F7F)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_MIX2 = np.uint64(0xD6E8FEB86659FD93)


def _every(character: str) -> np.uint64:
    return np.uint64(ord(character) * 0x0101010101010101)


_BLANK = _every(" ")
_CLOSING = (_BLANK, _every("]"), _every(">"), _every("\n"), _every("\r"))


@dataclass(slots=True)
class Calls:
    """Calls of one block in order; every column has their length.

    `comm` is a hash of process and communicator, `side` of the direction and the peer (0 for a
    collective). `begin` is the offset of the operation's name, `at` that of the `=`.
    """

    comm: Words
    side: Words
    begin: Ints
    at: Ints
    count: Ints

    def take(self, rows: Ints | slice) -> Calls:
        """Some of the calls."""
        columns = (self.comm, self.side, self.begin, self.at, self.count)
        return Calls(*(column[rows] for column in columns))  # type: ignore[arg-type]


@dataclass(slots=True)
class Block:
    """What was found in a block: calls, offsets behind `- Init …`, and all line ends."""

    calls: Calls | None
    inits: list[int]
    newlines: Ints


class Finder:
    """Finds calls in blocks of one source; remembers the layouts of its lines."""

    def __init__(self) -> None:
        self._prefixes: Counter[int] = Counter()
        self._pointers: Counter[int] = Counter({len("0x7f0000000000"): 1})

    def find(self, data: bytes, low: int, high: int) -> Block:
        """Calls whose `=`, and init lines whose end, is in `low` <= offset < `high`."""
        codes = np.frombuffer(data, np.uint8)
        newlines = np.flatnonzero(codes == ord("\n"))
        inits = [found.end() for found in _INIT.finditer(data)]
        block = Block(None, [at for at in inits if low <= at < high], newlines)
        if len(data) < TEXT // 2:
            return block
        words: Words = np.ndarray(len(data) - 7, np.uint64, data, strides=(1,))
        at = np.flatnonzero(codes == ord("="))
        at = at[(at >= max(low, TEXT // 4)) & (at < high)]
        at = at[words[at - 7] == word(b"[nranks=")]
        if len(at):
            line = np.searchsorted(newlines, at)
            start = np.where(line > 0, newlines[line - 1] + 1, 0) if len(newlines) else 0 * at
            block.calls = self._calls(data, codes, words, start, at)
        return block

    def _calls(
        self, data: bytes, codes: Codes, words: Words, start: Ints, at: Ints
    ) -> Calls | None:
        def pointer(place: int, row: int) -> bool:
            del row
            return data.startswith(b" comm 0x", place)

        def name(place: int, row: int) -> bool:
            return (
                0 <= at[row] - place - _INFO <= TEXT and _CALL.match(data, place) is not None
            )

        end = at - len(" [nranks")
        comm = _place(
            end - len(" comm "), -1, self._pointers,
            lambda place, rows: (place >= 0) & (words[np.maximum(place, 0)] == word(b" comm 0x")),
            lambda row: data.rfind(b" comm 0x", max(0, end[row] - 24), end[row]),
        )  # fmt: skip

        def begins(place: Ints, rows: Ints) -> npt.NDArray[np.bool_]:
            distance = at[rows] - place
            good = (distance > _INFO + 16) & (distance <= TEXT + _INFO)
            hits = np.flatnonzero(good)
            place = place[hits]
            good[hits] = (words[place] == word(b" NCCL IN")) & (
                words[place + 3] == word(b"CL INFO ")
            )
            return good

        info = _place(
            start, 1, self._prefixes, begins,
            lambda row: data.rfind(
                b" NCCL INFO ", max(int(start[row]), int(at[row]) - TEXT - _INFO), int(at[row])
            ),
        )  # fmt: skip
        del pointer, name
        rows = np.flatnonzero((comm >= 0) & (info >= 8))
        return _columns(codes, words, info[rows], comm[rows], at[rows]) if len(rows) else None


def _place(
    base: Ints,
    sign: int,
    known: Counter[int],
    fits: Callable[[Ints, Ints], npt.NDArray[np.bool_]],
    search: Callable[[int], int],
) -> Ints:
    """Where in every row something is: at a known distance from `base`, else where `search` says.

    -1 where it is not. `known` counts the distances, and learns.
    """
    result = np.full(len(base), -1)
    rows = np.arange(len(base))
    for distance, _ in known.most_common():
        if not len(rows):
            break
        place = base[rows] + sign * distance
        hits = fits(place, rows)
        result[rows[hits]] = place[hits]
        known[distance] += int(np.count_nonzero(hits))
        rows = rows[~hits]
    for _ in range(_LEARNED):
        if not len(rows):
            break
        place_one = search(int(rows[0]))
        distance = sign * (place_one - int(base[rows[0]]))
        if place_one < 0 or distance < 0:
            rows = rows[1:]
            continue
        place = base[rows] + sign * distance
        hits = fits(place, rows)
        hits[0] = True
        result[rows[hits]] = place[hits]
        if len(known) < _LAYOUTS:
            known[distance] += int(np.count_nonzero(hits))
        rows = rows[~hits]
    for row in rows.tolist():
        result[row] = search(row)
    return result
