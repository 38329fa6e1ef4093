"""What Hyperscan is given of a catalog: the rows of each of its databases.

The marks, plain literals, are looked for in all bytes; the lines that hold one are searched for
the patterns and the words. What is searched for may be simpler than a pattern, as long as it finds
all that the pattern does: `regex` confirms it. Literals compile in no time, thousands of
expressions take seconds.

A mark is a few characters of a text that announces something. Hyperscan looks at eight characters
at most, and has eight groups for its literals: each length takes one, the others are left to the
longest ones, by their last character. What may be any of a group is looked at twice, and that takes
longer than all the rest. So few lengths are used, and of a text the characters that most other
texts have: half as many literals find hardly more lines. (It looks at each byte where a literal has
two characters, as one has, or where there are 5,000. Else it looks at every second byte, and finds
so much that it is slower.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate

import hyperscan as hs

from diagnose.catalog.schema import Catalog, Signature, Vocabulary, literals
from diagnose.catalog.stored import sizes
from diagnose.lazy import Lazy, expression
from diagnose.match.literals import BULK, openings, parts, required

DATABASES = ("marks", "bulk", "rest", "words", "everywhere", "sampled-first", "sampled-all")
LITERAL = ("marks", "words")

_GROUP_NAME = expression(r"\(\?P<\w+>")
_LOOK = expression(r"\(\?<?[!=](?:\\.|[^()\\])*\)")
Row = tuple[bytes, int, int]  # what Hyperscan searches, its number, its flags
_GREEDY_TAIL = expression(
    r"(?<!\\)(?P<open>\(\?:)?(?P<atom>\.|\\[SwdD]|\[\^?(?:\\.|[^]\\])+\])(?P<times>[*+])(?(open)\))\Z"
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One regular expression of a signature; `anchored` ones search the peeled message."""

    signature: int
    expression: str
    anchored: bool
    ignore_case: bool


def name_of(revision: str) -> str:
    """The name of the file in which the databases of a catalog are kept."""
    return f"{revision}.matcher"


def rows_of(catalog: Catalog, name: str) -> list[Row]:
    """What is in one of DATABASES, see `database_of`.

    The marks announce `bulk` (with the codes of the vocabularies, numbered behind the patterns),
    `rest` and the words. Of the per-step patterns the first or all matches are found.
    """
    if name == "marks":
        return _marks_of(catalog)
    if name == "words":
        return _words_of(catalog)
    patterns = patterns_of(catalog.signatures)
    rows = [
        (form.encode(), number, pattern_flags(pattern, first=name == "sampled-first"))
        for number, pattern in enumerate(patterns)
        if _holds(name, pattern, catalog.signatures[pattern.signature])
        for form in searched(pattern, name)
    ]
    if name == "bulk":
        flags = int(hs.HS_FLAG_MULTILINE)
        rows += [
            (code_form(vocabulary), len(patterns) + number, flags)
            for number, vocabulary in enumerate(catalog.vocabularies)
            if vocabulary.pattern
        ]
    return rows


def database_of(pattern: Pattern) -> str:
    """Which database searches for a pattern that is not per-step, by what announces it.

    `bulk` if a long literal does, `rest` if anything does, else `everywhere`.
    """
    if required(hyperscan_form(pattern.expression).decode()):
        return "bulk"
    return "rest" if announced(pattern) else "everywhere"


def _holds(name: str, pattern: Pattern, signature: Signature) -> bool:
    """Whether a database searches for a pattern."""
    if signature.per_step or name.startswith("sampled"):
        return signature.per_step and name.startswith("sampled")
    if name == "bulk":  # the largest one, which need not wait until all short literals are known
        return bool(required(hyperscan_form(pattern.expression).decode()))
    return database_of(pattern) == name


def searched(pattern: Pattern, name: str) -> list[str]:
    """What Hyperscan searches for a pattern in a database: any of these.

    Of per-step patterns it is the pattern itself: the last match of an author hides those before.
    """
    form = hyperscan_form(pattern.expression).decode()
    if name == "bulk":
        return simpler(form)
    return [form if name.startswith("sampled") else unbounded(form)]


def code_form(vocabulary: Vocabulary) -> bytes:
    """What Hyperscan searches for the codes of a vocabulary: it knows no look around."""
    return hyperscan_form(_LOOK.sub("", vocabulary.pattern))


