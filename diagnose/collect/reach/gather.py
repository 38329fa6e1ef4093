"""Many calls at a time, their streams joined below one folder: `nodes/HOST/…` and nothing else.

A stream comes from a machine that may be broken, or that someone has broken into: only regular
files are unpacked, so much of them; paths out of the folder, links and devices are left out, and a
stream with any damage is not complete.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import IO, Any

from diagnose.collect import bundle
from diagnose.collect.bundle import Node
from diagnose.collect.node import read_document
from diagnose.collect.reach.frames import split
from diagnose.collect.reach.ways import Call, Plan, last_line
from diagnose.ingest.archive_formats import BLOCK, Entry, StreamFeed, is_tar, short, tar_entries
from diagnose.ingest.source import Budget
from diagnose.runtime.children import Ending, run
from diagnose.runtime.files import private_file, private_folder
from diagnose.text.ranks import counted

TOP = "nodes"
MAX_FILES = 50_000  # members of one stream
_DEPTH = 12  # folders below that of a host
_BLOCK = 1 << 16
_GZIP = b"\x1f\x8b\x08"
_HOST = re.compile(r"[\w-][\w.-]{0,252}", re.ASCII)
_PART = re.compile(r"[^\x00-\x1f\x7f/\\]{1,200}")
_NAMED = 3  # members left out that get a line each
_ALL_LINES = 8 << 30  # bytes that a launcher may answer with for all of its nodes
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Limits:
    """What reaching one node may cost, and how many are reached at a time.

    seconds: From the start of its command to its end.
    size: Bytes of its files.
    at_once: Commands that run at the same time.
    """

    seconds: float
    size: int
    at_once: int = 64


@dataclass(slots=True)
class Reached:
    """What one call came to.

    `nodes` are their documents as they are in the bundle, `files` and `size` what was unpacked.
    """

    name: str
    seconds: float = 0.0
    nodes: list[dict[str, Any]] = field(default_factory=list)
    files: int = 0
    size: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Join:
    """The bundle's folder, into which the nodes of one stream after the other are moved."""

    folder: Path
    limits: Limits
    environment: Mapping[str, str] | None
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
            private_folder(nodes / name)
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
    join = _Join(folder, limits, plan.environment, stop or Event())
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


@dataclass(slots=True)
class Unpacked:
    """What came out of one stream. `hosts` are the folders below `nodes/`."""

    hosts: list[str] = field(default_factory=list)
    files: int = 0
    size: int = 0
    problems: list[str] = field(default_factory=list)
    complete: bool = False


def unpack(stream: IO[bytes], folder: Path, size: int) -> Unpacked:
    """Write the files of a tar stream, plain or with gzip, below an empty folder.

    At most `size` bytes of files. Raises OSError where they cannot be written.
    """
    found = Unpacked()
    budget = Budget(headers=MAX_FILES)
    left_out: list[str] = []
    feed = StreamFeed(_blocks(stream, budget))
    for entry in tar_entries(feed, budget):
        if entry.folder:
            continue
        path, why = _place(entry)
        if why:
            left_out.append(f"{short(entry.name)}: {why}")
            continue
        if found.size + entry.size > size:
            budget.cut(f"more than {size} bytes of files")
            break
        try:
            written = _write(folder / path, feed, entry.size)
        except FileExistsError:
            left_out.append(f"{short(entry.name)}: there twice")
            continue
        found.files += 1
        found.size += written
        host = path.split("/")[1]
        if host not in found.hosts:
            found.hosts.append(host)
        if written < entry.size:
            budget.cut(f"it ends inside of {short(entry.name)}")
            break
    found.problems += left_out[:_NAMED]
    if len(left_out) > _NAMED:
        found.problems.append(f"{counted(len(left_out) - _NAMED, 'more member')} left out")
    found.complete = not budget.notes
    if budget.notes and found.files:
        found.problems.append(f"its answer is incomplete: {budget.notes[0]}")
    return found


def _place(entry: Entry) -> tuple[str, str]:
    """Where a member goes, or why nowhere."""
    if entry.refused:
        return "", entry.refused
    parts = entry.name.split("/")
    if parts[0] != TOP or not 3 <= len(parts) <= _DEPTH + 2:
        return "", "not below nodes/HOST: left out"
    if not _HOST.fullmatch(parts[1]):
        return "", "not the name of a host: left out"
    if parts[2] == "node.json" and len(parts) > 3:
        return "", "not a folder: left out"
    for part in parts[2:]:
        if part in (".", "..") or not _PART.fullmatch(part):
            return "", "not a name for a file here: left out"
        if len(part.encode("utf-8", "surrogateescape")) > 255 or not part.isprintable():
            return "", "not a name for a file here: left out"
    return "/".join(parts), ""


def _write(path: Path, feed: StreamFeed, size: int) -> int:
    """The next bytes of a stream as a new file; how many there were. Raises OSError."""
    try:
        private_folder(path.parent)
        out = private_file(path, os.O_EXCL)
    except NotADirectoryError as error:
        raise FileExistsError from error
    with out:
        written = 0
        for piece in feed.pieces(size):
            out.write(piece)
            written += len(piece)
        return written


def _blocks(stream: IO[bytes], budget: Budget) -> Iterator[bytes]:
    """The bytes of a stream, unpacked if they are packed; damage is the end, and is told."""
    head = stream.read(_BLOCK)
    if not head.startswith(_GZIP) and not is_tar(head[:BLOCK]):
        # The files that a shell reads at its start may greet whoever comes.
        head = head[max(0, head.find(_GZIP)) :]
    if not head.startswith(_GZIP):
        while head:
            yield head
            head = stream.read(_BLOCK)
        return
    unpacker = zlib.decompressobj(31)
    while head and not unpacker.eof:
        try:
            block = unpacker.decompress(head, _BLOCK)
        except zlib.error:
            budget.cut("damaged on the way")
            return
        head = unpacker.unconsumed_tail or stream.read(_BLOCK)
        if block:
            yield block
