"""Stack dumps of processes: py-spy, faulthandler, gdb, eu-stack, torch's debug server, the kernel.

The forms of their lines are rows of `formats/stacks/*.yaml`. The debug server (torch 2.13) writes
`=== Rank 3: <url> ===` and below it faulthandler's or py-spy's text. A file may hold many
processes, told apart by headings (`# rank 3`, `=== node1 4242 ===`), by py-spy's `Process` lines or
by a prefix on every line (srun, pdsh, kubectl). What is damaged is left out; what is whole around
it is read.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, pairwise
from typing import Any

from diagnose.formats import table
from diagnose.lazy import expression
from diagnose.parse.path import node_like, read_path
from diagnose.parse.prefix import peel
from diagnose.parse.stack_blocks import Blocks, Where
from diagnose.parse.tracebacks import STACK_FRAMES, Frame, Kind, Stack

__all__ = ["MAX_BYTES", "Frame", "Stack", "is_stacks", "read_stacks"]

MAX_BYTES = 64 << 20
_MAX_LINES = 2_000_000
_MAX_HEADINGS = 100_000
_LONG_LINE = 20_000  # C++ signatures of templates reach a few thousand characters
_CUT = 30_000  # a longer head may end inside a line
_SAMPLE = 200  # lines that show whether every line carries a prefix
_COLOURS = expression(r"\x1b\[[\d;]{0,20}m")
# What is said of a process that died: its native stack is that of a crash.
_CRASHED = expression(
    r"Program (?:received|terminated with) signal SIG(?:SEGV|ABRT|BUS|FPE|ILL|KILL)"
    r"|Backtrace for this error|Sanitizer: |[Ss]egmentation fault|terminate called|[Cc]ore dumped"
    r"|Process received signal|Signal: (?:Abort|Bus|Float)|Fatal Python error|^Aborted",
    re.MULTILINE,
)
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
    if _looks_like_json(head):
        return True
    text = _decode(head)
    if len(text) > _CUT:
        text = text[: text.rfind("\n") + 1]
    if not any(sign.search(text) for sign in _signs()):
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
    if _looks_like_json(data):
        _json_stacks(text, blocks)
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
                if take(line, number, blocks):
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


# --- lines, by the rows of their forms ------------------------------------------------------------

_LENGTH = 300  # characters of a name or a path
_SCROLLED = expression(r"\[\d{1,9}/\d{1,9}\]\Z")  # tmux shows how far it is scrolled
_SOURCE = expression(r"\.(?:so[\d.]*|c|cc|cpp|cxx|cu|h|hpp|inl|rs|S|dylib)(?::|\Z)")
# A native name ends before its arguments and template parameters.
_NAME = expression(r"(?:\(anonymous\)|operator\(\)|operator<+|<signal handler called>|[^<(])*")

_Fields = dict[str, str]


class Form:
    """One form of a line."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.tool, self.what = row["tool"], row["what"]
        self.pattern: str = row["match"]
        self.native: bool | str = row.get("native", False)
        below = [self.tool] if self.what in _OF_A_THREAD else ()
        self._inside = frozenset(row.get("inside", below))
        self._outside = frozenset(row.get("outside", ()))
        self._match = expression(self.pattern)
        self._ending = expression(row["ending"]) if "ending" in row else None
        self._set: _Fields = row.get("set", {})
        # Elsewhere than in a dump, what is only looked for inside says nothing.
        self.marks_dump = self.what in _MARKS and "inside" not in row

    def may_follow(self, tool: str | None) -> bool:
        """Whether such a line can be below a thread of this tool, or, with None, below none."""
        return (not self._inside or tool in self._inside) and tool not in self._outside

    def find(self, line: str) -> _Fields | None:
        """What a line says, by the names of the groups; None where it is of another form."""
        found = self._match.match(line)
        if found is None:
            return None
        fields = self._set | _named(found)
        if self._ending is not None:
            func = fields["func"].rstrip()
            if scrolled := _SCROLLED.search(func[-24:]):
                func = func[: len(func) - len(scrolled[0])].rstrip()
            if place := self._ending.search(func[-700:]):
                fields |= _named(place)
                func = func[: len(func) - len(place[0])]
            fields["func"] = func
        return fields


