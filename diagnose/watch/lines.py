"""Whole lines out of bytes that arrive in pieces cut anywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass

from diagnose.ingest.chunks import without_escapes

LIMIT = 64 << 10  # bytes kept of a line; longer ones are cut, however they arrive
_BREAK = re.compile(rb"[\r\n]")


@dataclass(slots=True)
class Lines:
    """Joins pieces to lines. A line ends at a newline or, as a bar does, at a carriage return.

    The lines are the same for any cuts between pieces. What is not ended yet is kept, also while
    its file is rotated: the rest of the line then comes from the next one. At most LIMIT bytes of
    it stay in memory.
    """

    pending: bytes = b""
    skipping: bool = False  # until the end of the line: it is too long, or its start is not known

    def feed(self, data: bytes) -> bytes:
        """The lines that `data` ends, in one block without escape codes; empty if it ends none."""
        if self.skipping:
            found = _BREAK.search(data)
            if found is None:
                return b""
            data, self.skipping = data[found.start() :], False
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not cut:
            self._keep(self.pending + data)
            return b""
        block = self.pending + data[:cut]
        self._keep(data[cut:])
        if len(block) > LIMIT:
            block = b"".join(map(_cut, block.splitlines(keepends=True)))
        return without_escapes(block) if b"\x1b" in block else block

    def skip(self) -> None:
        """The next bytes are not those that follow: begin with the line behind them."""
        self.pending, self.skipping = b"", True

    def _keep(self, rest: bytes) -> None:
        self.skipping = len(rest) > LIMIT
        self.pending = rest[:LIMIT]


def _cut(line: bytes) -> bytes:
    """A line with its end, cut to LIMIT if it is longer."""
    if len(line) <= LIMIT:
        return line
    text = line.rstrip(b"\r\n")
    return text[:LIMIT] + line[len(text) :]
