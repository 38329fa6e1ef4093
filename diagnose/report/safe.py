"""Makes text from logs fit to be shown: hostile characters out, secrets masked, length bounded.

Every report calls `safe` once, so no report has to remember which field came from a log. Text is
cut after masking: half a secret may no longer look like one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from diagnose.diagnosis import Diagnosis, Evidence
from diagnose.lazy import expression
from diagnose.redact.redactor import Redactor, secrets_only

if TYPE_CHECKING:
    from diagnose.job.model import Job
    from diagnose.report import Wish

MAX_TEXT = 2000  # characters of any one string
MAX_ITEMS = 20_000  # of any one list; ranks are the long ones
MAX_RAW = 64_000  # characters of any one string that are searched for secrets

T = TypeVar("T")

# CSI, OSC/DCS/PM/APC strings with their end, two-character escapes; ECMA-48. The string form is
# bounded so that an unfinished one does not swallow the rest of a long text.
_ESCAPES = expression(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_UNPRINTABLE = expression(r"[^ -~]")
_INVISIBLE = expression(r"[^ -~\n]")


def clean(text: str, *, limit: int = MAX_TEXT, lines: bool = False) -> str:
    """`text` without escape codes, control, bidi and other invisible characters.

    Any white space becomes a space; with `lines` newlines stay. What is longer than `limit`
    characters ends in "…".
    """
    text = text[: 8 * limit]
    if text.isprintable():  # as most are: one line with nothing in it to take out
        text = cut(text.rstrip(), limit)
        return text if lines else text.lstrip()
    text = _ESCAPES.sub("", text)
    if lines:
        return "\n".join(_one_line(line, limit) for line in text.splitlines())[: limit + 1]
    return _one_line(text, limit).lstrip()


def safe(diagnosis: Diagnosis, redactor: Redactor | None, *, why: bool = False) -> Diagnosis:
    """A copy whose every string is clean, masked and bounded; what is copied keeps its indentation.

    What is for pictures is left out, and the reasons where nobody asks `why`. Without `redactor`
    secrets stay.
    """
    plain = replace(diagnosis, graph=None, topology=None, places=[])
    if not why:
        plain = replace(plain, reasons=[])
    if redactor is not None:
        learn(plain, redactor)

    return each(plain, lambda text, name: shown(text, redactor, lines=name == "lines"))


def shown(
    text: str, redactor: Redactor | None, limit: int = MAX_TEXT, *, lines: bool = False
) -> str:
    """`text` clean, then masked (a secret may lie over lines), then in one line, then cut."""
    if redactor is None:
        return clean(text, limit=limit, lines=lines)
    hidden = redactor.text(clean(text, limit=MAX_RAW, lines=True))
    return cut(hidden if lines else hidden.replace("\n", " ").strip(), limit)


def masked(diagnosis: Diagnosis, redactor: Redactor | None = None) -> Diagnosis:
    """A copy with secrets masked and nothing else changed: for JSON, which escapes by itself."""
    return masked_strings(replace(diagnosis, places=[]), redactor)


def masked_strings(value: T, redactor: Redactor | None = None) -> T:
    """Like `masked`, for any value; the default `redactor` leaves people."""
    redactor = redactor or secrets_only()
    hidden = {text: redactor.text(text) for text in learn(value, redactor)}
    for text in [text for text in hidden if not text.isprintable()]:
        # What an escape code or an invisible character cuts in two is found without it.
        bare = clean(text, limit=MAX_RAW, lines=True)
        if (found := redactor.text(bare)) != bare:
            hidden[text] = found
    return each(value, lambda text, _name: hidden[text])


def learn(value: object, redactor: Redactor) -> Iterable[str]:
    """Let a redactor know all secrets in the strings of a value; gives these, each once."""
    texts: dict[str, str] = {}
    each(value, lambda text, _: texts.setdefault(text, text))
    for text in texts:
        redactor.learn(clean(text, limit=MAX_RAW, lines=True))
    return texts


def masked_line(text: str, limit: int) -> str:
    """One clean line for a message: secrets masked, then cut."""
    return shown(text, secrets_only(), limit)


def cut(text: str, limit: int) -> str:
    """At most `limit` characters; what is longer ends in "…"."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def escaped(document: str) -> str:
    """A JSON document in which every invisible character is written as its code."""
    return document if document.isprintable() else _INVISIBLE.sub(_code, document)


def as_json(job: Job, diagnosis: Diagnosis, _: Wish) -> str:
    """A diagnosis for programs: one object of schema `diagnose/2`; names of people stay."""
    known = learn_around(job, diagnosis, secrets_only())
    return escaped(masked(diagnosis, known).to_json()) + "\n"


def _code(match: re.Match[str]) -> str:
    char = match.group()
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _one_line(text: str, limit: int) -> str:
    return cut(_UNPRINTABLE.sub(_printable, text).rstrip(), limit)


def _printable(match: re.Match[str]) -> str:
    char = match.group()
    if char.isspace():
        return " "
    return char if char.isprintable() else ""


def _numbers(values: Sequence[object]) -> bool:
    """Whether they are but numbers, as in lists of thousands of ranks: these stay as they are."""
    return {*map(type, values)} == {int}


def _items(values: Sequence[object], change: Any, name: str) -> list[object]:
    kept = values[:MAX_ITEMS]
    return [*kept] if _numbers(kept) else [each(value, change, name) for value in kept]


