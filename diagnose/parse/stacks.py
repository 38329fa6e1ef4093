"""Stack dumps of processes: py-spy, faulthandler, gdb, eu-stack, torch's debug server, the kernel.

The debug server (torch 2.13) writes `=== Rank 3: <url> ===` and below it faulthandler's or py-spy's
text. A file may hold many processes, told apart by headings
(`# rank 3`, `=== node1 4242 ===`), by py-spy's `Process` lines or by a prefix on every line (srun,
pdsh, kubectl). What is damaged is left out; what is whole around it is read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from diagnose.lazy import expression
from diagnose.parse.path import read_path
from diagnose.parse.prefix import peel
from diagnose.parse.stack_blocks import Blocks, Frame, Stack, Where
from diagnose.parse.stack_frames import (
    EU_PID,
    EU_THREAD,
    FAULT_THREAD,
    GDB_FIRST,
    GDB_THREAD,
    NOISE,
    PROCESS,
    PYSPY_THREAD,
    fault_frame,
    gdb_frame,
    place_below,
    pyspy_frame,
)
from diagnose.parse.stack_headings import DEBUG_SERVER, DEBUG_SERVER_ERROR, heading, of_command
from diagnose.parse.stack_json import json_stacks, looks_like_json
from diagnose.parse.stack_kernel import TASK, take

__all__ = ["MAX_BYTES", "Frame", "Stack", "is_stacks", "read_stacks"]

MAX_BYTES = 64 << 20
_MAX_LINES = 2_000_000
_MAX_HEADINGS = 100_000
_LONG_LINE = 20_000  # C++ signatures of templates reach a few thousand characters
_CUT = 30_000  # a longer head may end inside a line
_SAMPLE = 200  # lines that show whether every line carries a prefix
_COLOURS = expression(r"\x1b\[[\d;]{0,20}m")
_HEADERS = expression(
    r"Thread (?:\S{1,20} )?\(|TID \d|\(most recent call first\)|#0  \w|state:D|\[<0>\] "
)
# What is said of a process that died: its native stack is that of a crash.
_CRASHED = expression(
    r"Program (?:received|terminated with) signal SIG(?:SEGV|ABRT|BUS|FPE|ILL|KILL)"
    r"|Backtrace for this error|Sanitizer: |[Ss]egmentation fault|terminate called|[Cc]ore dumped"
    r"|Process received signal|Signal: (?:Abort|Bus|Float)|Fatal Python error|^Aborted",
    re.MULTILINE,
)
_PY_BT = "Traceback (most recent call first)"  # gdb's, of the thread that it shows
_PROSE = 40  # lines somebody wrote around stacks
# How texts set off what they quote.
_SET_OFF = expression(r"(?m)^([ \t>|]{1,12})(?=#0  \w|Thread (?:\S{1,20} )?\()")
_LABELLED = expression(r"(?m)^([\w.\-]{1,80}): (?=Process \d|Thread \w|Python v)")


def is_stacks(head: bytes, name: str) -> bool:
    """Does a file that begins with `head` consist of stack dumps, and of nothing else?

    False for a log with stacks in it, and for what a crash prints: those are logs, which the other
    readers must see. Tools that look at processes from outside may say a few lines of their own,
    and who shows their stacks to others writes about them; faulthandler says nothing.
    """
    if looks_like_json(head):
        return True
    text = _decode(head)
    if len(text) > _CUT:
        text = text[: text.rfind("\n") + 1]
    if _HEADERS.search(text) is None:
        return False
    if "Fatal Python error" in text or "Traceback (most recent call last)" in text:
        return False
    blocks = Blocks(name, _file(name))
    known, prose, logged = _walk(text, blocks)
    stacks = [stack for stack in blocks.stacks() if stack.frames]
    kinds = {stack.kind for stack in stacks}
    if not stacks or ("gdb" in kinds and _CRASHED.search(text)):
        return False
    if kinds == {"faulthandler"}:
        return prose == logged == 0
    return logged <= max(2, known // 20) and prose <= max(_PROSE, known)


def read_stacks(data: bytes, name: str) -> list[Stack]:
    """Every stack in a file, in its order; `name` is its path, which may tell rank and host.

    Reads at most MAX_BYTES and MAX_STACKS stacks. Never raises; text that is no stack counts for
    nothing, except headings that say whose stacks follow.
    """
    data = data[:MAX_BYTES]
    blocks = Blocks(name, _file(name))
    text = _decode(data)
    if looks_like_json(data):
        json_stacks(text, blocks, heading)
    else:
        _walk(text, blocks)
    return blocks.stacks()


def _decode(data: bytes) -> str:
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    text = data.decode(encoding, "replace").removeprefix("\ufeff")
    return _COLOURS.sub("", text) if "\x1b" in text else text


def _file(name: str) -> Where:
    hints = read_path(name)
    return Where(hints.rank, hints.host, hints.pid, hints.local_rank, hints.task)


def _walk(text: str, blocks: Blocks) -> tuple[int, int, int]:
    """Read `text` into `blocks`; returns how many lines were known, prose, and logged.

    What a log says above the first stack led to it being taken; below, the log goes on.
    """
    known = prose = logged = 0
    margins = {found[1] for found in islice(_SET_OFF.finditer(text), _MAX_HEADINGS)}
    if len(margins) == 1:
        text = re.sub(rf"(?m)^{re.escape(margins.pop())}", "", text)
    for writer, lines in _writers(text).items():
        blocks.begin(writer)
        for number, line in lines:
            if line and not line.isspace():
                if _line(line, number, blocks):
                    known += 1
                elif blocks.begun and _logged(line):
                    logged += 1
                else:
                    prose += 1
            if blocks.full:
                break
    return known, prose, logged


def _logged(line: str) -> bool:
    """Whether a program's log says it: it tells when, who or how bad."""
    prefix = peel(line, ())
    return bool(prefix.names) or prefix.level is not None


