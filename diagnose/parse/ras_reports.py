"""RAS reports as `ncclras` writes them, in text and in JSON, single or appended by a loop.

Text: literals of the libraries 2.25.1, 2.27.7, 2.28.9 and 2.29.7. Ranks that stand below a line
`<n> ranks have launched up to operation <c>` are those n; the ranks of the largest such group are
not listed. A rank alone with its count is told in a line of its own.

JSON (`-f json`, 2.28.7 on): NCCL 2.28.9 writes `"nvml_dev": 3` without the comma before the status
of a missing rank; 2.29 does not any more. A report that is cut off is closed where its last whole
part ends. Both have lines of monitor mode.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_RANKS = 1 << 18  # of one report
MAX_SNAPSHOTS = 10_000
MAX_NOTED = 1000
MAX_DEVICES = 64
MAX_TEXT = 256


class RasError(ValueError):
    """The file is no RAS report that can be used; the message is one line."""


@dataclass(frozen=True, slots=True)
class RasProcess:
    """A process of the job; RAS tells the host by its address. `devices` as CUDA counts them."""

    host: str
    pid: int
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RasComm:
    """A communicator as summed up: `hash` as 0x…, "" where text leaves out a healthy one."""

    hash: str
    size: int | None


@dataclass(slots=True)
class Rank:
    """One rank of a communicator; `counts` by NCCL's operation, None where they are not told."""

    line: int
    process: RasProcess | None = None
    counts: dict[str, int] | None = None
    missing: bool = False
    gone: bool = False


