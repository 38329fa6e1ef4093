"""What new lines of a log say of its job: progress, phases, trouble, the end; and signs of life.

The matcher finds lines as in any diagnosis; only those are confirmed that tell a watch anything.
Progress in words that no signature knows is seen by `match.cadence`, of each line and the last one
like it. Of a flood only the newest lines are looked at so closely: the last `window` bytes of a
block.

What a job did before the watch began is known by the times that its lines print. A file was written
last when its last line came, so the times of its other lines follow from the differences of what
they print. No clock of another machine needs to agree with ours, nor its zone. Lines without times
say which phases there were, and nothing of how long these took.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from operator import itemgetter
from typing import TypeVar

from diagnose.catalog.schema import Catalog, Signature
from diagnose.ingest.source import Chunk
from diagnose.match.cadence import beats
from diagnose.match.compile import compile_matcher
from diagnose.match.lines import Reading, author_of, segments, text_of
from diagnose.match.shapes import ShapeTable
from diagnose.parse.path import PathHints
from diagnose.parse.prefix import Prefix, peel
from diagnose.parse.stamps import Stamp
from diagnose.timeline.captures import integer

_Kind = tuple[tuple[int, ...], bytes]  # patterns that may be in a line, and its author
_K = TypeVar("_K")
_V = TypeVar("_V")


def remember(kept: OrderedDict[_K, _V], key: _K, value: _V, most: int) -> _V:
    """Keep a value as the newest; of more than `most` the one that was kept longest ago goes."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)
    return value


@dataclass(frozen=True, slots=True)
class Who:
    """One author. Each kind of number as in `Prefix`; `source` only where there is no number."""

    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    host: str | None = None
    source: str = ""


def who_of(prefix: Prefix, hints: PathHints, source: str) -> Who:
    """The author of a line with this prefix in a file of this path."""
    rank = prefix.rank if prefix.rank is not None else hints.rank
    if rank is not None:
        return Who(rank=rank)
    host = prefix.host or hints.host or (None if hints.node is None else f"node {hints.node}")
    local = prefix.local_rank if prefix.local_rank is not None else hints.local_rank
    task = prefix.task if prefix.task is not None else hints.task
    if local is not None:
        return Who(local_rank=local, task=task, host=host)
    if task is not None:
        return Who(task=task)
    return Who(host=host, source="" if host else source)


def ranks(authors: Iterable[Who]) -> dict[Who, int]:
    """The global rank of each author that has one.

    A local rank is the rank where all of the job is on one node, a task where each is one process.
    """
    found = list(authors)
    known = {who: who.rank for who in found if who.rank is not None}
    nodes = {(who.host, who.task) for who in found if who.local_rank is not None}
    if len(nodes) == 1:
        known |= {who: who.local_rank for who in found if who.local_rank is not None}
    elif not nodes:
        known |= {who: who.task for who in found if who.task is not None}
    return known


def name(who: Who, known: dict[Who, int]) -> str:
    """How people call an author: `rank 3`, `local rank 1 of node01`, or its file."""
    if who in known:
        return f"rank {known[who]}"
    where = who.host or ("" if who.task is None else f"task {who.task}")
    if who.local_rank is not None:
        return f"local rank {who.local_rank}{f' of {where}' if where else ''}"
    return where or who.source


TEMPLATES, AUTHORS = 256, 256  # kept of a stream
_LINE = 600  # bytes kept of a line
_TEXT = 300  # characters of a line that are shown
OF_KIND = 4  # lines of one pattern and author that are looked at in a block
_TRIES = 4  # times as many are looked at where most only look like one
_KNOWN = 512  # bytes looked at for other words where a signature sees progress
_MOST_WORDS = 64  # lines with new words that count, of a block
_LIVING = frozenset({"phase", "progress"})
_TROUBLE = frozenset({"exception", "teardown", "timeout"})
_SHAPE = re.compile(rb"0x[0-9a-fA-F]+|[-+]?\d[\d.,:_]*(?:e[-+]?\d+)?|[#=> .\xe2\x96\x80-\x97-]{3,}")


