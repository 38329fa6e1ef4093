"""Everything of one node, below `nodes/HOST/` of a folder: the entry for launchers and users."""

from __future__ import annotations

import os
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath

from diagnose import __version__
from diagnose.collect import (
    activity,
    bundle,
    kernel,
    logs,
    machine,
    process,
    ras,
    recorder,
    stacks,
)  # fmt: skip
from diagnose.collect.children import Answer, TimedOut, bounded, each
from diagnose.collect.find import Found, find
from diagnose.collect.model import Node, NodeOptions, Probe
from diagnose.collect.seen import is_python
from diagnose.collect.sink import Sink
from diagnose.redact.redactor import Redactor
from diagnose.text.ranks import counted

_NO_NAME = re.compile(r"[^\w.-]")
_AT_ONCE = 64  # probes that only read, and mostly wait
_NATIVE_S = 6.0  # in which ranks may be paused for native stacks, one after another
_SLACK_S = 6.0  # of the activity probe, beyond the time between its samples

Task = tuple[str, Callable[[], object]]


def collect_node(folder: Path, options: NodeOptions | None = None) -> Node:
    """Probe this node and write `nodes/HOST/` below `folder`; what fails is told in the Node.

    Nothing is ever signalled, and nothing is written but below `folder` and, where torch waits for
    that, into the pipe by which it is asked for a dump. Raises OSError only where not even
    `node.json` can be written.
    """
    options = options or NodeOptions()
    node = Node(_host(options), __version__, started=now())
    place = folder / node.folder
    bundle.reserve(place / "node.json")
    found = find(options.pids, options.job)
    redactor = _redactor(found)
    sink = Sink(place, redactor, options.probe_bytes)
    node.problems += [sink.one_line(line) for line in found.problems]
    node.processes = found.processes
    for one in node.processes:
        one.command = sink.one_line(one.command, 2000)
    bundle.reserve(place / "node.json", node.to_dict())
    try:
        for answer in _answers(node.host, found, sink, options):
            node.probes.append(_outcome(answer, sink))
        try:
            node.clock = bounded(partial(machine.clock, 1.0), 2.0)
        except (OSError, TimedOut) as error:
            node.problems.append(sink.one_line(f"clock: {error}"))
        node.problems += lacking(node.probes)
        node.ended = now()
    finally:  # whoever ends it early finds what there is
        node.probes.sort(key=lambda probe: probe.name)
        bundle.overwrite(place / "node.json", node.to_dict())
    return node


