"""Builds the model of the learned reader: `python -m diagnose.catalog.learn`.

It learns from the labelled lines of `patterns/learned/*.tsv` (class, source, line), the examples of
the catalog's own entries and the words of its vocabularies. Needs scikit-learn, which nothing that
ships needs. `--check` says whether the model in the package is the one that these lines give;
`benchmarks/learned.py` measures how well it reads the messages of a source that it has not seen.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose.catalog import reader
from diagnose.catalog.load import default_dir, load_catalog
from diagnose.catalog.reader import (
    AFTERMATH,
    BUCKETS,
    NOTHING,
    calibrated,
    features,
    odds,
    surplus,
    tokens,
)
from diagnose.catalog.schema import HARMLESS, UNKNOWN, Catalog, Signature
from diagnose.errors import CatalogError
from diagnose.parse.prefix import peel

_COMMON = 4  # sources of a word that may be shown
_FOLDS = 5  # of whole sources, for the calibration
_MADE_UP = ("vocabulary", "training-script", "families", "said", "program")  # no program's messages
FEWEST = 15  # lines of failure that a source must have to be left out
_COST = 0.5
_ROUNDS = 400
_SEED = 20
_NEWTON = 12  # steps
_RIGHT = 0.75  # of what is answered: the least probability follows from it
_MOST_OF_WORD = 3  # spellings of one word
_SENTENCES = ("{}", "RuntimeError: {}", "failed: {}")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A line with the class that a person gave it, and the program that prints it."""

    label: str
    source: str
    line: str

    @property
    def message(self) -> str:
        """The line without prefixes, as it is when the reader is asked."""
        return peel(self.line).message


def read_lines(folder: Path, labels: Iterable[str]) -> list[Labelled]:
    """The labelled lines of a folder's files, in their order.

    Raises CatalogError where a row has not three columns or an unknown class.
    """
    known = {*labels, AFTERMATH, NOTHING}
    found = []
    for path in sorted(folder.glob("*.tsv")):
        for number, row in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            parts = row.split("\t")
            if len(parts) != 3 or not all(parts) or parts[0] not in known:
                raise CatalogError(f"{path.name}:{number}: expected a class, a source and a line")
            found.append(Labelled(*parts))
    return found


def examples(catalog: Catalog) -> Iterator[Labelled]:
    """The examples of all entries that name a cause or say what is none."""
    for entry in catalog.signatures:
        label = _label(entry)
        if label is None:
            continue
        for example in entry.examples:
            for line in example.line.splitlines():
                if line.strip():
                    yield Labelled(label, entry.id.partition(".")[0], line.strip())


def _label(entry: Signature) -> str | None:
    if entry.generic:
        return None
    if entry.role == "cause":
        return {"none": NOTHING, "unknown": None}.get(entry.cause, entry.cause)
    return {"aftermath": AFTERMATH, "progress": NOTHING, "phase": NOTHING}.get(entry.role)


def words(catalog: Catalog) -> Iterator[Labelled]:
    """The words of the vocabularies, each alone and as programs print it."""
    for vocabulary in catalog.vocabularies:
        for word in vocabulary.words:
            if vocabulary.pattern or word.cause in (HARMLESS, UNKNOWN):
                continue
            label = AFTERMATH if word.role == "aftermath" else word.cause
            for spelling in word.spellings[:_MOST_OF_WORD]:
                for sentence in _SENTENCES:
                    yield Labelled(label, "vocabulary", sentence.format(spelling))


def labelled(catalog: Catalog, folder: Path) -> list[Labelled]:
    """All that is learned from, each line once (the first label counts)."""
    rows = [*read_lines(folder, catalog.classes), *examples(catalog), *words(catalog)]
    return list({(row.source, row.line): row for row in reversed(rows)}.values())[::-1]


def digest(rows: Sequence[Labelled]) -> str:
    """What tells one set of lines from another, and one way to read them."""
    text = "\n".join(f"{row.label}\t{row.source}\t{row.line}" for row in rows)
    ways = f"{reader.FORMAT} {BUCKETS} {_COST} {_ROUNDS} {_SEED}"
    return hashlib.sha256(f"{ways}\n{text}".encode()).hexdigest()


