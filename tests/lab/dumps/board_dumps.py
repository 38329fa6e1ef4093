"""What a job of the dump lab and its launcher share: the plan, and a few bytes in a file.

One byte per rank counts what its main thread does, one more counts the launcher's requests to dump.
"""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from pathlib import Path

KINDS = ("dumps", "json", "active", "bare")  # folders a rank dumps into, one a way of dumping
LONG = 300.0  # seconds; longer than any job lives
POLL_S = 0.02
_QUIET_S = 1.0  # a job that does nothing for this long hangs
_BEGUN = 10  # beats of every rank before the fault
_LIMIT_S = 120.0


@dataclass(frozen=True)
class Plan:
    """One job. `culprits` suffer `fault`; `where` is the kind of group a wrong call is made in."""

    fault: str
    culprits: tuple[int, ...]
    where: str = "tensor"
    shape: str = "grid"
    world: int = 8
    tensor: int = 2
    timeout: float = LONG

    @property
    def silent(self) -> frozenset[int]:
        """Ranks that cannot dump."""
        return frozenset(self.culprits if self.fault in ("stop", "kill") else ())


class Board:
    """The shared bytes of one job."""

    def __init__(self, folder: Path, world: int) -> None:
        self.world = world
        descriptor = os.open(folder / "board", os.O_RDWR | os.O_CREAT)
        os.truncate(descriptor, world + 1)
        self._bytes = mmap.mmap(descriptor, world + 1)
        os.close(descriptor)

    def beat(self, rank: int) -> None:
        """The main thread of `rank` goes on."""
        self._bytes[rank] = (self._bytes[rank] + 1) % 256

    def beats(self) -> bytes:
        return self._bytes[: self.world]

    @property
    def request(self) -> int:
        """Number of the last request to dump."""
        return self._bytes[self.world]

    def ask(self) -> None:
        """Ask all ranks for a dump."""
        self._bytes[self.world] += 1


def prepare(folder: Path, plan: Plan) -> Board:
    """The folder of a job, ready for its ranks."""
    for kind in KINDS:
        (folder / kind).mkdir(parents=True)
    return Board(folder, plan.world)


def done(folder: Path, rank: int, request: int) -> Path:
    """The file that tells that a rank has dumped on a request."""
    return folder / f"done.{rank}.{request}"


def collect(board: Board, folder: Path, silent: frozenset[int]) -> None:
    """Wait until the job hangs, then until all ranks but the `silent` ones have dumped.

    Dumps taken while a main thread still moved are taken again. Raises TimeoutError.
    """
    end = time.monotonic() + _LIMIT_S
    seen, since = b"", time.monotonic()
    while time.monotonic() < end:
        time.sleep(POLL_S)
        now = board.beats()
        if now != seen or min(now) < _BEGUN:
            seen, since = now, time.monotonic()
        if time.monotonic() - since < _QUIET_S:
            continue
        board.ask()
        wanted = [
            done(folder, rank, board.request) for rank in range(board.world) if rank not in silent
        ]
        while not all(file.exists() for file in wanted) and time.monotonic() < end:
            time.sleep(POLL_S)
        if all(file.exists() for file in wanted) and board.beats() == now:
            return
    raise TimeoutError(f"no dumps: beats {list(board.beats())}, {[*map(str, folder.iterdir())]}")
