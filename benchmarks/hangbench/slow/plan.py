"""What a run of the slow track is: its trainer, what makes a rank slow, what is only a pause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from benchmarks.hangbench.case import Determines, Truth

# What the ranks print; see styles.py.
Style = Literal[
    "megatron-all", "megatron-straggler", "megatron-minmax", "deepspeed", "kv", "words", "imagenet",
    "mmengine", "stamps", "dumps", "clocks", "hf", "lightning", "torchtitan",
]  # fmt: skip

# What makes a rank slow. device: its forward and backward take longer; cpu: its process is stopped
# for most of each 10 ms, as by a CPU quota; loader: each batch of its data set takes longer; disk:
# it reads its shards slowly; link: what it sends takes longer; none: nothing.
Fault = Literal["none", "device", "cpu", "loader", "disk", "link"]

# What happens in jobs that are well.
Calm = Literal["evaluation", "checkpoint", "warm-up", "compile", "noise", "lengths", "imbalance"]
CALM: tuple[Calm, ...] = (
    "evaluation", "checkpoint", "warm-up", "compile", "noise", "lengths", "imbalance",
)  # fmt: skip

_COMPUTE, _DATA = ("device", "device", "cpu"), ("loader", "disk")
_ANY = (*_COMPUTE, *_DATA)

# Style → its share of the runs, and the faults that it is drawn with.
_DRAWN: Mapping[Style, tuple[int, tuple[Fault, ...]]] = {
    "megatron-all": (7, _ANY),
    "megatron-straggler": (5, _COMPUTE),
    "megatron-minmax": (2, _ANY),
    "deepspeed": (7, _COMPUTE),
    "kv": (8, (*_ANY, "link")),
    "words": (7, (*_ANY, "link")),
    "imagenet": (5, (*_DATA, *_DATA, "device")),
    "mmengine": (3, (*_DATA, *_DATA, "device")),
    "stamps": (5, _ANY),
    "dumps": (3, _ANY),
    "clocks": (3, ("device",)),
    "hf": (3, _ANY),
    "lightning": (2, _ANY),
    "torchtitan": (2, _ANY),
}
# Styles whose lines name no rank, or times that are equal on all ranks.
_NAMELESS = ("megatron-minmax", "hf", "lightning", "torchtitan")
# Styles whose only time of one rank is that of its data.
_DATA_ONLY = ("imagenet", "mmengine")

_CLASSES: Mapping[Fault, tuple[str, ...]] = {
    "none": ("none",),
    "device": ("slow.straggler",),
    "cpu": ("slow.straggler",),
    "loader": ("data.loader", "slow.storage"),
    "disk": ("data.loader", "slow.storage"),
    "link": ("net.fabric",),
}
# Where no phase of a step is shown, nothing says why a rank is late.
_WITHOUT_PHASES = ("stamps", "dumps", "megatron-straggler")


@dataclass(frozen=True, slots=True)
class Plan:
    """One run.

    base_ms: what a phase of a step takes. rank: the one that is slow, `factor` times, from step
    `since` on; whole: all ranks are. calm: pauses and noise. every: steps from a line to the next.
    tee: a file a rank, else one console. ends: it runs to its last step, else it is still at work
    when its files are copied.
    """

    style: Style
    world: int
    steps: int
    fault: Fault
    rank: int
    factor: float
    since: int
    calm: tuple[Calm, ...]
    every: int
    tee: bool
    ends: bool
    seed: int
    base_ms: Mapping[str, float] = field(default_factory=dict)

    @property
    def determines(self) -> Determines:
        """What of the slow rank its files can show."""
        if self.fault == "none":
            return "none"
        if self.style in _NAMELESS or (self.style in _DATA_ONLY and self.fault not in _DATA):
            return "nothing"
        return "rank"

    @property
    def truth(self) -> Truth:
        """What is true of the run. The jobs work on, whoever is slow."""
        # Of the end only rank 0 speaks.
        verdicts = ("healthy", "running") if self.ends else ("running",)
        if self.determines == "none":
            return Truth(verdicts, ("none",), determines="none")
        classes = _CLASSES[self.fault]
        if self.style in _WITHOUT_PHASES:
            classes = ("slow.straggler",)
        if self.determines == "nothing":
            return Truth(verdicts, (), (self.rank,), (), (self.rank,), "nothing")
        return Truth(verdicts, classes, (self.rank,), (), (self.rank,), "rank")


def plan_of(seed: int) -> Plan:
    """The run that a seed stands for: odd ones are well."""
    random = Random(seed)
    style = random.choices([*_DRAWN], [share for share, _ in _DRAWN.values()])[0]
    fault: Fault = "none" if seed % 2 else random.choice(_DRAWN[style][1])
    world = random.choice((4, 4, 5, 6))
    steps = random.randint(60, 130)
    calm: list[Calm] = random.sample(CALM, random.choice((2, 3, 4)) if fault == "none" else 1)
    if fault != "none":
        calm = [one for one in calm if one != "imbalance"]
    compute = random.uniform(18, 32)
    return Plan(
        style=style,
        world=world,
        steps=steps,
        fault=fault,
        rank=random.randrange(world),
        factor=random.choice((1.6, 2.0, 2.5, 3.5)),
        since=random.choice((0, 0, steps // 3, steps // 2)),
        calm=tuple(sorted(calm)),
        every=1 if style in ("stamps", "dumps") else random.choice((1, 1, 2)),
        tee=random.random() < 0.5,
        ends=random.random() < 0.4,
        seed=seed,
        base_ms={
            "data": random.uniform(4, 9),
            "forward": compute * 0.4,
            "backward": compute * 0.6,
            "step": random.uniform(1, 3),
        },
    )
