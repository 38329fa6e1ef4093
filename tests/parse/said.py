"""A Prefix as a short dict, for tables of expected values."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any

from diagnose.parse.who import Prefix, Stamp

MS, US, NS = 1_000_000, 1000, 1


def ns(text: str) -> int:
    """Nanoseconds since 1970 of "2024-05-01 10:00:00[.fraction]", taken as UTC."""
    whole, _, fraction = text.partition(".")
    seconds = (datetime.fromisoformat(whole) - datetime(1970, 1, 1)).total_seconds()
    return int(seconds) * 1_000_000_000 + int(fraction.ljust(9, "0") if fraction else 0)


def stamp(text: str, resolution: int = 1_000_000_000, offset: int | None = None) -> Stamp:
    """A Stamp of "2024-05-01 10:00:00"; "-05-01 …" has no year, "10:00:00" no date."""
    if text.startswith("-"):
        return Stamp(ns("1972" + text), True, False, offset, resolution)
    if len(text.partition(".")[0]) == 8:
        return Stamp(ns("1970-01-01 " + text), False, False, offset, resolution)
    return Stamp(ns(text), True, True, offset, resolution)


def boot(nanoseconds: int, resolution: int = US) -> Stamp:
    return Stamp(nanoseconds, False, False, None, resolution, True)


def said(prefix: Prefix) -> dict[str, Any]:
    """Everything that is not the default, but the message."""
    plain = Prefix(message="")
    return {
        field.name: getattr(prefix, field.name)
        for field in fields(Prefix)
        if field.name != "message" and getattr(prefix, field.name) != getattr(plain, field.name)
    }
