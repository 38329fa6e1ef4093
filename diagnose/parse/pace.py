"""What lines say that parts of a training step took, by the rows of `formats/pace/`.

Sources: Megatron's timers (`timers.py`: min and max, or one row a rank) and its StragglerDetector,
DeepSpeed's `wall_clock_breakdown`, the meters of PyTorch's examples and of OpenMMLab, tqdm's rates,
NeMo's and torchtitan's step lines, scripts that print names and numbers; tables of nvidia-smi.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from diagnose.formats import table
from diagnose.lazy import expression

LINE_LIMIT = 2000  # characters of a message that are looked at
_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0}
_GPUS = 1024  # of one host: what is more is no index
_MOST_S = 86_400.0  # of a step: what is longer is no time of one
# A name, then perhaps its unit, then a number, then perhaps its unit.
_PAIR = expression(
    r"(?<![\w./-])(?P<name>[A-Za-z][\w./-]{0,60}+)(?P<of> ?\((?:ms|s|sec)\)| in (?:s|ms))?"
    r"[\"']?[:=\s]{1,6}[\"']?(?P<number>\d{1,9}(?:\.\d{1,9})?(?:e-?\d\d?)?)"
    r"(?P<unit> ?(?:us|µs|ms|seconds|secs|sec|s))?(?![\w.])"
)
_ALL_IN_MS = expression(r"(?i)time \(ms\)")
_IN_NAME = expression(r"[_.](?:ms|msec|s|sec|secs|seconds)\Z")
_WORD = expression(rb"[a-z_]{2,}")
# Words of what is found by an expression and not by its name.
_OF_FORMS = ("it", "iter", "steps", "tps", "tokens", "samples_per_sec", "currsamplespersec", "rank",
             "mnrtt", "step", "global_step", "iteration", "batch")  # fmt: skip
_RATES = frozenset({"rate", "seconds", "tokens"})
_OF_ONE = frozenset({"heading", "ranked", "extreme"})  # forms of which each line is looked at
_ACTIVE = frozenset({"active", "1", "true", "yes"})
_REASONS = 0x08 | 0x20 | 0x40 | 0x80  # hw slowdown, sw thermal, hw thermal, hw power brake


class Extreme(NamedTuple):
    """The least and the most that any rank needed for a part of a step, in seconds."""

    phase: str
    least_s: float
    least_rank: int
    most_s: float
    most_rank: int


class Times(NamedTuple):
    """What a line says of a step.

    `step`: its number, `total`: how many there are; `phases`: seconds by part; `heading`: the part
    of which a table follows; `rank` and `seconds`: a row of it.
    """

    step: int | None = None
    total: int | None = None
    phases: Mapping[str, float] = {}
    extremes: Sequence[Extreme] = ()
    heading: str | None = None
    rank: int | None = None
    seconds: float | None = None


class Value(NamedTuple):
    """Where a message has what a part of a step took.

    `inverse`: a rate, of steps in a second; of rates of other things their inverse, which compares
    as well.
    """

    phase: str
    start: int
    end: int
    unit_s: float
    inverse: bool = False

    def seconds(self, text: str) -> float | None:
        """The time that a message says; None where no step takes so long."""
        number = float(text[self.start : self.end].replace(",", "") or 0)
        if self.inverse:
            return 1 / number if number > 0 else None
        seconds = number * self.unit_s
        return seconds if 0 <= seconds < _MOST_S else None


class StepForm(NamedTuple):
    """Where messages that differ in their digits alone have their numbers.

    Expressions of the rows tell no digits apart. Of values of one part the first is taken that says
    a time.
    """

    step: tuple[int, int] | None = None
    total: tuple[int, int] | None = None
    values: Sequence[Value] = ()

    def times(self, text: str) -> Times | None:
        """What such a message says; None where it says nothing."""
        phases: dict[str, float] = {}
        for value in self.values:
            if value.phase not in phases and (seconds := value.seconds(text)) is not None:
                phases[value.phase] = seconds
        if self.step is None:
            return Times(phases=phases) if phases else None
        total = int(text[slice(*self.total)]) if self.total else None
        return Times(int(text[slice(*self.step)]), total, phases)


class Clock(NamedTuple):
    """One row of a table of GPUs: the clock in MHz, and whether hardware holds it down."""

    host: str | None
    number: int
    mhz: float
    throttled: bool
    used: float | None


Columns = Mapping[str, Sequence[int]]  # what a column holds → its places


@cache
def _forms() -> list[tuple[dict[str, Any], re.Pattern[str]]]:
    return [(row, re.compile(row["match"])) for row in table.read(table.PACE).rows if "form" in row]


@cache
def _names() -> Mapping[str, tuple[str, int]]:
    """Name → part of a step, and how far down it is among the names of that part."""
    return {
        name.casefold(): (row["phase"], place)
        for row in table.read(table.PACE).rows
        for place, name in enumerate(row.get("names", ()) if "phase" in row else ())
    }


@cache
def kinds() -> Mapping[str, str]:
    """Part of a step → `own`, `exchange`, `wait` or `total`, in the order of a step."""
    return {row["phase"]: row["is"] for row in table.read(table.PACE).rows if "is" in row}


@cache
def _words() -> frozenset[bytes]:
    """Words of which each line that says anything has one."""
    names = " ".join([*_names(), *_OF_FORMS])
    return frozenset(_WORD.findall(names.encode()))


def may_tell(line: bytes) -> bool:
    """Whether a line may say something of steps, which most lines do not: a quick look.

    A heading of a part that nobody knows ends the table of another one.
    """
    words = _WORD.findall(line.lower().replace(b"-", b"_"))
    return line.endswith(b":") or not _words().isdisjoint(words)


def times_in(message: str) -> Times | None:
    """What a message says of the times of a step; None where it says nothing."""
    text = message[:LINE_LIMIT]
    found = [*_found(text)]
    extremes: list[Extreme] = []
    for row, match in found:
        form = row["form"]
        if form == "other":
            return None
        if form == "heading":
            phase = _names().get(_plain(match["name"]))
            return Times(heading=phase[0] if phase else "")
        if form == "ranked":
            return Times(rank=int(match["rank"]), seconds=float(match["ms"]) * 1e-3)
        if form == "extreme":
            extremes.append(_extreme(row["phase"], match))
    times = _form(text, found).times(text)
    if times is None:
        return Times(extremes=extremes) if extremes else None
    return times._replace(extremes=extremes) if extremes else times


def form_of(message: str) -> StepForm | None:
    """Where messages with other digits have their numbers; None where each is to be looked at."""
    text = message[:LINE_LIMIT]
    found = [*_found(text)]
    forms = {row["form"] for row, _ in found}
    if "other" in forms:
        return StepForm()
    return None if forms & _OF_ONE else _form(text, found)


def _form(text: str, found: Sequence[tuple[dict[str, Any], re.Match[str]]]) -> StepForm:
    first = next((match for row, match in found if row["form"] == "step"), None)
    numbers = [] if first is None else _spans(first)
    rates = [
        Value("total", *_spans(match)[0], 1.0, inverse=row["form"] != "seconds")
        for row, match in found
        if row["form"] in _RATES
    ]
    step, total = [*numbers, None, None][:2]
    return StepForm(step, total, (*_pairs(text), *rates))


def _spans(match: re.Match[str]) -> list[tuple[int, int]]:
    """Where the groups are that have a part in a match."""
    return [span for span in map(match.span, range(1, match.re.groups + 1)) if span[0] >= 0]


def _found(text: str) -> Iterator[tuple[dict[str, Any], re.Match[str]]]:
    """The forms that a text has, with their rows."""
    for row, pattern in _forms():
        if "holds" not in row or any(map(text.__contains__, row["holds"])):
            match = pattern.search(text)
            if match is not None:
                yield row, match


def _extreme(phase: str, found: re.Match[str]) -> Extreme:
    return Extreme(
        phase, _number(found["least"]) * 1e-3, int(found["least_rank"]),
        _number(found["most"]) * 1e-3, int(found["most_rank"]),
    )  # fmt: skip


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_")


def _pairs(text: str) -> list[Value]:
    """The times of parts, of names with a number; of a part with two names the first of its row."""
    found: list[tuple[int, Value]] = []
    default = 1e-3 if _ALL_IN_MS.search(text) else 1.0
    for pair in _PAIR.finditer(text):
        of = (pair["of"] or "").strip()
        whole = _plain(pair["name"]) + (f" {of}" if of.startswith("(") else "")
        known = _known(whole)
        if known is None:
            continue
        phase, place = known
        unit = (pair["unit"] or "").strip() or of.removeprefix("in ").strip("() ")
        if not unit and (suffix := _IN_NAME.search(pair["name"])):
            unit = suffix[0][1:].removesuffix("ec") if suffix[0].endswith("msec") else suffix[0][1:]
        found.append((place, Value(phase, *pair.span("number"), _UNITS.get(unit, default))))
    return [value for _, value in sorted(found, key=lambda one: one[0])]


def _known(name: str) -> tuple[str, int] | None:
    """The part that a name means: itself, or its last piece behind a slash or a dot."""
    names = _names()
    bare = _IN_NAME.sub("", name)
    for one in (name, bare, re.split(r"[/.]", bare)[-1], name.partition(" ")[0]):
        if one in names:
            return names[one]
    return None


def columns_of(line: str) -> Columns | None:
    """Which columns a heading of a table of GPUs names; None where it is none."""
    if "clock" not in line or "," not in line:
        return None
    heads = [re.split(r"[ \[]", cell.strip())[0].casefold() for cell in _cells(line)]
    found: dict[str, list[int]] = {}
    for row in table.read(table.PACE).rows:
        if "column" in row:
            places = [at for at, head in enumerate(heads) if head in row["names"]]
            if places:
                found.setdefault(row["column"], []).extend(places)
    return found if "index" in found and "clock" in found else None


def row_of(line: str, columns: Columns) -> Clock | None:
    """What a row of such a table says; None where it is no row of it."""
    cells = [cell.strip() for cell in _cells(line)]
    try:
        index = int(cells[columns["index"][0]])
        mhz = float(cells[columns["clock"][0]].split()[0])
        used = columns.get("used")
        share = float(cells[used[0]].split()[0]) if used else None
        throttled = any(cells[at].casefold() in _ACTIVE for at in columns.get("throttled", ()))
        for at in columns.get("reasons", ()):
            throttled |= bool(int(cells[at], 0) & _REASONS)
        host = cells[columns["host"][0]] if "host" in columns else None
    except (ValueError, IndexError):
        return None
    return Clock(host, index, mhz, throttled, share) if 0 <= index < _GPUS else None


def _cells(line: str) -> list[str]:
    return next(csv.reader([line[:LINE_LIMIT]]), [])