class Table:
    """The features of lines as a matrix: what each counts times how rare it is, of length 1."""

    def __init__(self, rows: Sequence[Labelled]) -> None:
        import numpy as np  # noqa: PLC0415
        from scipy.sparse import csr_matrix  # noqa: PLC0415

        found = [features(row.message) for row in rows]
        many = Counter(bucket for line in found for bucket in line)
        self.rarity = bytes(
            min(255, round(16 * (1 + math.log((1 + len(rows)) / (1 + many[bucket])))))
            for bucket in range(BUCKETS)
        )
        ends, buckets, values = [0], array("i"), array("d")
        for line in found:
            worth = [value * self.rarity[bucket] for bucket, value in line.items()]
            length = math.sqrt(sum(one * one for one in worth)) or 1.0
            buckets.extend(line)
            values.extend(one / length for one in worth)
            ends.append(len(buckets))
        self.matrix: Any = csr_matrix(
            (np.array(values), np.array(buckets), np.array(ends)), shape=(len(rows), BUCKETS)
        )
        self.labels: Any = np.array([row.label for row in rows])
        self.sources: Any = np.array([row.source for row in rows])

    def without(self, sources: Sequence[str]) -> Any:
        """Which lines are of no such source."""
        import numpy as np  # noqa: PLC0415

        return ~np.isin(self.sources, sources)


def _fitted(table: Table, which: Any) -> Any:
    """A linear classifier of some lines. Its coordinate descent is the same on every machine."""
    from sklearn.svm import LinearSVC  # noqa: PLC0415

    fit = LinearSVC(C=_COST, dual=True, max_iter=_ROUNDS, random_state=_SEED)
    return fit.fit(table.matrix[which], table.labels[which])


@dataclass(frozen=True, slots=True)
class Unseen:
    """A line, and the margins of all classes by a model that has not seen its source."""

    row: Labelled
    classes: Sequence[str]
    margins: Sequence[float]

    @property
    def answer(self) -> str:
        """The likeliest class."""
        return self.classes[max(range(len(self.classes)), key=self.margins.__getitem__)]

    @property
    def names_cause(self) -> bool:
        """Whether the answer is a class of causes."""
        return self.answer not in (AFTERMATH, NOTHING)

    @property
    def is_failure(self) -> bool:
        """Whether the line is one of failure."""
        return self.row.label not in (AFTERMATH, NOTHING)

    def probability(self, by: Calibration) -> float:
        """How sure the answer is."""
        return calibrated(surplus(self.margins, by.sharpness), by.slope, by.shift)


@dataclass(frozen=True, slots=True)
class Calibration:
    """What makes probabilities of margins."""

    sharpness: float
    slope: float
    shift: float


def calibration(found: Sequence[Unseen]) -> Calibration:
    """The one under which answers that name a cause are right as often as they say."""
    sharpness = _sharpness(found)
    answers = [one for one in found if one.names_cause]
    worth = [surplus(one.margins, sharpness) for one in answers]
    right = [one.answer == one.row.label for one in answers]
    slope, shift = _logistic(worth, right)
    return Calibration(sharpness, round(slope, 3), round(shift, 3))


def _logistic(worth: Sequence[float], right: Sequence[bool]) -> tuple[float, float]:
    """Slope and shift of the likeliest logistic curve, by Newton's method."""
    slope, shift = 1.0, 0.0
    for _ in range(_NEWTON):
        one = x = y = xx = xy = 0.0
        for at, hit in zip(worth, right, strict=True):
            likely = calibrated(at, slope, shift)
            weight, missed = likely * (1 - likely), hit - likely
            one, x, xx = one + weight, x + weight * at, xx + weight * at * at
            y, xy = y + missed, xy + missed * at
        area = one * xx - x * x or 1.0
        slope, shift = slope + (one * xy - x * y) / area, shift + (xx * y - x * xy) / area
    return slope, shift


