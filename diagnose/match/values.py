"""Values of a training that are bad up to the end of a source: a loss that is NaN, a scale at zero.

No line of a step is looked at as it goes by. The last lines of a source that hold a loss, a norm of
gradients or a loss scale say whether the values of their author ended badly; only where they did is
it looked for where that began: by halves, in the chunks of the source, as a value that does not
recover is bad from there on. So a healthy log costs a glance at its end and at a few places of it.

The loss of a step decides. Of a line with a loss of the whole step its parts do not count, nor do
values of an evaluation: an empty bucket has none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from math import inf, isfinite
from typing import Literal, NamedTuple

from diagnose.ingest.source import Chunk
from diagnose.lazy import expression
from diagnose.match.lines import LINE_WINDOW, Reading, author_of, filled_lines, peeled
from diagnose.match.rows import shape

# not_finite: the loss; norm: that of the gradients alone; overflow: a scale that can fall no
# further; raised: the loss, norm_raised: the norm, far above what it was.
Ill = Literal["not_finite", "norm", "overflow", "raised", "norm_raised"]
Series = Literal["loss", "norm", "scale"]

# Bytes of the end in which the last values are looked for, until there are enough of each author.
_REACHES = (1 << 10, 6 << 10, 96 << 10)
_LAST = 6  # last values of an author that are looked at
_ENOUGH = 4  # of an author that is read no further
_AUTHORS = 64
_HEAD = 64 << 10  # bytes of a chunk by which it is seen whether its values are bad
_BOM = 3  # bytes before the text of a source
_BACK = 4  # chunks that are read for the last good value
# Pieces of which all rows are kept while one author after the other is asked for, and first ones.
_KEPT, _HEADS = _BACK + 1, 64
# Where values of a source are looked at besides its end, and how many there: for a glance, and for
# a closer look where that shows a rise.
_FEW, _PLACES = (6, 1), (16, 4)
_STRIDE, _GLANCE = 512, 4 << 10  # bytes from one place to the next, and read there at most
_ABOVE = 600  # bytes above a line in which the bar of its step may be drawn

# How far a value has risen, over the usual one before: the loss, the norm. That is among the lowest
# tenth of a source in which it rose early.
_RISEN = {"loss": 2.2, "norm": 25.0}
_LOW = 10
_STAYS = 8  # values of a rise that lasts, and of the time before it
_SETTLED = 32  # values of a training in which a rise counts: one that just began swings
_BEFORE = 200  # values before a rise that are compared with it
_STRAY = 0.04  # of these that may be as high: a spike that came back
_NO_NOISE = 0.1  # a loss below that may rise by any factor

_WORD = expression(rb"oss|norm")
_NUMBER = rb"(?:tensor\( *|np\.float\d\d\( *)?([-+]?(?:nan|inf(?:inity)?|\d[\d.]*(?:e[-+]?\d+)?))"
_VALUE = expression(
    rb"(?i)(loss\w*|norm\w*)(?: ?\(\w+\))?[\"']?(?:\t| ?[:=|] *| +)[\"']?" + _NUMBER + rb"(?![\w/])"
)
_BEFORE_NAME = expression(
    rb"(?i)(?:\b(?:lm|ce|train|training|total|global|avg|mean|val|valid|validation|eval|test|dev"
    rb"|best|lowest|min|max|prev|previous|grad|gradient|(?:total|clip|max) grad|grad clip) )?"
    rb"[\w./-]*\Z"
)
_SHAPES = 1 << 10  # of lines, of which it is remembered what they show
_NAME_BYTES = 48  # bytes before the last word of a name that may belong to it
_SCALE = expression(
    rb"(?i)(?:(?P<before>[\d.e+-]+), )?(?:reducing (?:loss scale )?to|setting loss scale to:?) *"
    rb"(?P<to>\d[\d.]*(?:e[-+]?\d+)?)"
)
# Of Megatron's line of a step, which leaves out a loss that is NaN, or of steps that were skipped.
_NAN_STEPS = expression(rb"number of nan iterations: +([1-9]\d*)")
_SKIPPED = expression(rb"loss scale: (\d[\d.]*) .*number of skipped iterations: +[1-9]")
_STEP = expression(
    rb"(?i)\b(?:global_?step|step|iteration|iter|num_update|update)s?\b[\"']?[ :=\[#,]{0,5}"
    rb"(\d{1,15})(?![\d.%])"
)
_BAR = expression(rb"[ |](\d{1,15})/\d+ \[\d")
_OF_EVALUATION = expression(
    # `loss_val` is the value of a loss.
    rb"(?<![a-z])(?:eval|valid|(?<!loss_)val(?![a-z\d])|test(?:ing)?[ _:/\])]|dev[ _/:\])]"
    rb"|hold-?out)"
)
_MAYBE_OF_EVALUATION = (b"val", b"test", b"dev", b"hold")
# A record, a limit or how far values spread, which is NaN of a single one.
_OF_NO_STEP = expression(
    rb"(?<![a-z])(?:best|lowest|min|max|prev|previous|clip)(?![a-z])|_(?:std|stdev|var|variance)\Z"
)
_NORM = expression(rb"(?:\w*grad(?:ient)?_norm|gnorm|norm|total_norm)\w*")
_SUMMARY = (b"train_runtime", b"total_flos")  # of the end of a training, over all of its steps
_WHOLE = expression(
    rb"(?:(?:total|train|training|lm|ce|avg|mean|global|reduced|step|batch|epoch|running|pg|policy"
    rb"|actor)_)*loss(?:_(?:step|avg|epoch|total|mean|train))*"
)
_ESCAPES = expression(rb"\x1b\[[\d;]*m")

_JOINS = expression(rb"[ .-]+")
# Reinforcement learning and adversaries: what their losses are worth, their height does not show.
_NO_HEIGHT = expression(
    rb"(?i)reward|\bkl\b|advantage|critic|actor|policy|loss_[gd]\b|\b[gd]_loss|adv_?loss|\belbo|discriminator"
)


class _Shown(NamedTuple):
    """A name and the number after it."""

    name: bytes
    number: bytes


_Places = list[tuple[slice, slice]]  # of such a name and its number in a line


class Value(NamedTuple):
    """What a line says: of which series, under which name, the number as printed, how bad it is."""

    series: Series
    name: str
    shown: str
    number: float
    ill: Ill | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """Values of one author that are bad from a line to the end of a source.

    `first` is the first bad line, `before` the last good one, None where there is none or it was
    not found. `value` and `last` are those of the first and the last bad line, `good` the last good
    one. `step`, `last_step` and `good_step` are as the lines state them, None where they do not;
    `own_step` is the first one at which it is not only the norm of the gradients, which is that of
    all ranks.
    `several`: how many bad lines are known, at least. `seen`: whether no earlier one is unknown.
    """

    ill: Ill
    first: Reading
    before: Reading | None
    value: Value
    last: Value
    good: Value | None
    step: str | None
    last_step: str | None
    good_step: str | None
    own_step: str | None
    several: int
    seen: bool

    def fields(self) -> dict[str, str]:
        """What is said of it, under the names that it has here; nothing of what is not known."""
        known = {
            "ill": self.ill, "name": self.value.name, "value": self.value.shown,
            "last": self.last.shown, "good": self.good.shown if self.good else None,
            "last_step": self.last_step, "good_step": self.good_step,
            "own_step": self.own_step, "several": str(self.several),
            "seen": "yes" if self.seen else None,
        }  # fmt: skip
        return {name: value for name, value in known.items() if value is not None}


class _Row(NamedTuple):
    """A line with a value: its chunk, where it begins in it and ends, who wrote it."""

    chunk: Chunk
    start: int
    end: int
    author: bytes
    value: Value


_Key = tuple[bytes, Series]  # an author and what its lines show


def value_of(line: bytes) -> Value | None:
    """The value of a line of a training by which its state is seen; None without any."""
    if b"oss" not in line and b"norm" not in line:
        return None
    if b"\x1b" in line:
        line = _ESCAPES.sub(b"", line)
    if (lost := _NAN_STEPS.search(line)) is not None:
        return Value("loss", "number of nan iterations", lost[1].decode(), inf, "not_finite")
    found = _places(shape(line))
    if found is None:
        return _of_scale(line)
    losses, norms = ([_Shown(line[name], line[number]) for name, number in one] for one in found)
    return _judged(losses, norms)


@lru_cache(_SHAPES)
def _places(line: bytes) -> tuple[_Places, _Places] | None:
    """Where lines of a shape show the losses and the norms that count, with their full names.

    None where they show none at all; of an evaluation none count.
    """
    found = [] if any(word in line for word in _SUMMARY) else [*_VALUE.finditer(line)]
    if not found:
        return None
    whole, parts, norms = _Places(), _Places(), _Places()
    for match in () if _of_evaluation(line[: found[0].start(2)]) else found:
        start = match.start()
        before = _BEFORE_NAME.search(line, max(0, start - _NAME_BYTES), start)
        full = slice(before.start() if before else start, match.end(1))
        name, at = line[full], (full, slice(*match.span(2)))
        plain = _plain(name)
        if b"scale" in plain or _of_evaluation(name) or _OF_NO_STEP.search(plain):
            continue
        if b"loss" in plain:
            (whole if _WHOLE.fullmatch(plain) else parts).append(at)
        elif _NORM.fullmatch(plain):
            norms.append(at)
    return whole or parts, norms


def _plain(name: bytes) -> bytes:
    """A name without its path, its words joined alike."""
    return _JOINS.sub(b"_", name.lower()).rpartition(b"/")[2]


def _of_scale(line: bytes) -> Value | None:
    """What a line says of the loss scale: it is bad where it can fall no further."""
    if (skipped := _SKIPPED.search(line)) is not None:
        ill: Ill | None = "overflow" if _number(skipped[1]) <= 1 else None
        return Value("loss", "loss scale", skipped[1].decode(), 0.0, ill) if ill else None
    scale = _SCALE.search(line)
    if scale is None:
        return None
    number = _number(scale["to"])
    stays = scale["before"] is not None and _number(scale["before"]) == number
    ill = "overflow" if number < 1 or stays else None
    return Value("scale", "loss scale", scale["to"].decode(), number, ill)


def _of_evaluation(text: bytes) -> bool:
    """Whether a name, or what stands before it in a line, is of an evaluation."""
    lower = text.lower()
    maybe = any(word in lower for word in _MAYBE_OF_EVALUATION)
    return maybe and _OF_EVALUATION.search(lower) is not None


def _judged(losses: Sequence[_Shown], norms: Sequence[_Shown]) -> Value | None:
    """What the losses and the norms of a line say together."""
    numbers = [_number(one.number) for one in losses]
    norm = next((one for one in norms if not isfinite(_number(one.number))), None)
    if losses and not any(map(isfinite, numbers)):
        return _value("loss", losses[0], "not_finite")
    if norm is not None:
        # Trainers that leave out losses that are not finite print 0.
        ill: Ill = "not_finite" if losses and not any(numbers) else "norm"
        return _value("loss" if losses else "norm", norm, ill)
    if losses:
        return _value("loss", losses[0])
    return _value("norm", norms[0]) if norms else None


def _value(series: Series, found: _Shown, ill: Ill | None = None) -> Value:
    name, shown = (part.decode(errors="replace") for part in (found.name, found.number))
    return Value(series, name.strip("\"' "), shown, _number(found.number), ill)


def _number(shown: bytes) -> float:
    try:
        return float(shown)
    except ValueError:
        return inf if b"inf" in shown.lower() else 0.0


def turns(
    pieces: Sequence[Chunk], read: Callable[[int], Sequence[Chunk]], count: int
) -> list[Turn]:
    """How the values of each author of a source ended badly, if they did.

    `pieces` are the chunks that hold its end, at least; `read` reads the chunks of the piece of a
    number of `count` ones, of which the last is at the end.
    """
    last = _last_values(pieces)
    found: list[Turn] = []
    known = _Pieces(read, count)
    for key, rows in last.items():
        bad = _bad_end(rows)
        if not bad or (key[1] == "scale" and _stepped(rows[-1], last.values())):
            continue
        if len(bad) < len(rows):
            began = _Began(rows[-len(bad) - 1], bad)
        else:
            began = _began(key, known) or _Began(None, bad, seen=False)
        found.append(_turn(began, rows, _worst([row.value.ill for row in bad[-_ENOUGH:]])))
    return found or [*_rises(last, pieces)]


def _last_values(pieces: Sequence[Chunk]) -> dict[_Key, list[_Row]]:
    """The last values of each author and series at the end of a source, in order."""
    left = _REACHES[-1]
    for chunk in reversed(pieces):
        data = chunk.data
        low = max(0, len(data) - left)
        at = max(data.rfind(word, low) for word in (b"oss", b"norm"))
        if at >= 0:
            rows: list[_Row] = []
            end = len(data)
            for reach in _REACHES:
                begin = _first_line(data, max(low, at - reach))
                rows = [*_rows(chunk, begin, end), *rows]
                end = min(begin, end)
                found = _of_authors(rows)
                enough = found and all(len(one) >= _ENOUGH for one in found.values())
                if at - reach <= low or enough:
                    return found
        left -= len(data) - low
        if left <= 0:
            break
    return {}


def _of_authors(rows: Iterable[_Row]) -> dict[_Key, list[_Row]]:
    found: dict[_Key, list[_Row]] = defaultdict(list)
    for row in rows:
        key = row.author, row.value.series
        if key in found or len(found) < _AUTHORS:
            found[key].append(row)
    return found


def _first_line(data: bytes, low: int) -> int:
    """Where the first line begins at a place of a text or behind it."""
    if not low:
        return 0
    ends = (data.find(end, low - 1, low + LINE_WINDOW) for end in (b"\n", b"\r"))
    return min((end + 1 for end in ends if end >= 0), default=len(data))


def _rows(chunk: Chunk, low: int, high: int) -> Iterator[_Row]:
    """The lines with values that begin between two places of a chunk, the first a line's start."""
    data, done = chunk.data, low
    for word in _WORD.finditer(data, low, high):
        at = word.start()
        if at < done:
            continue
        start, end = _line_around(data, at, done)
        done = end
        if end - start <= LINE_WINDOW and (value := value_of(line := data[start:end])) is not None:
            yield _Row(chunk, start, end, author_of(line), value)


