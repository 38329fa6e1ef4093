"""What reading one source may cost, and what it showed: one object from the store to the chunks."""

from __future__ import annotations

from dataclasses import field, replace

from diagnose.lazy import dataclass


@dataclass(slots=True)
class Budget:
    """Bounds on one source, or on one archive with all in it, and what is used of them.

    `total`: bytes that it may become once decompressed, before any cleaning; `ratio` how many times
    its stored size, looked at only beyond `ratio_floor` bytes, because a log that repeats itself
    shrinks a lot too. Of an archive: `members` are files that become sources, `headers` what may
    still be looked at to find them; `memory` and `spool` are bytes kept of what cannot be read
    again where it is, in memory and in a temporary file; `left` are bytes that its members may
    still become.

    `archive` is the budget that a member takes its bytes from, `used` how many it took.
    `notes` are for people, `unread` says why not all was read; each text is there once.
    """

    total: int = 64 << 30
    ratio: int = 1000
    ratio_floor: int = 1 << 30
    members: int = 50_000
    headers: int = 200_000
    memory: int = 64 << 20
    spool: int = 8 << 30
    left: int = 0
    archive: Budget | None = None
    used: int = 0
    notes: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def of_archive(self, size: int) -> Budget:
        """The same bounds for an archive of `size` stored bytes, whose members take from them."""
        total = min(self.total, max(self.ratio_floor, size * self.ratio))
        return replace(self, total=total, left=total, notes=[], unread=[])

    def member(self, most: int | None = None) -> Budget:
        """That of one member, which becomes `most` bytes at most."""
        bounds = Budget() if most is None else Budget(total=min(most, Budget().total))
        bounds.archive = self
        return bounds

    def apart(self) -> Budget:
        """The same bounds, with nothing used and nothing noted."""
        return replace(self, used=0, notes=[], unread=[])

    def note(self, text: str) -> None:
        """Note something about what was read."""
        if text not in self.notes:
            self.notes.append(text)

    def cut(self, text: str) -> None:
        """Note why not all was read."""
        self.note(text)
        if text not in self.unread:
            self.unread.append(text)

    def allows(self, seen: int) -> bool:
        """Whether a member may give `seen` bytes from its start on; takes them if so.

        Reading it once more is free: what it gave counts once.
        """
        if self.archive is not None and seen - self.used > self.archive.left:
            self.cut(f"the archive's members become more than {self.archive.total} bytes: cut")
            return False
        self.charge(seen)
        return True

    def charge(self, seen: int) -> None:
        """Take what a member has given, here or in another process."""
        if self.archive is not None and seen > self.used:
            self.archive.left -= seen - self.used
            self.used = seen
