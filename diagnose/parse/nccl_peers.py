"""Sends and receives between two ranks: their numbers, and how many launches they took."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diagnose.parse.nccl_call_line import CALL
from diagnose.parse.nccl_calls import Calls, Flags, Ints
from diagnose.parse.nccl_streams import Index, Last, Piece


class Launches:
    """Launches of sends and receives by communicator, of which one may hold several."""

    def __init__(self) -> None:
        self._last: Ints = np.zeros(0, np.int64)  # opCount of the last
        self._counts: Ints = np.zeros(0, np.int64)

    def begin(self, code: int) -> None:
        """Make room for a communicator; their codes come in order."""
        if code == len(self._last):
            more = np.zeros(code + 64, np.int64)
            self._last = np.concatenate((self._last, more - 1))
            self._counts = np.concatenate((self._counts, more))

    def any(self, code: int) -> bool:
        """Whether a communicator had any."""
        return bool(self._counts[code])

    def before(self, code: Ints, launch: Ints, p2p: Flags) -> Ints:
        """How many launches of sends and receives were before each call, by communicator."""
        order = np.argsort(code, kind="stable")
        new = np.zeros(len(code), np.int64)
        rows = order[p2p[order]]
        if len(rows):
            first = np.concatenate(([True], code[rows[1:]] != code[rows[:-1]]))
            last = np.append(first[1:], True)
            same = np.where(first, self._last[code[rows]], np.roll(launch[rows], 1))
            new[rows] = launch[rows] != same
            self._last[code[rows[last]]] = launch[rows[last]]
        ordered = code[order]
        running = np.cumsum(new[order])
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        base = self._counts[ordered[starts]] - np.concatenate(([0], running))[starts]
        running += np.repeat(base, np.diff(np.append(starts, len(ordered))))
        ends = np.append(starts[1:], len(ordered)) - 1
        self._counts[ordered[ends]] = running[ends]
        before = np.empty_like(running)
        before[order] = running
        return before


class Peers:
    """The last calls between two ranks, by communicator and direction."""

    def __init__(self, keep: int, limit: int) -> None:
        self.hashes = Index(limit)
        self._pairs: list[tuple[int, int]] = []  # communicator and peer
        self._counts: Ints = np.zeros(0, np.int64)
        self._calls = Last(keep)

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, code: Ints, calls: Calls, piece: Piece) -> None:
        """Number sends and receives by communicator, direction and peer."""
        key = (code.astype(np.uint64) + np.uint64(1)) * np.uint64(0xD6E8FEB86659FD93)
        pair, new = self.hashes.codes(calls.side ^ key)
        for row in new.tolist():
            found = CALL.match(piece.data, int(calls.info[row]))
            self._pairs.append((int(code[row]), int(found[4]) if found else -1))
        self._counts = np.concatenate((self._counts, np.zeros(len(new), np.int64)))
        self._calls.known = len(self._pairs)
        rows = np.flatnonzero(pair >= 0)
        order = rows[np.argsort(pair[rows], kind="stable")]
        ordered = pair[order]
        counts = np.bincount(ordered, minlength=len(self._pairs))
        seq = np.zeros(len(pair), np.int64)
        place = np.arange(len(order)) - (np.cumsum(counts) - counts)[ordered]
        seq[order] = place + self._counts[ordered]
        self._counts += counts
        self._calls.add(piece, pair[rows], seq[rows], calls.take(rows))

    def rows(self) -> Iterator[tuple[int, int, int, list[int]]]:
        """The calls kept: communicator, peer, place, and what `call_of` takes."""
        for pair, place, *rest in self._calls.rows().tolist():
            yield *self._pairs[pair], place, rest
