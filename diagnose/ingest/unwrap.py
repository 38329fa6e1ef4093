"""Joining lines that a terminal or a mail program wrapped at a fixed width.

Two proofs are accepted. A description in parentheses that is open at a line's end and exactly
complete with the next ones: `WorkNCCL(… NumelOut=5` / `164000, Timeout(ms)=1800000)`. And a
width W that no line exceeds, that several lines have, and at which a well-known long word is cut:
then all lines of that width are joined to what follows.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from itertools import product

from diagnose.lazy import expression

_WIDTHS = range(40, 401)
_LOOKED_AT = 200  # ends of full lines, to see whether they cut a word
_FULL_LINES = 2  # that many lines at least have the width of the wrapping
_MAX_JOINED = 40  # lines become one at most, by width
_MAX_CONTINUED = 3  # lines continue an open parenthesis at most

_LONGEST = 4096  # characters of a description
# How all releases describe a collective.
_WORK = expression(
    r"WorkNCCL\((?:SeqNum=\d+, )?OpType=\w+(?:, TensorShape=\[[\d, ]*\])?"
    r"(?:, NumelIn=\d+, NumelOut=\d+)?, Timeout\(ms\)=-?\d+\)"
)
_FINGERPRINT = expression(
    r"CollectiveFingerPrint\((?:SequenceNumber=\d+(?:, )?)?OpType=\w+"
    r"(?:, TensorShape=\[[\d, ]*\], TensorDtypes=[\w, ]*, TensorDeviceTypes=[\w, =()]*)?\)"
)
# What follows the open parenthesis.
_OPEN_WORK = expression(rb"(?![^\n]{0,1024}?Timeout\(ms\)=-?\d+\))")
# How a new log line begins; a continuation does not.
_RECORD = expression(
    r"\s*(?:\[|\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|[EWIF]\d{3,4} "
    r"|(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)[: |]"
    r"|Traceback \(|File \""
    r"|[\w.]*[a-z](?:Error|Exception|Warning)\b|[\w.-]+:\d+:\d+ |\d{1,5}: |srun: |slurmstepd"
    r"|\(\w+ pid=|frame #\d|terminate called|[-=*#+~|]{3})"
)
# Long words of hang logs. A cut between a small and a capital letter does not count: "Work" may
# end a line and "NCCL" begin one.
_LONG_WORDS = """
    Watchdog collective collectives operation operations milliseconds WorkNCCL OpType SeqNum NumelIn
    NumelOut ALLREDUCE ALLGATHER BROADCAST _ALLGATHER_BASE _REDUCE_SCATTER_BASE REDUCE_SCATTER
    BARRIER ProcessGroupNCCL ProcessGroupGloo asynchronous subsequent corrupted incomplete
    inconsistency RuntimeError DistBackendError Exception Traceback distributed multiprocessing
    terminate throwing exitcode enqueued completed failure ChildFailedError HeartbeatMonitor
    TCPStore rendezvous communicator transformers deepspeed checkpoint initialization allocated
    Received received
