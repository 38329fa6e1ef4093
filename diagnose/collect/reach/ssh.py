"""Nodes by ssh: no passwords, no forwarding, one connection a node."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from diagnose.collect.reach.hosts import Host
from diagnose.collect.reach.model import Call, Plan
from diagnose.collect.reach.program import Start
from diagnose.collect.reach.tools import absent

CONNECT_SECONDS = 10


def plan(hosts: Sequence[Host], start: Start) -> Plan:
    """A call for each host."""
    missing = absent("ssh")
    if missing:
        return Plan("ssh", problems=missing)
    return Plan("ssh", [call(host, start) for host in hosts])


def call(host: Host, start: Start) -> Call:
    """The command for one host; its login shell reads the last word, whatever shell that is."""
    target = f"{host.user}@{host.name}" if host.user else host.name
    command = [
        "ssh", "-T", "-x", "-a", "-oLogLevel=ERROR",
        "-oBatchMode=yes", f"-oConnectTimeout={CONNECT_SECONDS}", "-oClearAllForwardings=yes",
        # A master that outlives its first session would keep our standard error open.
        "-oControlMaster=no",
    ]  # fmt: skip
    if host.port:
        command.append(f"-p{host.port}")
    words = " ".join(shlex.quote(word) for word in start.words)
    return Call(label(host), (*command, "--", target, words), start.stdin)


def label(host: Host) -> str:
    """What a host is called in messages."""
    return f"{host.name}:{host.port}" if host.port else host.name
