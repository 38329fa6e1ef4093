"""Literals of which a line must have one, so that an expression can match it at all.

Thousands of expressions in one automaton are slower than thousands of literals. Most lines of a log
have none of the literals, and only those that do are searched for the expressions.

`required` takes long words that each match holds. For expressions without one `openings` spells
out, from every place that each match passes, the texts that may follow there: classes of few
characters, alternatives and repeats included. `(?:skip|skips) [ab]` has `skip a`, `skips b` and so
on. The set that says most is taken.

A mark is a few characters of a text that announces something. Hyperscan looks at eight characters
at most, and has eight groups for its literals: each length takes one, the others are left to the
longest ones, by their last character. What may be any of a group is looked at twice, and that takes
longer than all the rest. So few lengths are used, and of a text the characters that most other
texts have: half as many literals find hardly more lines. (It looks at each byte where a literal has
two characters, as one has, or where there are 5,000. Else it looks at every second byte, and finds
so much that it is slower.)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from re import _constants as code  # type: ignore[attr-defined]  # no other parser of these is public
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from diagnose.lazy import expression

LEAST = 5  # characters of a literal: shorter ones are everywhere
_MOST = 64  # literals of one expression
_LONG = 12  # characters beyond which a literal is no better

_POSIX = expression(r"\[:\^?\w+:\]")
_REPEATS = (code.MAX_REPEAT, code.MIN_REPEAT)
# Lines of which a log may hold millions: what they say announces nothing.
BULK = """
host:1:2 [0] NCCL INFO AllReduce: opCount 1f sendbuff 0x7f recvbuff 0x7f count 1 datatype 7 op 0
root 0 comm 0x55 [nranks=8] stream 0x55 AllGather: ReduceScatter: Broadcast: Reduce: AlltoAll:
Gather: Scatter: Send: Recv: opCount
""".lower()


_Literals = frozenset[str]


@lru_cache(maxsize=8192)  # all of the databases ask
def required(expression: str) -> _Literals | None:
    """Literals one of which every match contains; None if there are no good ones."""
    best = max(parts(expression), key=_worth, default=None)
    if not best or len(best) > _MOST or _length(best) < LEAST or in_bulk(best):
        return None
    return best


def _best(items: Iterable[Any]) -> _Literals | None:
    """The rarest set of a sequence: the longest, of equally long ones the smallest."""
    return max(_sets(items), key=_worth, default=None)


def _worth(literals: _Literals) -> tuple[bool, int, int]:
    return not in_bulk(literals), min(_length(literals), _LONG), -len(literals)


def in_bulk(literals: Iterable[str]) -> bool:
    """Whether there are lines of which a log may hold millions with one of these literals."""
    return any(literal.lower() in BULK for literal in literals)


def _length(literals: _Literals) -> int:
    return min(map(len, literals))


@lru_cache(maxsize=8192)  # more than one question is asked of each
def parts(expression: str) -> tuple[_Literals, ...]:
    """Sets of literals, of each of which every match contains one, in their order."""
    try:
        parsed = parsed_form(expression)
    except re.error:
        return ()
    return () if parsed.state.flags & re.IGNORECASE else tuple(_sets(parsed))


def parsed_form(expression: str) -> Any:
    """Raises re.error for what `regex` and Hyperscan know more than `re`."""
    if _POSIX.search(expression):
        raise re.error("`re` reads such a class as something else")
    return parser.parse(expression)


def positions(expression: str) -> int:
    """Characters and classes of an expression: what an automaton has states for.

    Raises re.error for what `re` does not know.
    """
    return _positions(parsed_form(expression))


def _positions(items: Iterable[Any]) -> int:
    found = 0
    for operation, argument in items:
        if operation is code.SUBPATTERN:
            found += _positions(argument[-1])
        elif operation is code.BRANCH:
            found += sum(map(_positions, argument[1]))
        elif operation in _REPEATS:
            found += max(argument[0], 1) * _positions(argument[2])
        elif operation is not code.AT:
            found += 1
    return found


def begins_with_repeat(expression: str) -> bool:
    """Whether any byte may begin a match, and any number of them; as `positions`."""
    items = list(parsed_form(expression))
    while items and items[0][0] is code.SUBPATTERN:
        items = list(items[0][1][-1])
    return bool(items) and items[0][0] in _REPEATS and items[0][1][1] is code.MAXREPEAT


def _sets(items: Iterable[Any]) -> Iterator[_Literals]:
    """The sets of each part of a sequence that is always there; neighbouring characters joined."""
    run = ""
    for operation, argument in items:
        if operation is code.LITERAL:
            run += chr(argument)
            continue
        if operation is code.AT:
            continue  # no character of its own
        if run:
            yield frozenset((run,))
            joined = {run + begin for begin in _begins([(operation, argument)])}
            if len(joined) <= _MOST:
                yield frozenset(joined)
        run = ""
        yield from _of_part(operation, argument)
    if run:
        yield frozenset((run,))


def _begins(items: Iterable[Any]) -> Iterator[str]:
    """The literals that a sequence may begin with; empty where it begins otherwise."""
    run = ""
    for operation, argument in items:
        if operation is code.LITERAL:
            run += chr(argument)
        elif operation is code.BRANCH:
            for one in argument[1]:
                yield from (run + begin for begin in _begins(one))
            return
        elif operation is code.SUBPATTERN and not argument[1] & re.IGNORECASE:
            yield from (run + begin for begin in _begins(argument[-1]))
            return
        elif operation is not code.AT:
            break
    yield run


def _of_part(operation: Any, argument: Any) -> Iterator[_Literals]:
    if operation is code.SUBPATTERN:
        if not argument[1] & re.IGNORECASE:
            yield from _sets(argument[-1])
    elif operation is code.BRANCH:
        alternatives = [_best(one) for one in argument[1]]
        if all(alternatives):
            yield frozenset().union(*(one for one in alternatives if one))
    elif operation in _REPEATS and argument[0] >= 1:
        yield from _sets(argument[2])


_GOOD = 6  # bytes, of which two may be blanks, that few other lines have
_AS_BAD = 16  # texts more that slow the search as much as one byte less
_LEAST_TELLING = 2.5  # worth of a set that is better than none
_LENGTHS = (8, 6, 5, 4)  # characters to which texts are spelled out
_MOST_TEXTS = 160  # texts of one set
_WIDE = 64  # characters of a class that is spelled out
_CLASSES = {
    code.CATEGORY_DIGIT: "0123456789",
    code.CATEGORY_SPACE: " \t\n\r\f\v",
    code.CATEGORY_WORD: "".join(char for char in map(chr, range(128)) if re.match(r"\w", char)),
}
_ALL_REPEATS = (code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT)

_Items = Sequence[tuple[Any, Any]]


def openings(expression: str) -> _Literals:
    """Texts one of which each match has; the empty set where there are none that say anything."""
    try:
        parsed = parser.parse(expression)
    except re.error:  # `regex` and Hyperscan know more
        return frozenset()
    items = [*parsed]
    if caseless := parsed.state.flags & re.IGNORECASE:  # as if all of it stood in a group
        items = [(code.SUBPATTERN, (None, caseless, 0, items))]
    best = _best_spelled(_spelled_sets(items, []))
    return best if _telling(best) >= _LEAST_TELLING else frozenset()


def _best_spelled(sets: Iterable[_Literals]) -> _Literals:
    """The one that says most; the first that is good enough, as each costs time to spell out."""
    best, most = frozenset[str](), -1.0
    for texts in sets:
        worth = _telling(texts)
        if worth > most:
            best, most = texts, worth
        if most >= _GOOD:
            break
    return best


@lru_cache(maxsize=256)  # each set is asked about again at once
def _telling(texts: _Literals) -> float:
    """Bytes of the shortest text, mostly; 0 for what is in most lines.

    Many texts are worse than few, short ones than long ones, and small letters are in all words.
    """
    if not texts or in_bulk(texts):
        return 0
    least = min(map(_telling_bytes, texts))
    rare = sum(not text.replace(" ", "").islower() for text in texts) / len(texts)
    mean = sum(map(len, texts)) / len(texts)
    return min(_GOOD, least) - (len(texts) - mean) / _AS_BAD + rare / 2


def _telling_bytes(text: str) -> int:
    """Bytes of a text that say something: of blanks two at most do."""
    size = len(text.encode())
    blanks = size - len("".join(text.split())) if text.isascii() else sum(map(str.isspace, text))
    return size - max(0, blanks - 2)


def _spelled_sets(items: _Items, after: _Items) -> Iterator[_Literals]:
    """The texts that follow from each place in `items` on, which `after` follows."""
    for at, (operation, argument) in enumerate(items):
        rest = [*items[at + 1 :], *after]
        yield _spelled([*items[at:], *after])
        if operation is code.SUBPATTERN and not argument[1] & re.IGNORECASE:
            yield from _spelled_sets([*argument[-1]], rest)
        elif operation is code.BRANCH:
            ways = [_best_spelled(_spelled_sets([*one], rest)) for one in argument[1]]
            if all(ways):
                yield frozenset().union(*ways)
        elif operation in _ALL_REPEATS and argument[0] >= 1:
            yield from _spelled_sets([*argument[2]], [(operation, (0, *argument[1:])), *rest])
            yield from _spelled_sets([*argument[2]], rest)  # the last time


def _spelled(items: _Items) -> _Literals:
    """The texts with which a sequence may begin, as long as there are not too many."""
    found: _Literals = frozenset()
    for length in _LENGTHS:
        spelling = _Spelling(length)
        texts = spelling.done | spelling.on({""}, items)
        found = max(found, _shortest(texts), key=_telling)
        if _telling(found) >= _GOOD:
            break
    return found


def _shortest(texts: set[str]) -> _Literals:
    """The texts that begin with no other one."""
    found: list[str] = []
    for text in sorted(texts):  # in this order those that begin with one stand behind it
        if not found or not text.startswith(found[-1]):
            found.append(text)
    return frozenset(found)


class _Spelling:
    """Spells out what a sequence matches, up to a length; `done` are texts that end there."""

    def __init__(self, length: int) -> None:
        self._length = length
        self.done: set[str] = set()

    def on(self, texts: set[str], items: _Items, *, cased: bool = True) -> set[str]:
        """The texts with what comes next, but for those that nobody knows how to go on."""
        for operation, argument in items:
            if operation in (code.AT, code.ASSERT, code.ASSERT_NOT):
                continue  # no character of its own
            if not texts:
                break
            if operation is code.SUBPATTERN:
                still = cased and not argument[1] & re.IGNORECASE
                texts = self.on(texts, argument[-1], cased=still)
            elif operation is code.BRANCH:
                ways = [self.on(set(texts), one, cased=cased) for one in argument[1]]
                texts = set().union(*ways)
            elif operation in _ALL_REPEATS:
                texts = self._repeated(texts, argument, cased)
            else:
                chars = _characters(operation, argument, cased=cased)
                texts = self._longer(texts, chars)
        return texts

    def _repeated(self, texts: set[str], argument: Any, cased: bool) -> set[str]:
        least, most, inner = argument
        for _ in range(min(least, self._length)):
            texts = self.on(texts, inner, cased=cased)
        whole, last = set(texts), texts
        for _ in range(min(most - least, self._length)):
            last = self.on(last, inner, cased=cased) - whole
            if not last:
                break
            whole |= last
        return whole

    def _longer(self, texts: set[str], chars: str) -> set[str]:
        if not chars or len(texts) * len(chars) > _MOST_TEXTS:
            self.done |= texts
            return set()
        longer = {text + char for text in texts for char in chars}
        ended = {text for text in longer if len(text) >= self._length}
        self.done |= ended
        return longer - ended


def _characters(operation: Any, argument: Any, *, cased: bool) -> str:
    """Those that one item stands for; none if they are too many."""
    if operation is code.LITERAL:
        char = chr(argument)
        return char if cased else "".join({char.lower(), char.upper()})
    found: set[str] = set()
    for kind, value in argument if operation is code.IN else ():
        if kind is code.LITERAL:
            found.add(chr(value))
        elif kind is code.RANGE and value[1] - value[0] < _WIDE:
            found.update(map(chr, range(value[0], value[1] + 1)))
        elif kind is code.CATEGORY and value in _CLASSES:
            found.update(_CLASSES[value])
        else:
            return ""
    if not cased:
        found |= {char.swapcase() for char in found}
    return "".join(found) if len(found) <= _WIDE else ""


_LONGEST_MARK = 8
_SIZES = {7: 6}  # characters that are searched of texts not as long as that, but for all of them
# What a job may log at each step: of a text another part is better.
_PROGRESS = """
2025-01-01 00:00:00,000 INFO trainer: train_loss validation accuracy perplexity eval step epoch
[INFO] [logging.py:96:log_dist] [Rank 0] deepspeed step=10, skipped=0, lr=[1e-05], mom=[(0.9, 0.9)]
 iteration 100/ 5000 | consumed samples: 1024 | elapsed time per iteration (ms): 100.0 | throughput
 per gpu (tflop/s/gpu): 100.0 | learning rate: 1.0e-04 | global batch size: 1024 | lm loss: 1.0e+00
 | loss scale: 1.0 | grad norm: 1.0 | number of skipped iterations: 0 | number of nan iterations: 0
{'loss': 1.0, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.1} global_step micro_batch tokens
memory allocated reserved max_memory samples/sec tokens per second checkpoint dataset processed
10%|# | 10/100 [00:10<00:10, 1.00it/s] accelerate transformers tensorflow generation evaluation
"""

Literal = tuple[str, bool]  # and whether its case is ignored


def marks_of(texts: Collection[Literal]) -> set[Literal]:
    """Literals one of which is in whatever holds one of these texts."""
    holders = Counter(part for text, _ in texts for part in set(_parts(text)))

    def mark(text: str) -> str:
        parts = _uncommon(text)
        most = max(map(holders.__getitem__, parts))
        return max((part for part in parts if holders[part] == most), key=_rarity)

    return fewest({(mark(text), ignored) for text, ignored in texts})


def rarest(text: str) -> str:
    """The part of a text that says most by itself."""
    return max(_uncommon(text), key=_rarity)


def fewest(literals: Collection[Literal]) -> set[Literal]:
    """Those that hold no other one: it says enough."""
    exact = {literal for literal, ignored in literals if not ignored}
    caseless = {literal.lower() for literal, ignored in literals if ignored}
    lengths = {len(literal) for literal in exact | caseless}

    def holds_another(literal: str, ignored: bool) -> bool:
        within = {
            literal[at : at + size] for size in lengths for at in range(len(literal) - size + 1)
        }
        if not ignored and any(part in exact for part in within - {literal}):
            return True
        lower = {part.lower() for part in within if part.isascii()}
        return bool(caseless & (lower - {literal.lower()} if ignored else lower))

    return {
        (literal, ignored) for literal, ignored in literals if not holds_another(literal, ignored)
    }


def _parts(text: str) -> list[str]:
    """The parts of a text that may be searched for it."""
    size = min(_SIZES.get(len(text), len(text)), _LONGEST_MARK)
    return [text[at : at + size] for at in range(len(text) - size + 1)]


@cache
def _common() -> frozenset[str]:
    """What may stand in lines of which a log holds millions."""
    return frozenset(
        lines[at : at + size]
        for lines in (BULK, _PROGRESS.lower())
        for size in range(2, _LONGEST_MARK + 1)
        for at in range(len(lines) - size + 1)
    )


def _uncommon(text: str) -> list[str]:
    """Its parts that are not common; all if there are none."""
    parts, common = _parts(text), _common()
    return [part for part in parts if part.lower() not in common] or parts


def _rarity(part: str) -> tuple[int, int]:
    """Small letters and blanks are in all lines."""
    return sum(not (one.islower() or one == " ") for one in part), len(set(part))


_SHORTEST_PHRASE = 12  # characters of words that hardly another message has
_MOST_PHRASES = 64  # phrases of one expression
_SPECIAL = expression(r"[^\w\s]")  # may mean something in an expression
_BOUNDS = expression(r"(?<!\\)\{(?P<least>\d*),\d+\}")
_CLASS = expression(r"\[\^?\]?(?:\\.|[^]\\])*\]")
_QUANTIFIERS = "?*+{"


def simpler(expression: str) -> list[str]:
    """Expressions one of which matches wherever this one does; most of them are plain phrases.

    Alternatives with a phrase of their own become that; bounds of repeats, which cost an automaton
    a state for each count, are left out.
    """
    own = _phrases(expression)
    words, left = (own, None) if own else _apart(expression)
    found = [_SPECIAL.sub(r"\\\g<0>", phrase) for phrase in sorted(words)]
    return [*found, unbounded(left)] if left is not None else found


def unbounded(expression: str) -> str:
    """The same with repeats of any length."""
    return _BOUNDS.sub(lambda found: "*" if found["least"] in ("", "0") else "+", expression)


def _phrases(expression: str) -> frozenset[str] | None:
    """Phrases one of which every match contains; None without."""
    if len(expression) < _SHORTEST_PHRASE or " " not in expression:
        return None
    good = [
        part for part in parts(expression) if len(part) <= _MOST_PHRASES and all(map(_phrase, part))
    ]
    return max(good, key=lambda part: (min(map(len, part)), -len(part)), default=None)


def _phrase(literal: str) -> bool:
    """Whether this is words: a path or the name of a logger is in all that its program prints."""
    return len(literal) >= _SHORTEST_PHRASE and " " in literal.strip()


def _apart(expression: str) -> tuple[frozenset[str], str | None]:
    """Phrases of alternatives, and an expression for the alternatives that have none."""
    if "|" not in expression:
        return frozenset(), expression
    start, end, inner = 0, len(expression), expression
    if len(_alternatives(expression)) == 1:
        choices = (one for one in _groups(expression) if len(_alternatives(one[2])) > 1)
        start, end, inner = max(choices, key=lambda one: len(one[2]), default=(0, 0, ""))
    words: set[str] = set()
    left: list[str] = []
    for one in _alternatives(inner):
        own = _phrases(one)
        deeper, rest = (own, None) if own else _apart(one)
        words |= deeper
        left += [] if rest is None else [rest]
    if not words:
        return frozenset(), expression
    if not left:
        return frozenset(words), None
    return frozenset(words), f"{expression[:start]}(?:{'|'.join(left)}){expression[end:]}"


def _group_signs(expression: str) -> Iterator[tuple[int, str, int]]:
    """Place, character and depth of what groups are made of."""
    at = depth = 0
    while at < len(expression):
        char = expression[at]
        if char == "\\":
            at += 1
        elif char == "[" and (found := _CLASS.match(expression, at)):
            at = found.end() - 1
        elif char == "(":
            yield at, char, depth
            depth += 1
        elif char == ")":
            depth -= 1
            yield at, char, depth
        elif char == "|":
            yield at, char, depth
        at += 1


def _alternatives(expression: str) -> list[str]:
    """The parts between the bars that are in no group."""
    cuts = [at for at, char, depth in _group_signs(expression) if char == "|" and not depth]
    starts, ends = [0, *(at + 1 for at in cuts)], [*cuts, len(expression)]
    return [expression[start:end] for start, end in zip(starts, ends, strict=True)]


def _groups(expression: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and inside of the outermost groups that are there once in each match."""
    start = 0
    for at, char, depth in _group_signs(expression):
        if depth or char == "|":
            continue
        if char == "(":
            start = at
        elif expression[at + 1 : at + 2] not in _QUANTIFIERS or at + 1 == len(expression):
            inner = expression[start + 1 : at].removeprefix("?:")
            if not inner.startswith("?"):
                yield start, at + 1, inner