def _writers(text: str) -> dict[Where, Iterable[tuple[int, str]]]:
    """The lines of each writer, when every line says who wrote it; else one writer of all lines."""
    hosts = set(islice((found[1] for found in _LABELLED.finditer(text)), 10_000))
    sample = [line for _, line in islice(_lines(text), 5 * _SAMPLE) if line.strip()][:_SAMPLE]
    bare = sum(_only_in_dumps(line) for line in sample)
    peeled = sum(_only_in_dumps(peel(line, hosts).message) for line in sample)
    if peeled <= bare:
        return {Where(): islice(_lines(text), _MAX_LINES)}
    found: dict[Where, list[tuple[int, str]]] = defaultdict(list)
    for number, line in islice(_lines(text), _MAX_LINES // 2):
        prefix = peel(line, hosts)
        writer = Where(prefix.rank, prefix.host, None, prefix.local_rank, prefix.task)
        found[writer].append((number, prefix.message))
    return dict(found)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends, one at a time: splitting at once would double memory."""
    at, number = 0, 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        number += 1
        yield number, text[at : min(end, at + _LONG_LINE)].rstrip("\r")
        at = end + 1


def _only_in_dumps(line: str) -> bool:
    """Is `line` one that only dumps have?"""
    return any(
        pattern.match(line)
        for pattern in (PYSPY_THREAD, FAULT_THREAD, GDB_THREAD, EU_THREAD, PROCESS, TASK)
    ) or (line[:2] in ("  ", "#0", "#1") and bool(pyspy_frame(line) or fault_frame(line)))


def _line(line: str, number: int, blocks: Blocks) -> bool:
    """Take one line in; False when it is nothing that dumps contain."""
    if take(line, number, blocks) or _frame(line, number, blocks):
        return True
    if _thread(line, number, blocks) or _process(line, blocks):
        return True
    if found := DEBUG_SERVER.match(line):
        blocks.section(Where(int(found[1]), found[2]), debug=True)
        return True
    if found := DEBUG_SERVER_ERROR.match(line):
        return blocks.no_answer(number, f"error {found[1]}")
    if NOISE.match(line):
        if line.startswith(("Timeout (", "Fatal Python error", "[Inferior", "Attaching to")):
            blocks.end_of_process(line)
        return True
    parsed = heading(line) if blocks.headings < _MAX_HEADINGS else None
    if parsed is None:
        return False
    blocks.headings += 1
    if parsed.environment:
        blocks.environment(parsed.where)
    elif parsed.where != Where():
        blocks.section(parsed.where)
    return True


def _frame(line: str, number: int, blocks: Blocks) -> bool:
    kind = blocks.open_kind
    if line[0] in " \t":
        if kind == "py-spy":
            return blocks.add_indented(line, pyspy_frame(line))
        if kind in ("faulthandler", "gdb"):
            frame = fault_frame(line, traceback=kind == "gdb")
            if frame is not None:
                blocks.add(frame)
            elif kind == "gdb" and (place := place_below(line)):
                blocks.place(*place)
            return frame is not None or kind == "gdb" or line.strip()[:1] in ("<", ".")
        return kind == "eu-stack"
    if kind != "eu-stack" and GDB_FIRST.match(line):
        blocks.headless(number)
        kind = "gdb"
    if kind != "gdb" and line.startswith(_PY_BT):
        blocks.headless(number)
        return True
    if line[0] == "#" and kind in ("gdb", "eu-stack"):
        frame = gdb_frame(line)
        if frame is not None:
            blocks.add(frame)
        return frame is not None
    return False


def _thread(line: str, number: int, blocks: Blocks) -> bool:
    if line[0] not in "TCS":
        return False
    if found := PYSPY_THREAD.match(line):
        status = found[2]
        blocks.thread("py-spy", number, found[1] or found[3] or "", found[3] or "", status)
    elif found := FAULT_THREAD.match(line):
        status = "current" if found[1] == "Current thread" else ""
        blocks.thread("faulthandler", number, found[2] or "", found[3] or "", status)
    elif found := GDB_THREAD.match(line):
        lwp = re.search(r"(?:LWP|process) (\d{1,9})", found[2])
        named = re.search(r'"(.*)"', found[2])
        tid = lwp[1] if lwp else ""
        blocks.thread("gdb", number, tid, named[1] if named else "", "", first=found[1] == "1")
    elif found := EU_THREAD.match(line):
        blocks.thread("eu-stack", number, found[1], "", "")
    else:
        return False
    return True


def _process(line: str, blocks: Blocks) -> bool:
    if line[0] != "P":
        return False
    if found := PROCESS.match(line):
        if found[1]:
            blocks.parent(int(found[2]))
        else:
            where = of_command(found[3])
            blocks.process(replace(where, pid=int(found[2])))
        return True
    if found := EU_PID.match(line):
        blocks.process(Where(pid=int(found[1])))
        return True
    return False