def _named(found: re.Match[str]) -> _Fields:
    groups = found.groupdict().items()
    return {name.partition("__")[0]: text for name, text in groups if text is not None}


def take(line: str, number: int, blocks: Blocks) -> bool:
    """Take one line in, not an empty one; False when it is nothing that dumps contain."""
    if taken_by(line, number, blocks) is not None:
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


def taken_by(line: str, number: int, blocks: Blocks, *, bare: bool = True) -> Form | None:
    """The row by which a line was taken in; None if there is none for it."""
    for row in _rows_for(line):
        if not row.may_follow(blocks.open_kind) or (row.what == "bare" and not bare):
            continue
        fields = row.find(line)
        if fields is None or not _done(row, fields, number, blocks):
            continue
        if row.what == "bare":  # a thread begins with a frame of it
            taken_by(line, number, blocks, bare=False)
        return row
    return None


def begins_thread(line: str) -> bool:
    """Whether a line is the heading of a thread: `Current thread 0x… (most recent call first):`."""
    return any(row.what == "thread" and row.find(line) is not None for row in _rows_for(line))


def _done(row: Form, fields: _Fields, number: int, blocks: Blocks) -> bool:
    """Do what a line says; False where it is none of this form after all."""
    pid = int(fields["pid"]) if "pid" in fields else None
    match row.what:
        case "thread":
            _begin_thread(row.tool, fields, pid, number, blocks)
        case "bare":
            blocks.headless(row.tool, number, fields.get("tid", ""))
        case "variable":
            return blocks.deeper(len(fields["indent"]))
        case "frame":
            file, line = _place(fields)
            by_file = row.native == "by file" and (line is None or bool(_SOURCE.search(file)))
            native = row.native is True or by_file
            blocks.add(_made(fields["func"], file, line, native=native))
        case "place":
            blocks.place(*_place(fields))
        case "process":
            blocks.process(replace(of_command(fields.get("command", "")), pid=pid))
        case "parent" if pid is not None:
            blocks.parent(pid)
        case "section":
            where = Where(int(fields["rank"]), fields.get("host"), pid)
            blocks.section(where, debug=row.tool == "debug-server")
        case "failed":
            return blocks.no_answer(number, f"error {fields['number']}")
        case "end":
            blocks.end_of_process(pid)
    return True


def _begin_thread(
    tool: Kind, fields: _Fields, pid: int | None, number: int, blocks: Blocks
) -> None:
    if pid is not None:
        blocks.process(Where(pid=pid))
    name, status = fields.get("name", ""), fields.get("status", "")
    tid = fields.get("tid") or fields.get("pid") or name
    blocks.thread(tool, number, tid, name, status, first=fields.get("number") == "1")


def _place(fields: _Fields) -> tuple[str, int | None]:
    module = f"[{fields['module']}]" if "module" in fields else ""
    line = fields.get("lineno")
    return fields.get("file", module)[-_LENGTH:], None if line is None else int(line)


# In the order in which rows are tried.
_ORDER = (
    "variable", "bare", "frame", "place", "thread", "process", "parent", "section", "failed", "end",
    "noise",
)  # fmt: skip
_OF_A_THREAD = ("variable", "frame", "place")
_MARKS = ("frame", "thread", "process", "parent")


@cache
def _by_start() -> dict[str, list[Form]]:
    """The rows by the characters that they may start with, in the order in which they are tried."""
    found: dict[str, list[Form]] = defaultdict(list)
    for row in sorted(table.read(table.STACKS).rows, key=lambda row: _ORDER.index(row["what"])):
        one = Form(row)
        for start in row["starts"][0]:
            found[start].append(one)
    return found


def _rows_for(line: str) -> list[Form]:
    return _by_start().get(line[0] if line[0] <= "~" else table.OTHER, [])


@cache
def _signs() -> tuple[re.Pattern[str], ...]:
    """Expressions of which one is found in any text that has a stack."""
    rows = table.read(table.STACKS).rows
    return tuple(expression(row["holds"]) for row in rows if "holds" in row)


def _only_in_dumps(line: str) -> bool:
    """Is `line` one that only dumps have?"""
    return bool(line) and any(row.marks_dump and row.find(line) for row in _rows_for(line))


