"""A job whose lines come at given times, read by the real catalog: no clock, no files."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from diagnose.catalog.load import load_catalog
from diagnose.parse.path import read_path
from diagnose.watch.notice import Memory, Notice, Reader
from diagnose.watch.pulse import Change, Pulse

LOOK = 0.25


@cache
def reader() -> Reader:
    return Reader(load_catalog())


def memory(name: str = "console.log") -> Memory:
    return Memory(name, read_path(name))


def notices(text: str, of: Memory | None = None, window: int = 1 << 16) -> list[Notice]:
    return list(reader().read(of or memory(), text.encode(), window, 0.0))


@dataclass
class Simulated:
    """A watch with a clock of its own: `say` at the present time, `wait` to let time pass."""

    heartbeats: float = 6.0
    grace: float = 600.0
    every_rank: bool = False
    min_silence: float = 0.0
    now: float = 0.0
    changes: list[Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pulse = Pulse(self.heartbeats, self.grace, self.every_rank, self.min_silence)
        self.pulse.begin(self.now)
        self.memories: dict[str, Memory] = {}

    def say(self, *lines: str, name: str = "console.log") -> None:
        of = self.memories.setdefault(name, memory(name))
        for notice in reader().read(
            of, "".join(f"{line}\n" for line in lines).encode(), 1 << 16, self.now
        ):
            self.pulse.take(notice, self.now, LOOK)
        self.pulse.last_byte = self.now

    def wait(self, seconds: float) -> None:
        """Let time pass, with a look every LOOK seconds."""
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now = min(end, self.now + LOOK)
            self.changes += self.pulse.check(self.now, LOOK)

    def steps(self, first: int, last: int, seconds: float = 1.0, ranks: int = 1) -> None:
        for step in range(first, last + 1):
            self.wait(seconds)
            self.say(*(f"[rank{rank}]: step {step} loss 0.{step}" for rank in range(ranks)))

    def what(self) -> list[str]:
        return [change.what for change in self.changes if change.what != "heartbeat"]

    def until_stall(self, most: float) -> float:
        """Seconds until a stall is reported."""
        begin = self.now
        while "stalled" not in self.what() and self.now < begin + most:
            self.wait(LOOK)
        assert "stalled" in self.what()
        return self.now - begin
