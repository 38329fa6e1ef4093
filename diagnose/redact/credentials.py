"""Where a line of text holds a secret: by the kinds of `formats/secrets`, and by names.

Logs are full of look-alikes (`eos_token`, `store_based_barrier_key:1`, 40-hex group names), so a
bare string is a secret only where its shape leaves no doubt; anything else needs a name or a
command that says so. A kind is looked for in text that holds one of its keywords, and takes a run
of characters as a whole before judging it: no line costs more than linear time.

`docs/extending.md` shows how a kind is written.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import accumulate
from typing import Any, NamedTuple

from diagnose.redact import data
from diagnose.redact.names import JUDGED, NAMES, mixed, named, placeholder
from diagnose.redact.views import Span, encoded, lowered

PEOPLE = frozenset({"user", "email"})  # kinds that are no secrets but stand beside one
# In this order: of two kinds that overlap, the first gives its name.
FAMILIES = (
    "hubs", "forges", "clouds", "providers", "platforms", "packages", "services", "keys", "fields",
    "commands",
)  # fmt: skip

# What a report or a reader of long lines leaves where it cut.
_CUT = r"(?= ?(?:…|\.{3})|\Z)"
_CUT_LEAST = 4  # characters after the beginning of a token whose rest was cut off


class Kind(NamedTuple):
    """One kind of secret, read from its row."""

    masks: tuple[str, ...]  # names of the masks, by group
    keywords: tuple[str, ...]  # text that holds none of these holds no such secret
    pattern: str
    cut: str  # … where the end of a token was cut off
    lower: bool  # the keywords are those of text in lower case: what stands around tells the secret
    cased: bool  # … but the pattern is for the text as it is
    also: str  # an expression that what is masked must match too


def kind(row: Mapping[str, Any]) -> Kind:
    """The kind that a row of a family describes."""
    masks = row["kind"]
    pattern, cut = "".join(row.get("token") or row.get("context") or ()), ""
    if not pattern:
        body, least = f"{row['prefix']}[{row['chars']}]", row["least"]
        pattern = f"{body}{{{least},}}+{row.get('after', '')}"
        if least > _CUT_LEAST:
            cut = f"{body}{{{_CUT_LEAST},}}+{_CUT}"
    return Kind(
        (masks,) if isinstance(masks, str) else tuple(masks),
        tuple(row.get("keywords") or [row["prefix"].replace("\\", "")]),
        pattern,
        cut,
        "context" in row,
        row.get("cased", False),
        "".join(row.get("also", "")),
    )


KINDS = tuple([kind(row) for family in FAMILIES for row in data(family)])


# Where the kinds of a keyword are, by whether it is one of text in lower case.
_PLACES: dict[tuple[bool, str], list[int]] = {}
for _at, _kind in enumerate(KINDS):
    for _word in _kind.keywords:
        _PLACES.setdefault((_kind.lower, _word), []).append(_at)
_STARTS = tuple([word for lower, word in _PLACES if not lower])
_WORDS = tuple(sorted({word for lower, word in _PLACES if lower} | {*NAMES}))
_compiled = cache(re.compile)  # when first needed: all of them take longer than a short report


# --- what may be in a text ------------------------------------------------------------------------


class Clues(NamedTuple):
    """What may occur in a text, so that its lines are searched for nothing else.

    A line that has none of `starts` nor, in lower case, of `words` (of kinds and names) holds none.
    """

    kinds: tuple[Kind, ...]
    names: tuple[str, ...]
    starts: tuple[str, ...]
    words: tuple[str, ...]
    people: tuple[str, ...] = ()  # like `words`, of names of people
    views: bool = False  # whether some lines may be read otherwise: these are searched in any case


def clues(text: str) -> Clues:
    """Of a text of any number of lines."""
    lower = lowered(text)
    starts = words_in(text, _STARTS)
    # How many tokens a second, the keys of a state dict: no name of a secret.
    plural = {one for one in ("token", "key") if lower.count(one) == lower.count(f"{one}s")}
    words = words_in(lower, _WORDS) - plural
    held = [(False, word) for word in starts] + [(True, word) for word in words]
    places = {at for key in held for at in _PLACES.get(key, ())}
    kinds = tuple([KINDS[at] for at in sorted(places)])
    return Clues(kinds, tuple(words.intersection(NAMES)), tuple(starts), tuple(words))


_LONG = 4096  # characters from which on making an automaton pays
_AT_ONCE: dict[tuple[str, ...], tuple[bytes, ...]] = {}  # words that there is an automaton for


def words_in(text: str, wanted: tuple[str, ...]) -> set[str]:
    """Those of `wanted`, which are ASCII, that are in `text`; after a long one looked for at once.

    One by one in the program that collects from nodes, which only has the standard library.
    """
    if len(text) >= _LONG or wanted in _AT_ONCE:
        with suppress(ImportError):
            literals = import_module("diagnose.search")  # by name: that program lacks it
            if wanted not in _AT_ONCE:
                _AT_ONCE[wanted] = tuple(word.encode() for word in wanted)
            found = literals.held(text.encode(errors="replace"), _AT_ONCE[wanted])
            return {word.decode() for word in found}
    return {word for word in wanted if word in text}


def holding(lines: Sequence[str], clues: Clues) -> set[int]:
    """Which of its lines hold anything of a text's `clues`, by their places."""
    found = _with(lines, clues.starts)
    if clues.views:
        found |= {at for at, line in enumerate(lines) if encoded(line)}
    words = (*clues.words, *clues.people)
    return found | _with([*map(lowered, lines)], words) if words else found


