"""How well the learned reader reads messages of programs that it has not seen.

    python -m benchmarks.learned

Leaves out one source after the other and writes `benchmarks/learned.md`. Needs scikit-learn (the
dependency group `learn`) and some minutes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnose.catalog.learn import (
    FEWEST,
    Calibration,
    Labelled,
    Table,
    Unseen,
    calibration,
    folds,
    labelled,
    least,
    sources_of,
    unseen,
)
from diagnose.catalog.load import default_dir, load_catalog

_FEWEST_ALONE = 100  # lines of failure of a source that is left out alone


@dataclass(frozen=True, slots=True)
class Score:
    """How lines of failure of unseen sources are read, and how often others are taken for one."""

    lines: int
    answered: int
    right: int
    others: int
    alarms: int

    @property
    def text(self) -> str:
        """The figures of one row of the table."""
        of_all = self.answered / max(1, self.lines)
        of_answered = self.right / max(1, self.answered)
        of_others = self.alarms / max(1, self.others)
        return f"{self.lines} | {of_all:.0%} | {of_answered:.0%} | {self.others} | {of_others:.0%}"


def score(found: Sequence[Unseen], by: Calibration, least: float) -> Score:
    """Answers are classes of causes that are at least so likely."""
    lines = answered = right = others = alarms = 0
    for one in found:
        says = one.names_cause and one.probability(by) >= least
        if one.is_failure:
            lines += 1
            answered += says
            right += says and one.answer == one.row.label
        else:
            others += 1
            alarms += says
    return Score(lines, answered, right, others, alarms)


def _bins(found: Sequence[Unseen], by: Calibration) -> Iterator[str]:
    """How often it is right where it is so sure."""
    bins: dict[int, list[bool]] = defaultdict(list)
    for one in found:
        if one.names_cause:
            bins[min(9, int(one.probability(by) * 10))].append(one.answer == one.row.label)
    for low, rights in sorted(bins.items()):
        share = sum(rights) / len(rights)
        yield f"| {low / 10:.1f}-{(low + 1) / 10:.1f} | {len(rights)} | {share:.0%} |"


def report(rows: Sequence[Labelled]) -> str:
    """How well messages of unseen sources are read, as Markdown."""
    table = Table(rows)
    seen = unseen(rows, table, folds(sources_of(rows, FEWEST)))
    by = calibration(seen)
    likely = least(seen, by)
    sources = sources_of(rows, _FEWEST_ALONE)
    found = unseen(rows, table, [[source] for source in sources])
    whole = score(found, by, likely)
    by_source: Mapping[str, list[Unseen]] = {
        source: [one for one in found if one.row.source == source] for source in sources
    }
    missed = Counter(
        (one.row.label, one.answer)
        for one in found
        if one.names_cause and one.answer != one.row.label and one.probability(by) >= likely
    )
    return "\n".join([
        "# The learned reader: one source left out",
        "",
        "Made by `python -m benchmarks.learned`: for each source a model that has seen none of its",
        "lines reads its messages, one line at a time. Answered: a class of causes with a",
        f"probability of at least {likely:.2f}. Others: lines that are no cause.",
        "",
        f"{len(rows):,} labelled lines, {len(sources)} sources with {_FEWEST_ALONE} or more that "
        "name a cause.",
        "",
        "| source | lines of failure | answered | right of these | others | alarms of these |",
        "|---|---|---|---|---|---|",
        f"| **all** | {whole.text} |",
        *(f"| {name} | {score(of, by, likely).text} |" for name, of in by_source.items()),
        "",
        "| probability | answers | right |",
        "|---|---|---|",
        *_bins(found, by),
        "",
        "| is | was read as | lines |",
        "|---|---|---|",
        *(f"| {is_} | {read} | {many} |" for (is_, read), many in missed.most_common(20)),
        "",
    ])  # fmt: skip


if __name__ == "__main__":
    text = report(labelled(load_catalog(examples=True), default_dir() / "learned"))
    Path("benchmarks", "learned.md").write_text(text, encoding="utf-8")
    print(text)