def _line_around(data: bytes, at: int, low: int) -> tuple[int, int]:
    """Start and end of the line around a place, which begins at `low` or behind it."""
    start = max(low, data.rfind(b"\n", low, at) + 1)
    start = max(start, data.rfind(b"\r", start, at) + 1)
    end = data.find(b"\n", at)
    end = end if end >= 0 else len(data)
    drawn = data.find(b"\r", at, end)
    return start, drawn if drawn >= 0 else end


def _bad_end(rows: Sequence[_Row]) -> Sequence[_Row]:
    """The last values as far as they are bad."""
    good = max((n for n, row in enumerate(rows) if row.value.ill is None), default=-1)
    return rows[good + 1 :]


def _worst(ills: Sequence[Ill | None]) -> Ill:
    """How bad the last values are: as the last one, or not finite where that is so of several."""
    return "not_finite" if ills.count("not_finite") > 1 else ills[-1] or "norm"


def _stepped(skipped: _Row, others: Iterable[Sequence[_Row]]) -> bool:
    """Whether several good values follow the last step that was skipped."""
    place = skipped.chunk.offset + skipped.start
    good = (row for rows in others for row in rows if row.value.ill is None)
    return sum(row.chunk.offset + row.start > place for row in good) >= _ENOUGH


class _Began(NamedTuple):
    """The last good row, the bad ones behind it as far as they were read."""

    before: _Row | None
    bad: Sequence[_Row]
    seen: bool = True  # whether all before these rows was looked at


