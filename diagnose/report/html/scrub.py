"""What stands between log text and the page: hostile characters out, secrets masked, length cut.

Markup needs nothing here: the templates escape, and scripts only ever set text content.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from diagnose.diagnosis import Diagnosis
from diagnose.report.redact import Redactor
from diagnose.report.safe import MAX_TEXT, clean, each


@dataclass(frozen=True, slots=True)
class Scrub:
    """Makes text fit to be shown; `hide` masks the secrets in it, None leaves them.

    One of these makes one page: the same secret gets the same mask everywhere.
    """

    hide: Callable[[str], str] | None = None

    def text(self, text: object, limit: int = MAX_TEXT) -> str:
        """One clean line of at most `limit` characters."""
        # Cut after masking: half a secret may no longer look like one.
        line = clean(str(text), limit=2 * limit)
        line = self.hide(line) if self.hide else line
        return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"

    def row(self, text: object, limit: int = MAX_TEXT) -> str:
        """One line of a log that keeps its indentation."""
        raw = str(text)
        indent = len(raw) - len(raw.lstrip(" "))
        return " " * min(indent, 40) + self.text(raw, limit)

    def lines(self, text: str, limit: int = MAX_TEXT) -> str:
        """Like `text`, but line breaks stay: for commands."""
        kept = clean(text, limit=2 * limit, lines=True)
        return (self.hide(kept) if self.hide else kept)[:limit]

    def diagnosis(self, diagnosis: Diagnosis) -> Diagnosis:
        """A copy whose every string went through this; lists are bounded.

        What is there for pictures is left out: who draws it takes the little that is needed.
        """
        plain = replace(diagnosis, graph=None, topology=None, places=[])
        return each(
            plain, lambda text, name: (self.lines if name == "command" else self.text)(text)
        )


def scrubber(*, redact: bool) -> Scrub:
    """A new one for a page; without `redact` secrets stay."""
    return Scrub(Redactor().text if redact else None)