class Says(Enum):
    """What a notice is about."""

    PROGRESS = "progress"
    BEGIN = "a phase begins"
    END = "a phase ends"
    FINISHED = "the job says that it is done"
    EXIT = "a process is said to have ended"
    TROUBLE = "an error"
    RESTART = "the job starts again"
    LIFE = "words that were not there before"


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that a line says.

    `kind` tells counters apart: a signature, with the name of a bar, or a template. `counter` is a
    step, `done` that the counter reached its total. `stamp` is the time that the line prints,
    `source` where it stands: what is logged twice is counted twice, and not as twice as fast.
    """

    says: Says
    who: Who
    kind: str = ""
    phase: str | None = None
    title: str = ""
    counter: int | None = None
    done: bool = False
    text: str = ""
    stamp: Stamp | None = None
    source: str = ""


@dataclass(slots=True, eq=False)
class Memory:
    """What is remembered of a stream, of bounded size.

    `templates` maps the shape of a line to the last such line, `last` the tag of an author to its
    last line and when it came.
    """

    name: str
    hints: PathHints
    templates: OrderedDict[int, bytes] = field(default_factory=OrderedDict)
    last: OrderedDict[bytes, tuple[bytes, float]] = field(default_factory=OrderedDict)
    known: bool = False  # a signature saw progress here


class Reader:
    """Reads blocks of whole lines by a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._matcher = compile_matcher(catalog)
        signatures = catalog.signatures
        self._wanted = {
            number
            for number, pattern in enumerate(self._matcher.patterns)
            if _says(signatures[pattern.signature]) is not None
        }

    def read(
        self, memory: Memory, block: bytes, window: int, now: float, most: int = OF_KIND
    ) -> Iterator[Notice]:
        """What a block says, in the order of its lines.

        Of lines with the same patterns and author the last `most` count.
        """
        low = 0
        if len(block) > window:
            window = min(window, _KNOWN) if memory.known else window
            low = block.rfind(b"\n", 0, len(block) - window) + 1
        found, taken = self._matched(memory, block, now, most)
        known = [place for place, notice in found if notice.says is Says.PROGRESS]
        upto = -1 if memory.known else min(known, default=len(block))
        memory.known = memory.known or bool(known)
        found += self._others(memory, block, low, taken, upto, now)
        found.sort(key=itemgetter(0))
        for _, notice in found:
            yield notice

    def _matched(
        self, memory: Memory, block: bytes, now: float, most: int
    ) -> tuple[list[tuple[int, Notice]], set[int]]:
        """The notices of lines that the catalog knows, by the place of the line, and all places."""
        found: list[tuple[int, Notice]] = []
        taken: set[int] = set()
        hits = [
            hit
            for hit in (
                *self._matcher.scan(block).patterns,
                *self._matcher.scan_steps(block, every=True),
            )
            if hit[0] in self._wanted
        ]
        raws = list(segments(Chunk(block, 0, 1), sorted(hits, key=itemgetter(1)), 0))
        kinds = [(raw.patterns, author_of(raw.data)) for raw in raws]
        confirmed, tries = Counter[_Kind](), Counter[_Kind]()
        looked: list[Reading] = []
        for raw, kind in zip(reversed(raws), reversed(kinds), strict=True):
            if confirmed[kind] < most and tries[kind] < _TRIES * most:
                tries[kind] += 1
                looked.append(raw)
                notices = [(raw.place, notice) for notice in self._confirmed(memory, raw)]
                if not notices:
                    continue  # it only looked like one
                confirmed[kind] += 1
                found += notices
            taken.add(raw.place)
        for raw in reversed(looked):
            remember(memory.last, author_of(raw.data), (_head(raw.data), now), AUTHORS)
        return found, taken

    def _confirmed(self, memory: Memory, raw: Reading) -> Iterator[Notice]:
        text = text_of(raw.data)
        prefix = peel(text)
        who = who_of(prefix, memory.hints, memory.name)
        seen: set[str] = set()
        for number in raw.patterns:
            signature = self._matcher.signatures[self._matcher.patterns[number].signature]
            if signature.id in seen:
                continue
            captures = self._matcher.confirm(number, text, prefix.message)
            if captures is None:
                continue
            seen.add(signature.id)
            says = _says(signature)
            if says is not None:
                yield _notice(says, who, signature, captures, prefix, memory.name)

    def _others(
        self, memory: Memory, block: bytes, low: int, taken: set[int], upto: int, now: float
    ) -> Iterator[tuple[int, Notice]]:
        """New words in the lines behind `low` that the catalog does not know, and progress.

        That only before `upto`: where a signature saw progress, others would be counted twice.
        """
        words = 0
        for place, line in _lines(block, low):
            author = author_of(line)
            remember(memory.last, author, (_head(line), now), AUTHORS)
            if place in taken:
                continue
            shape = _SHAPE.sub(b"#", line[:_LINE])
            key = hash((author, shape))
            before = memory.templates.get(key)
            remember(memory.templates, key, line[:_LINE], TEMPLATES)
            says, counter = None, None
            if before is None and words < _MOST_WORDS:
                words += 1
                says = Says.LIFE
            elif before is not None and place < upto:
                counter = _grown(before, line, self._matcher.shapes)
                says = Says.PROGRESS if counter is not None else None
            if says is not None:
                text = text_of(line)
                prefix = peel(text)
                notice = Notice(
                    says, who_of(prefix, memory.hints, memory.name), f"line {key}",
                    counter=counter, text=text[:_TEXT], stamp=prefix.stamp, source=memory.name,
                )  # fmt: skip
                yield place, notice


