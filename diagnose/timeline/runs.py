"""Runs in one file: where one ended, another begins below it, and which attempt events are of.

A machine reads the drafts of a source in the order of their lines. A run is STARTING until somebody
gets past the start, AT_WORK until somebody reports an end (`timeline.ends`), DYING while the last
words follow, and ENDED from the first line that is none of them. Another run begins below a line
that reports a restart, after a silence, or below an end, where `Machine._shown_by` has a reason,
which `--why` shows.

In the file of one process, whatever it does once only is the sign of another run. In a console with
many ranks, ranks may die one after the other while others still start, and all write the same: what
begins below an end has to be as whole as what ended, or has to get as far.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from diagnose.parse.tracebacks import TRACEBACK
from diagnose.timeline.ends import End, ends_of, may_end, outermost
from diagnose.timeline.event import Begin, Event, Meaning
from diagnose.timeline.meaning import GLUED
from diagnose.timeline.readings import BEGINS

RESTART = "restart"  # what a line tells that reports one
_BY_HAND = 60_000_000_000  # ns from an end to a start by hand
# ns of silence above another run: below any words, and below an error so few lines before.
_SILENCE, _SHORT_SILENCE, _LAST_WORDS = 600_000_000_000, 10_000_000_000, 3
_LAUNCHED = "launched"  # what a launcher's line tells that starts a job
_OPENING = (_LAUNCHED, "opening")  # what a start writes once: who starts, versions
_NAMES = ("rank", "local_rank", "task")  # what the name of a file may say; and who else differs:
_OTHERS = ("mapped_rank", "device", "host")


class State(Enum):
    """What the processes of a run are doing."""

    STARTING = auto()
    AT_WORK = auto()
    DYING = auto()
    ENDED = auto()


@dataclass(slots=True)
class _Stretch:
    """What stands between two ends: how often each opening word, and whether somebody works."""

    words: Counter[str] = field(default_factory=Counter)
    works: bool = False


@dataclass(slots=True)
class _Row:
    """A draft with the end that it reports and the stretch that it is in.

    `word` is the entry of a line that is written at a start, else empty; `number` is whom it names.
    """

    draft: Event
    end: End | None
    word: str
    number: int | None
    stretch: _Stretch


@dataclass(slots=True)
class _Over:
    """The last end in a run, with the time, the opening words and the work until then.

    `below` is the first line that is not among the last words.
    """

    end: End
    time: int | None
    words: Counter[str]
    worked: bool
    below: int | None = None


@dataclass(slots=True)
class _Run:
    """A run as far as it was read.

    `step` is its highest one, `scripts` the last line on which a script dies that died in it.
    """

    state: State = State.STARTING
    words: Counter[str] = field(default_factory=Counter)
    step: int = -1
    scripts: int = -1
    over: _Over | None = None


class Machine:
    """The machine that reads one source.

    `named`: the name of the file says that it is of one process; `one_process`: or its lines do;
    `many`: others than rank 0 write there. `scripts` are those that die, each with its last frame.
    `started` are the opening words so far, with whom they named; `before` those of the run above.
    `above` is the last time above the current line, `wrong` the last line of an error.
    """

    def __init__(self, drafts: Sequence[Event], external_ends: Collection[str]) -> None:
        self.rows = _rows(drafts, external_ends)
        seen = {name: {getattr(draft, name) for draft in drafts} for name in (*_NAMES, *_OTHERS)}
        several = any(len(values - {None}) > 1 for values in seen.values())
        numbered = any(row.number is not None for row in self.rows)
        self.named = _is_named(drafts)
        self.one_process = self.named or (numbered and not several)
        self.many = not self.named and bool((seen["rank"] | seen["device"]) - {None, 0})
        frames = [one for one in drafts if outermost(one) and "file" in one.fields]
        self.scripts = {frame.fields["file"]: frame.line for frame in frames}
        self.last_script = max(self.scripts.values(), default=-1)
        self.run = _Run()
        self.before = Counter[str]()
        self.started: set[tuple[str, int | None]] = set()
        self.line = self.wrong = -_LAST_WORDS
        self.above: int | None = None
        self.now: int | None = None

    def begins(self) -> Iterator[Begin]:
        """Where runs begin below the first one; their attempts are not counted yet."""
        for row in self.rows:
            if row.draft.line > self.line:
                self.line, self.above = row.draft.line, self.now
            over = self.run.over
            if over and over.below is None and not _is_last_word(row.draft):
                over.below, self.run.state = row.draft.line, State.ENDED
            predicate = self._shown_by(row)
            if predicate is not None:
                first, of_job = self._first_line(row, over), row.draft.meaning.signal == RESTART
                yield Begin(row.draft.source, first, 0, predicate, of_job, row.draft.index)
                self.before, self.run = self.run.words, _Run()
            self._read(row)

    def _shown_by(self, row: _Row) -> str | None:
        """The predicate by which another run shows at this row; None where the run goes on."""
        over, meaning = self.run.over, row.draft.meaning
        if meaning.signal == RESTART:
            return "restart_reported"
        if self._is_after_silence(row):
            return "words_after_silence"
        if over is None:
            return None
        if over.end.external and (over.words[row.word] or _fails_to_start(meaning)):
            return "start_after_stop"  # who stops a job stops all ranks, so that none is late
        if over.end.whose != "done":
            late = _passed(over.time, row.draft.time) >= _BY_HAND
            if (row.word, row.number) in self.started and (late or self.one_process):
                return "starts_as_before"
            if self.named and (predicate := self._shown_in_file_of_one(row, over)):
                return predicate
        return "whole_start" if over.words[row.word] and self._starts_whole(row, over) else None

    def _shown_in_file_of_one(self, row: _Row, over: _Over) -> str | None:
        """The same for what the process of a file does below its end."""
        step = row.draft.work.step if row.draft.meaning.kind == "progress" else None
        if step is not None and step < self.run.step and self.run.state is State.ENDED:
            return "steps_from_below"
        # No process dies of two exceptions, though its logger may print the one, too.
        first, last = over.end, row.end
        raised = last is not None and last.uncaught and first.uncaught
        return "second_exception" if raised and row.draft.text != first.event.text else None

    def _starts_whole(self, row: _Row, over: _Over) -> bool:
        """Whether as many start as above, where all had started; or both get to work.

        Ranks of one run write their first words before any of them works.
        """
        if -1 < self.run.scripts < row.draft.line <= self.last_script:
            return False  # other scripts die below: a later step of the job, which went on
        if row.number is not None and (row.word, row.number) not in self.started:
            return False  # who starts there for the first time is late
        times = over.words[row.word]
        same = row.stretch.words[row.word] == times
        if over.end.whose == "done":
            # Who tests after it trained starts none.
            return same and row.draft.meaning.signal == _LAUNCHED
        all_started = over.worked or over.end.whose == "job" or self.before[row.word] == times
        both_work = over.worked and row.stretch.works
        return (same and all_started) or (row.word == BEGINS and both_work)

    def _is_after_silence(self, row: _Row) -> bool:
        """The first words of a file that no other process writes, after it was silent."""
        failed = row.draft.line - self.wrong <= _LAST_WORDS
        silent = _passed(self.above, row.draft.time) >= (_SHORT_SILENCE if failed else _SILENCE)
        return silent and row.word == BEGINS and not self.many

    def _first_line(self, row: _Row, over: _Over | None) -> int:
        """The first line of the run that shows at this row."""
        if row.draft.meaning.signal == RESTART:
            return row.draft.line + 1  # the line itself ends the run before
        if over is None or row.word == BEGINS:
            return row.draft.line  # what stands above the first words is not of this run
        if self.one_process and over.below is not None:
            return over.below
        return row.draft.line if row.end is None else row.end.line

    def _read(self, row: _Row) -> None:
        """Take a row into the run, and change its state accordingly."""
        run, draft = self.run, row.draft
        self.now = self.now if draft.time is None else draft.time
        self.wrong = draft.line if draft.meaning.severity == "error" else self.wrong
        if row.word:
            run.words[row.word] += 1
            if run.over and (row.word, row.number) not in self.started:
                run.over, run.state = None, State.STARTING  # who starts did not die above
            self.started.add((row.word, row.number))
        if outermost(draft):
            run.scripts = max(run.scripts, self.scripts.get(draft.fields.get("file", ""), -1))
        if _works(draft):
            run.state = State.AT_WORK  # below an end: of others
        if draft.meaning.kind == "progress" and draft.work.step is not None:
            run.step = max(run.step, draft.work.step)
        if row.end is not None:
            worked = run.state is State.AT_WORK or (run.over is not None and run.over.worked)
            run.over = _Over(row.end, self.now, run.words.copy(), worked)
            run.state = State.DYING


def _rows(drafts: Sequence[Event], external_ends: Collection[str]) -> list[_Row]:
    """The drafts with what is known of each before the machine runs."""
    ends = ends_of(drafts, external_ends)
    errors = _lines_of_errors(drafts)
    rows, stretch = [], _Stretch()
    for draft in drafts:
        word = "" if draft.line in errors else _opening_word(draft.meaning)
        numbers = (
            draft.device, draft.mapped_rank, draft.rank, draft.local_rank, draft.group_rank
        )  # fmt: skip
        number = next((one for one in numbers if one is not None), None) if word else None
        row = _Row(draft, ends.get(id(draft)), word, number, stretch)
        rows.append(row)
        if row.end is not None:
            stretch = _Stretch()
        if word:
            stretch.words[word] += 1
        stretch.works = stretch.works or _works(draft)
    return rows


def _lines_of_errors(drafts: Sequence[Event]) -> Collection[int]:
    """The lines of errors, which state versions, too, and start nothing."""
    return {draft.line for draft in drafts if draft.meaning.role in GLUED}


def _opening_word(meaning: Meaning) -> str:
    """The entry of a line that a program, its launcher or a library writes as it starts, or ""."""
    if meaning.signal == BEGINS:
        return BEGINS
    if meaning.signal == "rank_map":
        opens = meaning.role != "effect"  # the table of those that failed
    elif meaning.kind == "phase":
        opens = meaning.phase == "init" and not meaning.ends_phase
    else:
        opens = meaning.signal in _OPENING
    return (opens and meaning.signature) or ""


def _passed(then: int | None, now: int | None) -> int:
    """The ns between two times, 0 where they are not known."""
    return 0 if then is None or now is None else now - then


def _works(draft: Event) -> bool:
    """Whether somebody is past the start; a communicator is there once all of its ranks are."""
    meaning = draft.meaning
    past = meaning.kind in ("phase", "progress") and meaning.phase != "init"
    return past or draft.mapped_of is not None


def _is_last_word(draft: Event) -> bool:
    """Whether who dies may write it below the line that reports it."""
    meaning = draft.meaning
    if TRACEBACK in draft.text or meaning.signal == BEGINS:
        return False
    follows = meaning.role in ("effect", "aftermath")
    return follows or meaning.kind in ("exit", "frame", "fact", "edge")


def number_attempts(found: Sequence[Event], external_ends: Collection[str]) -> Sequence[Begin]:
    """Give drafts the attempts that they are of; where attempts begin.

    The drafts are in the order of their sources and lines, and have their place in the time order
    of the job. `external_ends` are the classes of those who end a job from outside.
    """
    begins = _begins(found, external_ends)
    if begins:
        number = _of_job if begins[0].of_job else _of_files
        begins = number(begins, found)
    for draft in found:
        if draft.attempt is None and not begins:
            draft.attempt = 0
    return begins


def _begins(found: Sequence[Event], external_ends: Collection[str]) -> list[Begin]:
    """Where runs begin; who reports restarts reports all, so that no other sign counts then."""
    meanings = {id(draft.meaning): draft.meaning for draft in found}
    restarts = {key for key, one in meanings.items() if one.signal == RESTART}
    signs = _Signs(
        begins={key for key, one in meanings.items() if one.signal == BEGINS},
        starts={key for key, one in meanings.items() if _may_start(one)},
        ends={key for key, one in meanings.items() if may_end(one, external_ends)},
    )
    begins: list[Begin] = []
    for _, group in groupby(found, attrgetter("source")):
        drafts = [*group]
        own = [id(draft.meaning) for draft in drafts]
        if restarts:
            several = not restarts.isdisjoint(own)
        else:
            # Folders that number attempts hold one run a file, of a job that restarts as a whole.
            numbered = any(draft.attempt is not None for draft in drafts)
            several = not numbered and signs.of_several(drafts, own)
        if several:
            begins += Machine(drafts, external_ends).begins()
    return [one for one in begins if one.of_job] if restarts else begins


class _Signs(NamedTuple):
    """The meanings, by identity, of lines that may begin a run wherever they are (`begins`) or
    below an end (`starts`), and of those that may report one (`ends`).
    """

    begins: Collection[int]
    starts: Collection[int]
    ends: Collection[int]

    def of_several(self, drafts: Sequence[Event], own: Sequence[int]) -> bool:
        """Whether a source may hold several runs: in most, nothing starts below an end.

        `own` are the meanings of its drafts.
        """
        if any(key in self.begins for key in own):
            return True
        ends = (
            key in self.ends or TRACEBACK in one.text for one, key in zip(drafts, own, strict=True)
        )
        below = next((at for at, ended in enumerate(ends, 1) if ended), len(own))
        starting = [drafts[at] for at in range(below, len(own)) if own[at] in self.starts]
        if starting:
            errors = _lines_of_errors(drafts)
            if any(one.line not in errors or _fails_to_start(one.meaning) for one in starting):
                return True
        return any(map(_may_be_of_another, drafts[below:])) and _is_named(drafts)


def _may_start(meaning: Meaning) -> bool:
    """Whether a line that means this may show another run below an end in a file of many."""
    return bool(_opening_word(meaning)) or _fails_to_start(meaning)


def _fails_to_start(meaning: Meaning) -> bool:
    return meaning.role == "cause" and meaning.phase == "init"


def _may_be_of_another(draft: Event) -> bool:
    """The same of a line in the file of one process: a step, or a second exception."""
    return draft.meaning.kind == "progress" or TRACEBACK in draft.text


def _is_named(drafts: Sequence[Event]) -> bool:
    """Whether the name of a file says that it is of one process.

    One task whose lines name several ranks is a launcher.
    """
    seen = [{getattr(draft, name) for draft in drafts} for name in _NAMES]
    several = any(len(values - {None}) > 1 for values in seen)
    return not several and any(len(values) == 1 and None not in values for values in seen)


def _of_job(begins: Sequence[Begin], found: Sequence[Event]) -> list[Begin]:
    """Number by restarts, each of which is the whole job's: by how many lie above in time.

    Nothing orders a source without any time against the others: it counts its own restarts, and
    where it reports none its events may be of any attempt (None).
    """
    lines = _lines(begins)
    timed = {draft.source for draft in found if draft.time is not None}
    starts = sorted(begin.shown_at for begin in begins)
    for draft in found:
        if draft.attempt is not None:
            continue
        if draft.source in timed:
            draft.attempt = bisect_left(starts, draft.index)
        elif draft.source in lines:
            draft.attempt = bisect_right(lines[draft.source], draft.line)
    return [
        begin._replace(attempt=number)
        for number, begin in enumerate(sorted(begins, key=attrgetter("shown_at")), 1)
    ]


def _of_files(begins: Sequence[Begin], found: Sequence[Event]) -> list[Begin]:
    """Number by runs that were appended to files.

    Files that were appended to together end together, so the last runs are the same attempt. What
    another file says belongs to the last one, unless it was said before that began.
    """
    lines = _lines(begins)
    last = max(map(len, lines.values()))

    def attempt_at(source: str, line: int) -> int:
        return last - len(lines[source]) + bisect_right(lines[source], line)

    for draft in found:
        if draft.source in lines:
            draft.attempt = attempt_at(draft.source, draft.line)
    first = min((d.time for d in found if d.attempt == last and d.time is not None), default=0)
    for draft in found:
        if draft.attempt is None:
            draft.attempt = last - (draft.time is not None and draft.time < first)
    return [begin._replace(attempt=attempt_at(begin.source, begin.line)) for begin in begins]


def _lines(begins: Sequence[Begin]) -> Mapping[str, list[int]]:
    """Source → the first lines of the runs below its first one."""
    lines: dict[str, list[int]] = defaultdict(list)
    for begin in begins:
        lines[begin.source].append(begin.line)
    return lines
