"""Everything of one node, below `nodes/HOST/` of a folder: the entry for launchers and users.

It is made in so much time: what there is when it is over is kept. Only the standard library: it
runs on the nodes.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Any

from diagnose import __version__
from diagnose.collect import bundle, machine, processes, recorder
from diagnose.collect.bundle import Node, NodeOptions, Probe, Sink
from diagnose.collect.find import Found, find, is_python
from diagnose.redact.redactor import Redactor
from diagnose.runtime.children import Answer, TimedOut, bounded, each
from diagnose.runtime.command import handling
from diagnose.text.ranks import counted

_NO_NAME = re.compile(r"[^\w.-]")
_AT_ONCE = 64  # probes that only read, and mostly wait
_NATIVE_S = 6.0  # in which ranks may be paused for native stacks, one after another
_SLACK_S = 6.0  # of the activity probe, beyond the time between its samples

_MAX_DOCUMENT = 16 << 20
_MAX_DEPTH = 20

Task = tuple[str, Callable[[], object]]


def collect_node(folder: Path, options: NodeOptions | None = None) -> Node:
    """Probe this node and write `nodes/HOST/` below `folder`; what fails is told in the Node.

    Nothing is ever signalled, and nothing is written but below `folder` and, where torch waits for
    that, into the pipe by which it is asked for a dump. Raises OSError only where not even
    `node.json` can be written.
    """
    options = options or NodeOptions()
    name = _NO_NAME.sub("_", options.host or socket.gethostname()).strip(".")
    node = Node(name or "node", __version__, started=now())
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
    samples = ("activity", _task(processes.observe, sink, found.processes, options.apart_s))
    yield from each(
        [
            samples,
            *_of_machine(host, found, sink, options),
            *_of_processes(found, sink, options),
        ],
        max(options.probe_s, options.apart_s + _SLACK_S),
        _AT_ONCE,
    )
    until = time.monotonic() + _NATIVE_S
    yield from each(
        (
            (
                f"{one.folder}/stack-2",
                _task(processes.full, sink.below(one.folder), one, options.pause_s, until),
            )
            for one in found.processes
            if one.role == "rank"
        ),
        options.probe_s,
    )
    # Last, for what is behind in two reports is no difference in passing.
    if recorder.answered(sink):
        second = _task(recorder.second_report, sink, _environments(found), options.probe_s)
        yield from each([("ncclras-2", second)], recorder.APART_S + options.probe_s)


def _environments(found: Found) -> list[Mapping[str, str]]:
    return [found.seen[one.pid].environment for one in found.processes if one.role == "rank"]


def _of_machine(host: str, found: Found, sink: Sink, options: NodeOptions) -> Iterator[Task]:
    everyone, seconds = found.processes, options.probe_s
    yield "kernel", _task(machine.messages, sink, host, _began(found), seconds)
    yield "pressure", _task(machine.pressure, sink)
    yield "cgroup", _task(machine.cgroups, sink, everyone)
    yield "filesystems", _task(machine.filesystems, sink, everyone)
    yield "gpus", _task(machine.gpus, sink, seconds)
    yield "rdma", _task(machine.rdma, sink)
    yield "sockets", _task(machine.sockets, sink, everyone)
    yield "ncclras", _task(recorder.ask, sink, _environments(found), seconds)


def _of_processes(found: Found, sink: Sink, options: NodeOptions) -> Iterator[Task]:
    for one in found.processes:
        place, seen = sink.below(one.folder), found.seen[one.pid]
        yield f"{one.folder}/process", _task(processes.identify, place, one, found)
        if is_python(seen) or one.role == "rank":
            yield f"{one.folder}/stack-1", _task(processes.quick, place, one)
        if one.role == "rank":
            dumps = sink.below("flight_recorder")
            half = options.probe_s / 2
            yield (
                f"{one.folder}/flight_recorder",
                _task(recorder.collect, dumps, one, seen, options.dump, half),
            )
    for output in processes.outputs(found.processes):
        name = f"{output.folder}/{output.name.removesuffix('.log')}".lstrip("/")
        yield name, _task(processes.tail, sink.below(output.folder), output)


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


class Over(BaseException):
    """It is to end now; the message says why. `by_user` where a signal asked for that."""

    def __init__(self, why: str, *, by_user: bool) -> None:
        super().__init__(why)
        self.by_user = by_user


def collect_within(
    folder: Path, options: NodeOptions, seconds: float
) -> tuple[list[dict[str, Any]], Over | None]:
    """The documents of the nodes below `folder`, and why it ended early if it did.

    Raises OSError where nothing can be written.
    """
    started = now()
    try:
        with _ending(seconds):
            return [collect_node(folder, options).to_dict()], None
    except Over as over:
        return [_rescued(path, started, str(over)) for path in documents(folder)], over


def documents(folder: Path) -> list[Path]:
    """Every `nodes/HOST/node.json` below a folder."""
    return sorted(folder.glob("nodes/*/node.json"))


def read_document(path: Path) -> dict[str, Any] | None:
    """What a `node.json` says; None where it says nothing (yet). Raises OSError."""
    with suppress(ValueError, RecursionError), path.open("rb") as stream:
        found = json.loads(stream.read(_MAX_DOCUMENT))
        if isinstance(found, dict) and _is_shallow(found):
            return found
    return None


def _is_shallow(document: object) -> bool:
    """Whether a document is no deeper than those of ours: who copies or writes one goes down it."""
    level = [document]
    for _ in range(_MAX_DEPTH):
        inner: list[object] = []
        for one in level:
            inner += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        level = inner
    return not level


def _rescued(path: Path, started: str, why: str) -> dict[str, Any]:
    """The document of a node whose probes did not come to an end."""
    found = read_document(path) or Node(path.parent.name, __version__, started).to_dict()
    if not found["ended"]:
        found["problems"].append(f"ended early: {why}")
        found["ended"] = now()
        bundle.overwrite(path, found)
    return found


@contextmanager
def _ending(seconds: float) -> Iterator[None]:
    """Raise Over in the main thread after so many seconds, or by what asks a process to end."""

    def end(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGALRM:
            raise Over(f"no end in {seconds:g} s", by_user=False)
        raise Over("interrupted", by_user=True)

    with handling(end, signal.SIGALRM) as handled:
        if handled:
            signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            if handled:
                signal.setitimer(signal.ITIMER_REAL, 0)
