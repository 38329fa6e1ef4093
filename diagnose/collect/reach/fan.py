"""Many calls at a time, their streams joined below one folder."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import IO, Any

from diagnose.collect import bundle, private
from diagnose.collect.model import Node
from diagnose.collect.reach.frames import split
from diagnose.collect.reach.model import Call, Limits, Plan, Reached
from diagnose.collect.reach.tools import environment, last_line
from diagnose.collect.reach.unpack import Unpacked, unpack
from diagnose.collect.reach.within import read_document
from diagnose.runtime.process import Ending, run
from diagnose.text.ranks import counted

_ALL_LINES = 8 << 30  # bytes that a launcher may answer with for all of its nodes
_LOOK_S = 0.2


@dataclass(slots=True)
class _Join:
    """The bundle's folder, into which the nodes of one stream after the other are moved."""

    folder: Path
    limits: Limits
    environment: dict[str, str] | None
    stop: Event = field(default_factory=Event)
    lock: Lock = field(default_factory=Lock)

    def reach(self, call: Call) -> Reached:
        """Run one call; what is wrong with it is told in the answer."""
        began = time.monotonic()
        reached = Reached(call.name)
        if self.stop.is_set():
            reached.problems.append(f"{call.name}: not reached: interrupted")
            return reached
        try:
            self._run(call, reached)
        except OSError as error:  # of our own disk
            what = (error.strerror or str(error)).lower()
            reached.problems.append(f"{call.name}: its answer could not be kept: {what}")
        reached.seconds = time.monotonic() - began
        return reached

    def _run(self, call: Call, reached: Reached) -> None:
        with tempfile.TemporaryFile(dir=self.folder) as out:
            limit = _ALL_LINES if call.lines else self.limits.size
            ending = run(
                call.command,
                out,
                seconds=self.limits.seconds,
                limit=limit,
                stop=lambda: "interrupted" if self.stop.is_set() else None,
                stdin=call.stdin,
                environment=self.environment,
            )
            out.seek(0)
            if call.lines:
                self._take_lines(call, out, ending, reached)
            else:
                found = self._take(out, reached)
                reached.problems += [f"{call.name}: {line}" for line in _problems(found, ending)]

    def _take(self, stream: IO[bytes], reached: Reached) -> Unpacked:
        """Unpack one stream, and move its nodes into the bundle."""
        with tempfile.TemporaryDirectory(prefix=".part-", dir=self.folder) as place:
            found = unpack(stream, Path(place), self.limits.size)
            reached.files += found.files
            reached.size += found.size
            for host in found.hosts:
                reached.nodes.append(self._move(Path(place, "nodes", host), reached))
        return found

    def _take_lines(self, call: Call, out: IO[bytes], ending: Ending, reached: Reached) -> None:
        """The same for each stream in the lines of a launcher."""
        parts, others = split(out)
        for part in parts:
            with tempfile.TemporaryFile(dir=self.folder) as stream:
                part.copy(out, stream)
                stream.seek(0)
                found = self._take(stream, reached)
            name = found.hosts[0] if found.hosts else "a node"
            problems = found.problems
            if part.missing:
                problems = [f"{counted(part.missing, 'line')} of its answer lost on the way"]
            reached.problems += [f"{name}: {line}" for line in problems]
        message = last_line(ending.errors) or (others[-1] if others else "")
        if ending.status != 0:
            why = ending.why or message or f"ended with exit status {ending.status}"
            reached.problems.append(f"{call.name}: {why}")
        elif not parts:
            reached.problems.append(f"{call.name}: no node answered{message and f': {message}'}")

    def _move(self, source: Path, reached: Reached) -> dict[str, Any]:
        """Move one node's folder into the bundle; gives its document, with its name there."""
        nodes = self.folder / "nodes"
        with self.lock:
            name, count = source.name, 1
            while (nodes / name).exists():
                count += 1
                name = f"{source.name}-{count}"
            private.folder(nodes / name)
        target = nodes / name
        source.replace(target)
        path = target / "node.json"
        document = read_document(path) if path.is_file() else None
        if document is None:
            problem = "its node.json is missing or damaged"
            reached.problems.append(f"{name}: {problem}")
            document = Node(name, "", problems=[problem]).to_dict()
            bundle.overwrite(path, document)
        elif document.get("host") != name:
            document["host"] = name
            bundle.overwrite(path, document)
        return document


def gather(
    plan: Plan,
    folder: Path,
    limits: Limits,
    *,
    stop: Event | None = None,
    done: Callable[[Reached], None] = lambda _: None,
) -> list[Reached]:
    """Run all calls of a plan, and join their nodes below `folder`, in the order of the calls.

    `done` is called as they come, in this thread. When `stop` is set what runs is ended, and what
    has come is kept.
    """
    join = _Join(folder, limits, environment(plan.clean, plan.keep), stop or Event())
    results: dict[int, Reached] = {}
    with ThreadPoolExecutor(max(1, min(limits.at_once, len(plan.calls)))) as pool:
        todo: dict[Future[Reached], int] = {
            pool.submit(join.reach, call): number for number, call in enumerate(plan.calls)
        }
        try:
            while todo:
                # Not forever: a signal is heard between two waits.
                ready, _ = wait(todo, _LOOK_S, FIRST_COMPLETED)
                for future in ready:
                    number = todo.pop(future)
                    results[number] = future.result()
                    done(results[number])
        finally:
            if todo:
                join.stop.set()
    return [results[number] for number in sorted(results)]


def _problems(found: Unpacked, ending: Ending) -> list[str]:
    """What is wrong with a call, in lines; where it answered in full nothing is."""
    if found.complete and found.files and not ending.status:
        return found.problems
    if ending.why:
        return [ending.why + (", what had come is kept" if found.files else "")]
    message = last_line(ending.errors)
    if not found.files:
        failed = f"ended with exit status {ending.status}" if ending.status else "no answer"
        return found.problems[:1] or [message or failed]
    if ending.status and message:
        return [*found.problems, message]
    return found.problems