def _made(func: str, file: str, line: int | None, *, native: bool) -> Frame:
    return Frame(native_name(func) if native else func[:_LENGTH], file, line or None, native)


def native_name(text: str) -> str:
    """A C or C++ function without return type, arguments, template parameters and version."""
    if text.startswith("0x"):
        return "??"
    text = text.replace("(anonymous namespace)", "(anonymous)").partition(" [clone")[0]
    found = _NAME.match(text)
    name = (found[0] if found else text).strip()
    if not name.startswith("<"):
        name = name.rpartition(" ")[2].partition("@")[0]
    return name[:_LENGTH] or "??"


# --- headings in people's own words ---------------------------------------------------------------

_DECORATED = expression(r"\s{0,8}(?:[=#*>~+@|$]+|-{2,}|<{2,})\s*(.*)")
_KEYED = expression(
    r"(?i)[\[(]?(?:global[ _]?)?(?:rank|local_?rank|host|hostname|node|pid|pod)[\W\d_]*\Z"
)
_HOST_KEY = expression(r"(?i)\W*(?:host|hostname|node|pod)\W*\Z")
_ENVIRONMENT = expression(r"[A-Z_][A-Z0-9_]{1,60}=\S{0,2000}\Z")
_RANK = expression(
    r"(?i)(?<![a-z\d])(?:([a-z]{1,12})[_\-]|(local|node|global) )?"
    r"rank[ _:=#.\-\[]{0,3}(\d{1,7})(?!\d)"
)
_PROCID = expression(r"(?:SLURM_PROCID|PMIX?_RANK)=(\d{1,7})\Z")
_PID = expression(r"(?i)(?<![a-z\d])pid[ _:=#\-]{0,3}(\d{1,9})(?!\d)")
_HOST_PID = expression(r"(?=[\w.\-]*[\d.\-])([A-Za-z][\w.\-]{0,120})[ :/]{1,3}(\d{2,9})\W*\Z")
_OPTION = expression(r"(?:--?(local[_\-])?rank[= ]|\b(LOCAL_)?RANK=)(\d{1,7})(?!\d)")
# Ranks inside something smaller than the job.
_PARTIAL = frozenset(
    {"local", "node", "group", "role", "machine", "tp", "pp", "dp", "cp", "ep", "mp", "sp", "pg",
     "data", "pipe", "model", "tensor", "expert", "context"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Heading:
    """What a line between dumps says; `environment`: a variable of the process, not a title."""

    where: Where
    environment: bool = False


def heading(line: str) -> Heading | None:
    """`# rank 3`, `=== node1 4242 ===`, `==> out/rank_3.txt <==`, `RANK=3`, `node7:`; else None.

    A line of decoration, or a title without any of this, is a heading that says nothing.
    """
    text = line.strip()
    if len(text) > 2000:
        return None
    if _ENVIRONMENT.match(text):
        procid = _PROCID.match(text)
        where = Where(int(procid[1])) if procid else _where(text)
        return Heading(_without_host(where), environment=True)
    decorated = _DECORATED.match(text)
    if decorated:
        return Heading(_where(decorated[1]))
    words = text.split()
    alone = len(words) == 1 and node_like(words[0].rstrip(":"))
    return Heading(_where(text)) if alone or _keyed(words) else None


def _without_host(where: Where) -> Where:
    """A host in a variable is mostly that of rank 0 (MASTER_ADDR)."""
    return Where(where.rank, None, where.pid, where.local_rank)


def _keyed(words: list[str]) -> bool:
    """Words like `rank 3 (pid 77):`; any other word makes it a sentence of a log."""
    if not words or len(words) > 8 or not _KEYED.match(words[0]):
        return False
    return all(
        _KEYED.match(word) or not word.strip("()[]:,").isalpha() or _HOST_KEY.match(before)
        for before, word in pairwise(words)
    )


def of_command(command: str) -> Where:
    """Who a command line says it is: `--rank=3`, `--local_rank 3`, `RANK=3 python …`."""
    rank = local = None
    for found in _OPTION.finditer(command[:5000]):
        if found[1] or found[2]:
            local = int(found[3])
        else:
            rank = int(found[3])
    return Where(rank, local_rank=local)


def _where(text: str) -> Where:
    rank = local = pid = None
    for found in _RANK.finditer(text):
        of = (found[1] or found[2] or "").lower()
        if of == "local":
            local = int(found[3])
        elif of not in _PARTIAL and rank is None:
            rank = int(found[3])
    if match := _PID.search(text):
        pid = int(match[1])
    pair = _HOST_PID.match(text.strip("=#*-<>~+@| "))
    if pair and pid is None and not _RANK.match(text) and not _PID.match(text):
        return Where(rank, pair[1], int(pair[2]), local)
    words = (word.strip("=#*<>[](),;'\"").partition(":")[0] for word in text.split()[:12])
    host = next((word for word in words if word and node_like(word)), None)
    return Where(rank, host, pid, local)


# --- py-spy's --json: lists of threads, several of them one after the other if need be ------------

_START = expression(rb"\s{0,100}\[\s{0,100}\{\s{0,100}\"pid\"\s{0,10}:\s{0,10}\d")
_LIST = expression(r"(?m)^[ \t]{0,20}\[\s{0,100}(?=\{)")
_SEPARATOR = expression(r"[\s,]{0,1000}")
_FAILURES = 8  # lists that may be damaged; each costs a pass over what it holds
_DECODER = json.JSONDecoder()


def _looks_like_json(head: bytes) -> bool:
    """Does a source begin as py-spy's JSON does? Headings above it are allowed."""
    if _START.match(head.removeprefix(b"\xef\xbb\xbf")):
        return True
    lines = head[:2000].split(b"\n")
    starts = (at for at, line in enumerate(lines[:8]) if line.lstrip().startswith(b"["))
    at = next(starts, None)
    return at is not None and bool(_START.match(b"\n".join(lines[at:])))


def _json_stacks(text: str, blocks: Blocks) -> None:
    """Read every list of threads in `text`; a damaged one gives the threads before the damage."""
    at, line, failures = 0, 1, 0
    while failures < _FAILURES and (found := _LIST.search(text, at)) and not blocks.full:
        for title in text[at : found.start()].splitlines()[-100:]:
            parsed = heading(title)
            if parsed is not None and parsed.where != Where():
                blocks.section(parsed.where)
        line += text.count("\n", at, found.end())
        at = found.end()
        began: set[int] = set()
        while text.startswith("{", at) and not blocks.full:
            try:
                item, end = _DECODER.raw_decode(text, at)
            except (ValueError, RecursionError):
                failures += 1
                break
            _json_thread(item, line, blocks, began)
            separator = _SEPARATOR.match(text, end)
            end = separator.end() if separator else end
            line += text.count("\n", at, end)
            at = end


def _json_thread(item: dict[str, Any], line: int, blocks: Blocks, began: set[int]) -> None:
    pid, frames = _number(item.get("pid")), item.get("frames")
    if pid is None or not isinstance(frames, list):
        return
    if pid not in began:
        began.add(pid)
        info = item.get("process_info")
        info = info if isinstance(info, dict) else {}
        where = of_command(_text(info.get("command_line")))
        blocks.process(Where(where.rank, pid=pid, local_rank=where.local_rank))
        above = info.get("parent")
        parent = _number(above.get("pid")) if isinstance(above, dict) else None
        if parent is not None:
            blocks.parent(parent)
    tid = _number(item.get("os_thread_id")) or _number(item.get("thread_id")) or 0
    status = "active" if item.get("active") is True else "idle"
    status += "+gil" if item.get("owns_gil") is True else ""
    blocks.thread("py-spy", line, str(tid), _text(item.get("thread_name"))[:200], status)
    for entry in frames[: 4 * STACK_FRAMES]:
        if isinstance(entry, dict) and (frame := _json_frame(entry)):
            blocks.add(frame)


def _json_frame(entry: dict[str, Any]) -> Frame | None:
    name = _text(entry.get("name"))
    file = _text(entry.get("filename")) or _text(entry.get("module"))
    line = _number(entry.get("line")) or None
    native = line is None or _SOURCE.search(file) is not None
    return _made(name, file[-_LENGTH:], line, native=native) if name else None


def _number(value: object) -> int | None:
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
    return value if usable and isinstance(value, int) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
