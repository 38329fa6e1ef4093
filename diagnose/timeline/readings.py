"""Events in the making: what one line, or one document, tells before the others are known.

Its time is not yet on the job's clock, and who wrote it may only follow from other lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from diagnose.catalog.entries import BAD_VALUE, COUNTER, GOOD_VALUE
from diagnose.catalog.schema import Signature
from diagnose.ingest.source import Source, is_document
from diagnose.lazy import expression
from diagnose.match.lines import Reading
from diagnose.match.scanner import SourceScan
from diagnose.match.values import Turn
from diagnose.parse.prefix import Prefix, glued_rank
from diagnose.parse.stamps import Stamp, time_in
from diagnose.parse.tracebacks import TRACEBACK
from diagnose.timeline.captures import captured_ranks, integer, rank_of
from diagnose.timeline.event import NO_WORK, Event, Fields, Learned, Meaning, Work
from diagnose.timeline.meaning import GLUED, SUBJECT, statements_of, work_of

_TEXT_LIMIT = 1000
_TASKS_LIMIT = 20_000  # events that lines about many tasks may become in one job
# First and last lines, by the level of their logger.
_EDGE = Meaning(kind="edge")
_EDGES = dict.fromkeys(("ERROR", "FATAL"), Meaning(kind="edge", severity="error"))
# The first words of a source, in each of the runs that it holds.
BEGINS = "begins"
_BEGINS = Meaning(kind="edge", signal=BEGINS)
# The line by which one author alone left the way of all others.
OWN_WAY = "own_way"
_OWN_WAY = Meaning(kind="edge", signal=OWN_WAY)
# Values of a training: the first bad one of those that are bad to the end, the last good one.
ILL, GOOD = "ill", "good"
_ILL = Meaning(
    kind="value", signature=BAD_VALUE.id, severity="warning", signal=ILL, phase="training"
)
_GOOD = replace(_ILL, signature=GOOD_VALUE.id, severity="info", signal=GOOD)
# A line of progress that no signature knows.
_BEAT = Meaning(
    kind="progress", signature=COUNTER.id, role="progress", severity="info", phase="training"
)
_OF_EVALUATION = replace(_BEAT, phase="evaluation")
# What loads counts parts of a model, and no steps.
_OF_LOADING = replace(_BEAT, kind="phase", role="phase", phase="model_load")
_PARTS = r"(?:shard|weight|checkpoint|safetensor|model|layer|tensor)s?\b"
_LOADS = expression(
    rf"(?i)\b{_PARTS}[^:]{{0,40}}\b(?:down)?load(?:ed|ing)\b|\b(?:down)?load(?:ed|ing)\b[^:]{{0,40}}\b{_PARTS}"
)
_STEPS = expression(r"(?i)\b(?:loss|step|epoch|iter|batch)")
_EVALUATES = expression(r"(?i)^\W*(?:eval|valid|test(?:ing)?\b)")

# What documents tell: operations of the table of collectives, and where a rank's stack is.
PENDING, IDLE, STANDS = "pending", "idle", "stands"
DOCUMENT_SIGNALS = (PENDING, IDLE, STANDS)


def events_of_scans(scans: Iterable[SourceScan], signatures: Sequence[Signature]) -> list[Event]:
    """What the sources of a job tell: of each its matches, then its first and last lines."""
    found: list[Event] = []
    for scan in scans:
        found += events_of(scan, signatures) if scan.events is None else scan.events
    return _by_task(found)


def _by_task(found: list[Event]) -> list[Event]:
    """The drafts, of an exit of many tasks one for each.

    srun tells of many tasks in one line; a task is a rank if it starts one per GPU.
    """
    many = [d for d in found if d.meaning.signal == "exit" and "ranks" in d.fields]
    if not many:
        return found
    left, of_tasks = _TASKS_LIMIT, dict[int, list[Event]]()
    for draft in many:
        tasks = captured_ranks(draft.fields["ranks"])[:left]
        left -= max(0, len(tasks) - 1)
        of_tasks[id(draft)] = [replace(draft, task=task) for task in tasks] or [draft]
    return [one for draft in found for one in of_tasks.get(id(draft), (draft,))]


def events_of(scan: SourceScan, signatures: Sequence[Signature]) -> Iterator[Event]:
    """What one source tells, a line about many tasks as one draft."""
    for line, author in with_authors(scan.lines, scan.edges):
        for match, meaning, work, of_whom in statements_of(line, signatures):
            captures = line.matches[match][1] if match >= 0 else {}
            stated = work or work_of(captures)
            draft = _event(scan.source, line, meaning, stated, captures, author)
            if draft.rank is None and meaning.role in GLUED:
                draft.rank = glued_rank(line.text)
                draft.learned = Learned.LINE if draft.rank is not None else None
            if of_whom:
                _name_subject(draft, captures)
            yield draft
    for line, counter in scan.beats:
        message = line.prefix.message
        if _LOADS.search(message) and not _STEPS.search(message):
            yield _event(scan.source, line, _OF_LOADING, NO_WORK, {})
            continue
        meaning = _OF_EVALUATION if _EVALUATES.match(message) else _BEAT
        yield _event(scan.source, line, meaning, Work(step=counter), {})
    yield from chain.from_iterable(_turned(scan.source, turn) for turn in scan.turns)
    # The first and last words of a process are not those of a report about it.
    for line in () if is_document(scan.source.kind) else scan.edges:
        yield _edge(scan.source, line)
    for before, line in scan.beginnings:
        if before.line < line.line:
            yield _edge(scan.source, before)
        yield _event(scan.source, line, _BEGINS, NO_WORK, {})
    if scan.own_way is not None:
        line, found = scan.own_way
        draft = _event(scan.source, line, _OWN_WAY, NO_WORK, {"others": str(found.others)})
        if draft.rank is None and found.rank is not None:
            draft.rank, draft.learned = found.rank, Learned.LINE
        yield draft


def _turned(source: Source, turn: Turn) -> Iterator[Event]:
    if turn.before is not None:
        yield _event(source, turn.before, _GOOD, NO_WORK, {})
    work = NO_WORK if turn.step is None else Work(step=int(turn.step))
    yield _event(source, turn.first, _ILL, work, turn.fields())


def _edge(source: Source, line: Reading) -> Event:
    return _event(source, line, _EDGES.get(line.prefix.level or "", _EDGE), NO_WORK, {})


def _event(
    source: Source,
    line: Reading,
    meaning: Meaning,
    work: Work,
    captures: Fields,
    author: Prefix | None = None,
) -> Event:
    prefix = author or line.prefix
    rank, local_rank, task, host = prefix.rank, prefix.local_rank, prefix.task, prefix.host
    learned = None
    if rank is not None:
        learned = Learned.LINE
    elif source.rank is not None and not _of_a_launcher(meaning, captures):
        rank, learned = source.rank, Learned.FILE
    return Event(
        source.name, line.line, line.offset, line.text[:_TEXT_LIMIT], meaning, work, captures,
        source.attempt, rank, source.local_rank if local_rank is None else local_rank,
        prefix.group_rank, source.task if task is None else task, host or source.host, prefix.pid,
        line.prefix.repeated or 1, learned, None, 0,
        line.prefix.stamp or stamp_in(captures.get("time")), source.mtime, source.node, prefix.dev,
        pod=prefix.pod if host else source.pod,
    )  # fmt: skip


def stamp_in(text: str | None) -> Stamp | None:
    """The time that a text states, as of a line without one in front."""
    time = time_in(text) if text else None
    return None if time is None else Stamp(time)


def _of_a_launcher(meaning: Meaning, captures: Fields) -> bool:
    """Whether a launcher tells of one of its processes, in whosever file it prints that."""
    return meaning.kind == "exit" and "local_rank" in captures


def _name_subject(draft: Event, captures: dict[str, str]) -> None:
    """Give the event to whom its line speaks of, where that is not who printed it."""
    signal = draft.meaning.signal
    if signal in SUBJECT or draft.meaning.role in ("phase", "progress"):
        in_communicator = signal == "rank_map" and "world_size" in captures
        if in_communicator:
            draft.mapped_rank = rank_of(captures.get("rank"))
            draft.mapped_of = rank_of(captures["world_size"])
        elif "rank" in captures:
            draft.rank = rank_of(captures["rank"])
            draft.learned = Learned.LINE if draft.rank is not None else None
        if signal == "rank_map" and "dev" in captures:
            draft.device = integer(captures["dev"])
        if "local_rank" in captures:
            draft.local_rank = rank_of(captures["local_rank"])
        if "pid" in captures:
            draft.pid = integer(captures["pid"])
        if "host" in captures and signal in SUBJECT:
            draft.host = captures["host"]
    if "group_rank" in captures and signal == "rank_map":
        draft.peer_rank = rank_of(captures["group_rank"])
    elif "group_rank" in captures and signal != "missing":
        draft.group_rank = rank_of(captures["group_rank"])


def document(
    source: str,
    line: int,
    rank: int,
    text: str,
    meaning: Meaning,
    work: Work = NO_WORK,
    site: str | None = None,
) -> Event:
    """The event of what no line states, but a document (a dump, a report, a stack) of its rank.

    `site` is a place in user code.
    """
    fields = {"site": site} if site else {}
    return Event(
        source, line, 0, text, meaning, work, fields,
        rank=rank, learned=Learned.LINE, document=True,
    )  # fmt: skip


# Records of several lines: a logger puts its prefix in front of the first one only. The lines of a
# traceback are those of who wrote the line that it begins on, or the error right above it, as far
# as they have no prefix of their own. So much is written at once, and rarely torn.
_REACH = 300  # lines of one traceback
_ERRORS = ("ERROR", "FATAL")
_NATIVE = frozenset({"c10", "nccl", "glog", "dmesg", "kmsg"})  # never with a traceback
_PLACE = attrgetter("line", "offset")
_INDENTED = (" ", "\t", TRACEBACK)  # with which lines of a traceback begin, up to its exception


def with_authors(
    lines: Sequence[Reading], others: Iterable[Reading] = ()
) -> Iterator[tuple[Reading, Prefix]]:
    """Lines in their order, each with what says who wrote it: its own prefix or its record's.

    `others` are lines of the same source that tell nothing, but where a record begins or ends.
    """
    error = record = None
    numbers = {line.line for line in lines}
    between = [line for line in others if line.line not in numbers]
    for line in sorted([*lines, *between], key=_PLACE):
        if line.prefix.names:
            named = _names_author(line.prefix)
            record = line if named and TRACEBACK in line.text else None
            error = line if named and _by_python(line.prefix) else None
        elif line.text.startswith(TRACEBACK):
            below = error is not None and line.line == error.line + 1
            record = error if below else None
        if record is not None and line.line > record.line + _REACH:
            record = None
        if line.line in numbers:
            yield line, line.prefix if record is None else record.prefix
        if record is not line and not line.text.startswith(_INDENTED):
            record = None  # its exception, or somebody else's line


def _by_python(prefix: Prefix) -> bool:
    """Whether a logger of Python wrote an error, which may go on with the exception."""
    return prefix.level in _ERRORS and _NATIVE.isdisjoint(prefix.names)


def _names_author(prefix: Prefix) -> bool:
    known = (prefix.rank, prefix.local_rank, prefix.group_rank, prefix.task, prefix.pid)
    return any(number is not None for number in known)
