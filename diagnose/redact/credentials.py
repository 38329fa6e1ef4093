"""Where a line of text holds a secret: tokens and keys by their shape, passwords by their name.

Logs are full of look-alikes (`eos_token`, `store_based_barrier_key:1`, 40-hex group names), so a
bare string is a secret only where its shape leaves no doubt; anything else needs a name or a
command that says so. Patterns start with literals or run on text that holds their word, and
take a run of characters as a whole before judging it: no line costs more than linear time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from diagnose.lazy import expression
from diagnose.redact.forms import (
    KEY_STARTS,
    Span,
    encoded_keys,
    lowered,
    possible,
    shaped,
    words_in,
)
from diagnose.redact.issuers import Shape
from diagnose.redact.names import NAMES, named
from diagnose.redact.rules import RULES, SIGNLESS, Rule, ruled
from diagnose.redact.views import encoded

PEOPLE = frozenset({"user", "email"})  # kinds that are no secrets but stand beside one


class Clues(NamedTuple):
    """What may occur in a text, so that its lines are searched for nothing else.

    A line that has none of `starts` (of forms), of `keys` (in base64) nor, in lower case, of
    `words` (of rules and names) holds none of it.
    """

    forms: tuple[Shape, ...]
    rules: tuple[Rule, ...]
    names: tuple[str, ...]
    starts: tuple[str, ...]
    keys: tuple[str, ...]
    words: tuple[str, ...]
    people: tuple[str, ...] = ()  # like `words`, of names of people
    views: bool = False  # whether some lines may be read otherwise: these are searched in any case


def clues(text: str) -> Clues:
    """Of a text of any number of lines."""
    forms = possible(text) if _drawn(text) else ()
    starts = tuple({form.start for form in forms})
    keys = tuple([start for start in KEY_STARTS if start in text])
    lower = lowered(text)
    if not _SIGN.search(text) and not any(map(lower.__contains__, _SIGNLESS)):
        return Clues(forms, (), (), starts, keys, ())
    # How many tokens a second, the keys of a state dict: no name of a secret.
    plural = {one for one in _COUNTED if lower.count(one) == lower.count(f"{one}s")}
    words = words_in(lower, _WORDS) - plural
    rules = tuple([rule for rule in RULES if rule.word in words])
    names = tuple([name for name in NAMES if name in words])
    return Clues(forms, rules, names, starts, keys, tuple(words))


def holding(lines: Sequence[str], clues: Clues) -> set[int]:
    """Which of its lines hold anything of a text's `clues`, by their places."""
    text = "\n".join(lines)
    found = _with(text, (*clues.starts, *clues.keys))
    if clues.views:
        found |= {at for at, line in enumerate(lines) if encoded(line)}
    words = (*clues.words, *clues.people)
    return found | _with("\n".join(map(lowered, lines)), words) if words else found


def _with(text: str, words: Iterable[str]) -> set[int]:
    """The lines that hold one of some words: looked for in all at once, most are in few."""
    found: set[int] = set()
    starts = [0, *(match.end() for match in _LINE_END.finditer(text)), len(text) + 1]
    for word in words:
        at = text.find(word)
        while at >= 0:
            line = bisect_right(starts, at) - 1
            found.add(line)
            at = text.find(word, starts[line + 1])
    return found


_LINE_END = expression("\n")
_WORDS = tuple(sorted({*(rule.word for rule in RULES), *NAMES}))
# Most texts are prose: what no secret is without, so that little more is looked for in them.
_COUNTED = ("token", "key")  # of names
_SHORT = 6  # characters of the least that is left of a token that was cut
_LONG = 16  # characters of a word; no form is shorter, unless it was cut
_ENCODED = "LS0tLS1C"  # ----- and a letter in base64
_SIGN = expression(r"[=:@|\"'(%]")
_SIGNLESS = (
    "bearer", "basic", *SIGNLESS, *NAMES,
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
    if not (clues.rules or clues.names):
        return
    lower = lowered(line)
    by_rule = list(ruled(line, lower, clues.rules))
    yield from by_rule
    if any(map(lower.__contains__, clues.names)):
        starts = {span.start for span in (*sure, *by_rule) if span.kind != "user"}
        yield from (span for span in named(line, lower) if span.start not in starts)


def unfinished(tails: Sequence[str], clues: Clues) -> list[int]:
    """In which ends of lines a secret may begin that goes on after them, by their places."""
    found = holding(tails, clues) | _with("\n".join(tails), (_ENCODED,))
    return [at for at in sorted(found) if _unfinished(tails[at], clues)]


def _unfinished(tail: str, clues: Clues) -> bool:
    last = tail[max(tail.rfind(" "), tail.rfind("\t")) + 1 :]  # no form has a blank in it
    if any(map(last.__contains__, clues.starts)) or "://" in tail or _ENCODED in tail:
        return True
    return any(map(lowered(tail).__contains__, clues.words))
