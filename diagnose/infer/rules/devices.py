"""Devices that hold up others, where lines name devices and addresses and no ranks (HCCL)."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose import diagnosis
from diagnose.infer.judge.devices import DeviceVerdict, judged
from diagnose.infer.rules.base import Context, Hypothesis, Tier, inferred

# What a device reports that waits for another one follows from whom it waits for.
_FOLLOWS = ["net.*", "rendezvous.*", "unknown"]
_SHOWN = 8  # devices of a chain


def propose(context: Context) -> Iterator[Hypothesis]:
    """Who is at the end of all waits."""
    verdict = judged(context.timeline)
    if verdict is None or not (verdict.devices or verdict.hosts):
        return
    shown_by = "wait.network" if not verdict.devices else "wait.missing"
    cause = context.catalog.class_shown_by("wait.cycle" if verdict.circle else shown_by)
    rows = [event.index for event in verdict.events]
    tier = Tier.OBSERVED if verdict.devices else Tier.STRONG
    found = inferred(cause, tier, context.catalog, _summary(verdict), rows)
    found.basis, found.explains = "wait", _FOLLOWS
    found.ranks, found.hosts = [*verdict.ranks], [*verdict.hosts]
    found.devices = [
        diagnosis.Device(device.host, device.number)
        for device in verdict.devices
        if device.host is not None and device.number is not None
    ]
    found.kind = "missing" if verdict.devices and not verdict.circle else None
    found.why = "all waits end there" if verdict.devices else "all broken links end there"
    yield found


def _summary(verdict: DeviceVerdict) -> str:
    """Who waits for whom, in words."""
    if not verdict.devices:
        (host,) = verdict.hosts
        return (
            f"Links of several devices of {host} broke at once, to different peers: what they "
            "share is that node, its network or its switch."
        )
    chain = verdict.chain
    first, rest = chain[0], chain[1:]
    steps = [f"{first} waited for {rest[0]}"] if rest else [f"Others waited for {first}"]
    steps += [f"that for {device}" for device in rest[1:_SHOWN]]
    waits = ", ".join(steps)
    if verdict.circle:
        return f"{waits}: a circle, in which each waits for the next."
    return f"{waits}, which shows no wait for another device; its own log says why, if it has one."
