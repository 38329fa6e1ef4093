"""Lines that recur, in words that no signature knows: of progress, and of a source's beginning.

Numbers, times and addresses are masked, which makes a line a template. A template that speaks of
work (steps, losses, speeds, n of m) and returns with a growing counter is progress, whatever its
framework. Only the end of a source is looked at, and only where no signature saw progress.

Where several authors write into one source the last template of each is compared: who alone wrote
something of its own after a line that all have in common took another way through the program.

Runs that are appended to a file begin like the first one: where its first words recur, programs of
any kind and language are seen to start again. Only sources of bounded size are looked at, as files
that are appended to are seldom large; and what recurs often is no beginning.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from diagnose.ingest.source import Chunk
from diagnose.lazy import expression
from diagnose.match.lines import LINE_WINDOW, Reading, author_of, filled_lines, text_of
from diagnose.match.rows import shape
from diagnose.match.shapes import ShapeTable

REACH = 24 << 10  # bytes of the end of a source that are looked at
_LEAST = 2  # lines, and values of the counter, that make a cadence
_KEPT = 4  # last lines of a template that become events, besides its first
_LINE = 600  # bytes of a line that are looked at
_MOST_NUMBERS = 40
_AUTHORS = 3  # of whom one is alone in what it wrote last
_WAYS = 2  # the common one, and its own

_TIMES = expression(
    rb"\d{4}[-/.]\d\d?[-/.]\d\d?(?:[T ]\d\d?:\d\d:\d\d)?[.,]?\d*Z?|\b\d\d?:\d\d:\d\d(?:[.,]\d+)?"
    rb"|\b[EWIF]\d{4} |\b1[5-9]\d{8}(?:\.\d+|\d{3})?\b|0x[0-9a-fA-F]+|\b[0-9a-f]{12,}\b|\d+:\d\d\b"
    rb"|\x1b\[[0-9;]*m|\b\d+(?:\.\d+){3}(?::\d+)?"
)
# Of shapes: what is a time by its digits alone, so that lines of one shape may differ.
_SOME_TIMES = expression(rb"0x|\b0{10}")
# The fill of a bar, as tqdm, rich and Keras draw it.
_BAR = expression(rb"(?<=%)\|[^|\n]*\|(?= *\d)|\[[=>.# -]{5,}\]|(?:\xe2[\x94-\x97][\x80-\xbf]){5,}")
_NUMBER = expression(rb"-?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?")
_RATIO = expression(rb"\[(\d{1,5})/(\d{1,5})\]")  # rank and size of the job, as scripts print them
# What only work says, and what waiting, trying again and listing say.
_WORK = expression(
    rb"(?i)\b(?:global_?)?(?:step|iter|epoch|batch|update|episode|round|minibatch|timestep)s?\b"
    rb"|loss|\bppl\b|perplexity|accuracy|\bacc\b|reward|throughput|\blr\b|grad_?norm|\bETA\b"
    rb"|(?:samples|images|imgs?|tokens|examples|iters?|steps|it)\s?/\s?s"
    rb"|per[ _]sec|s/it\b|(?<![\w./-])\d+\s?/\s?\d+(?![\w./-])|\d%|tok/s|tflop|num_updates|wps\b"
    rb"|(?:inference|generation|decoding) time\b|elbo|fid\b|\bin stage \d+\.\d+ \(TID \d"
)
# The number of a process among all of its job, which a banner of each states: no count of work.
_IDENTITY = expression(
    rb"(?i)\b(?:rank|process|member|worker|replica|node|host|pod|gpu|device)\W{1,3}\d+ ?/ ?\d+"
)
_NO_WORK = expression(
    rb"(?i)wait|retry|retri|attempt|time[d]?[ -]?out|stuck|heart ?beat|not responding|pending|sleep"
    rb"|fail|error|exception|refused|stall|hang|frame #|^\s*#\d+ .* \(|\.so\b|\(\+0x|\bthread\b"
    rb"|queued|listening|backoff|unreachable|missing|watchdog|keep-?alive|NCCL|in queue|slowest"
    rb"|straggl|-bound|\|\s*$|File \"[^\"]*\", line \d"
)


class Beat(NamedTuple):
    """One line of a cadence: where it begins in the data, and its counter."""

    start: int
    end: int
    counter: int


def beats(data: bytes, shapes: ShapeTable) -> list[Beat]:
    """The first and the last lines of every template of `data` whose counter grows, in order."""
    groups: dict[tuple[bytes, bytes], list[tuple[int, int, list[bytes]]]] = defaultdict(list)
    for start, end, same in _lines(data):
        entry = shapes.entry(same)
        if entry.works is None:
            entry.works = _works(same)
        if not entry.works:
            continue
        line = data[start:end]
        author = author_of(line)
        text = _BAR.sub(b"|", _TIMES.sub(b"@", line))
        numbers = _NUMBER.findall(text)
        if 0 < len(numbers) <= _MOST_NUMBERS:
            groups[author, _NUMBER.sub(b"#", text)].append((start, end, numbers))
    found: set[Beat] = set()
    for lines in groups.values():
        counters = _counter([numbers for _, _, numbers in lines])
        if counters:
            counted = [
                Beat(start, end, counter)
                for (start, end, _), counter in zip(lines, counters, strict=True)
            ]
            found.update((counted[0], *counted[-_KEPT:]))
    return sorted(found, key=lambda beat: beat.start)


def _works(line: bytes) -> bool:
    """Whether lines of a shape speak of work."""
    if _NO_WORK.search(line) is not None:
        return False
    return _WORK.search(_IDENTITY.sub(b"@", line)) is not None


def _rows(data: bytes) -> tuple[int, list[bytes]]:
    """Where the end of `data` begins, and the shapes of its lines."""
    at = data.rfind(b"\n", 0, max(0, len(data) - REACH)) + 1
    return at, shape(data[at:]).split(b"\n")


def _shown(row: bytes) -> slice:
    """What is looked at of a line: of a bar what the terminal showed last."""
    start = row.rfind(b"\r", 0, max(0, len(row) - 1)) + 1
    return slice(start, min(len(row), start + _LINE))


def _lines(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Begin, end and shape of the lines of the end of `data`."""
    at, rows = _rows(data)
    for row in rows:
        shown = _shown(row)
        if same := row[shown]:
            yield at + shown.start, at + shown.stop, same
        at += len(row) + 1


