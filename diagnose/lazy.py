"""Things that are made when they are asked for: a job needs little of the catalog and the code."""

from __future__ import annotations

import re
import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, AnyStr, TypeVar, cast, overload

T = TypeVar("T")


class Lazy(Sequence[T]):
    """A sequence whose items are made when they are asked for, each once."""

    def __init__(self, size: int) -> None:
        self._made: list[T | None] = [None] * size

    @abstractmethod
    def make(self, index: int) -> T:
        """The item at an index from 0 on."""

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        made = self._made[index]
        if made is None:
            made = self._made[index] = self.make(range(len(self))[index])
        return made


class Named(Mapping[str, T]):
    """The items of a sequence by their names."""

    def __init__(self, names: Sequence[str], items: Sequence[T]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._items = items

    def __getitem__(self, name: str) -> T:
        return self._items[self._places[name]]

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def compiled(pattern: bytes, flags: int = 0) -> re.Pattern[bytes]:
    """What `re.compile` gives, for an expression with a possessive or an atomic group.

    Before 3.11.5 (Debian 12 has 3.11.2) `re` loses its place in such a group where that has more
    than one way to go on (CPython gh-106052); `regex` does not.
    """
    if sys.version_info < (3, 11, 5):
        import regex  # noqa: PLC0415 -- for old interpreters only

        return cast("re.Pattern[bytes]", regex.compile(pattern, flags))
    return re.compile(pattern, flags)


def expression(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """What `re.compile` gives, compiled when it is first used: that takes longer than most uses.

    The `re` of a match is another object.
    """
    return cast("re.Pattern[AnyStr]", _Expression(pattern, flags))


class _Expression:
    """An expression whose methods become its own once they are asked for."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self._given = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(re.compile(self.pattern, self._given), name)
        setattr(self, name, found)
        return found
