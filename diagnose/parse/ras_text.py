"""The text of `ncclras`, single or appended by a loop, and the lines of its monitor mode.

Literals of the libraries 2.25.1, 2.27.7, 2.28.9 and 2.29.7. Ranks that stand below a line
`<n> ranks have launched up to operation <c>` are those n; the ranks of the largest such group are
not listed. A rank alone with its count is told in a line of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from diagnose.parse.ras_snapshot import (
    MAX_DEVICES,
    MAX_NOTED,
    MAX_RANKS,
    MAX_TEXT,
    Comm,
    Found,
    Op,
    Rank,
    RasComm,
    RasProcess,
    Snapshot,
    hash_name,
)

BEGIN = re.compile(r"^NCCL version (\S{1,40}) compiled with ", re.MULTILINE)
ISO = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)")
CTIME = re.compile(
    r"\b([A-Z][a-z]{2}) +(\d{1,2}) (\d\d:\d\d:\d\d)(?: ([AP]M))?(?: [A-Z]{2,5})? (\d{4})\b"
)

_ROW = re.compile(
    r"\s*(?P<group>\d{1,6})\s+\d{1,8}\s+(?P<nodes>[\d-]{1,17})\s+[\d-]{1,17}\s+(?P<size>\d{1,9})"
    r"\s+\d{1,9}\s+"
    r"(?P<status>[A-Z][A-Z,]*)\s+(?P<errors>[A-Z][A-Z,]*)\s*\Z"
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
    the rank counts and states by group of the table.
    """

    found: Found = field(default_factory=Found)
    snapshot: Snapshot = field(default_factory=lambda: Snapshot(0))
    comm: Comm | None = None
    op: Op | None = None
    kind: str = ""
    stamp: str | None = None
    sizes: dict[str, tuple[int, str, str]] = field(default_factory=dict)

    def begin(self, match: re.Match[str], number: int) -> None:
        self.snapshot = Snapshot(number, match[1], self.stamp)
        self.found.snapshots.append(self.snapshot)
        self.comm, self.op, self.kind, self.stamp, self.sizes = None, None, "", None, {}

    def event(self, match: re.Match[str], number: int) -> None:
        peer = _PROCESS.match(match.string, match.end())
        self.found.event(match[1], _process(peer) if peer else None, number)

    def row(self, match: re.Match[str], _: int) -> None:
        size = int(match["size"])
        self.sizes[match["group"]] = size, match["status"], match["nodes"]
        if match["errors"] == "OK":
            self.snapshot.healthy.append(RasComm("", size, match["status"], "OK"))

    def entry(self, match: re.Match[str], number: int) -> None:
        size, status, nodes = self.sizes.get(match["group"], (None, "", ""))
        key, self.kind, self.op = hash_name(match["hash"]), match["kind"], None
        self.comm = self.snapshot.comms.setdefault(key, Comm(key, size, number, status))
        self.comm.errors.add(self.kind)
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