class OwnWay(NamedTuple):
    """The last line of the one author that wrote something else last than all others.

    `start` and `end` are where it stands in the data, `others` how many authors wrote one and the
    same last. `rank` is what a tag like `[2/4]` says, None where there are none.
    """

    start: int
    end: int
    rank: int | None
    others: int


def own_way(data: bytes, shapes: ShapeTable) -> OwnWay | None:
    """Who alone left the common way at the end of `data`, None where nobody or several did.

    It had written the line that all others wrote last, and nobody else ever wrote its own last one.
    """
    shaped = {row[_shown(row)] for row in {*_rows(data)[1]}}
    tagged = {same for same in shaped if _RATIO.match(same) or shapes.author_places(same)}
    written: dict[bytes, list[_Row]] = defaultdict(list)
    for start, end, same in _lines(data) if tagged else ():
        for row in _by_author(data, start, end, same, shapes) if same in tagged else ():
            written[row.author].append(row)
    if len(written) < _AUTHORS:
        return None
    tags: dict[bytes, dict[bytes, list[_Row]]] = defaultdict(dict)
    for author, rows in written.items():
        tags[_NUMBER.sub(b"#", author)][author] = rows
    templates = _Templates(data)
    found = (_own_way(one, templates) for one in tags.values() if len(one) >= _AUTHORS)
    return next(filter(None, found), None)


class _Row(NamedTuple):
    """A line: who wrote it, where it is in the data, and its shape."""

    author: bytes
    start: int
    end: int
    same: bytes


