"""The communicators of processes by NCCL's init lines, and what names each on all its ranks."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from diagnose.parse.nccl_call_line import PROCESS
from diagnose.parse.nccl_calls import REACH

_NAME = 512
_LINE = re.compile(
    PROCESS + rb" NCCL INFO (?:\[Rank \d{1,7}\] )?(?:\w{1,64} )?comm (?P<comm>0x[0-9a-f]{1,16}) "
    rb"rank (?P<rank>\d{1,6}) nranks (?P<size>\d{1,6}) cudaDev (?P<dev>-?\d{1,4})"
    rb"(?: nvmlDev -?\d{1,4})?(?: busId (?P<bus>[0-9a-f]{1,12}))?"
    rb"(?: parent (?P<parent>0x[0-9a-f]{1,16}))?"
    rb"(?: (?:splitCount|childCount) (?P<split>\d{1,9}))?"
    rb"(?: color (?P<color>-?\d{1,10}) key -?\d{1,10})?"
    rb"(?: commId (?P<id>0x[0-9a-f]{1,16}))? ?- Init (?P<what>START|COMPLETE)"
)

Key = tuple[str, int, str]  # host, process, pointer of the communicator


@dataclass(slots=True)
class Life:
    """A communicator of a process as its init lines tell it."""

    name: str
    rank: int
    size: int
    device: int
    bus_id: str | None
    line: int
    done: bool
    splits: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Inits:
    """The communicators that began, the last one of each pointer."""

    lives: dict[Key, Life] = field(default_factory=dict)

    def find(self, data: bytes, at: int) -> re.Match[bytes] | None:
        """The init line that ends at `at`, if a communicator begins with it."""
        text = data[max(0, at - REACH + 64) : at]
        text = text[max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 :]
        found = _LINE.search(text) if b" NCCL INFO " in text else None
        if found is None:
            return None
        life = self.lives.get(key_of(found))
        if life is None or life.done or found["what"] != b"COMPLETE":
            return found
        if (life.rank, life.size) == (int(found["rank"]), int(found["size"])):
            life.done = True
            return None
        return found

    def begin(self, found: re.Match[bytes], line: int) -> None:
        """A communicator begins with this init line."""
        key = host, pid, _ = key_of(found)
        self.lives[key] = Life(
            self._name(host, pid, found), int(found["rank"]), int(found["size"]),
            int(found["dev"]), found["bus"].decode() if found["bus"] else None, line,
            found["what"] == b"COMPLETE",
        )  # fmt: skip

    def _name(self, host: str, pid: int, found: re.Match[bytes]) -> str:
        """What names the communicator on all its ranks; "" where the line does not tell.

        Splits have no commId from 2.23 on. Before 2.25 nothing counts them either: the n-th split
        of a color is taken, because ranks that get none (NCCL_SPLIT_NOCOLOR) print no line.
        """
        if found["id"]:
            return found["id"].decode()
        parent = self.lives.get((host, pid, (found["parent"] or b"").decode()))
        if parent is None or not parent.name or not found["color"]:
            return ""
        color = found["color"].decode()
        parent.splits[color] += 1
        number = found["split"].decode() if found["split"] else f"n{parent.splits[color]}"
        name = f"{parent.name}/{number}.{color}"
        return name if len(name) <= _NAME else ""


def key_of(init: re.Match[bytes]) -> Key:
    """The process and the pointer of an init line."""
    return init[1].decode(), int(init[2]), init["comm"].decode()