class _Pieces:
    """The values in pieces of a source, by author and series; authors are asked for in turn.

    What is bad of one of many ranks is so of the others in the same piece, which is read once.
    """

    def __init__(self, read: Callable[[int], Sequence[Chunk]], count: int) -> None:
        self.count = count
        self.chunks = lru_cache(_KEPT)(read)
        self.whole = lru_cache(_KEPT)(self._whole)
        self.head = lru_cache(_HEADS)(self._head)

    def _whole(self, number: int) -> Mapping[_Key, Sequence[_Row]]:
        return _by_key(_every(self.chunks(number)))

    def _head(self, number: int) -> Mapping[_Key, Sequence[_Row]]:
        first = self.chunks(number)[:1]
        return _by_key(row for one in first for row in _rows(one, 0, min(_HEAD, len(one.data))))

    def all_bad(self, key: _Key, number: int) -> bool:
        """Whether the first values of an author in a piece are bad; so are none."""
        own = self.head(number).get(key) or self.whole(number).get(key, ())
        return all(row.value.ill is not None for row in own)


def _by_key(rows: Iterable[_Row]) -> Mapping[_Key, Sequence[_Row]]:
    found: dict[_Key, list[_Row]] = defaultdict(list)
    for row in rows:
        found[row.author, row.value.series].append(row)
    return dict(found)


