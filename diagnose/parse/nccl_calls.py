"""Finding NCCL's call lines in a block of bytes with numpy: no Python per line (FORMATS 4.3).

    node01:4001:4901 [0] NCCL INFO AllReduce: opCount 1f sendbuff 0x7f… recvbuff 0x7f… count 1024
    datatype 7 op 0 root 0 comm 0x55… [nranks=8] stream 0x55…

Each call has one `=`. In front of it the communicator is looked for at the distances seen before,
and ` NCCL INFO ` at the distances from the start of the line seen before: a log has few layouts.
Only lines of a new layout are searched one by one. Words are read eight bytes at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.parse.nccl_inits import ENDS

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

ARGUMENT_BYTES = 120  # bytes from the opCount on that hold the number of elements and the type
OPS = (
    "AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AlltoAll", "AllToAll",
    "Gather", "Scatter", "Send", "Recv",
)  # fmt: skip
SEND = OPS.index("Send")  # sends and receives are the last two
_INFO, _COUNT = b" NCCL INFO ", b"opCount "
_TEXT = 256  # bytes from ` NCCL INFO ` to `=`
_LONG = 164  # bytes from there to ` comm `, at most
_WHO = 256  # bytes of `host:pid:tid`
_LAYOUTS = 64  # remembered
_LEARNED = 8  # layouts learned of one block before the rest is searched one by one


def word(text: bytes) -> int:
    """The first eight bytes of `text` as the number that the block's words hold."""
    return int.from_bytes(text[:8].ljust(8, b"\0"), "little")


def _every(byte: int) -> np.uint64:
    return np.uint64(byte * 0x0101010101010101)


_OP_WORDS = np.array([word(op.encode() + b": opCount") for op in OPS], np.uint64)
_OP_ORDER = np.argsort(_OP_WORDS)
_OP_SORTED = _OP_WORDS[_OP_ORDER]
_OP_LENGTHS = np.array([len(op) + 2 for op in OPS])
_LOW = [(1 << (8 * n)) - 1 for n in range(9)]
_HIGH_BYTES = np.array([_LOW[8] ^ _LOW[8 - n] for n in range(9)], np.uint64)  # keeps the last n
_LOW7, _TOPS = _every(0x7F), _every(0x80)
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(slots=True)
class Calls:
    """Calls of one block in order; every column has their length.

    `comm` is a hash of process and communicator, `side` of the direction and the peer (0 for a
    collective). `op` indexes OPS. `info`, `count` and `at` are the offsets of ` NCCL INFO `, of the
    digits of the opCount and of `=`.
    """

    comm: Words
    side: Words
    op: Ints
    info: Ints
    count: Ints
    at: Ints

    def take(self, rows: Ints | slice) -> Calls:
        """Some of the calls."""
        return Calls(
            self.comm[rows], self.side[rows], self.op[rows], self.info[rows], self.count[rows],
            self.at[rows],
        )  # fmt: skip


def texts(data: bytes, count: Ints) -> Ints:
    """The bytes from each opCount on, packed into numbers; near the end they begin before."""
    codes = np.frombuffer(data.ljust(ARGUMENT_BYTES, b"\n"), np.uint8)
    rows = np.lib.stride_tricks.sliding_window_view(codes, ARGUMENT_BYTES)
    return rows[np.minimum(count, len(rows) - 1)].view(np.int64)


def op_counts(data: bytes, count: Ints) -> Ints:
    """The opCounts themselves (below 2**60), -1 for what is no hexadecimal number."""
    words: Words = np.ndarray(len(data) - 7, np.uint64, data, strides=(1,))
    value, length = _hex8(words[count])
    long = np.flatnonzero(length == 8)
    if len(long):
        following = words[count[long] + 8]
        low, more = _hex8(following)
        # A blank may follow the eighth digit at once.
        whole = ((following & np.uint64(0xFF)) == ord(" ")) | ((more > 0) & (more < 8))
        value[long] = np.where(whole, (value[long] << (4 * more)) + low, -1)
    value[length == 0] = -1
    return value


@dataclass(slots=True)
class Block:
    """What was found in a block: calls, offsets behind `- Init START`, and all line ends."""

    calls: Calls | None
    inits: list[int]
    newlines: Ints


