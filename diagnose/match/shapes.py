"""A memory of lines by their shape, see `match.digits`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Span = tuple[int, int]

MOST = 8 << 20  # bytes; a memory that is full begins anew
_ENTRY = 400  # bytes of what is known of a line, roughly
_FIXED = 8  # places of a shape in which its lines may differ


@dataclass(slots=True)
class Known(Generic[Value]):
    """What is known of the lines of a shape, by their bytes in the places where digits matter."""

    fixed: Sequence[Span]
    values: dict[object, Value] = field(default_factory=dict)
    _told: Callable[[bytes], object] = field(init=False)  # the bytes in those places

    def __post_init__(self) -> None:
        self._told = itemgetter(*(slice(*span) for span in self.fixed)) if self.fixed else _nothing

    def get(self, data: bytes) -> Value | None:
        """What is known of a line of this shape."""
        return self.values.get(self._told(data))

    def put(self, data: bytes, value: Value) -> None:
        """Remember what is known of a line."""
        self.values[self._told(data)] = value


def _nothing(_: bytes) -> None:
    """Where no digit matters, all lines are one."""


class Shapes(Generic[Key, Value]):
    """What is known of lines by a key that holds their shape. Threads may share it."""

    def __init__(self) -> None:
        self.known: dict[Key, Known[Value]] = {}
        self._once: Known[Value] = Known(())
        self._never: Known[Value] = Known(())
        self._size = 0

    def get(self, key: Key, data: bytes) -> Value | None:
        """What is known of a line; None without anything."""
        known = self.known.get(key)
        return None if known is None else known.get(data)

    def place(
        self, key: Key, data: bytes, fixed: Callable[[Key], Sequence[Span] | None]
    ) -> Known[Value] | None:
        """Where to `put` what is to be known of a line; None if nothing is.

        What never comes again is not worth a closer look: nothing is known of the first line of a
        shape, nor where `fixed` is not sure of the places where digits matter.
        """
        known = self.known.get(key)
        if known is None:
            self.known[key] = self._once
            self._grow(len(data))
            return None
        if known is self._once:
            spans = fixed(key)
            unsure = spans is None or len(spans) > _FIXED
            known = self.known[key] = self._never if unsure else Known(spans or ())
        return None if known is self._never else known

    def put(self, place: Known[Value], data: bytes, value: Value) -> None:
        """Remember what is known of a line."""
        place.put(data, value)
        self._grow(0)

    def never(self, key: Key) -> None:
        """There is nothing that all lines of this shape have in common."""
        self.known[key] = self._never

    def _grow(self, size: int) -> None:
        self._size += size + _ENTRY
        if self._size > MOST:
            self.known.clear()
            self._size = 0
