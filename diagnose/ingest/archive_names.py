"""What an archive says of a member, and which members are read at all, by name and type.

Nothing is ever written under a member's name, so a name cannot do harm here. But an archive with
such names was made to do harm, and what it says of a job is not to be trusted.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import field

from diagnose.ingest.file_names import MAX_DEPTH, is_no_log, printable
from diagnose.lazy import dataclass

NAME_LIMIT = 4096  # characters of a member's name
PART_LIMIT = 255  # of a part of it: no file system in use has longer ones
SHOWN = 200  # characters of a name in a note
NAMED = 20  # refused members of one archive that get a note each

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


@dataclass(frozen=True, slots=True)
class Entry:
    """A member as its header tells it: `size` in bytes when unpacked, `mtime` in seconds.

    `refused` says why its type or header rules out reading it, `special` that it is a link, pipe or
    device, which holds no log; `folder` members hold nothing. Bytes of `name` that are not UTF-8
    are surrogates.
    """

    name: str
    size: int
    mtime: float | None = None
    folder: bool = False
    refused: str = ""
    special: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """A member that is not read; `unread` where it may be a log."""

    name: str
    why: str
    unread: bool


@dataclass(slots=True)
class Names:
    """Which members of one archive are read; counts and names those which are not."""

    members: int
    refused: list[Refused] = field(default_factory=list)  # the first NAMED
    more_refused: int = 0
    more_unread: bool = False  # of these
    hidden: set[str] = field(default_factory=set)
    no_logs: set[str] = field(default_factory=set)
    copies: Counter[str] = field(default_factory=Counter)
    taken: dict[str, str] = field(default_factory=dict)  # printable name -> name
    used: int = 0  # of `members`; a long name counts more than once
    beyond: int = 0  # members after the first `members`

    def admit(self, entry: Entry) -> str | None:
        """The printable name, unique in this archive, under which a member is read, if it is.

        The same name again means the same member again: its last copy counts, as when unpacked.
        """
        if entry.folder:
            return None
        name, problem = _clean(entry.name)
        if problem or entry.refused:
            no_log = entry.special or is_no_log(entry.name.rpartition("/")[2])
            self.refuse(entry.name, problem or entry.refused, unread=not no_log)
            return None
        parts = name.split("/")
        for depth, part in enumerate(parts):
            if part.startswith("."):
                self.hidden.add(printable("/".join(parts[: depth + 1]))[:SHOWN])
                return None
        if is_no_log(parts[-1]):
            self.no_logs.add(printable(name)[:SHOWN])
            return None
        return self._unique(name)

    def refuse(self, name: str, why: str, *, unread: bool = True) -> None:
        """Note that a member is not read, and whether a log may be missed by that."""
        if len(self.refused) < NAMED:
            self.refused.append(Refused(short(name), why, unread))
        else:
            self.more_refused += 1
            self.more_unread |= unread

    def _unique(self, name: str) -> str | None:
        shown = printable(name)
        # Names which differ only in bytes that cannot be printed.
        for count in range(2, 100):
            if self.taken.get(shown, name) == name:
                break
            shown = f"{printable(name)} ({count})"
        if shown not in self.copies:
            cost = 1 + len(shown) // SHOWN
            if self.used + cost > self.members:
                self.beyond += 1
                return None
            self.used += cost
            self.taken.setdefault(shown, name)
        self.copies[shown] += 1
        return shown


def _clean(raw: str) -> tuple[str, str]:
    """The path without empty and `.` parts, and why the member must not be read, if so."""
    if len(raw) > NAME_LIMIT:
        return raw, f"name of more than {NAME_LIMIT} characters: not read"
    if raw.startswith(("/", "\\\\")) or _DRIVE.match(raw):
        return raw, "absolute path: not read"
    parts = [part for part in raw.split("/") if part not in ("", ".")]
    if ".." in parts:
        return raw, "path leads out of the archive: not read"
    if not parts:
        return raw, "no name: not read"
    if any(len(part) > PART_LIMIT for part in parts):
        return raw, f"part of its path longer than {PART_LIMIT} characters: not read"
    if len(parts) > MAX_DEPTH + 1:
        return raw, f"more than {MAX_DEPTH} folders deep: not read"
    return "/".join(parts), ""


def short(name: str) -> str:
    """A name cut to SHOWN characters and made printable, for notes."""
    shown = printable(name[: SHOWN + 1])
    return shown if len(shown) <= SHOWN else shown[:SHOWN] + "…"
