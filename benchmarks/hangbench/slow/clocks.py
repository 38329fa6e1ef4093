"""What `nvidia-smi --query-gpu=… --format=csv -l` prints beside a run whose device is slow.

A machine without GPUs has no clocks: those of the stand-in follow from the plan.
"""

from __future__ import annotations

from random import Random

from benchmarks.hangbench.slow.plan import Plan

_HEAD = (
    "timestamp, index, name, clocks.current.sm [MHz], temperature.gpu, power.draw [W], "
    "clocks_event_reasons.hw_slowdown, clocks_event_reasons.hw_thermal_slowdown, "
    "clocks_event_reasons.sw_power_cap"
)
_FULL_MHZ = 1980


def queried(plan: Plan) -> bytes:
    """The file of a run: a row a GPU and sample."""
    random = Random(plan.seed)
    rows = [_HEAD]
    for sample in range(12):
        for gpu in range(plan.world):
            slow = (
                plan.fault != "none" and gpu == plan.rank and sample >= 12 * plan.since / plan.steps
            )
            clock = int(_FULL_MHZ / plan.factor) if slow else _FULL_MHZ - 15 * random.randrange(4)
            heat = "Active" if slow else "Not Active"
            cap = "Active" if random.random() < 0.3 else "Not Active"
            rows.append(
                f"2026/11/30 02:30:{5 * sample:02d}.{random.randrange(1000):03d}, {gpu}, "
                f"NVIDIA H100 80GB HBM3, {clock} MHz, {88 if slow else 62}, 512.00 W, {heat}, "
                f"{heat}, {cap}"
            )
    return ("\n".join(rows) + "\n").encode()