def now() -> str:
    """The time in UTC, as documents write it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _host(options: NodeOptions) -> str:
    name = options.host or socket.gethostname()
    return _NO_NAME.sub("_", name).strip(".") or "node"


def _redactor(found: Found) -> Redactor:
    """It knows the secrets in the environments of the job, wherever they stand."""
    redactor = Redactor(people=False, numbers=False)
    texts: set[str] = set()
    for one in found.processes:
        seen = found.seen[one.pid]
        texts |= {f"{name}={value}" for name, value in seen.environment.items()}
        texts.add(" ".join(seen.words))
    for text in sorted(texts):
        redactor.learn(text)
    return redactor


def _answers(host: str, found: Found, sink: Sink, options: NodeOptions) -> Iterator[Answer]:
    """All probes; those that only read go on beside the samples, pauses come after them."""
    samples = ("activity", _task(activity.observe, sink, found.processes, options.apart_s))
    yield from each(
        [
            samples,
            *_of_machine(host, found, sink, options),
            *_of_processes(found, sink, options),
            *_of_outputs(found, sink),
        ],
        max(options.probe_s, options.apart_s + _SLACK_S),
        _AT_ONCE,
    )
    until = time.monotonic() + _NATIVE_S
    yield from each(
        (
            (
                f"{one.folder}/stack-2",
                _task(stacks.full, sink.below(one.folder), one, options.pause_s, until),
            )
            for one in found.processes
            if one.role == "rank"
        ),
        options.probe_s,
    )
    # Last, for what is behind in two reports is no difference in passing.
    if ras.answered(sink):
        second = _task(ras.second_report, sink, _environments(found), options.probe_s)
        yield from each([("ncclras-2", second)], ras.APART_S + options.probe_s)


def _environments(found: Found) -> list[Mapping[str, str]]:
    return [found.seen[one.pid].environment for one in found.processes if one.role == "rank"]


def _of_machine(host: str, found: Found, sink: Sink, options: NodeOptions) -> Iterator[Task]:
    everyone, seconds = found.processes, options.probe_s
    yield "kernel", _task(kernel.messages, sink, host, _began(found), seconds)
    yield "pressure", _task(machine.pressure, sink)
    yield "cgroup", _task(machine.cgroups, sink, everyone)
    yield "filesystems", _task(machine.filesystems, sink, everyone)
    yield "gpus", _task(machine.gpus, sink, seconds)
    yield "rdma", _task(machine.rdma, sink)
    yield "sockets", _task(machine.sockets, sink, everyone)
    yield "ncclras", _task(ras.ask, sink, _environments(found), seconds)


def _of_processes(found: Found, sink: Sink, options: NodeOptions) -> Iterator[Task]:
    for one in found.processes:
        place, seen = sink.below(one.folder), found.seen[one.pid]
        yield f"{one.folder}/process", _task(process.identify, place, one, found)
        if is_python(seen) or one.role == "rank":
            yield f"{one.folder}/stack-1", _task(stacks.quick, place, one)
        if one.role == "rank":
            dumps = sink.below("flight_recorder")
            half = options.probe_s / 2
            yield (
                f"{one.folder}/flight_recorder",
                _task(recorder.collect, dumps, one, seen, options.dump, half),
            )


def _of_outputs(found: Found, sink: Sink) -> Iterator[Task]:
    for one in logs.outputs(found.processes):
        name = one.name.removesuffix(".log")
        yield f"{one.folder}/{name}".lstrip("/"), _task(logs.tail, sink.below(one.folder), one)


def _began(found: Found) -> float:
    """When the job's first process began, in seconds since 1970."""
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    ticks = [found.seen[one.pid].started for one in found.processes]
    return boot + min(ticks) / os.sysconf("SC_CLK_TCK") if ticks else time.time()


def _task(probe: Callable[..., str | None], sink: Sink, *about: object) -> Callable[[], object]:
    """A probe as its child runs it: what it wrote, and a line where it could not do everything."""

    def run() -> dict[str, object]:
        problem = probe(sink, *about)
        return {"bytes": sink.written, "problem": problem or ""}

    return run


def _outcome(answer: Answer, sink: Sink) -> Probe:
    probe = Probe(answer.name, seconds=round(answer.seconds, 3))
    if not answer.kind:
        probe.bytes, probe.problem = answer.value["bytes"], answer.value["problem"]
        probe.status = "failed" if probe.problem and not probe.bytes else "ok"
    else:
        probe.problem = answer.error
        if answer.kind == "TimedOut":
            probe.status = "timed out"
        else:
            probe.status = "not available" if answer.kind == "Unavailable" else "failed"
    probe.problem = sink.one_line(probe.problem)
    return probe


_OUTPUTS = ("stdout", "stderr", "output")


def lacking(probes: Iterable[Probe]) -> list[str]:
    """One line where processes have no stacks, and one where there is no log at all."""
    known = {probe.name: PurePosixPath(probe.name).name.partition("-")[0] for probe in probes}
    stacks = [probe for probe in probes if probe.name.endswith("/stack-1")]
    logs = [probe for probe in probes if known[probe.name] in _OUTPUTS]
    without = [probe for probe in stacks if probe.status != "ok"]
    found = []
    if without:
        what = counted(len(without), "process", "processes")
        found.append(f"no stacks of {what}: {_most(without)}")
    if logs and not any(probe.status == "ok" for probe in logs):
        found.append(f"no log of the job: {_most(logs)}; give its log beside this bundle")
    return found


def _most(probes: Sequence[Probe]) -> str:
    return Counter(probe.problem for probe in probes).most_common(1)[0][0]