@lru_cache(maxsize=8192)  # several of the databases ask
def announced(pattern: Pattern) -> frozenset[str]:
    """Literals one of which is in each line that a pattern matches; none if they are too common."""
    form = hyperscan_form(pattern.expression).decode()
    return required(form) or openings(form)


def _words_of(catalog: Catalog) -> list[Row]:
    """The words that are no codes."""
    words = {
        literal: number
        for number, vocabulary in enumerate(catalog.vocabularies)
        if not vocabulary.pattern
        for literal in literals(vocabulary)
    }
    return [(literal.encode(), number, 0) for literal, number in words.items()]


def _marks_of(catalog: Catalog) -> list[Row]:
    """Plain literals, which cost a fraction of what expressions do; a closer look follows.

    (Each has its own number: thousands with the same one take Hyperscan seconds to compile.)
    """
    signatures = catalog.signatures
    telling = {
        (literal, pattern.ignore_case)
        for pattern in patterns_of(signatures)
        if not signatures[pattern.signature].per_step
        for literal in announced(pattern)
    }
    for vocabulary in catalog.vocabularies:
        form = code_form(vocabulary).decode()
        codes = openings(form) if form else frozenset()
        telling.update((literal, False) for literal in codes or literals(vocabulary))
    caseless = int(hs.HS_FLAG_CASELESS)
    return [
        *(
            (literal.encode(), number, caseless * ignored)
            for number, (literal, ignored) in enumerate(sorted(marks_of(telling)))
        ),
        *call_rows(),
    ]


# NCCL's call lines are marks too, whose numbers come after those of all others.
INIT, CALL, _SEND, _RECV = range(1 << 24, (1 << 24) + 4)
_INITS = (b"- Init S", b"- Init C")  # of START and COMPLETE; not without the letter, as above
_COLLECTIVES = (
    b"AllReduce", b"AllGather", b"ReduceScatter", b"Broadcast", b"Reduce", b"AlltoAll",
    b"AllToAll", b"Gather", b"Scatter",
)  # fmt: skip
FIRST_CALLS = tuple(b" %s: opCount 0 " % name for name in _COLLECTIVES)  # of a communicator
CALLS = {CALL: b"opCount ", _SEND: b"Send: opCount ", _RECV: b"Recv: opCount "}


def call_rows() -> list[Row]:
    """The rows of NCCL's calls. Of the calls themselves, of which there are millions, the first."""
    once = int(hs.HS_FLAG_SINGLEMATCH)
    calls = [(text, number, once) for number, text in CALLS.items()]
    return [*((text, INIT, 0) for text in (*_INITS, *FIRST_CALLS)), *calls]


class _Patterns(Lazy[Pattern]):
    def __init__(self, signatures: Sequence[Signature]) -> None:
        self._signatures = signatures
        self._starts = [0, *accumulate(sizes(signatures))]
        super().__init__(self._starts[-1])

    def make(self, index: int) -> Pattern:
        """The expression of a number."""
        number = bisect_right(self._starts, index) - 1
        signature = self._signatures[number]
        expression = signature.match[index - self._starts[number]]
        return Pattern(number, expression, expression.startswith("^"), signature.ignore_case)


def patterns_of(signatures: Sequence[Signature]) -> Sequence[Pattern]:
    """Every expression of the catalog, in a fixed order; its index is its number."""
    return _Patterns(signatures)


def hyperscan_form(expression: str) -> bytes:
    """What Hyperscan searches: no group names, and no outer anchors.

    `^` means the start of the message behind the prefixes, which only the confirmation knows;
    `$` means the end of a line, which a carriage return may also end.
    """
    bare = _GROUP_NAME.sub("(?:", expression.removeprefix("^"))
    if bare.endswith("$") and not bare.endswith("\\$"):
        bare = bare[:-1]
    # A greedy tail would report every further byte of the line as another match.
    tail = _GREEDY_TAIL.search(bare)
    if tail is not None:
        kept = tail["atom"] if tail["times"] == "+" else ""
        bare = bare[: tail.start()] + kept
    return bare.encode()


def pattern_flags(pattern: Pattern, *, first: bool) -> int:
    """Hyperscan flags of one pattern; `first` reports its first match in a block only."""
    flags = int(hs.HS_FLAG_MULTILINE)
    if pattern.ignore_case:
        flags |= hs.HS_FLAG_CASELESS
    if first:
        flags |= hs.HS_FLAG_SINGLEMATCH
    return flags


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
