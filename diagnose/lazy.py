"""Things that are made when they are asked for: a job needs little of the catalog and the code."""

from __future__ import annotations

import dataclasses
import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, AnyStr, TypeVar, cast, overload

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  re-exported
else:

    def dataclass(cls=None, /, **options: bool) -> Any:
        """What `dataclasses.dataclass` gives, whose methods are generated when they are used.

        To generate them takes a millisecond for a frozen class; a start defines 150 classes and
        uses few methods. That nobody assigns to a frozen instance is left to the type checker.
        Options: frozen, slots, repr, eq, unsafe_hash.
        """
        return partial(_dataclass, **options) if cls is None else _dataclass(cls, **options)


def _dataclass(cls: Any, *, slots: bool = False, **options: bool) -> Any:
    own = vars(cls)
    eq = options.get("eq", True)
    hashed = eq and (options.get("frozen", False) or options.get("unsafe_hash", False))
    asked = {"__init__": True, "__repr__": options.get("repr", True), "__eq__": eq}
    asked["__hash__"] = hashed
    missing = [name for name in asked if own.get(name) is None]
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    for name in missing:
        if asked[name]:
            setattr(made, name, _generated_later(made, name))
    if eq and not hashed and "__hash__" in missing:
        made.__hash__ = None
    return made


_FEW = 40  # instances that are filled in the time in which `__init__` is generated


def _generated_later(cls: type, name: str) -> Callable[..., Any]:
    """A method of a dataclass that puts the generated one in its place when that pays."""
    calls = 0

    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        fields = dataclasses.fields(cls)
        if name == "__init__" and calls <= _FEW and _filled(self, fields, arguments, named):
            return None
        twin = dataclasses.make_dataclass(
            cls.__name__,
            [(field.name, field.type, field) for field in fields],
            namespace={"__post_init__": None} if hasattr(cls, "__post_init__") else {},
            init=name == "__init__",
            repr=name == "__repr__",
            eq=name in ("__eq__", "__hash__"),
            unsafe_hash=name == "__hash__",
            slots="__slots__" in vars(cls),
        )
        generated = vars(twin)[name]
        setattr(cls, name, generated)
        return generated(self, *arguments, **named)

    return method


def _filled(
    instance: Any,
    fields: Sequence[dataclasses.Field[Any]],
    arguments: Sequence[Any],
    named: Mapping[str, Any],
) -> bool:
    """Whether an instance was given its fields; not for arguments that `__init__` refuses."""
    names = [field.name for field in fields if field.init]
    given = {**dict(zip(names, arguments, strict=False)), **named}
    if len(given) != len(arguments) + len(named) or not given.keys() <= {*names}:
        return False
    for field in fields:
        if field.name not in given:
            if field.default_factory is not dataclasses.MISSING:
                given[field.name] = field.default_factory()
            elif field.default is not dataclasses.MISSING:
                given[field.name] = field.default
            elif field.init:
                return False
    for name, value in given.items():
        setattr(instance, name, value)
    if hasattr(instance, "__post_init__"):
        instance.__post_init__()
    return True


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
