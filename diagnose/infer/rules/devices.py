"""Devices that hold up others, where lines name devices and addresses and no ranks (HCCL)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnose import diagnosis
from diagnose.infer.judge.device_map import Endpoint
from diagnose.infer.judge.devices import DeviceVerdict, Way, judged
from diagnose.infer.rules.base import Context, Hypothesis, Tier, inferred
from diagnose.text.ranks import counted

# What a device reports that waits for another one follows from whom it waits for.
_FOLLOWS = ["net.*", "rendezvous.*", "unknown"]
_SHOWN = 8  # devices of a chain
# What each way shows, how far it reaches, and why the culprits are named.
_WAYS: dict[Way, tuple[str, Tier, str]] = {
    "end": ("wait.missing", Tier.OBSERVED, "all waits end there"),
    "circle": ("wait.cycle", Tier.OBSERVED, "all waits end there"),
    "shared": ("wait.network", Tier.STRONG, "all broken links end there"),
    "setting": ("wait.setting", Tier.OBSERVED, "TLS differs on its port"),
    "idle": ("wait.missing", Tier.STRONG, "it has a log and waits for nobody"),
    "late": ("wait.missing", Tier.STRONG, "it came when others had given up"),
    "none": ("rendezvous.incomplete", Tier.WEAK, ""),
}


def propose(context: Context) -> Iterator[Hypothesis]:
    """Who is at the end of all waits, or different from all who wait."""
    verdict = judged(context.timeline)
    if verdict is None:
        return
    rows = [event.index for event in verdict.events]
    if verdict.way == "none" and not all(one.signal == "unanswered" for one in verdict.events):
        return  # inside a call they were connected
    if verdict.way == "blamed":
        cause, why, tier = verdict.events[0].cause or "", "its peers name it", Tier.STRONG
    elif verdict.way in _WAYS:
        shown_by, tier, why = _WAYS[verdict.way]
        cause = context.catalog.class_shown_by(shown_by)
    else:
        return
    found = inferred(cause, tier, context.catalog, _summary(verdict), rows)
    found.basis, found.explains = "wait", _FOLLOWS
    found.ranks, found.hosts = [*verdict.ranks], [*verdict.hosts]
    found.devices = named(verdict.devices)
    found.kind = "missing" if verdict.way in ("end", "idle", "late") else None
    found.why = why if verdict.devices or verdict.hosts else ""
    if verdict.way == "setting" and (entry := context.catalog.by_id.get(_stated_in(verdict))):
        found.remedies = [*entry.remedies]
    yield found


def _stated_in(verdict: DeviceVerdict) -> str:
    """The entry of the line that leads to the verdict, which knows what to do about it."""
    return verdict.events[0].signature or ""


def named(devices: Sequence[Endpoint]) -> list[diagnosis.Device]:
    """The devices whose host and number are known."""
    return [
        diagnosis.Device(device.host, device.number)
        for device in devices
        if device.host is not None and device.number is not None
    ]


def _summary(verdict: DeviceVerdict) -> str:
    """Who waits for whom, in words."""
    who = ", ".join(map(str, verdict.devices[:_SHOWN]))
    several = len(verdict.devices) > 1
    if verdict.way == "shared":
        return (
            f"Links of several devices of {verdict.hosts[0]} broke at once, to different peers: "
            "what they share is that node, its network or its switch."
        )
    if verdict.way == "blamed":
        return f"{who} is named by its peers; its own log says why, if it has one."
    if verdict.way == "setting":
        own = "on" if verdict.encrypted else "off"
        what = f"TLS is {own} on the port of {who} and not on those of the others"
        return f"{what if who else 'TLS is on for some ports and off for others'}: no link is made."
    if verdict.way == "none":
        reached = {event.fields.get("peer", "") for event in verdict.events} - {""}
        to = f" to {', '.join(sorted(reached)[:_SHOWN])}" if reached else ""
        waiting = counted(len(verdict.events), "line")
        return f"NPUs got no connection{to} ({waiting}); whose fault it is no log here shows."
    if verdict.way == "idle":
        waiting = counted(len(verdict.events), "device")
        return f"{waiting} waited for a connection, {who} shows no wait in {_its(several)} log."
    if verdict.way == "late":
        return (
            f"{who} came more than {verdict.patience_s} s later than the first device, which had "
            "given up by then."
        )
    first, *rest = verdict.chain
    steps = [f"{first} waited for {rest[0]}"] if rest else [f"Others waited for {first}"]
    steps += [f"that for {device}" for device in rest[1:_SHOWN]]
    waits = ", ".join(steps)
    if verdict.way == "circle":
        return f"{waits}: a circle, in which each waits for the next."
    return f"{waits}, which shows no wait for another device; its own log says why, if it has one."


def _its(several: bool) -> str:
    return "their" if several else "its"
