"""One pass of the catalog over a source's bytes; Python objects only for lines that matched.

The cost of a scan is that of Hyperscan plus what matched. Of a signature that floods a source
only the first and the last lines are kept (the count stays exact). Thin signatures (a line a
step) are looked for in the start of a source and in samples of its middle; in its end the last
line of each author is found exactly. So the middle of a log costs hardly more than one automaton.
A large source may be gathered in parts, in any process; what comes out is the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from math import inf
from operator import attrgetter
from time import thread_time
from typing import TYPE_CHECKING

from diagnose.catalog.entries import Meant
from diagnose.catalog.matches import EXACT
from diagnose.ingest.find import PASTED
from diagnose.ingest.read import TextChunks
from diagnose.ingest.source import Chunk, Source
from diagnose.match.cadence import OwnWay, beats, own_way
from diagnose.match.calls import Forward, Noted, forward_calls, last_calls
from diagnose.match.compile import MATCH_TIMEOUT_S, Found, Matcher, in_text
from diagnose.match.gather import Gathered, gather
from diagnose.match.lines import Reading, filled_lines, peeled, text_of
from diagnose.match.rows import shape
from diagnose.match.shapes import Asked, ShapeMeaning, ShapeTable
from diagnose.match.steps import near_serious
from diagnose.match.values import Turn, turns
from diagnose.parse.prefix import peel
from diagnose.parse.repeated import tells_time, way_of
from diagnose.search import HARMLESS

if TYPE_CHECKING:
    from diagnose.catalog.schema import Signature
    from diagnose.parse.comm_rank import CommRank
    from diagnose.timeline.event import Event

# A line made to hurt may cost so much CPU time and one more search; then its other patterns are
# skipped. (`regex` counts CPU time too, so a busy machine changes nothing.)
LINE_BUDGET_S = 0.02
# Phases that come before the work whose progress is looked for.
_BEFORE = ("init", "preprocessing", "model_load")
# A line that takes so long is made to hurt: those that match take a tenth. After so many of them
# in a source its other long lines get little time.
HURT_S, HURTFUL_LINES, LITTLE_S = 0.005, 20, 0.001


Author = tuple[int, str | None, int | None]  # rank, host and process


@dataclass(slots=True)
class SourceScan:
    """What one source gave: matched lines in order, exact counts, its first and last lines.

    `counts` maps signature numbers to the number of lines they matched (of per-step signatures: of
    lines kept). `edges` holds the first and the last few non-empty lines, matched or not.
    `beginnings` are the lines with its first words, each with the line before it, where these
    recur. `beats` are lines of progress that no signature knows, with their counters. `comm_ranks`
    is what NCCL's call lines tell of each rank in each communicator. `truncated`: it ends inside a
    line, so that what would follow is not known. `own_way` is the line by which one author alone
    left the way of all others at the end. `turns` are values of a training that are bad up to the
    end.

    `events` stand for all of these lines where another process made them, `authors` then are the
    ranks, hosts and processes that the lines name.
    """

    source: Source
    lines: list[Reading] = field(default_factory=list)
    edges: list[Reading] = field(default_factory=list)
    beginnings: list[tuple[Reading, Reading]] = field(default_factory=list)
    beats: list[tuple[Reading, int]] = field(default_factory=list)
    counts: Counter[int] = field(default_factory=Counter)
    total_lines: int = 0
    truncated: bool = False
    problem: str = ""
    comm_ranks: list[CommRank] = field(default_factory=list)
    own_way: tuple[Reading, OwnWay] | None = None
    turns: list[Turn] = field(default_factory=list)
    events: list[Event] | None = None
    authors: list[Author] = field(default_factory=list)

    def holds_text(self) -> bool:
        """Whether the source holds anything but blanks."""
        return bool(self.edges or self.events)


def scan_source(source: Source, matcher: Matcher, *, every_step: bool = False) -> SourceScan:
    """Scan one source to its end; what cannot be read becomes `problem`, never an exception.

    With `every_step` no line of a step is left out: slower, and larger.
    """
    problem: list[str] = []
    calls = Noted() if _seekable(source) else Forward(source)
    found = gather(_chunks(source, problem), matcher, calls, every_step=every_step)
    scan = finish(source, found, matcher)
    scan.problem = "".join(problem)
    if isinstance(calls, Forward):
        scan.comm_ranks = forward_calls(calls)
    return scan


def _seekable(source: Source) -> bool:
    return isinstance(source.chunks, TextChunks) and source.chunks.seekable()


def _chunks(source: Source, problem: list[str]) -> Iterator[Chunk]:
    try:
        yield from source.chunks()
    except (OSError, EOFError, ValueError) as error:
        problem.append(f"reading stopped: {error}")
        source.unread.append(problem[0])


def finish(source: Source, found: Gathered, matcher: Matcher) -> SourceScan:
    """Confirm what was gathered of a whole source."""
    truncated = found.truncated and source.name not in PASTED
    scan = SourceScan(source, total_lines=found.lines, truncated=truncated)
    if found.calls is not None and isinstance(source.chunks, TextChunks):
        scan.comm_ranks = last_calls(source, found.calls, found.starts, source.chunks.part)
    kept = _ordered(found)
    scan.lines = list(_confirm(kept, matcher, scan.counts))
    if near := near_serious(source, found, scan.lines, kept, matcher):
        scan.lines += _confirm(near, matcher, scan.counts)
        scan.lines.sort(key=attrgetter("place"))
    if truncated and scan.lines and scan.lines[-1].line == found.lines:
        _leave_torn(scan.lines[-1])
    scan.edges = list(peeled([*found.first, *found.last], scan.lines))
    begun = peeled(chain.from_iterable(found.beginnings), scan.lines)
    scan.beginnings = list(zip(begun, begun, strict=True))  # two of each
    tail = _Tail(found.ends)
    if not any(_shows_progress(line, matcher) for line in scan.lines):
        known = {line.line for line in scan.lines if _shows_no_work(line, matcher)}
        scan.beats = [beat for beat in _beats(tail, matcher.shapes) if beat[0].line not in known]
    scan.own_way = _own_way(tail, matcher.shapes)
    scan.turns = _turns(source, found)
    for number, extra in found.dropped().items():
        if number >= 0:
            scan.counts[matcher.patterns[number].signature] += extra
    return scan


def _leave_torn(line: Reading) -> None:
    """Forget of the line inside which a source ends what may go on behind its end: `OpType=ALL`."""
    line.matches = [
        (number, {name: value for name, value in captures.items()
                  if name not in EXACT or not line.text.endswith(value)})
        for number, captures in line.matches
    ]  # fmt: skip


def _turns(source: Source, found: Gathered) -> list[Turn]:
    """Where the values of a training went bad, of those that are bad at the end of a source."""
    chunks, starts = source.chunks, found.starts
    if found.small or not isinstance(chunks, TextChunks) or not chunks.seekable():
        known = [*(found.small or found.ends)]
        return turns(known, lambda number: known[number : number + 1], len(known))

    def piece(number: int) -> list[Chunk]:
        start, line = starts[number]
        end = starts[number + 1][0] if number + 1 < len(starts) else None
        return [*chunks.part(start, end, line)]

    return turns(found.ends, piece, len(starts))


def _shows_progress(line: Reading, matcher: Matcher) -> bool:
    """Whether a line is of progress, and not only of what is loaded or prepared before."""
    found = [matcher.signatures[number] for number, _ in line.matches]
    return not _prepares(found) and any(one.role == "progress" for one in found)


def _shows_no_work(line: Reading, matcher: Matcher) -> bool:
    """Whether a line is known to be of what comes before the work, or of a watchdog."""
    found = [matcher.signatures[number] for number, _ in line.matches]
    return _prepares(found) or any(one.signal == "silent" for one in found)


def _prepares(found: Iterable[Signature]) -> bool:
    return any(one.role == "phase" and one.phase in _BEFORE for one in found)


def _ordered(found: Gathered) -> list[Reading]:
    """All that was kept, in the order of the source; of one place words last, per-step behind them.

    Of per-step ones the catalog's first comes first, in whichever way they were found.
    """
    kept = [*found.kept, *(raw for queue in found.flood.values() for raw in queue)]
    kept.sort(key=lambda raw: raw.patterns[0] < 0)
    samples = [*found.samples, *found.last_words]
    for line in samples:
        line.patterns = tuple(sorted(line.patterns))
    kept += sorted(samples, key=lambda line: line.patterns)
    kept.sort(key=lambda raw: raw.place)
    return kept


class _Tail:
    """The end of a source as one text, and its lines."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = chunks
        self._starts = [0, *accumulate(len(chunk.data) for chunk in chunks)]
        self.data = b"".join(chunk.data for chunk in chunks)

    def line(self, start: int, end: int) -> Reading:
        """The line between two places of the text."""
        index = bisect_right(self._starts, start) - 1
        number = self._chunks[index].newlines(start - self._starts[index])
        rows = [(number, self.data[start:end])]
        return next(peeled(filled_lines(self._chunks[index], rows)))


