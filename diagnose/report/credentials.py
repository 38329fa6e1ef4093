"""Where a line of text holds a secret: tokens and keys by their shape, passwords by their name.

Logs are full of look-alikes (`eos_token`, `store_based_barrier_key:1`, 40-hex group names), so a
bare string is a secret only where its shape leaves no doubt; anything else needs a name or a
command that says so. Patterns start with literals or run on text that holds their word, and
take a run of characters as a whole before judging it: no line costs more than linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from diagnose.report.names import NAMES, named
from diagnose.report.rules import RULES, Rule, ruled
from diagnose.report.shapes import Shape, Span, encoded_keys, possible, shaped
from diagnose.report.values import lowered, words_in

PEOPLE = frozenset({"user", "email"})  # kinds that are no secrets but stand beside one


class Clues(NamedTuple):
    """What may occur in a text, so that its lines are searched for nothing else."""

    forms: tuple[Shape, ...]
    rules: tuple[Rule, ...]
    named: bool


def clues(text: str) -> Clues:
    """Of a text of any number of lines."""
    forms = possible(text) if _drawn(text) else ()
    lower = lowered(text)
    if not _SIGN.search(text) and not any(word in lower for word in _SIGNLESS):
        return Clues(forms, (), named=False)
    words = words_in(lower, _WORDS)
    rules = tuple([rule for rule in RULES if rule.word in words])
    return Clues(forms, rules, not words.isdisjoint(NAMES))


_WORDS = tuple(sorted({*(rule.word for rule in RULES), *NAMES}))
# Most texts are prose: what no secret is without, so that little more is looked for in them.
_SHORT = 6  # characters of the least that is left of a token that was cut
_LONG = 16  # characters of a word; no form is shorter, unless it was cut
_SIGN = re.compile(r"[=:@|\"'(%]")
_SIGNLESS = (
    "login", "sshpass", "mysql", "redis", "mongo", "sqlcmd", "ldap", "bearer", "basic", "configure",
    *NAMES,
)  # fmt: skip


def _drawn(text: str) -> bool:
    """Whether some word may be a token, or the beginning of one at the end of the text."""
    if "\n" in text or "…" in text or "..." in text:
        return True
    parts = text.split()
    if not parts:
        return False
    last = parts[-1]
    cut_off = len(last) >= _SHORT and not (last.isalpha() and last.islower())
    return cut_off or max(map(len, parts)) >= _LONG


def find(line: str, clues: Clues) -> Iterator[Span]:
    """Secrets in one line, the surest kind first; spans may overlap.

    Two kinds are no secrets but stand beside one: `user` in an address or a command.
    """
    sure = [*shaped(line, clues.forms), *encoded_keys(line)]
    yield from sure
    if not (clues.rules or clues.named):
        return
    lower = lowered(line)
    by_rule = list(ruled(line, lower, clues.rules))
    yield from by_rule
    if clues.named and any(word in lower for word in NAMES):
        starts = {span.start for span in (*sure, *by_rule) if span.kind != "user"}
        yield from (span for span in named(line, lower) if span.start not in starts)


def suspect(tail: str, clues: Clues) -> bool:
    """Whether a secret may begin in `tail` and go on after it."""
    if any(form.start in tail for form in clues.forms) or "://" in tail or "LS0tLS1C" in tail:
        return True
    lower = lowered(tail) if clues.named else ""
    return any(name in lower for name in NAMES if clues.named)
