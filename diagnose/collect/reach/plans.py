"""Which way to the nodes was asked for."""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.collect.model import NodeOptions
from diagnose.collect.reach import kubernetes, launcher, program, slurm, ssh
from diagnose.collect.reach.hosts import read_hosts
from diagnose.collect.reach.model import Plan
from diagnose.collect.reach.program import Start
from diagnose.collect.reach.remote import arguments
from diagnose.errors import InputError


@dataclass(frozen=True, slots=True)
class Asked:
    """The ways; at most one of `slurm`, `kubernetes`, `hosts` and `via` may be given.

    `namespace`, `container` and `context` are for `kubernetes`.
    """

    slurm: str | None = None
    kubernetes: str | None = None
    namespace: str | None = None
    container: str | None = None
    context: str | None = None
    hosts: str | None = None
    via: str | None = None


def plan(
    asked: Asked, options: NodeOptions, seconds: float, remote_command: str | None = None
) -> Plan | None:
    """How the nodes are reached; None: only this node. Each is to end in so many seconds.

    Raises InputError where what was asked for cannot be meant.
    """
    ways = {
        "--slurm": asked.slurm, "--kubernetes": asked.kubernetes, "--hosts": asked.hosts,
        "--via": asked.via,
    }  # fmt: skip
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are two ways to the nodes: give one")
    if not asked.kubernetes and (asked.namespace or asked.container or asked.context):
        raise InputError("--namespace, --container and --context belong to --kubernetes")
    if not given:
        if remote_command:
            raise InputError("--remote-command is for other nodes: say which")
        return None
    start = _start(arguments(options, seconds, lines=bool(asked.via)), asked, remote_command)
    if asked.slurm:
        return slurm.plan(asked.slurm, start)
    if asked.kubernetes:
        return kubernetes.plan(
            asked.kubernetes,
            start,
            namespace=asked.namespace,
            container=asked.container,
            context=asked.context,
        )
    if asked.hosts:
        return ssh.plan(read_hosts(asked.hosts), start)
    return launcher.plan(asked.via or "", start)


def _start(words: list[str], asked: Asked, remote_command: str | None) -> Start:
    if asked.via or remote_command:
        try:
            return program.installed(words, remote_command)
        except ValueError as error:
            raise InputError(f"--remote-command: {error}") from error
    return program.sent(words, program.program(), contained=asked.kubernetes is not None)