class Finder:
    """Finds calls in blocks of one source; remembers the layouts of its lines."""

    def __init__(self) -> None:
        self._prefixes: Counter[int] = Counter()
        # A space and `comm 0x`, then at most 16 digits.
        self._pointers = Counter({-len(" comm 0x") - digits: 0 for digits in range(1, 17)})
        self._scratch = np.empty((2, 0), np.bool_)

    def find(self, data: bytes, low: int, high: int) -> Block:
        """Calls whose `=`, and init lines whose end, is in `low` <= offset < `high`."""
        codes = np.frombuffer(data, np.uint8)
        if _COUNT not in data:  # no calls
            newlines = np.flatnonzero(codes == ord("\n"))
            ends = [one.end() for one in ENDS.finditer(data)]
            return Block(None, [end for end in ends if low <= end < high], newlines)
        marks = self._marks(codes)
        ends = codes[marks] == ord("\n")
        newlines = marks[ends]
        words: Words = np.ndarray(max(0, len(data) - 7), np.uint64, data, strides=(1,))
        good = ~ends & (marks >= 64)
        line, at = np.cumsum(ends)[good], marks[good]
        # The stream follows on the line, so that words do not pass the end of the block.
        good = words[at - 7] == word(b"[nranks=")
        good &= np.concatenate((newlines, [len(data)]))[line] - at > len("=8] stream")
        if not good.all():
            at, line = at[good], line[good]
        inits = _inits(data, line, newlines)
        inside = (at >= low) & (at < high)
        if not inside.all():
            at, line = at[inside], line[inside]
        start = np.concatenate(([0], newlines + 1))[line]
        calls = self._calls(data, words, start, at) if len(at) else None
        return Block(calls, [end for end in inits if low <= end < high], newlines)

    def _marks(self, codes: npt.NDArray[np.uint8]) -> Ints:
        """The places of all line ends and `=`."""
        if len(self._scratch[0]) < len(codes):
            self._scratch = np.empty((2, len(codes)), np.bool_)
        lines, signs = self._scratch[:, : len(codes)]
        np.equal(codes, ord("\n"), out=lines)
        np.equal(codes, ord("="), out=signs)
        return np.flatnonzero(np.logical_or(lines, signs, out=lines))

    def _calls(self, data: bytes, words: Words, start: Ints, at: Ints) -> Calls | None:
        end = at - len(" [nranks")  # of the communicator

        def is_comm(rows: Ints | slice, place: Ints) -> Flags:
            fits: Flags = words[place] == word(b" comm 0x")
            return fits & (place >= start[rows])

        def is_info(rows: Ints | slice, place: Ints) -> Flags:
            far = at[rows] - place
            fits: Flags = words[np.minimum(place, at[rows])] == word(_INFO)
            return fits & (far >= 64) & (far <= _TEXT) & (place >= 8)

        def find_info(row: int) -> int:
            low = max(8, int(start[row]), int(at[row]) - _TEXT)
            return data.rfind(_INFO, low, int(at[row]) - 64)

        comm = _places(end, self._pointers, is_comm)
        good = comm >= 0
        if not good.all():
            comm, start, at = comm[good], start[good], at[good]
        info = _places(start, self._prefixes, is_info, find_info)
        op = _ops(words, info)
        # A line torn by another writer can have two; the last is meant.
        torn = (info >= 0) & ((op < 0) | (comm - info > _LONG))
        for row in np.flatnonzero(torn).tolist():
            info[row] = find_info(row)
            op[row] = _ops(words, info[row : row + 1])[0]
        good = (info >= 0) & (op >= 0)
        if not good.all():
            comm, info, op, at = (column[good] for column in (comm, info, op, at))
        return _columns(words, info, op, comm, at) if len(at) else None


def _inits(data: bytes, line: Ints, newlines: Ints) -> list[int]:
    """Where init lines end; only lines without a call (`line`, ascending) can be such."""
    calls = int(np.count_nonzero(np.diff(line))) + bool(len(line))
    if calls == len(newlines) and data.endswith(b"\n"):
        return []
    found = np.array([one.end() for one in ENDS.finditer(data)], np.int64)
    there = np.searchsorted(newlines, found)
    place = np.searchsorted(line, there)
    alone = place == np.searchsorted(line, there, side="right")
    ends: list[int] = found[alone].tolist()
    return ends


def _places(
    base: Ints,
    known: Counter[int],
    fits: Callable[[Ints | slice, Ints], Flags],
    search: Callable[[int], int] | None = None,
) -> Ints:
    """Where something is in every row: as far from `base` as known, or as `search` finds; else -1.

    `known` counts how often each distance came up, and learns what `search` finds.
    """
    result = np.full(len(base), -1)
    rows = np.arange(len(base))
    for distance, _ in known.most_common():
        if not len(rows):
            break
        whole = len(rows) == len(base)
        place = (base if whole else base[rows]) + distance
        hits = fits(slice(None) if whole else rows, place)
        count = int(np.count_nonzero(hits))
        known[distance] += count
        if count == len(base):
            return place
        if count:
            result[rows[hits]] = place[hits]
            rows = rows[~hits]
    if search is None:
        return result
    for _ in range(_LEARNED):
        if not len(rows):
            break
        found = search(int(rows[0]))
        distance = found - int(base[rows[0]])
        if found < 0 or distance in known or len(known) >= _LAYOUTS:
            result[rows[0]], rows = found, rows[1:]
            continue
        place = base[rows] + distance
        hits = fits(rows, place)
        known[distance] = int(np.count_nonzero(hits))
        result[rows[hits]], rows = place[hits], rows[~hits]
    for row in rows.tolist():
        result[row] = search(row)
    return result


