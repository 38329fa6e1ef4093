"""The ways to the nodes of a job, and which of them was asked for.

Slurm: a step of its own on each node, beside the job's. A step for each node rather than one for
all: a step does not start where one of its nodes is down, and that is when it is wanted.
Kubernetes: `kubectl exec` into the training container of each pod. ssh: no passwords, no
forwarding, one connection a node. Any launcher: one command that starts a process on each node;
what those write comes out of it mixed, so they answer in `frames`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from diagnose.collect.bundle import NodeOptions
from diagnose.collect.reach import program
from diagnose.collect.reach.hosts import Host, read_hosts
from diagnose.collect.reach.program import Start
from diagnose.collect.reach.remote import arguments
from diagnose.errors import InputError
from diagnose.runtime.children import run

# What launchers and parsers of options add to what went wrong.
_AFTERMATH = re.compile(
    r"srun: error: \S+: tasks? \S+: (?:Exited|Terminated|Killed)|srun: (?:Terminating|Job step)"
    r"|command terminated with exit code|[Tt]ry [\"'`]?\w+ --help|Usage:|\W*\Z"
)
_SECONDS = 60.0
MAX_ANSWER = 256 << 20
_JOB = re.compile(r"\d{1,18}(?:[_+]\d{1,10})?")
_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")
# Inside a job these would be taken for options of the new step.
SLURM_CLEAN = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_", "PMI_", "PMIX_")
SLURM_KEEP = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT"})
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
CONNECT_SECONDS = 10
# What a launcher told the rank in which we may be; what its user set for it stays.
LAUNCHER_CLEAN = ("OMPI_COMM_", "OMPI_MCA_ess_", "OMPI_MCA_orte_", "PMIX_", "PMI_")


@dataclass(frozen=True, slots=True)
class Call:
    """One command that is run here and answers with the stream of a node.

    name: What the node is called in messages.
    command: Its words; no shell reads them.
    stdin: What it is given, such as the program for the node; empty: nothing.
    lines: It answers for several nodes at once, in the lines of `frames`.
    """

    name: str
    command: tuple[str, ...]
    stdin: bytes = b""
    lines: bool = False


@dataclass(slots=True)
class Plan:
    """How the nodes of a job are reached; `problems` are lines for people.

    environment: That of the launcher; None: that of this process.
    """

    via: str
    calls: list[Call] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    environment: Mapping[str, str] | None = None


class ToolError(Exception):
    """A command of the site failed; the message is its own last line, or says what happened."""


def absent(tool: str) -> list[str]:
    """A problem where a command is not installed here."""
    return [] if shutil.which(tool) else [f"{tool} is not installed here (or not in PATH)"]


def ask(command: Sequence[str], environment: Mapping[str, str] | None = None) -> bytes:
    """What a command answers on standard output. Raises ToolError."""
    out = BytesIO()
    ending = run(command, out, seconds=_SECONDS, limit=MAX_ANSWER, environment=environment)
    if ending.status is None:
        name = "" if ending.why.startswith(f"{command[0]}: ") else f"{command[0]}: "
        raise ToolError(f"{name}{ending.why}")
    if ending.status:
        raise ToolError(
            last_line(ending.errors) or f"{command[0]} ended with exit status {ending.status}"
        )
    return out.getvalue()


def last_line(data: bytes) -> str:
    """The last line that says something of the cause; else the last one."""
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line]
    telling = [line for line in lines if not _AFTERMATH.match(line)]
    return (telling or lines or [""])[-1]


def environment(clean: tuple[str, ...]) -> dict[str, str]:
    """That of this process without variables of these prefixes."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in SLURM_KEEP or not name.startswith(clean)
    }


def slurm(job: str, start: Start) -> Plan:
    """A call for each node of a running job, by its number: `81922`, `81922_4`, `81922+1`."""
    found = Plan("slurm", environment=environment(SLURM_CLEAN))
    found.problems = [line for tool in ("srun", "squeue", "scontrol") for line in absent(tool)][:1]
    if found.problems:
        return found
    if not _JOB.fullmatch(job):
        found.problems = [f"{job[:100]!a} is no job of Slurm"]
        return found
    try:
        for _, number, nodes in _parts(job):
            found.calls += [_srun_call(number, node, start) for node in _names(nodes)]
    except ToolError as error:
        found.problems.append(f"job {job}: {error}")
    return found