def _beats(tail: _Tail, shapes: ShapeTable) -> Iterator[tuple[Reading, int]]:
    """The cadence of the end of a source."""
    for beat in beats(tail.data, shapes):
        yield tail.line(beat.start, beat.end), beat.counter


def _own_way(tail: _Tail, shapes: ShapeTable) -> tuple[Reading, OwnWay] | None:
    """The line by which one author left the way of all others at the end of a source."""
    found = own_way(tail.data, shapes)
    return (tail.line(found.start, found.end), found) if found else None


def _confirm(kept: list[Reading], matcher: Matcher, counts: Counter[int]) -> Iterator[Reading]:
    """Decode, peel and confirm the kept segments, which are in order, each place once."""
    shapes, hurtful = matcher.shapes, 0
    for line in _merged(kept):
        meaning = _meaning(line, shapes)
        if meaning is not None:
            if meaning.way is None:
                continue
            if meaning.fill(line):
                for signature, _ in line.matches:
                    counts[signature] += 1
                if line.matches or line.word:
                    yield line
                continue
        text = text_of(line.data)
        # Most of what is kept is refused: the prefixes are looked at where they matter.
        anchored = any(matcher.patterns[number].anchored for number in line.patterns if number >= 0)
        prefix = peel(text) if anchored else None
        patience = inf
        if len(text) > HARMLESS:
            patience = LITTLE_S if hurtful >= HURTFUL_LINES else LINE_BUDGET_S
            matcher.prepare(number for number in line.patterns if number >= 0)
        begun = thread_time() if patience < inf else 0.0
        message = prefix.message if prefix else ""
        found, sure = _search(text, message, line.patterns, matcher, patience)
        hurtful += patience < inf and thread_time() - begun > HURT_S
        word = _word(text, found, line.patterns, matcher)
        if meaning is None and sure:
            _learn(line, text, message, found, word, matcher)
        if found or word:
            line.text, line.data, line.prefix = text, b"", prefix or peel(text)
            line.matches = [(signature, match.captures()) for signature, match in in_text(found)]
            line.word = word
            counts.update(found.keys())
            yield line


