"""Mappings that forget: what a watch remembers must not grow for weeks."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


def remember(kept: OrderedDict[_K, _V], key: _K, value: _V, most: int) -> _V:
    """Keep a value as the newest; of more than `most` the one that was kept longest ago goes."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)
    return value