"""
_WORDS = frozenset(_LONG_WORDS.split())
_END_WORD = expression(r"[A-Za-z_]+\Z")
_START_WORD = expression(r"[A-Za-z_]+")
_LETTER = expression(rb"\w")
# The same on bytes, because it is asked of every small source: most hold none of it.
_PRINT_BYTES, _WORK_BYTES = rb"CollectiveFingerPrint\(", rb"WorkNCCL\("
_SEAM = rb"[a-z]\n[a-z]|[A-Z_]\n[A-Z_]"
ONCE, EACH = (_PRINT_BYTES,), (_WORK_BYTES, _SEAM)  # see `search.places`
_END_BYTES, _START_BYTES = expression(rb"[A-Za-z_]+\Z"), expression(rb"[A-Za-z_]+")
_NEAR = 32  # more than any of the words has

_Row = tuple[int, str]


def may_be_wrapped(data: bytes, found: Mapping[bytes, list[int]]) -> bool:
    """A quick look at whether `join_wrapped` could find anything to do.

    `found`: the `places` of ONCE and EACH.
    """
    if _PRINT_BYTES in found:
        return True
    if any(_OPEN_WORK.match(data, place) for place in found.get(_WORK_BYTES, ())):
        return True
    if not _may_cut_word(data, found.get(_SEAM, ())):
        return False  # no word is, and a description that is not open goes on nowhere
    lines = data.split(b"\n")
    # A wide character is taken as one column here: good enough, as a paste has other lines.
    sizes = map(len, lines if data.isascii() else (line.decode(errors="replace") for line in lines))
    widths = list(sizes)[:-1]
    width = max(widths, default=0)
    if width not in _WIDTHS or widths.count(width) < _FULL_LINES:
        return False
    full = [number for number, size in enumerate(widths) if size == width]
    cut = [n for n in full if _LETTER.match(lines[n][-1:]) and _LETTER.match(lines[n + 1][:1])]
    # Records of one width end and begin with letters too, but cut no word.
    return any(_cuts_word(_text(lines[n]), _text(lines[n + 1])) for n in cut[:_LOOKED_AT])


def _may_cut_word(data: bytes, seams: Sequence[int]) -> bool:
    """Whether some line end may cut a long word; each seam ends with the first letter behind it."""
    if len(seams) > _LOOKED_AT:
        return True
    for seam in seams:
        end = _END_BYTES.search(data, max(0, seam - _NEAR), seam - 2)
        start = _START_BYTES.match(data, seam - 1, seam + _NEAR)
        if end and start and (end[0] + start[0]).decode() in _WORDS:
            return True
    return False


def _text(line: bytes) -> str:
    """A line, in what of it matters to where it was cut."""
    kept = line if len(line) <= 2 * _LONGEST else line[:_LONGEST] + line[-_LONGEST:]
    return kept.decode(errors="replace")


def join_wrapped(rows: list[_Row]) -> list[_Row]:
    """Rows (original line number, text) with wrapped lines joined; the same rows if none are."""
    return _join_open(_join_width(rows))


def _join_width(rows: list[_Row]) -> list[_Row]:
    widths = [display_width(text) for _, text in rows]
    width = max(widths, default=0)
    if width not in _WIDTHS or widths.count(width) < _FULL_LINES:
        return rows
    pairs = zip(rows, rows[1:], widths, strict=False)
    if not any(size == width and _cuts_word(a[1], b[1]) for a, b, size in pairs):
        return rows
    joined: list[_Row] = []
    count, size = 0, 0  # of the last joined line: its rows, and the width of the last of them
    for (number, text), own in zip(rows, widths, strict=True):
        glue = _glue(joined[-1][1], text, size, width) if joined else None
        if glue is None or count >= _MAX_JOINED:
            joined.append((number, text))
            count = 1
        else:
            joined[-1] = (joined[-1][0], joined[-1][1] + glue + text)
            count += 1
        size = own
    return joined


def display_width(text: str) -> int:
    """Columns of a terminal that the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _cuts_word(before: str, after: str) -> bool:
    if _RECORD.match(after):
        return False
    end, start = _END_WORD.search(before), _START_WORD.match(after)
    same_case = end and start and end[0][-1].islower() == start[0][0].islower()
    if end and start and same_case and end[0] + start[0] in _WORDS:
        return True
    opened = _opened(before)
    return opened is not None and _closed(before[opened:], [after]) is not None


def _glue(before: str, after: str, size: int, width: int) -> str | None:
    """What to put between two rows that belong together; None if they do not."""
    if not before or not after.strip() or _RECORD.match(after):
        return None
    if size == width:
        if after[0] == " ":
            return "" if after[1:2].strip() else None
        return ""
    # The space at which the line was broken was not copied.
    if size == width - 1 and (before[-1].isalnum() or before[-1] == ",") and after[0].islower():
        return " "
    return None


def _join_open(rows: list[_Row]) -> list[_Row]:
    joined: list[_Row] = []
    index = 0
    while index < len(rows):
        number, text = rows[index]
        index += 1
        start = _opened(text)
        if start is not None:
            following = [row[1] for row in rows[index : index + _MAX_CONTINUED]]
            for count in range(1, len(following) + 1):
                row = following[count - 1]
                if not row.strip() or len(row) > _LONGEST or _RECORD.match(row):
                    break
                whole = _closed(text[start:], following[:count])
                if whole is not None:
                    text = text[:start] + whole
                    index += count
                    break
        joined.append((number, text))
    return joined


def _opened(text: str) -> int | None:
    """Where a description starts that is still open at the end of the row."""
    start = max(text.rfind("WorkNCCL("), text.rfind("CollectiveFingerPrint("))
    if start < 0 or len(text) - start > _LONGEST or _WORK.match(text, start):
        return None
    return start if _depth(text[start:]) > 0 else None


def _closed(opened: str, following: list[str]) -> str | None:
    """The description joined with the rows that follow, if that makes it exactly complete."""
    if opened.startswith("WorkNCCL"):
        for glues in product(("", " "), repeat=len(following)):
            whole = opened.rstrip() + "".join(
                glue + row.strip() for glue, row in zip(glues, following, strict=True)
            )
            if _WORK.match(whole):
                return whole
        return None
    whole = opened
    for row in following:
        whole += " " + row.strip() if whole.endswith(",") else row.strip()
    return whole if _depth(whole) <= 0 and _FINGERPRINT.match(whole) else None


def _depth(text: str) -> int:
    """Parentheses still open behind the first one of `text`; 0 once that one is closed."""
    depth = 0
    for character in text:
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
            if depth == 0:
                return 0
    return depth
