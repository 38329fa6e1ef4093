"""A process group, told by dumps or by the communicators of NCCL's own lines."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_GROUP = "default_pg"


@dataclass(frozen=True, slots=True)
class Group:
    """A process group; `listed` when a dump lists the members (global ranks, in group order)."""

    key: str
    name: str
    desc: str
    members: tuple[int, ...]
    listed: bool

    @property
    def label(self) -> str:
        """What a report prints."""
        described = self.desc not in ("", "undefined")
        return f"{self.desc} ({self.key})" if described else f"group {self.key}"