def _began(key: _Key, pieces: _Pieces) -> _Began | None:
    """Where the bad values of an author began, if that is found."""
    low, high = 0, pieces.count - 1
    while low < high:
        middle = (low + high) // 2
        if pieces.all_bad(key, middle):
            high = middle
        else:
            low = middle + 1
    bad: list[_Row] = []
    for number in range(low, max(-1, low - _BACK), -1):
        own = pieces.whole(number).get(key, ())
        ended = _bad_end(own)
        bad = [*ended, *bad]
        if len(ended) < len(own):
            return _Began(own[-len(ended) - 1], bad) if bad else None
    first = pieces.chunks(0)
    seen = low < _BACK and bool(first) and first[0].offset <= _BOM
    return _Began(None, bad, seen) if bad else None


def _every(chunks: Sequence[Chunk]) -> Iterator[_Row]:
    for chunk in chunks:
        yield from _rows(chunk, 0, len(chunk.data))


def _turn(began: _Began, last: Sequence[_Row], ill: Ill) -> Turn:
    before, bad, seen = began
    return Turn(
        ill, _reading(bad[0]), None if before is None else _reading(before), bad[0].value,
        last[-1].value, None if before is None else before.value, _step(bad[0]), _step(last[-1]),
        None if before is None else _step(before),
        _step(next((row for row in bad if row.value.ill != "norm"), bad[0])),
        max(len(bad), len(_bad_end(last))), seen,
    )  # fmt: skip