def each(value: T, change: Any, name: str = "") -> T:
    """`value` with `change(text, field name)` applied to every string inside."""
    if isinstance(value, str):
        return cast(T, change(value, name))
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, list):
        return cast(T, _items(value, change, name))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        own = zip(value, value._fields, strict=True)
        return type(value)(*(each(item, change, field) for item, field in own))
    if isinstance(value, tuple):
        return cast(T, tuple(_items(value, change, name)))
    if isinstance(value, dict):
        return cast(T, {each(k, change): each(v, change) for k, v in value.items()})
    if is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: each(getattr(value, f.name), change, f.name) for f in fields(value)}
        return cast(T, replace(value, **changes))
    return value


# --- text of one page, or of one answer -----------------------------------------------------------


class Scrub(NamedTuple):
    """Makes text fit to be shown; `redactor` masks the secrets in it, None leaves them.

    One of these makes one page: the same secret gets the same mask everywhere. Text is cut after
    masking: half a secret may no longer look like one.
    """

    redactor: Redactor | None = None

    def text(self, text: object, limit: int = MAX_TEXT) -> str:
        """One clean line of at most `limit` characters."""
        return shown(str(text), self.redactor, limit)

    def row(self, text: object, limit: int = MAX_TEXT) -> str:
        """One line of a log that keeps its indentation."""
        raw = str(text)
        return _indented(raw, self.text(raw, limit))

    def lines(self, text: str, limit: int = MAX_TEXT) -> str:
        """Like `text`, but indentation stays: for what is copied."""
        return shown(text, self.redactor, limit, lines=True)

    def block(self, lines: Sequence[str]) -> list[str]:
        """Lines that follow each other, looked at together: a secret may lie over several."""
        together = "".join(lines)
        bare = len(together) <= MAX_RAW and together.isprintable()  # nothing is to be taken out
        kept = [
            line.rstrip()
            if bare and line[:1] > " "
            else _indented(line, clean(line, limit=MAX_RAW))
            for line in lines
        ]
        return self.redactor.text("\n".join(kept)).split("\n") if self.redactor else kept

    def diagnosis(self, diagnosis: Diagnosis) -> Diagnosis:
        """A copy whose every string went through this; lists are bounded.

        What is there for pictures is left out: who draws it takes the little that is needed.
        """
        return safe(diagnosis, self.redactor, why=True)


def _indented(raw: str, text: str) -> str:
    indent = len(raw) - len(raw.lstrip(" "))
    return " " * min(indent, 40) + text


def scrubber(*, redact: bool) -> Scrub:
    """A new one for a page; without `redact` secrets stay."""
    return Scrub(Redactor() if redact else None)


# --- the lines around a line of evidence, read again from its source ------------------------------

# More of them are read than shown, and given to `show` together: whether a line is a piece of a
# secret may stand far above or below it.
AROUND = 5  # lines before and after
REACH = 80  # lines before and after that are looked at; the longest usual key file has 55
WINDOW = 16 << 10  # characters of these, as many as `job.reread` reads bytes


class Row(NamedTuple):
    """One line of a log; `number` is 1-based."""

    number: int
    text: str


Show = Callable[[Sequence[str]], list[str]]
Rows = dict[tuple[str, int], list[Row]]


def around(job: Job, evidence: Iterable[Evidence], show: Show = list) -> Rows:
    """The surroundings of each (source, line), the line itself included; absent where unknown.

    `show` makes lines that follow each other fit to be shown, as many as it is given.
    """
    found: Rows = {}
    read = job.lines_around(((one.source, one.line) for one in evidence), REACH, REACH)
    for (source, line), lines in read.items():
        rows = _shown([Row(number, text) for number, text in lines.items()], line, show)
        if rows:
            found[source, line] = rows
    return found


def _shown(rows: list[Row], line: int, show: Show) -> list[Row]:
    """The rows that a reader sees, after `show` saw all of those within WINDOW characters."""
    above = _within(reversed([row for row in rows if row.number < line]))
    below = _within(row for row in rows if row.number >= line)
    kept = [*reversed(above), *below]
    texts = show([row.text for row in kept])
    seen = [
        Row(row.number, text)
        for row, text in zip(kept, texts, strict=True)
        if abs(row.number - line) <= AROUND
    ]
    # Without the empty lines at both ends.
    numbers = [row.number for row in seen if row.text.strip() or row.number == line]
    return [row for row in seen if numbers and numbers[0] <= row.number <= numbers[-1]]


def _within(rows: Iterable[Row]) -> list[Row]:
    """The first rows, as many as AROUND tells or WINDOW characters hold."""
    kept: list[Row] = []
    size = 0
    for row in rows:
        size += len(row.text)
        if size > WINDOW and len(kept) > AROUND:
            break
        kept.append(row)
    return kept


def learn_around(job: Job, diagnosis: Diagnosis, redactor: Redactor) -> Redactor:
    """`redactor`, which now knows the secrets around the evidence; for text that shows no more."""
    chosen: list[Evidence] = []
    for item in diagnosis.evidence:
        near = (one for one in chosen if one.source == item.source)
        if all(abs(one.line - item.line) > REACH // 2 for one in near):
            chosen.append(item)
    around(job, chosen, Scrub(redactor).block)
    return redactor
