"""The learned reader: which class of causes a line suggests that no signature knows.

A linear model over the words of a line and their parts, learned from the labelled lines of
`patterns/learned/` and the examples of the catalog (`catalog.learn` builds it). It suggests and
never proves: who asks gives what it says the lowest confidence. Integers all the way, so that it
says the same on every machine.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple
from zlib import crc32, decompress

from diagnose.catalog.load import default_dir
from diagnose.lazy import expression

FILE = "model.bin"
FORMAT = 2
BUCKETS = 1 << 15
MOST_CHARACTERS = 400
# What a word, a pair of neighbours and a part of a word count.
WORD, PAIR, PART = 3, 2, 1
_PARTS = (3, 4, 5)  # characters, with `<` and `>` at the ends of the word
# Labels that are no cause: what follows from another failure, and what an orderly job prints.
AFTERMATH, NOTHING = "aftermath", "nothing"
_WEIGHED = 3  # words that are shown
_CERTAIN = 1e-9  # what the other classes weigh at least
_PLAIN = frozenset({  # that weigh, and explain nothing to a reader
    "a", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can", "did", "do",
    "for", "from", "had", "has", "have", "if", "in", "into", "is", "it", "its", "of", "on", "or",
    "so", "than", "that", "the", "then", "there", "this", "to", "was", "we", "were", "while",
    "will", "with", "you", "your",
})  # fmt: skip
_HEX = expression(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{12,}\b")
_CAMEL = expression(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_TOKEN = expression(r"[a-z]+|[0-9]+")


class Reading(NamedTuple):
    """What the reader makes of a line.

    `cause`: the likeliest class, or `aftermath` or `nothing`; `probability`: how sure the model is
    (0 to 1; `benchmarks/learned.md` has how often it is right then on unseen programs); `words`:
    those of the line that weighed most for it, at most three, the heaviest first, and of these only
    such as messages of several programs have.
    """

    cause: str
    probability: float
    words: tuple[str, ...] = ()

    @property
    def names_cause(self) -> bool:
        """Whether it is a class of causes at all."""
        return self.cause not in (AFTERMATH, NOTHING)


class Model(NamedTuple):
    """Weights of 8 bits, a row of all classes for each bucket.

    `rarity` tells how rare the features of a bucket are among the labelled lines (the logarithm,
    in 16ths). A score times `scale` is a margin; `sharpness` makes likelihoods of margins, and
    `slope` and `shift` of these how often the answers about unseen programs are right.
    `words` are those of the labelled lines: others are not shown, as they may be names. `source`
    is the digest of what it was learned from.
    """

    classes: tuple[str, ...]
    weights: memoryview
    rarity: bytes
    bias: tuple[float, ...]
    scale: float
    sharpness: float
    slope: float
    shift: float
    least: float
    words: frozenset[str]
    source: str

    def read(self, line: str) -> Reading:
        """The class that a line suggests; `nothing` with probability 0 where it has no word."""
        found = features(line)
        if not found:
            return Reading(NOTHING, 0.0)
        count = len(self.classes)
        scores, square = [0] * count, 0
        for bucket, value in found.items():
            worth = value * self.rarity[bucket]
            square += worth * worth
            row = self.weights[bucket * count : (bucket + 1) * count]
            scores = [score + worth * weight for score, weight in zip(scores, row, strict=True)]
        length = math.sqrt(square) or 1.0
        margins = [
            score * self.scale / length + bias
            for score, bias in zip(scores, self.bias, strict=True)
        ]
        top = max(range(count), key=margins.__getitem__)
        likely = calibrated(surplus(margins, self.sharpness), self.slope, self.shift)
        return Reading(self.classes[top], round(likely, 3), self._words(line, top))

    def _words(self, line: str, top: int) -> tuple[str, ...]:
        """The words that speak most for a class rather than for the others."""
        count, worth = len(self.classes), dict[str, float]()
        for word, buckets in _by_word(line):
            if word not in self.words or word in _PLAIN:
                continue
            spoken = 0.0
            for bucket, value in buckets:
                row = self.weights[bucket * count : (bucket + 1) * count]
                spoken += value * self.rarity[bucket] * (row[top] - sum(row) / count)
            worth[word] = max(spoken, worth.get(word, 0.0))
        ordered = sorted(worth, key=lambda word: (-worth[word], word))
        return tuple(word for word in ordered[:_WEIGHED] if worth[word] > 0)


def odds(margins: Sequence[float], sharpness: float) -> float:
    """How much all classes weigh, that of the largest margin weighing 1."""
    highest = max(margins)
    return math.fsum(math.exp(sharpness * (one - highest)) for one in margins)


def surplus(margins: Sequence[float], sharpness: float) -> float:
    """The logarithm of how much likelier the first class is than all others together."""
    return -math.log(max(odds(margins, sharpness) - 1, _CERTAIN))


def calibrated(surplus: float, slope: float, shift: float) -> float:
    """The probability that an answer of such a surplus is right."""
    return 1 / (1 + math.exp(-slope * surplus - shift))


def tokens(line: str) -> list[str]:
    """The words of a line in small letters, `camelCase` and `snake_case` parted, `0` for a number.

    Numbers in hexadecimal are left out.
    """
    text = _CAMEL.sub(" ", _HEX.sub(" ", line[:MOST_CHARACTERS])).lower()
    return [token if token[0] > "9" else "0" for token in _TOKEN.findall(text)]


def _by_word(line: str) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Each word of a line with the buckets of what it gives, and what these count."""
    before = "^"
    for token in tokens(line):
        found = [(_bucket(f"{before} {token}"), PAIR)]
        if token != "0":
            found.append((_bucket(f"w{token}"), WORD))
            if len(token) > _PARTS[0]:
                marked = f"<{token}>"
                found += [
                    (_bucket(marked[at : at + size]), PART)
                    for size in _PARTS
                    for at in range(len(marked) - size + 1)
                ]
        yield token, found
        before = token


def _bucket(feature: str) -> int:
    return crc32(feature.encode()) % BUCKETS


def features(line: str) -> dict[int, int]:
    """The buckets of a line's features, with what each counts (the most of those that share it)."""
    found: dict[int, int] = {}
    for _, buckets in _by_word(line):
        for bucket, value in buckets:
            if found.get(bucket, 0) < value:
                found[bucket] = value
    return found


def packed(header: Mapping[str, object], rarity: bytes, weights: array[int]) -> bytes:
    """A model as its file has it: compressed, a line of JSON, then the tables."""
    from zlib import compress  # noqa: PLC0415  only who builds a model

    head = json.dumps({"format": FORMAT, **header}, sort_keys=True).encode()
    return compress(head + b"\n" + rarity + weights.tobytes(), 9)


def unpacked(data: bytes) -> Model:
    """The model of a file. Raises ValueError where it is none of this format."""
    head, _, tables = decompress(data).partition(b"\n")
    header = json.loads(head)
    if header.get("format") != FORMAT:
        raise ValueError(f"a model of format {header.get('format')}, expected {FORMAT}")
    classes = tuple(header["classes"])
    if len(tables) != BUCKETS * (1 + len(classes)):
        raise ValueError("the tables of the model are not complete")
    return Model(
        classes, memoryview(tables[BUCKETS:]).cast("b"), tables[:BUCKETS], tuple(header["bias"]),
        header["scale"], header["sharpness"], header["slope"], header["shift"], header["least"],
        frozenset(header["words"].split()), header["source"],
    )  # fmt: skip


@cache
def model() -> Model:
    """The one that ships with the package."""
    return unpacked((default_dir() / "learned" / FILE).read_bytes())