def _merged(kept: Iterable[Reading]) -> Iterator[Reading]:
    """Segments that are in order, each place once with all of its patterns."""
    last: Reading | None = None
    for line in kept:
        if last is not None and last.place == line.place:
            last.patterns = tuple(dict.fromkeys(last.patterns + line.patterns))
            continue
        if last is not None:
            yield last
        last = line
    if last is not None:
        yield last


def _search(
    text: str, message: str, patterns: Iterable[int], matcher: Matcher, patience: float
) -> tuple[dict[int, Found], bool]:
    """Signature → its match, within so many seconds of CPU time; and whether these were enough."""
    found: dict[int, Found] = {}
    sure = True
    give_up = thread_time() + patience if patience < inf else inf
    timeout = min(patience, MATCH_TIMEOUT_S)
    for number in patterns:
        signature = matcher.patterns[number].signature if number >= 0 else -1
        if signature in found or number < 0:
            continue
        if give_up < inf and thread_time() > give_up:
            return found, False
        try:
            match = matcher.find(number, text, message, timeout)
        except TimeoutError:
            sure = False
            continue
        if match is not None:
            found[signature] = match
    return found, sure


def _word(
    text: str, found: Mapping[int, Found], patterns: Sequence[int], matcher: Matcher
) -> Meant | None:
    """The word of a line that no signature knows but one that stands for many."""
    if not word_matters(found, patterns, matcher):
        return None
    raised = any(matcher.signatures[number].signal == "exception" for number in found)
    return matcher.words.find(text, raised=raised)


