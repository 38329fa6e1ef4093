"""The communicators of processes by NCCL's init lines, and what names each on all its ranks."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

from diagnose.lazy import expression
from diagnose.parse.chunk import Origin
from diagnose.parse.comm_rank import CollCall, CommRank
from diagnose.parse.prefix import peel

MAX_COMMS = 100_000  # processes × communicators
# What belongs to a call or an init line reaches at most so far before and behind what it is known
# by, the `=` or the end of `- Init START`.
REACH = 1024
PROCESS = rb"([A-Za-z0-9][\w.\-]{0,127}):(\d{1,7}):\d{1,20} \[(-?\d{1,4})\]"
INIT = "init"  # the call of a rank that printed Init START and not COMPLETE
ENDS = expression(rb"- Init (?:START|COMPLETE)")
_ANY_PROCESS = "node-01:1:1 [0] NCCL INFO "
_NAME = 512
_LINE = expression(
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
    """The communicators that began, the last one of each pointer.

    `seen` has those of which there are only call lines as well, in the order of their appearance,
    `ranks` the rank that the prefixes of a process's first line tell. `full`: some were left out.
    """

    lives: dict[Key, Life] = field(default_factory=dict)
    seen: dict[Key, None] = field(default_factory=dict)
    ranks: dict[tuple[str, int], int | None] = field(default_factory=dict)
    full: bool = False

    def read(self, text: bytes, line: int) -> None:
        """Read a line of a log without call lines."""
        for end in ENDS.finditer(text):
            found = self.find(text, end.end())
            if found is not None:
                self.begin(found, line)

    def find(self, data: bytes, at: int) -> re.Match[bytes] | None:
        """The init line that ends at `at`, if a communicator begins with it, for which is room."""
        found = self._begins(data, at)
        return found if found is not None and self.room(key_of(found)) else None

    def room(self, key: Key) -> bool:
        """Whether one more communicator may be taken in, if it is one more."""
        if key in self.seen or len(self.seen) < MAX_COMMS:
            return True
        self.full = True
        return False

    def who(self, host: str, pid: int, ahead: bytes) -> None:
        """Note the rank told by what is ahead of NCCL's prefix in a process's first line."""
        if (host, pid) not in self.ranks:
            self.ranks[host, pid] = _rank_of(ahead)

    def comm_rank(self, key: Key, source: Origin) -> CommRank:
        """What the init lines tell of a communicator of a process, as if it had made no call."""
        life, rank = self.lives.get(key), self.ranks.get(key[:2])
        if rank is None:
            rank = source.rank if source.rank is not None else source.task
        if life is None:
            return CommRank(source.name, 0, "", None, None, rank, key[0], key[1], launched=-1)
        return CommRank(
            source.name, life.line, life.name, life.rank, life.size, rank, key[0], key[1],
            life.device, life.bus_id, launched=-1,
            calls=[] if life.done else [CollCall(-1, INIT, -1, "", life.line)],
        )  # fmt: skip

    def result(self, source: Origin) -> list[CommRank]:
        """Every communicator of every process of a log without call lines."""
        if self.full:
            source.notes.append(f"more than {MAX_COMMS:,} NCCL communicators: the rest is left out")
        return [self.comm_rank(key, source) for key in self.seen]

    def _begins(self, data: bytes, at: int) -> re.Match[bytes] | None:
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
        self.who(host, pid, found.string[: found.start()])
        self.seen.pop(key, None)
        self.seen[key] = None
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


@lru_cache(maxsize=1024)
def _rank_of(ahead: bytes) -> int | None:
    """The rank told by prefixes in front of NCCL's, which are the same on many nodes."""
    prefix = peel(ahead.decode(errors="replace") + _ANY_PROCESS)
    return prefix.rank if prefix.rank is not None else prefix.task


def key_of(init: re.Match[bytes]) -> Key:
    """The process and the pointer of an init line."""
    return init[1].decode(), int(init[2]), init["comm"].decode()