def _reading(row: _Row) -> Reading:
    number = row.chunk.newlines(row.start)
    return next(peeled(filled_lines(row.chunk, [(number, row.chunk.data[row.start : row.end])])))


def _step(row: _Row) -> str | None:
    """The step of a line, as it or the bar above it says."""
    data = row.chunk.data
    found = _STEP.search(data, row.start, row.end)
    if found is not None:
        return found[1].decode()
    bars = _BAR.findall(data, max(0, row.start - _ABOVE), row.end)
    return bars[-1].decode() if bars else None


def _rises(last: Mapping[_Key, Sequence[_Row]], chunks: Sequence[Chunk]) -> Iterator[Turn]:
    """Values of authors that rose far, and stay there to the end, where these chunks show both."""
    able = {key: rows for key, rows in last.items() if key[1] in _RISEN and len(rows) >= _ENOUGH}
    high = {key: min(row.value.number for row in rows[-_ENOUGH:]) for key, rows in able.items()}
    seen = [row.value for row in _glances(chunks, _FEW)] if able else []
    able = {
        key: rows
        for key, rows in able.items()
        if any(one.series == key[1] and high[key] > _RISEN[key[1]] * one.number for one in seen)
    }
    glances = [row.value for row in _glances(chunks, _PLACES)] if able else []
    every: Mapping[_Key, Sequence[_Row]] = {}
    for (author, series), rows in able.items():
        factor = _RISEN[series]
        # All authors of a job train one model.
        known = sorted(one.number for one in glances if one.series == series)
        low = known[len(known) // _LOW] if len(known) >= _STAYS else 0.0
        ended = [row.value.number for row in rows[-_ENOUGH:]]
        if low <= 0 or min(ended) <= factor * low or _middle(ended) <= _NO_NOISE:
            continue
        every = every or _by_key(_every(chunks))
        own = [row for row in every.get((author, series), ()) if not row.value.ill]
        at = _rise([row.value.number for row in own], factor, factor * low)
        if at is not None and _has_height(own[at]) and not _restarted(own[at - 1], own[at]):
            ill: Ill = "raised" if series == "loss" else "norm_raised"
            yield _turn(_Began(own[at - 1], own[at:]), rows, ill)


def _has_height(row: _Row) -> bool:
    """Whether the height of a value says how good the training is."""
    whole = row.value.series == "norm" or _WHOLE.fullmatch(_plain(row.value.name.encode()))
    return whole is not None and not _NO_HEIGHT.search(row.chunk.data, row.start, row.end)


def _restarted(before: _Row, after: _Row) -> bool:
    """Whether steps are counted from the beginning again: a loss starts high."""
    one, other = _step(before), _step(after)
    return one is not None and other is not None and 2 * int(other) < int(one)


def _glances(chunks: Sequence[Chunk], many: tuple[int, int]) -> Iterator[_Row]:
    """Values in so many places of a source, so many in each of them; none twice."""
    places, at_place = many
    size = sum(len(chunk.data) for chunk in chunks)
    stride = max(_STRIDE, size // places)
    for chunk in chunks:
        done = 0
        for low in range(0, len(chunk.data), stride):
            start = _first_line(chunk.data, max(low, done))
            rows = _rows(chunk, start, min(len(chunk.data), low + _GLANCE))
            for row in islice(rows, at_place):
                done = row.end
                yield row


def _middle(values: Sequence[float]) -> float:
    """The upper one of the middle values."""
    return sorted(values)[len(values) // 2]


def _rise(values: Sequence[float], factor: float, above: float) -> int | None:
    """From which value on all are far above those before, None if there is no such place."""
    least = inf
    low = len(values) if len(values) >= _SETTLED else 0
    while low > 0 and values[low - 1] > above:
        # A place is as good as the least value from there on is far above those before.
        least = min(least, values[low - 1])
        before = values[max(0, low - 1 - _BEFORE) : low - 1]
        low -= 1
        if len(values) - low < _STAYS or len(before) < _STAYS:
            continue
        if least > factor * _middle(before) > 0 and values[low - 1] < least:
            strays = sum(value >= least for value in before)
            if strays <= _STRAY * len(before) and _middle(before) > _NO_NOISE / 10:
                return low
    return None
