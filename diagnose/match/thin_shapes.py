"""Which thin patterns stand in lines of which shape: few lines of a log are of a new one."""

from __future__ import annotations

from diagnose.match.compile import Matcher
from diagnose.match.digits import shape
from diagnose.match.shapes import Shapes

_MOST = 64 << 10  # bytes of lines that are looked up at once: one line may be as long as a log


class ThinShapes:
    """The memory of a matcher. Threads may share it."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._shapes: Shapes[bytes, frozenset[int]] = Shapes()

    def present(self, data: bytes) -> frozenset[int] | None:
        """The thin patterns in whole lines; None where some are of a shape not known yet."""
        if len(data) > _MOST:
            return None
        shapes = shape(data).split(b"\n")
        known = self._shapes.known
        try:
            return frozenset().union(*[known[same].values[None] for same in set(shapes)])
        except KeyError:
            self._learn(dict(zip(shapes, data.split(b"\n"), strict=True)))
            return None

    def _learn(self, lines: dict[bytes, bytes]) -> None:
        """Remember what is in these lines, by their shapes."""
        for same, line in lines.items():
            spot = self._shapes.place(same, line, self._matcher.doubts.fixed)
            if spot is not None and not spot.fixed and not spot.values:
                told = frozenset(number for number, _ in self._matcher.scan_thin(line))
                self._shapes.put(spot, line, told)
