"""What stands between log text and the page: hostile characters out, secrets masked, length cut.

Markup needs nothing here: the templates escape, and scripts only ever set text content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from diagnose.diagnosis import Diagnosis
from diagnose.redact.redactor import Redactor
from diagnose.report.safe import MAX_RAW, MAX_TEXT, clean, each, learn, shown


@dataclass(frozen=True, slots=True)
class Scrub:
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
        plain = replace(diagnosis, graph=None, topology=None, places=[])
        if self.redactor:
            learn(plain, self.redactor)
        return each(plain, lambda text, name: (self.lines if name == "lines" else self.text)(text))


def _indented(raw: str, text: str) -> str:
    indent = len(raw) - len(raw.lstrip(" "))
    return " " * min(indent, 40) + text


def scrubber(*, redact: bool) -> Scrub:
    """A new one for a page; without `redact` secrets stay."""
    return Scrub(Redactor() if redact else None)
