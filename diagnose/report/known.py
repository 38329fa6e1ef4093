"""What is known to be secret: found again without its name, and in parts where text was cut."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from diagnose.report.shapes import Span, mixed

_MOST = 1024  # values that are kept
_MOST_TEXT = 64 << 10  # characters of them together
_WHOLE = 8  # characters of a value that is looked for
_PART = 12  # … and of a part of one
_RUN = re.compile(r"[A-Za-z0-9_+/=.~-]{12,}+")


class Known:
    """Values of secrets, bounded in number and size."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self._all = ""  # one a line

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._kinds)

    def add(self, kind: str, value: str) -> None:
        """Keep a value, if it can be told from the words of a log."""
        if value in self._kinds or len(self._kinds) >= _MOST or not _telling(value):
            return
        if len(self._all) + len(value) > _MOST_TEXT:
            return
        self._kinds[value] = kind
        self._all += f"{value}\n"

    def within(self, text: str) -> list[str]:
        """The values that a text of any number of lines holds as a whole."""
        return [value for value in self._kinds if value in text]

    def spans(self, line: str, whole: Iterable[str]) -> Iterator[Span]:
        """Where one line holds a value of `whole`, or a run of characters that is a part of any."""
        for value in whole:
            at = line.find(value)
            while at >= 0:
                yield Span(at, at + len(value), self._kinds[value], value)
                at = line.find(value, at + len(value))
        for run in _RUN.finditer(line):
            part = run.group().strip(".")
            if len(part) >= _PART and part in self._all and mixed(part):
                value = next((one for one in self._kinds if part in one), "")
                if value and part != value:
                    start = run.start() + run.group().index(part)
                    yield Span(start, start + len(part), self._kinds[value], value)


def _telling(value: str) -> bool:
    """Whether a value would not be met by chance."""
    if len(value) < _WHOLE or not mixed(value) or "://" in value:
        return False
    drawn = value.lower() != value and value.upper() != value
    odd = not value.replace("-", "").replace("_", "").isalnum()
    return len(value) >= _PART or drawn or odd