class _Templates:
    """What lines have in common with others, without their authors: looked at once a shape."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._known: dict[bytes, bytes] = {}

    def of(self, row: _Row) -> bytes:
        """The template of a line."""
        key = row.same[len(row.author) :]
        if _SOME_TIMES.search(key):
            key = self._data[row.start + len(row.author) : row.end]
        found = self._known.get(key)
        if found is None:
            text = _BAR.sub(b"|", _TIMES.sub(b"@", key))
            found = self._known[key] = _NUMBER.sub(b"#", text).strip()
        return found


def _own_way(written: Mapping[bytes, Sequence[_Row]], templates: _Templates) -> OwnWay | None:
    """The same among authors with tags of one form, by what each of them wrote."""
    last = {author: templates.of(rows[-1]) for author, rows in written.items()}
    ways = Counter(last.values())
    ranked = any(map(_RATIO.fullmatch, written))
    if len(ways) != _WAYS or min(ways.values()) != 1 or (ranked and not _all_ranks(written)):
        return None
    common = max(ways, key=lambda way: ways[way])
    author = next(author for author, way in last.items() if way != common)
    if common not in map(templates.of, written[author]):
        return None
    if sum(templates.of(row) == last[author] for rows in written.values() for row in rows) > 1:
        return None
    row, tag = written[author][-1], _RATIO.fullmatch(author)
    return OwnWay(row.start, row.end, int(tag[1]) if tag else None, len(written) - 1)


def _by_author(
    data: bytes, start: int, end: int, same: bytes, shapes: ShapeTable
) -> Iterator[_Row]:
    """Each of the lines that were torn into one."""
    line = data[start:end]
    if not _RATIO.match(same):
        yield _Row(shapes.author(line, 0, same), start, end, same)
        return
    tags = [*_RATIO.finditer(line)]
    for tag, stop in zip(tags, [*(tag.start() for tag in tags[1:]), len(line)], strict=True):
        yield _Row(tag[0], start + tag.start(), start + stop, same[tag.start() : stop])


def _all_ranks(written: Mapping[bytes, Sequence[_Row]]) -> bool:
    """Whether tags like `[2/4]` name all ranks of a job again and again, and count no steps."""
    tags = [tag for tag in map(_RATIO.fullmatch, written) if tag is not None]
    sizes = {int(tag[2]) for tag in tags}
    ranks = {int(tag[1]) for tag in tags}
    repeated = all(len(rows) >= _LEAST for rows in written.values())
    return repeated and len(sizes) == 1 and ranks == {*range(sizes.pop())}


def _counter(rows: Sequence[Sequence[bytes]]) -> list[int]:
    """The values of the column of whole numbers that grows; none if there is none.

    One that never falls before others, then the one that grows most often: of an epoch and its
    steps these count.
    """
    found = []
    for column in zip(*rows, strict=True) if len(rows) >= _LEAST else ():
        if not all(value.isdigit() and len(value) < 16 for value in column):
            continue
        values = [int(value) for value in column]
        half, different = len(values) // 2, len(set(values))
        if different >= _LEAST and _mean(values[-half:]) > _mean(values[:half]):
            found.append((values == sorted(values), different, values))
    return max(found, key=itemgetter(0, 1))[2] if found else []


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)


LIMIT = 4 << 20  # bytes of the sources that are looked at
_MOST_BEGINNINGS = 64  # times that first words are said
_SHORTEST = 12  # characters
_LETTERS = expression(r"[^\W\d_]{3,}\W+[^\W\d_]{2,}|[^\W\d_]{8,}")  # two words, or a long one
_PROCESS = expression(rb":\d++:\d++ ?+")  # of another run another one


class Beginning(NamedTuple):
    """A line with the first words of its source, and the line before it, if any, else itself."""

    before: Reading
    line: Reading


def beginnings(
    chunks: Sequence[Chunk], first: Sequence[Reading], shapes: ShapeTable
) -> list[Beginning]:
    """Where the chunks of a whole source, which begins with these lines, say its first words."""
    if sum(len(chunk.data) for chunk in chunks) > LIMIT:
        return []
    words = _first_words(first, shapes)
    found: list[tuple[Chunk, int, int]] = []
    authors: set[bytes] = set()
    for chunk in chunks if words else ():
        at = chunk.data.find(words)
        while at >= 0:
            start, end = _line_at(chunk.data, at)
            row = chunk.data[start:end]
            if shapes.message(text_of(row)).encode() == words:
                found.append((chunk, start, end))
                authors.add(_PROCESS.sub(b"", author_of(row)))
                if len(found) > _MOST_BEGINNINGS:
                    return []
            at = chunk.data.find(words, at + len(words))
    # Said once by each of its ranks they begin one run.
    return [_beginning(*one) for one in found] if len(found) > len(authors) else []


def _first_words(first: Iterable[Reading], shapes: ShapeTable) -> bytes:
    """The message of the first line that is no rule or number, and not among last words."""
    messages = [shapes.message(text_of(raw.data)) for raw in first]
    if any(one.startswith("Traceback ") for one in messages):
        return b""
    found = (one for one in messages if len(one) >= _SHORTEST and _LETTERS.search(one))
    return next(found, "").encode()


def _line_at(data: bytes, at: int) -> tuple[int, int]:
    """Start and end of the line there, as far as it is looked at."""
    start = data.rfind(b"\n", max(0, at - LINE_WINDOW), at) + 1
    end = data.find(b"\n", at, at + LINE_WINDOW)
    return start, end if end >= 0 else len(data)


def _beginning(chunk: Chunk, start: int, end: int) -> Beginning:
    """The line between these places, and the one before it."""
    data, number = chunk.data, chunk.newlines(start)
    (line,) = filled_lines(chunk, [(number, data[start:end])])
    low = data.rfind(b"\n", max(0, start - LINE_WINDOW), max(0, start - 1)) + 1
    rows = [(number - 1, data[low : start - 1])] if start else []
    return Beginning(next(filled_lines(chunk, rows), line), line)