def unseen(rows: Sequence[Labelled], table: Table, groups: Sequence[Sequence[str]]) -> list[Unseen]:
    """Each line of some sources, read by a model of all lines but those of its group."""
    found = []
    for group in groups:
        learn = table.without(group)
        fit = _fitted(table, learn)
        classes = [str(name) for name in fit.classes_]
        left = [number for number, kept in enumerate(learn) if not kept]
        for number, margins in zip(left, fit.decision_function(table.matrix[left]), strict=True):
            found.append(Unseen(rows[number], classes, [float(one) for one in margins]))
    return found


def sources_of(rows: Sequence[Labelled], least: int) -> list[str]:
    """The sources with so many lines of failure that one may measure by them, by name."""
    failures = Counter(row.source for row in rows if row.label not in (AFTERMATH, NOTHING))
    return sorted(one for one, many in failures.items() if many >= least and one not in _MADE_UP)


def _sharpness(found: Sequence[Unseen]) -> float:
    """Of some values the one under which the right classes are the most likely."""

    def loss(sharpness: float) -> float:
        total = 0.0
        for one in found:
            if one.row.label in one.classes:
                right = one.margins[one.classes.index(one.row.label)]
                of_all = odds(one.margins, sharpness)
                total -= sharpness * (right - max(one.margins)) - math.log(of_all)
        return total

    return min((step / 4 for step in range(4, 49)), key=loss)


def least(found: Sequence[Unseen], by: Calibration) -> float:
    """The least probability with which so many answers are right as are asked for."""
    answers = [
        (one.probability(by), one.answer == one.row.label)
        for one in found
        if one.names_cause and one.is_failure
    ]
    for percent in range(5, 96):
        right = [hit for likely, hit in answers if likely >= percent / 100]
        if right and sum(right) / len(right) >= _RIGHT:
            return percent / 100
    return 0.95


def folds(sources: Sequence[str]) -> list[list[str]]:
    """Groups of sources, of which one after the other is left out."""
    return [list(sources[start::_FOLDS]) for start in range(_FOLDS)]


def _words(rows: Sequence[Labelled]) -> list[str]:
    """The words that messages of several programs have: no names of people or machines."""
    sources: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for word in tokens(row.message):
            sources[word].add(row.source)
    return sorted(word for word, of in sources.items() if len(of) >= _COMMON and word != "0")


def build(rows: Sequence[Labelled]) -> bytes:
    """The model of these lines, as its file has it."""
    import numpy as np  # noqa: PLC0415

    table = Table(rows)
    found = unseen(rows, table, folds(sources_of(rows, FEWEST)))
    by = calibration(found)
    fit = _fitted(table, table.without([]))
    weights = fit.coef_.T  # a row for each bucket
    scale = float(np.abs(weights).max()) / 127
    small = array("b", np.rint(weights / scale).astype(np.int8).tobytes())
    header = {
        "classes": [str(name) for name in fit.classes_],
        "bias": [round(float(one), 6) for one in fit.intercept_],
        "scale": scale,
        "sharpness": by.sharpness,
        "slope": by.slope,
        "shift": by.shift,
        "least": least(found, by),
        "words": " ".join(_words(rows)),
        "source": digest(rows),
        "lines": len(rows),
    }
    return reader.packed(header, table.rarity, small)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the model, or check that it is current."""
    parser = argparse.ArgumentParser(prog="python -m diagnose.catalog.learn", description=__doc__)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args(arguments)
    catalog = load_catalog(examples=True)
    folder = default_dir() / "learned"
    rows = labelled(catalog, folder)
    if given.check:
        current = reader.model().source == digest(rows)
        print("current" if current else "not current: run python -m diagnose.catalog.learn")
        return 0 if current else 1
    folder.mkdir(exist_ok=True)
    (folder / reader.FILE).write_bytes(build(rows))
    print(f"{len(rows):,} lines, {(folder / reader.FILE).stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