def _ops(words: Words, info: Ints) -> Ints:
    """Which operation follows each ` NCCL INFO `, -1 for none that is known."""
    found = words[info + len(_INFO)]
    place = np.minimum(np.searchsorted(_OP_SORTED, found), len(OPS) - 1)
    return np.where(_OP_SORTED[place] == found, _OP_ORDER[place], -1)


def _columns(words: Words, info: Ints, op: Ints, comm: Ints, at: Ints) -> Calls | None:
    count = info + len(_INFO) + _OP_LENGTHS[op] + len("opCount ")
    device = _last_byte(_equal(words[info - 8], ord(" ")))  # behind it `[0]`
    good = (words[count - 8] == word(b"opCount ")) & (device >= 0)
    good &= (comm - count > 32) & (comm - info <= _LONG)
    if not good.all():
        info, op, comm, at, count, device = (
            column[good] for column in (info, op, comm, at, count, device)
        )
        if not len(at):
            return None
    end = at - len(" [nranks")
    pointer = end - comm - len(" comm 0x")
    who = _hash_process(words, info - 8 + device)
    for part, size in ((end, pointer), (end - 8, np.maximum(pointer - 8, 0))):
        who = _mixed(who, words[part - 8] & _HIGH_BYTES[np.minimum(size, 8)])
    side = np.zeros(len(at), np.uint64)
    p2p = np.flatnonzero(op >= SEND)
    if len(p2p):
        root = words[comm[p2p] - 8]  # `root 3`
        peer = root & _HIGH_BYTES[7 - _last_byte(_equal(root, ord(" ")))]
        side[p2p] = _mixed(peer, op[p2p].astype(np.uint64))
    return Calls(who, side, op, info, count, at)


def _hash_process(words: Words, end: Ints) -> Words:
    """A hash of `host:pid:tid`: what stands before `end`, behind blanks and brackets."""
    result = np.zeros(len(end), np.uint64)
    rows = np.arange(len(end))
    for step in range(0, _WHO, 8):
        taken = _before(words, end[rows] - step)
        closed = _below(taken, 0x21) | _equal(taken, ord("]")) | _equal(taken, ord(">"))
        cut = np.flatnonzero(closed)
        taken[cut] &= _HIGH_BYTES[7 - _last_byte(closed[cut])]
        result[rows] = _mixed(result[rows], taken)
        rows = rows[closed == 0]
        if not len(rows):
            break
    return result


def _mixed(seed: Words, value: Words) -> Words:
    mixed = (seed ^ value) * _MIX
    return mixed ^ (mixed >> np.uint64(29))


def _before(words: Words, end: Ints) -> Words:
    """The eight bytes before each `end`; 0 for those before the block."""
    start = end - 8
    taken = words[np.maximum(start, 0)]
    if start[0] < 0:  # only the first call of a block begins so early
        early = np.flatnonzero(start < 0)
        taken[early] <<= (-8 * np.maximum(start[early], -7)).astype(np.uint64)
        taken[start <= -8] = 0
    return taken


def _equal(text: Words, byte: int) -> Words:
    """0x80 in every byte that is `byte`."""
    differs = text ^ _every(byte)
    return ~(((differs & _LOW7) + _LOW7) | differs | _LOW7)


def _below(text: Words, byte: int) -> Words:
    """0x80 in every byte that is below `byte` (at most 0x80)."""
    return ~((text | _TOPS) - _every(byte)) & _TOPS & ~text


def _last_byte(marks: Words) -> Ints:
    """The place of the last byte marked with 0x80 in each word, -1 without any."""
    exponent = (marks.astype(np.float64).view(np.int64) >> 52) - 1023
    place: Ints = np.maximum(exponent >> 3, -1)
    return place


def _hex8(text: Words) -> tuple[Ints, Ints]:
    """Hexadecimal digits up to a blank, at most eight; length 0 if one is no digit."""
    blanks = _equal(text, ord(" "))
    lowest = blanks & (~blanks + np.uint64(1))
    length = np.where(blanks == 0, 8, _last_byte(lowest))
    # The last digit to the top, zeros in front.
    moved = text << (8 * np.minimum(8 - length, 7)).astype(np.uint64)
    moved |= _every(ord("0")) & ~_HIGH_BYTES[length]
    digits = (moved & _every(0x0F)) + np.uint64(9) * ((moved >> np.uint64(6)) & _every(1))
    letters = ((digits + _every(0x76)) >> np.uint64(7)) & _every(1)  # digits above 9
    same = digits + _every(ord("0")) + np.uint64(ord("a") - ord("9") - 1) * letters == moved
    same &= (digits & _every(0xF0)) == 0
    length = np.where(same, length, 0)
    digits = digits.byteswap()
    for shift, mask in ((4, 0x00FF00FF00FF00FF), (8, 0x0000FFFF0000FFFF), (16, 0xFFFFFFFF)):
        digits = (digits | (digits >> np.uint64(shift))) & np.uint64(mask)
    return digits.view(np.int64), length