def _parts(job: str) -> list[tuple[str, str, str]]:
    """The names, numbers and nodes of what of a job is running. Raises ToolError.

    That are an element of an array, or the parts of a heterogeneous job.
    """
    words = ["squeue", "--noheader", f"--jobs={job}", "--format=%i|%A|%T|%N"]
    answer = ask(words, environment(SLURM_CLEAN)).decode("utf-8", "replace")
    rows = [row for line in answer.splitlines() if len(row := line.strip().split("|")) == 4]
    running = [
        (name, number, nodes) for name, number, state, nodes in rows if state == "RUNNING" and nodes
    ]
    if not running:
        states = sorted({row[2].lower() for row in rows})
        raise ToolError(f"it is not running ({', '.join(states) or 'it has ended'})")
    if len(running) > 1 and all("_" in name for name, _, _ in running):
        some = ", ".join(name for name, _, _ in running[:3])
        raise ToolError(f"it is an array of {len(running)} jobs: name one of them, as {some}")
    return running


def _names(nodes: str) -> list[str]:
    """The names in a node list of Slurm. Raises ToolError."""
    answer = ask(["scontrol", "show", "hostnames", nodes], environment(SLURM_CLEAN))
    names = answer.decode("utf-8", "replace").split()
    if not names or not all(map(_NODE.fullmatch, names)):
        raise ToolError(f"scontrol gave no names for its nodes {nodes[:100]!a}")
    return names


def _srun_call(number: str, node: str, start: Start) -> Call:
    command = (
        "srun", f"--jobid={number}", "--overlap", f"--nodelist={node}", "--nodes=1", "--ntasks=1",
        "--cpus-per-task=1", "--cpu-bind=none", "--mpi=none", "--job-name=diagnose",
        # The folder in which we are may be on a file system that does not answer over there.
        "--chdir=/", "--quiet",
        *start.also(f"--job={number}").words,
    )  # fmt: skip
    return Call(node, command, start.stdin)


def kubernetes(asked: Asked, start: Start) -> Plan:
    """A call for each running pod of a label selector; the others are problems."""
    selector, namespace = asked.kubernetes, asked.namespace
    found = Plan("kubernetes", problems=absent("kubectl"))
    if found.problems:
        return found
    kubectl = ["kubectl"]
    kubectl += [f"--context={asked.context}"] if asked.context else []
    kubectl += [f"--namespace={namespace}"] if namespace else []
    try:
        answer = ask([*kubectl, "get", "pods", f"--selector={selector}", "--output=json"])
        pods = json.loads(answer)["items"]
        for pod in pods:
            name, phase = pod["metadata"]["name"], pod["status"].get("phase", "Unknown")
            inside = _container(pod, asked.container)
            if phase != "Running":
                found.problems.append(f"pod {name} is {phase.lower()}: not reached")
            elif inside is None:
                found.problems.append(f"pod {name} has no container {asked.container}: not reached")
            else:
                command = (*kubectl, "exec", "--stdin", name, f"--container={inside}", "--")
                found.calls.append(Call(name, (*command, *start.words), start.stdin))
        if not pods:
            where = f" in the namespace {namespace}" if namespace else ""
            found.problems.append(f"no pod{where} has the labels {selector}")
    except ToolError as error:
        found.problems.append(f"kubectl: {error}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        found.problems.append("kubectl: its list of pods cannot be read")
    return found


def _container(pod: dict[str, Any], wanted: str | None) -> str | None:
    """The container to look into: the wanted one, the pod's default, or its first."""
    names = [str(one["name"]) for one in pod["spec"]["containers"]]
    if wanted is not None:
        return wanted if wanted in names else None
    default = (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER)
    return default if default in names else names[0]


def ssh(hosts: Sequence[Host], start: Start) -> Plan:
    """A call for each host."""
    missing = absent("ssh")
    if missing:
        return Plan("ssh", problems=missing)
    return Plan("ssh", [_ssh_call(host, start) for host in hosts])


def _ssh_call(host: Host, start: Start) -> Call:
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


def launched(launcher: str, start: Start) -> Plan:
    """The one call of a launcher such as `mpirun -npernode 1`. Raises InputError."""
    try:
        words = shlex.split(launcher)
    except ValueError as error:
        raise InputError(f"--via: {error}") from error
    if not words:
        raise InputError("--via is empty")
    missing = absent(words[0])
    found = Plan(launcher, problems=missing, environment=environment(LAUNCHER_CLEAN))
    if not missing:
        found.calls = [Call(words[0].rpartition("/")[2], (*words, *start.words), lines=True)]
    return found


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
        return slurm(asked.slurm, start)
    if asked.kubernetes:
        return kubernetes(asked, start)
    if asked.hosts:
        return ssh(read_hosts(asked.hosts), start)
    return launched(asked.via or "", start)


def _start(words: list[str], asked: Asked, remote_command: str | None) -> Start:
    if asked.via or remote_command:
        try:
            return program.installed(words, remote_command)
        except ValueError as error:
            raise InputError(f"--remote-command: {error}") from error
    return program.sent(words, program.program(), contained=asked.kubernetes is not None)
