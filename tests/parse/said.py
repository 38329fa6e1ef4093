"""What prefixes say of a line, as the samples of their rows write it."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from diagnose.parse.prefix import Prefix, Stamp, peel


def time_of(stamp: Stamp) -> str:
    """A stamp as samples write it: what was printed, and no digit more."""
    seconds, fraction = divmod(stamp.ns, 1_000_000_000)
    shown = datetime(1970, 1, 1) + timedelta(seconds=seconds)
    form = "%Y-%m-%d " if stamp.has_year else "%m-%d " if stamp.has_date else ""
    form += "%H:%M" if stamp.resolution_ns == 60_000_000_000 else "%H:%M:%S"
    digits = len(str(1_000_000_000 // stamp.resolution_ns)) - 1
    text = str(seconds) if stamp.boot else f"{shown:{form}}"
    text += f".{fraction:09d}"[: digits + 1] if digits > 0 else ""
    if stamp.utc_offset_s is None:
        return text
    hours, minutes = divmod(abs(stamp.utc_offset_s) // 60, 60)
    sign = "-" if stamp.utc_offset_s < 0 else "+"
    return f"{text}{sign}{hours:02d}:{minutes:02d}" if stamp.utc_offset_s else f"{text}Z"


def said(line: str) -> dict[str, Any]:
    """What peeling says of a line, as samples write it."""
    prefix, plain = peel(line), Prefix("")
    found = {field.name: getattr(prefix, field.name) for field in fields(Prefix)}
    found = {name: value for name, value in found.items() if value != getattr(plain, name)}
    found.pop("names", None)
    time = {"time": time_of(found.pop("stamp"))} if "stamp" in found else {}
    return {"line": line, "message": prefix.message, **found, **time}