def _with(lines: Sequence[str], words: Iterable[str]) -> set[int]:
    """The lines that hold one of some words: looked for in all at once, most are in few."""
    found: set[int] = set()
    text = "\n".join(lines)
    starts = [*accumulate((len(line) + 1 for line in lines), initial=0)]
    for word in words:
        at = text.find(word)
        while at >= 0:
            line = bisect_right(starts, at) - 1
            found.add(line)
            at = text.find(word, starts[line + 1])
    return found


# --- what is in a line ----------------------------------------------------------------------------


def find(line: str, clues: Clues) -> Iterator[Span]:
    """Secrets in one line, the surest kind first; spans may overlap.

    Two kinds are no secrets but stand beside one: `user` in an address or a command.
    """
    lower = lowered(line)
    sure = list(by_kind(line, lower, clues.kinds))
    yield from sure
    if any(map(lower.__contains__, clues.names)):
        starts = {span.start for span in sure if span.kind != "user"}
        yield from (span for span in named(line, lower) if span.start not in starts)


def by_kind(line: str, lower: str, kinds: Iterable[Kind]) -> Iterator[Span]:
    """What is of these kinds in one line, also where its end was cut off."""
    for one in kinds:
        held = lower if one.lower else line
        for word in one.keywords:
            if word in held:
                break
        else:
            continue
        for match in _compiled(one.pattern).finditer(line if one.cased else held):
            if one.lower or _begins(line, match.start(), match.group()):
                yield from _groups(line, match, one)
        for match in _compiled(one.cut).finditer(line) if one.cut else ():
            rest = match.group()[len(one.keywords[0]) :]
            # Drawn, not written: digits or small and capital letters.
            odd = mixed(rest) or (rest.lower() != rest != rest.upper() and rest.isalnum())
            if odd and _begins(line, match.start(), ""):
                yield Span(*match.span(), one.masks[0])


def _groups(line: str, match: re.Match[str], one: Kind) -> Iterator[Span]:
    """What a match says to mask: its groups, or all of it."""
    for group, mask in enumerate(one.masks, start=match.re.groups > 0):
        start, end = match.span(group)  # of a group that is not there: -1
        value = line[max(0, start) : end]
        if start < 0 or placeholder(value[:JUDGED]) or not _compiled(one.also).match(value):
            continue
        token = mask == "user" and len(value) >= 20 and mixed(value)
        yield Span(start, end, "token" if token else mask)


def _begins(text: str, at: int, found: str) -> bool:
    r"""Whether no word goes on into `at`.

    The n of a written-out `\n` is none, nor what an underscore glues to a long token, as in names
    of files.
    """
    if at == 0 or not (text[at - 1].isalnum() or text[at - 1] == "_"):
        return True
    if text[at - 1] == "_":
        return len(found) >= 20 and mixed(found) and not found.islower()
    return text[max(0, at - 2) : at] in (r"\n", r"\r", r"\t")


# --- what goes on in the next line ----------------------------------------------------------------

_ENCODED = "LS0tLS1C"  # ----- and a letter in base64


def unfinished(tails: Sequence[str], clues: Clues) -> list[int]:
    """In which ends of lines a secret may begin that goes on after them, by their places."""

    def begun(tail: str) -> bool:
        last = tail[max(tail.rfind(" "), tail.rfind("\t")) + 1 :]  # no token has a blank in it
        if any(map(last.__contains__, clues.starts)) or "://" in tail or _ENCODED in tail:
            return True
        return any(map(lowered(tail).__contains__, clues.words))

    found = sorted(holding(tails, clues) | _with(tails, [_ENCODED]))
    return [at for at in found if begun(tails[at])]
