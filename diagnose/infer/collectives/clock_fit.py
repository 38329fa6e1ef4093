"""What is known of the clocks of a job's hosts; `clock_skew` is where it is found out."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ClockFit:
    """Clocks of hosts against that of `reference`, all in ns.

    `offset`: what the clock of a host shows more than that of the reference. `residual`: how far
    that may be off; None for a host that shares too few collectives, also by way of others.
    """

    reference: str | None = None
    offset: dict[str, int] = field(default_factory=dict)
    residual: dict[str, int | None] = field(default_factory=dict)
    matched: dict[str, int] = field(default_factory=dict)

    def certain(self) -> dict[str, int]:
        """Offsets that are larger than what they may be off, by host."""
        return {
            host: offset
            for host, offset in self.offset.items()
            if (unsure := self.residual.get(host)) is not None and abs(offset) > unsure
        }

    def uncertain(self, host_a: str, host_b: str) -> int | None:
        """Below which difference no order of two hosts is claimed; None: never is."""
        if host_a == host_b:
            return 0
        a, b = self.residual.get(host_a), self.residual.get(host_b)
        return None if a is None or b is None else a + b

    def ordered(self, host_a: str, ns_a: int, host_b: str, ns_b: int) -> bool | None:
        """Whether a moment of one host's clock came before one of another's; None: not to be told.

        Times of one host need no fit.
        """
        margin = self.uncertain(host_a, host_b)
        if margin is None:
            return None
        ahead = (ns_b - self.offset.get(host_b, 0)) - (ns_a - self.offset.get(host_a, 0))
        return None if abs(ahead) <= margin else ahead > 0

    def notes(self) -> list[str]:
        """One line per host whose clock is surely off; its times are corrected."""
        notes = []
        for host, offset in self.certain().items():
            apart = f"{abs(offset) / 1e9:,.3f} s {'ahead of' if offset > 0 else 'behind'}"
            within = f"{(self.residual[host] or 0) / 1e9:,.3f} s"
            notes.append(
                f"the clock of {host} is {apart} {self.reference}'s (to within {within}, by shared "
                "collectives); its times are corrected"
            )
        return notes
