"""How much all members of an archive may become together, counted in bytes before any cleaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Quota:
    """How many bytes the members of an archive may give together, once decompressed."""

    total: int
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.total

    @property
    def reached(self) -> str:
        """What to say of a member that was cut."""
        return f"the archive's members become more than {self.total} bytes: cut"


@dataclass(slots=True)
class Meter:
    """What one member has taken of a quota. Reading it again is free: what it gave counts once."""

    quota: Quota
    used: int = 0

    def allows(self, seen: int) -> bool:
        """Whether the member may give `seen` bytes from its start on; takes them if so."""
        if seen <= self.used:
            return True
        if seen - self.used > self.quota.left:
            return False
        self.charge(seen)
        return True

    def charge(self, seen: int) -> None:
        """Take what the member has given, here or in another process."""
        self.quota.left -= max(0, seen - self.used)
        self.used = max(seen, self.used)

    def bounded(self, blocks: Iterator[bytes], cut: Callable[[str], None]) -> Iterator[bytes]:
        """The blocks of a member from its start on, as far as the quota goes."""
        seen = 0
        for block in blocks:
            seen += len(block)
            if not self.allows(seen):
                cut(self.quota.reached)
                return
            yield block