def _lines(block: bytes, low: int) -> Iterator[tuple[int, bytes]]:
    """The lines behind `low` and where they begin; a bar is one for each of its states."""
    at = low
    for piece in block[low:].replace(b"\r", b"\n").split(b"\n"):
        if piece and not piece.isspace():
            yield at, piece
        at += len(piece) + 1


def _head(line: bytes) -> bytes:
    """The start of a line, cut between words: half a secret would not be known as one."""
    return line if len(line) <= _LINE else line[: line.rfind(b" ", 0, _LINE) + 1]


def _grown(before: bytes, line: bytes, shapes: ShapeTable) -> int | None:
    """The counter of a line, where it grew since the line before it that looks alike."""
    pair = b"%b\n%b" % (before, line[:_LINE])
    return next((beat.counter for beat in beats(pair, shapes) if beat.start > len(before)), None)


def _says(signature: Signature) -> Says | None:
    """What a line of a signature says, None where that is nothing to a watch."""
    if signature.signal == "restart":
        return Says.RESTART
    if signature.signal == "finished":
        return Says.FINISHED
    if signature.role == "progress" or (signature.per_step and signature.role in _LIVING):
        return Says.PROGRESS
    if signature.role == "phase":
        return Says.END if signature.ends_phase else Says.BEGIN
    if signature.signal == "exit":
        return Says.EXIT
    return Says.TROUBLE if signature.signal in _TROUBLE else None


def _notice(
    says: Says, who: Who, signature: Signature, captures: Mapping[str, str], prefix: Prefix,
    source: str,
) -> Notice:  # fmt: skip
    step, total = integer(captures.get("step")), integer(captures.get("total"))
    percent = integer(captures.get("percent"))
    done = step >= total if step is not None and total else percent == 100
    kind = f"{signature.id} {captures.get('what', '')[:80]}".rstrip()
    counter = percent if step is None else step
    text = prefix.message[:_TEXT].strip()
    return Notice(
        says, who, kind, signature.phase, signature.title, counter, bool(done), text, prefix.stamp,
        source,
    )  # fmt: skip


MOST = 5000  # notices of a file
_DAY = 86_400_000_000_000
_NS = 1_000_000_000


@dataclass(slots=True)
class Past:
    """The notices of one file, which was written last at `end`, in seconds of the watch's clock."""

    end: float
    notices: deque[Notice] = field(default_factory=lambda: deque(maxlen=MOST))

    def timed(self) -> Iterator[tuple[float, bool, Notice]]:
        """Each notice, when it was, and whether that is known."""
        stamps = (notice.stamp for notice in self.notices)
        times = [None if stamp is None or stamp.boot else stamp.ns for stamp in stamps]
        running, days = [], 0
        before: int | None = None
        for printed in times:
            if printed is not None:
                if before is not None and printed + days - before < -_DAY // 2:
                    days += _DAY  # a time without a date, past midnight
                before = printed + days
            running.append(None if printed is None else printed + days)
        last = max((time for time in running if time is not None), default=None)
        at = self.end
        first = next((time for time in running if time is not None), None)
        if last is not None and first is not None:
            at = self.end - (last - first) / _NS
        for time, notice in zip(running, self.notices, strict=True):
            if time is not None and last is not None:
                at = max(at, self.end - (last - time) / _NS)
            yield at, time is not None, notice


def merged(files: Iterable[Past]) -> list[tuple[float, bool, Notice]]:
    """What all files say, in the order of time; files of one name order nothing."""
    found = [one for past in files for one in past.timed()]
    found.sort(key=lambda one: one[0])
    return found
