"""Keeping the last calls of very many streams of calls, by numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagnose.parse.chunk import Chunk
from diagnose.parse.nccl_calls import ARGUMENT_BYTES, Calls, Ints, Words, texts

KEEP_TOTAL = 1 << 20  # calls; with very many streams fewer are kept of each
_COLUMNS = 5  # code, place, line, number, op; then text
_HOLD = 16 << 20  # bytes of blocks


class Index:
    """Hashes to codes 0, 1, 2 … in the order of their first appearance."""

    def __init__(self, limit: int) -> None:
        self.full = False
        self._limit = limit
        self._known: Words = np.zeros(0, np.uint64)
        self._codes: Ints = np.zeros(0, np.int64)

    def codes(self, hashes: Words) -> tuple[Ints, Ints]:
        """The code of each hash (-1: not known and no room), and the rows where a new one is."""
        codes, missing = self._look_up(hashes)
        if not len(missing):
            return codes, missing
        _, first = np.unique(hashes[missing], return_index=True)
        rows: Ints = np.sort(missing[first])
        room = self._limit - len(self._known)
        self.full |= len(rows) > room
        rows = rows[:room]
        known = np.concatenate((self._known, hashes[rows]))
        new = np.arange(len(self._codes), len(self._codes) + len(rows))
        order = np.argsort(known)
        self._codes = np.concatenate((self._codes, new))[order]
        self._known = known[order]
        return self._look_up(hashes)[0], rows

    def _look_up(self, hashes: Words) -> tuple[Ints, Ints]:
        if not len(self._known):
            return np.full(len(hashes), -1), np.arange(len(hashes))
        place = np.minimum(np.searchsorted(self._known, hashes), len(self._known) - 1)
        same = self._known[place] == hashes
        return np.where(same, self._codes[place], -1), np.flatnonzero(~same)


def _last_rows(codes: Ints, keep: int) -> Ints:
    """The places of the last `keep` rows of every code, ordered by code and then as they were."""
    if not len(codes):
        return codes
    small = codes.astype(np.uint16) if codes.max() < 1 << 16 else codes  # sorted by radix
    order = np.argsort(small, kind="stable")
    counts = np.bincount(codes)
    from_end = np.cumsum(counts)[codes[order]] - np.arange(len(codes))
    chosen: Ints = order[from_end <= keep]
    return chosen


@dataclass(slots=True)
class Piece:
    """A block of a chunk as it is read; `carried` newlines of it are from before the chunk."""

    data: bytes
    place: int
    newlines: Ints
    carried: int
    before: int  # newlines of the chunk in front of it
    chunk: Chunk

    def lines(self, at: Ints) -> Ints:
        """Line numbers of offsets."""
        index = np.searchsorted(self.newlines, at) - self.carried + self.before
        if self.chunk.lines is not None:
            return np.asarray(self.chunk.lines)[np.clip(index, 0, len(self.chunk.lines) - 1)]
        return index + self.chunk.first_line

    def line(self, at: int) -> int:
        """The line number of one offset; numpy takes ten times as long for one as for the next."""
        index = int(self.newlines.searchsorted(at)) - self.carried + self.before
        lines = self.chunk.lines
        if lines is not None:
            return lines[min(max(index, 0), len(lines) - 1)]
        return index + self.chunk.first_line


class Last:
    """The last calls of every code: a communicator, or two peers in one of their directions.

    Blocks are held a while, so that of most calls nothing but the code is ever looked at.
    """

    def __init__(self, keep: int) -> None:
        self.known = 0  # codes
        self._most = keep
        self._kept: Ints = np.zeros((0, _COLUMNS + ARGUMENT_BYTES // 8), np.int64)
        self._held: list[tuple[Piece, Ints, Ints, Calls]] = []  # piece, codes, numbers, calls
        self._bytes = 0

    def add(self, piece: Piece, code: Ints, number: Ints, calls: Calls) -> None:
        """Calls of a piece, all behind those before, each with a number that is kept."""
        self._held.append((piece, code, number, calls))
        self._bytes += len(piece.data)
        if self._bytes > _HOLD:
            self.rows()

    def rows(self) -> Ints:
        """The calls kept, by code, oldest first: code, place, line, number, operation and text."""
        codes = np.concatenate((self._kept[:, 0], *(code for _, code, _, _ in self._held)))
        # With very many codes fewer are kept of each; what is kept only ever falls.
        chosen = _last_rows(codes, max(2, min(self._most, KEEP_TOTAL // max(1, self.known))))
        kept = np.empty((len(chosen), self._kept.shape[1]), np.int64)
        begin = len(self._kept)
        old = chosen < begin
        kept[old] = self._kept[chosen[old]]
        for piece, code, number, calls in self._held:
            here = (chosen >= begin) & (chosen < begin + len(code))
            rows = chosen[here] - begin
            at = calls.at[rows]
            columns = (code[rows], at + piece.place, piece.lines(at), number[rows], calls.op[rows])
            kept[here] = np.hstack(
                (np.stack(columns, axis=1), texts(piece.data, calls.count[rows]))
            )
            begin += len(code)
        self._kept, self._held, self._bytes = kept, [], 0
        return kept
