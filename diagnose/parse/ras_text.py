"""The text of `ncclras`, single or appended by a loop, and the lines of its monitor mode.

Literals of the libraries 2.25.1, 2.27.7, 2.28.9 and 2.29.7. Ranks that stand below a line
`<n> ranks have launched up to operation <c>` are those n; the ranks of the largest such group are
not listed. A rank alone with its count is told in a line of its own.
"""

from __future__ import annotations

import re

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
    r"\s*(?P<group>\d{1,6})\s+\d{1,8}\s+\d{1,8}\s+[\d-]{1,17}\s+(?P<size>\d{1,9})\s+\d{1,9}\s+"
    r"(?P<status>[A-Z][A-Z,]*)\s+(?P<errors>[A-Z][A-Z,]*)\s*\Z"
)
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
    found = Found()
    snapshot, comm, op = Snapshot(0), None, None
    kind, stamp, sizes = "", None, dict[str, tuple[int, str]]()
    for number, line in enumerate(text.split("\n"), 1):
        if begin := BEGIN.match(line):
            snapshot = Snapshot(number, begin[1], stamp)
            found.snapshots.append(snapshot)
            comm, op, kind, stamp, sizes = None, None, "", None, {}
        elif event := _EVENT.match(line):
            peer = _PROCESS.match(line, event.end())
            found.event(event[1], _process(peer) if peer else None, number)
        elif row := _ROW.match(line):
            sizes[row["group"]] = int(row["size"]), row["status"]
            if row["errors"] == "OK":
                snapshot.healthy.append(RasComm("", int(row["size"]), row["status"], "OK"))
        elif entry := _ENTRY.match(line):
            size, status = sizes.get(entry["group"], (None, ""))
            key, kind, op = hash_name(entry["hash"]), entry["kind"], None
            comm = snapshot.comms.setdefault(key, Comm(key, size, number, status))
            comm.errors.add(kind)
        elif heading := _HEADING.match(line):
            comm, op, kind = None, None, heading[1]
        elif process := _PROCESS.match(line):
            if comm is None and kind in ("DEAD", "INCOMPLETE"):
                where = snapshot.dead if kind == "DEAD" else snapshot.missing
                where.append(_process(process))
        elif _TROUBLE.match(line):
            _note(snapshot.errors if snapshot.line else found.errors, number, line)
        elif comm is not None and line[:1] == " ":
            op = _body(comm, op, kind, line, number, snapshot)
        elif clock := ISO.search(line[:MAX_TEXT]) or CTIME.search(line[:MAX_TEXT]):
            stamp = clock[0]
    return found


def _note(errors: list[tuple[int, str]], number: int, line: str) -> None:
    if len(errors) < MAX_NOTED:
        errors.append((number, line.strip()[:MAX_TEXT]))


def _body(
    comm: Comm, op: Op | None, kind: str, line: str, number: int, snapshot: Snapshot
) -> Op | None:
    """One indented line of a communicator's entry; gives the operation it is about."""
    if differ := _DIFFER.match(line):
        if differ[2] is None:
            return None
        comm.ops.append(Op(differ[1], number))
        return comm.ops[-1]
    if some := _SOME.match(line):
        if op is not None:
            op.some.append([int(some["count"] or 0), int(some["n"]), 0])
        return op
    if missing := _MISSING.match(line):
        comm.missing.append((number, missing[1]))
        return op
    said = _RANK.match(line)
    if said is None:
        return op
    if said["error"] or said["status"]:
        if said["status"] != "RUNNING":
            _note(snapshot.errors, number, line)
    elif op is not None or kind == "INCOMPLETE":
        rank = comm.ranks.setdefault(int(said["rank"]), Rank(number))
        rank.process = rank.process or (_process(said) if said["host"] else None)
        if op is None:
            rank.missing = True
        elif said["count"] or said["none"]:
            op.ranks[int(said["rank"])] = int(said["count"] or 0)
        elif op.some:
            op.ranks[int(said["rank"])] = op.some[-1][0]
            op.some[-1][2] += 1
    return op


def spread(snapshot: Snapshot) -> None:
    """Give the ranks which text does not list the count of those it does not list.

    Where it leaves out ranks of different counts, or their number does not fit the size of the
    communicator, nobody can say which has which: a note tells so.
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
                told = ", ".join(f"{n} at operation {count}" for count, n in quiet[:4])
                snapshot.notes.append(
                    f"communicator {comm.hash}: RAS does not name these ranks: {told} "
                    "(ncclras -v names more)"
                )
        named = set.intersection(*(set(op.ranks) for op in comm.ops)) if comm.ops else set()
        for number in named - lost:
            rank = comm.ranks.setdefault(number, Rank(comm.ops[0].line))
            rank.counts = {op.op: op.ranks[number] for op in comm.ops}
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


def _process(said: re.Match[str]) -> RasProcess:
    return RasProcess(said["host"], int(said["pid"]), tuple(_numbers(said["gpu"], MAX_DEVICES)))


def _numbers(text: str, most: int) -> list[int]:
    """The first `most` numbers of `3`, `0,2-4`."""
    found: list[int] = []
    for first, last in re.findall(r"(\d{1,9})(?:-(\d{1,9}))?", text):
        stop = min(int(last or first), int(first) + most - len(found) - 1)
        found += range(int(first), stop + 1)
    return found