READINGS_PAY = 200  # lines that were confirmed before: of a paste nothing is remembered
_NOTHING_MEANT = ShapeMeaning()


def _meaning(line: Reading, shapes: ShapeTable) -> ShapeMeaning | None:
    """What a line says in which these patterns were found; None if that is not known."""
    form = shapes.form(line.data)
    return None if form is None else form.meanings.get(line.patterns)


def _learn(
    line: Reading,
    text: str,
    message: str,
    found: Mapping[int, Found],
    word: Meant | None,
    matcher: Matcher,
) -> None:
    """Remember what a line says, for others of its form."""
    matcher.shapes.confirmed += 1
    if matcher.shapes.confirmed < READINGS_PAY or len(line.data) > HARMLESS:
        return
    form = matcher.shapes.learned(shape(line.data), line.data, Asked.MEANING)
    if form is not None and line.patterns not in form.meanings:
        form.meanings[line.patterns] = _common(line, text, message, found, word, matcher)


def _common(
    line: Reading,
    text: str,
    message: str,
    found: Mapping[int, Found],
    word: Meant | None,
    matcher: Matcher,
) -> ShapeMeaning | None:
    """What all lines of a form say; None if each is to be looked at."""
    if word_matters(found, line.patterns, matcher) and not matcher.words.blind(text):
        return None
    if not found and word is None and not message:
        return _NOTHING_MEANT
    entry = matcher.shapes.entry(shape(line.data))
    way = entry.way = entry.way or way_of(text)
    if way is None or (message and not _in_place(text, message, way.message)):
        return None
    if not found and word is None:
        # Where the numbers are no time, the expressions look at more than the message.
        return ShapeMeaning(way) if tells_time(way) else _NOTHING_MEANT
    ordered = in_text(found)
    matches = [(number, match.captures()) for number, match in ordered]
    places = tuple(
        (index, tuple(_captured(match)))
        for index, (_, match) in enumerate(ordered)
        if any(map(_has_digits, matches[index][1].values()))
    )
    return ShapeMeaning(way, matches, places, word)


def word_matters(found: Iterable[int], patterns: Iterable[int], matcher: Matcher) -> bool:
    """Whether a word may say more of a line than the signatures that were found."""
    known = [matcher.signatures[number] for number in found]
    return all(signature.generic for signature in known) and bool(known or min(patterns) < 0)


def _has_digits(text: str) -> bool:
    return any(map(str.isdigit, text))


def _in_place(text: str, message: str, begin: int) -> bool:
    """Whether the message stands nowhere else in the line before its place, whatever its digits."""
    bare = message.strip()
    at = begin + len(message) - len(message.lstrip())
    same = shape(text.encode()), shape(bare.encode())
    return text.find(bare) == at and same[0].find(same[1]) == at


def _captured(found: Found) -> Iterable[tuple[str, int, int]]:
    """The captures of a match, by their places in the line."""
    for name in found.match.re.groupindex:
        start, end = found.match.span(name)
        if start >= 0:
            yield name, found.at + start, found.at + end
