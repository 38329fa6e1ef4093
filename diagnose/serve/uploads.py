"""The uploads that are under way: how many, whose, and which of them gives way to another.

A place in the queue is for a job whose input is there. Before that an upload holds nothing but one
of MAX_UPLOADS connections, and it is sure of that only while it is not slow: when all are taken,
the slowest gives its own to the newcomer. So whoever sends bytes now and then keeps nobody out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from diagnose.serve.settings import (
    MAX_UPLOADS,
    MAX_UPLOADS_OF_ONE,
    UPLOAD_SLOW_RATE,
    UPLOAD_SURE_SECONDS,
)


@dataclass(eq=False, slots=True)
class Sending:
    """One upload: whose, since when, how much of it came; `wait` is for its next piece."""

    client: str = ""
    began: float = field(default_factory=time.monotonic)
    size: int = 0
    wait: asyncio.Timeout | None = None
    given_up: bool = False

    def rate(self, now: float) -> float:
        """Bytes a second."""
        return self.size / max(now - self.began, 0.001)

    def give_up(self) -> None:
        """End it: its wait is over now."""
        self.given_up = True
        if self.wait is not None:
            self.wait.reschedule(asyncio.get_running_loop().time())


class Uploads:
    """All uploads of a server. Asked in the thread of its event loop."""

    def __init__(self) -> None:
        self._sending: list[Sending] = []

    def __len__(self) -> int:
        return len(self._sending)

    @contextmanager
    def place(self, client: str) -> Iterator[Sending | None]:
        """A place for an upload of a client as long as it is held; None where there is none."""
        own = [one for one in self._sending if one.client == client]
        free = (
            self._room(own, MAX_UPLOADS_OF_ONE)
            if len(own) >= MAX_UPLOADS_OF_ONE
            else self._room(self._sending, MAX_UPLOADS)
        )
        if not free:
            yield None
            return
        sending = Sending(client)
        self._sending.append(sending)
        try:
            yield sending
        finally:
            if sending in self._sending:
                self._sending.remove(sending)

    def _room(self, among: list[Sending], most: int) -> bool:
        """Whether there are fewer than `most`, the slowest given up if it is slow."""
        if len(among) < most:
            return True
        now = time.monotonic()
        settled = [one for one in among if now - one.began >= UPLOAD_SURE_SECONDS]
        if not settled:
            return False
        slowest = min(settled, key=lambda one: one.rate(now))
        if slowest.rate(now) >= UPLOAD_SLOW_RATE:
            return False
        slowest.give_up()
        self._sending.remove(slowest)
        return True