@dataclass(slots=True)
class Op:
    """Text: the counts of one operation. `some`: [count, ranks that have it, ranks listed]."""

    op: str
    line: int
    some: list[list[int]] = field(default_factory=list)
    ranks: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Comm:
    """One communicator. Only in text: `ops`, `missing` (line, ranks as written), and `nodes`.

    `unnamed`: operation, count and how many ranks of it are not named.
    """

    hash: str
    size: int | None
    line: int
    ranks: dict[int, Rank] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    missing: list[tuple[int, str]] = field(default_factory=list)
    nodes: int = 0
    unnamed: list[tuple[str, int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Snapshot:
    """One report. `healthy`: communicators that text only sums up; `cut`: the end is missing.

    `nodes`, and GPUs `per_node`, as the summary of text says (0: it does not).
    """

    line: int
    stamp: str | None = None
    comms: dict[str, Comm] = field(default_factory=dict)
    healthy: list[RasComm] = field(default_factory=list)
    dead: list[RasProcess] = field(default_factory=list)
    missing: list[RasProcess] = field(default_factory=list)
    errors: list[tuple[int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cut: bool = False
    nodes: int = 0
    per_node: int = 0


@dataclass(slots=True)
class Found:
    """All that a file holds: reports, and what monitor mode says (`dead`: process → line)."""

    snapshots: deque[Snapshot] = field(default_factory=lambda: deque(maxlen=MAX_SNAPSHOTS))
    dead: dict[RasProcess, int] = field(default_factory=dict)
    events: int = 0
    errors: list[tuple[int, str]] = field(default_factory=list)

    def event(self, name: str, process: RasProcess | None, line: int) -> None:
        """Take in one event of monitor mode."""
        self.events += 1
        if process is not None and name == "PEER_DEAD":
            self.dead.setdefault(process, line)
        elif process is not None and name == "PEER_RECOVERED":
            self.dead.pop(process, None)


def hash_name(hexadecimal: str) -> str:
    """How a communicator is named: as `commId` in NCCL's own lines, without leading zeros."""
    return f"0x{int(hexadecimal, 16):x}"


# --- text -----------------------------------------------------------------------------------------

BEGIN = re.compile(r"^NCCL version \S{1,40} compiled with ", re.MULTILINE)
ISO = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)")
CTIME = re.compile(
    r"\b([A-Z][a-z]{2}) +(\d{1,2}) (\d\d:\d\d:\d\d)(?: ([AP]M))?(?: [A-Z]{2,5})? (\d{4})\b"
)

_ROW = re.compile(
    r"\s*(?P<group>\d{1,6})\s+\d{1,8}\s+(?P<nodes>[\d-]{1,17})\s+[\d-]{1,17}\s+(?P<size>\d{1,9})"
    r"\s+\d{1,9}\s+"
    r"[A-Z][A-Z,]*\s+(?P<errors>[A-Z][A-Z,]*)\s*\Z"
)
# Nodes, processes of each and GPUs of each of these; then how many there are of both.
_SUMMARY = re.compile(r"\s+(\d{1,7})\s+(\d{1,5})\s+(\d{1,3})\s+\d{1,9}\s+\d{1,9}\s*\Z")
_ENTRY = re.compile(r"#(?P<group>\d{1,6})-\d{1,6} \((?P<hash>[0-9a-f]{1,16})\) (?P<kind>[A-Z]+)\b")
_HEADING = re.compile(r"(DEAD|INCOMPLETE|TIMEOUT)\s*\Z")
_GPUS = r"GPUs? (?P<gpu>\d[\d, -]{0,400}+)(?:\(NVML [^)]{1,400}\))?"
_PROCESS = re.compile(
    rf"\s*Process (?P<pid>\d{{1,9}}) on node (?P<host>\S{{1,255}}) managing {_GPUS}"
)
_DIFFER = re.compile(r"\s+Communicator ranks have different (\w{1,32})( operation counts)?")
_SOME = re.compile(
    r"\s+(?P<n>\d{1,9}) ranks? ha(?:s|ve) "
    r"(?:launched up to operation (?P<count>\d{1,18})|not launched)"
)
_RANK = re.compile(
    r"\s+Rank (?P<rank>\d{1,9})(?: has (?:launched up to operation (?P<count>\d{1,18})"
    r"|(?P<none>not launched any operations)|status (?P<status>\w{1,16}))"
    r"| reported (?P<error>.{1,100}?))? -- "
    rf"(?:{_GPUS} ?managed by process (?P<pid>\d{{1,9}})"
    r" on node (?P<host>\S{1,255})|\[process information not found\])"
)
_MISSING = re.compile(r"\s+The missing ranks?: ([\d, -]{1,4000})")
_TROUBLE = re.compile(
    r"\s+(?:Initialization|Asynchronous) errors? on |\s+\d+ ranks reported |\s+Encountered \d+ comm"
    r"|ERROR: |Warning: |.{0,200}Connection (?:refused|timed out|reset by peer)"
)
_EVENT = re.compile(r"\[[\d: -]{19}\] (PEER_[A-Z_]{2,30}): ")


def read_text(text: str) -> Found:
    """All reports and events in `text`; `spread` those that are used."""
    reading = _Reading()
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, take in _LINES:
            if match := pattern.match(line):
                take(reading, match, number)
                break
        else:
            reading.other(line, number)
    return reading.found


@dataclass(slots=True)
class _Reading:
    """Where in a report the lines are: the communicator, and its operation, that they are about.

    `kind` is the heading or the sort of entry, `stamp` the last time read before a report, `sizes`
    the rank counts and nodes by group of the table.
    """

    found: Found = field(default_factory=Found)
    snapshot: Snapshot = field(default_factory=lambda: Snapshot(0))
    comm: Comm | None = None
    op: Op | None = None
    kind: str = ""
    stamp: str | None = None
    sizes: dict[str, tuple[int, str]] = field(default_factory=dict)

    def begin(self, match: re.Match[str], number: int) -> None:
        self.snapshot = Snapshot(number, self.stamp)
        self.found.snapshots.append(self.snapshot)
        self.comm, self.op, self.kind, self.stamp, self.sizes = None, None, "", None, {}

    def event(self, match: re.Match[str], number: int) -> None:
        peer = _PROCESS.match(match.string, match.end())
        self.found.event(match[1], _process(peer) if peer else None, number)

    def row(self, match: re.Match[str], _: int) -> None:
        size = int(match["size"])
        self.sizes[match["group"]] = size, match["nodes"]
        if match["errors"] == "OK":
            self.snapshot.healthy.append(RasComm("", size))

    def entry(self, match: re.Match[str], number: int) -> None:
        size, nodes = self.sizes.get(match["group"], (None, ""))
        key, self.kind, self.op = hash_name(match["hash"]), match["kind"], None
        self.comm = self.snapshot.comms.setdefault(key, Comm(key, size, number))
        self.comm.nodes = int(nodes) if nodes.isdecimal() else 0

    def summary(self, match: re.Match[str], _: int) -> None:
        if not self.sizes:
            self.snapshot.nodes = int(match[1])
            self.snapshot.per_node = int(match[2]) * int(match[3])

    def heading(self, match: re.Match[str], _: int) -> None:
        self.comm, self.op, self.kind = None, None, match[1]

    def process(self, match: re.Match[str], _: int) -> None:
        if self.comm is None and self.kind in ("DEAD", "INCOMPLETE"):
            silent = self.snapshot.dead if self.kind == "DEAD" else self.snapshot.missing
            silent.append(_process(match))

    def trouble(self, match: re.Match[str], number: int) -> None:
        errors = self.snapshot.errors if self.snapshot.line else self.found.errors
        _note(errors, number, match.string)

    def other(self, line: str, number: int) -> None:
        """An indented line of a communicator's entry, or one with the time of a report."""
        if self.comm is not None and line[:1] == " ":
            for pattern, take in _BODY:
                if match := pattern.match(line):
                    take(self, self.comm, match, number)
                    break
        elif clock := ISO.search(line[:MAX_TEXT]) or CTIME.search(line[:MAX_TEXT]):
            self.stamp = clock[0]

    def differ(self, comm: Comm, match: re.Match[str], number: int) -> None:
        self.op = None
        if match[2] is not None:
            self.op = Op(match[1], number)
            comm.ops.append(self.op)

    def some(self, _: Comm, match: re.Match[str], __: int) -> None:
        if self.op is not None:
            self.op.some.append([int(match["count"] or 0), int(match["n"]), 0])

    def missing(self, comm: Comm, match: re.Match[str], number: int) -> None:
        comm.missing.append((number, match[1]))

    def rank(self, comm: Comm, match: re.Match[str], number: int) -> None:
        op = self.op
        if match["error"] or match["status"]:
            if match["status"] != "RUNNING":
                _note(self.snapshot.errors, number, match.string)
        elif op is not None or self.kind == "INCOMPLETE":
            rank = comm.ranks.setdefault(int(match["rank"]), Rank(number))
            rank.process = rank.process or (_process(match) if match["host"] else None)
            if op is None:
                rank.missing = True
            elif match["count"] or match["none"]:
                op.ranks[int(match["rank"])] = int(match["count"] or 0)
            elif op.some:
                op.ranks[int(match["rank"])] = op.some[-1][0]
                op.some[-1][2] += 1


# The first that matches takes the line: of all lines, and of those indented below an entry.
_LINES: tuple[tuple[re.Pattern[str], Callable[[_Reading, re.Match[str], int], None]], ...] = (
    (BEGIN, _Reading.begin),
    (_EVENT, _Reading.event),
    (_ROW, _Reading.row),
    (_SUMMARY, _Reading.summary),
    (_ENTRY, _Reading.entry),
    (_HEADING, _Reading.heading),
    (_PROCESS, _Reading.process),
    (_TROUBLE, _Reading.trouble),
)
_BODY: tuple[tuple[re.Pattern[str], Callable[[_Reading, Comm, re.Match[str], int], None]], ...] = (
    (_DIFFER, _Reading.differ),
    (_SOME, _Reading.some),
    (_MISSING, _Reading.missing),
    (_RANK, _Reading.rank),
)


def _note(errors: list[tuple[int, str]], number: int, line: str) -> None:
    if len(errors) < MAX_NOTED:
        errors.append((number, line.strip()[:MAX_TEXT]))


def spread(snapshot: Snapshot) -> None:
    """Give the ranks which text does not list the count of those it does not list.

    Where it leaves out ranks of different counts, or their number does not fit the size of the
    communicator, nobody can say which has which: a note tells so. A report that was spread stays as
    it is.
    """
    left = MAX_RANKS
    for comm in snapshot.comms.values():
        for line, numbers in comm.missing:
            for number in _numbers(numbers, left):
                left -= 1
                comm.ranks.setdefault(number, Rank(line)).missing = True
        lost = {number for number, rank in comm.ranks.items() if rank.missing}
        if comm.size is None and comm.ops:
            counted = sum(n for _, n, listed in comm.ops[0].some if not listed)
            comm.size = counted + len(comm.ops[0].ranks) + len(lost)
        size = comm.size or 0
        for op in comm.ops:
            quiet = [(count, n) for count, n, listed in op.some if not listed]
            others = size - len(lost | op.ranks.keys())
            if len(quiet) == 1 and quiet[0][1] == others <= left:
                left -= others
                for number in range(size):
                    if number not in lost:
                        op.ranks.setdefault(number, quiet[0][0])
            elif quiet:
                comm.unnamed += [(op.op, count, n) for count, n in sorted(quiet)]
                unnamed = ", ".join(f"{n} at operation {count}" for count, n in quiet[:4])
                snapshot.notes.append(
                    f"communicator {comm.hash}: RAS does not name these ranks: {unnamed} "
                    "(ncclras -v names more)"
                )
        named = set.intersection(*(set(op.ranks) for op in comm.ops)) if comm.ops else set()
        for number in named - lost:
            rank = comm.ranks.setdefault(number, Rank(comm.ops[0].line))
            rank.counts = {op.op: op.ranks[number] for op in comm.ops}
        comm.ops, comm.missing = [], []
    _lose(snapshot)


def _lose(snapshot: Snapshot) -> None:
    """Tell ranks whose process is dead or silent from those that merely have no communicator."""
    silent = [*snapshot.dead, *snapshot.missing]
    processes = {(process.host, process.pid) for process in silent}
    ranks = [r for comm in snapshot.comms.values() for r in comm.ranks.values() if r.missing]
    for rank in ranks:
        if rank.process is None:  # 2.24 and 2.25 name the process under another heading only
            rank.gone = bool(silent)
            rank.process = silent[0] if len(silent) == len(ranks) == 1 else None
        else:
            rank.gone = (rank.process.host, rank.process.pid) in processes


def _process(match: re.Match[str]) -> RasProcess:
    return RasProcess(match["host"], int(match["pid"]), tuple(_numbers(match["gpu"], MAX_DEVICES)))


def _numbers(text: str, most: int) -> list[int]:
    """The first `most` numbers of `3`, `0,2-4`."""
    found: list[int] = []
    for first, last in re.findall(r"(\d{1,9})(?:-(\d{1,9}))?", text):
        stop = min(int(last or first), int(first) + most - len(found) - 1)
        found += range(int(first), stop + 1)
    return found


# --- JSON -----------------------------------------------------------------------------------------

MAX_CONTAINERS = 1_000_000
JSON_BEGIN = re.compile(r"^\{", re.MULTILINE)

_NEXT = re.compile(r"\s*\{")
_MAX_DEPTH = 64
_MAX_NUMBER = 10**9  # of ranks, processes and codes, as text has them
_NO_COMMA = re.compile(r'("nvml_dev":\s*-?\d{1,9})(\s*"status")')
_RANK_KEY = re.compile(r'"rank"\s*:')
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_HASH = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})\Z")
_CODES = ("init_state", "async_error")  # ncclResult_t: 0 success, 7 in progress


def read_json(text: str, name: str) -> Found:
    """All reports and events in `text`. Raises RasError where it is too much."""
    if text.count("{") + text.count("[") > MAX_CONTAINERS:
        raise RasError(f"{name}: refused: too many containers")
    text = _NO_COMMA.sub(r"\1,\2", text)
    starts = [match.start() for match in JSON_BEGIN.finditer(text)]
    found, line, counted = Found(), 1, 0
    for start, following in zip(starts, [*starts[1:], len(text)], strict=True):
        line += text.count("\n", counted, start)
        counted = start
        _part(text[start:following], line, found)
    return found


def _part(text: str, line: int, found: Found) -> None:
    """Read what begins at a brace at the start of a line, and lasts until the next such."""
    decoder, end, counted = json.JSONDecoder(), 0, 0
    while begin := _NEXT.match(text, end):
        start, cut = begin.end() - 1, False
        line += text.count("\n", counted, start)
        counted = start
        try:
            document, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            document, end, cut = _closed(text[start:]), len(text), True
        event, peer = document.get("event"), document.get("peer")
        if isinstance(event, str):
            found.event(event, _peer(peer) if isinstance(peer, dict) else None, line)
        elif isinstance(document.get("communicators"), list):
            snapshot = _snapshot(document, _rank_lines(text, start, end, line), line)
            snapshot.cut = cut
            found.snapshots.append(snapshot)


def _closed(text: str) -> dict[str, Any]:
    """What is whole of an object that is cut off or damaged somewhere."""
    closing: list[str] = []
    end, missing = 0, ""
    for token in _TOKEN.finditer(text):
        if token[0] in "{[":
            closing.append("}" if token[0] == "{" else "]")
            if len(closing) > _MAX_DEPTH:
                break
        elif token[0] in "}]":
            if not closing or closing.pop() != token[0]:
                break
            end, missing = token.end(), "".join(reversed(closing))
    try:
        document = json.loads(text[:end] + missing)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _rank_lines(text: str, start: int, end: int, line: int) -> Iterator[int]:
    """Lines of the keys `rank`, which stand in the order in which the ranks are read."""
    for key in _RANK_KEY.finditer(text, start, end):
        line += text.count("\n", start, key.start())
        start = key.start()
        yield line


def _snapshot(document: Mapping[str, Any], lines: Iterator[int], line: int) -> Snapshot:
    snapshot = Snapshot(line, _string(document, "timestamp"))
    ras = document.get("ras")
    timeouts = _number(ras, "timeouts_count") if isinstance(ras, dict) else None
    if timeouts:
        snapshot.errors.append((line, f"{timeouts} communication timeouts while gathering data"))
    silent: dict[RasProcess, bool] = {}
    left = MAX_RANKS
    for communicator in _dicts(document, "communicators"):
        comm = _comm(communicator, snapshot, line)
        for member in _dicts(communicator, "ranks"):
            number, at, left = _number(member, "rank"), next(lines, line), left - 1
            if number is not None and left >= 0:
                comm.ranks[number] = Rank(at, _peer(member), _counts(member))
                _note_codes(member, at, f"rank {number} of {comm.hash}", snapshot)
        for member in _dicts(communicator, "missing_ranks"):
            number, at, left = _number(member, "rank"), next(lines, line), left - 1
            if number is None or left < 0:
                continue
            flags = _flags(member)
            dead = flags.get("considered_dead") is True
            gone = dead or flags.get("unresponsive") is True
            rank = comm.ranks[number] = Rank(at, _peer(member), missing=True, gone=gone)
            if rank.process is not None:
                silent[rank.process] = dead or silent.get(rank.process, False)
    snapshot.dead = [process for process, dead in silent.items() if dead]
    snapshot.missing = [process for process, dead in silent.items() if not dead]
    if left < 0:
        snapshot.notes.append(f"more than {MAX_RANKS:,} ranks: the others are left out")
    return snapshot


def _comm(communicator: Mapping[str, Any], snapshot: Snapshot, line: int) -> Comm:
    value = _HASH.match(_string(communicator, "hash"))
    key = hash_name(value[1]) if value else ""
    if key in snapshot.comms:  # hashes may be alike; the second one tells them apart
        key += "/" + _string(communicator, "secondary_hash")
    comm = snapshot.comms[key] = Comm(key, _number(communicator, "size"), line)
    return comm


def _counts(member: Mapping[str, Any]) -> dict[str, int] | None:
    counts = member.get("collective_counts")
    if not isinstance(counts, dict):
        return None
    known = {op[:32]: counts[op] for op in [*counts][:32]}
    return {op: count for op, count in known.items() if type(count) is int and count >= 0}


def _note_codes(member: Mapping[str, Any], line: int, who: str, snapshot: Snapshot) -> None:
    """Note the error of a rank, if it had one."""
    flags = _flags(member)
    codes = {key: _number(flags, key) or 0 for key in _CODES}
    if any(code not in (0, 7) for code in codes.values()) and len(snapshot.errors) < MAX_NOTED:
        nonzero = ", ".join(f"{key} {code}" for key, code in codes.items() if code)
        snapshot.errors.append((line, f"{who}: {nonzero}"))


def _peer(member: Mapping[str, Any]) -> RasProcess | None:
    host, pid = _string(member, "host"), _number(member, "pid")
    devices = member.get("cuda_devs", [member.get("cuda_dev")])
    devices = devices[:MAX_DEVICES] if isinstance(devices, list) else []
    known = tuple(device for device in devices if type(device) is int)
    return RasProcess(host, pid, known) if host and pid is not None else None


def _flags(member: Mapping[str, Any]) -> Mapping[str, Any]:
    flags = member.get("status")
    return flags if isinstance(flags, dict) else {}


def _dicts(document: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = document.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _string(document: Mapping[str, Any], key: str) -> str:
    value = document.get(key)
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def _number(document: Mapping[str, Any], key: str) -> int | None:
    value = document.get(key)
    return value if type(value) is int and 0 <= value < _MAX_NUMBER else None
