"""Accuracy on labelled logs: `python benchmarks/accuracy.py DIR... [-v] [--calibration FILE]`.

A DIR holds one YAML file a log. Of a failure: log, primary (cause class), accept (other right
classes), culprit_ranks, evident_from_log (yes, partly, no), phase. Of a log that did not fail: log
or file, and kind (healthy, running, slow_but_ok; foreign: no log of a job). Prints the rates asked
of the tool for each DIR; with -v a line for each log; with --calibration writes a table of what
share of the verdicts of each confidence was right.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import diagnose

LEVELS = ("high", "medium", "low")


@dataclass(frozen=True, slots=True)
class Told:
    """What the tool said of one log, beside the truth."""

    id: str
    truth: dict[str, Any]
    verdict: str
    cause: str
    signature: str | None
    confidence: str
    ranks: list[int]
    phase: str | None

    @property
    def fails(self) -> bool:
        """Whether the log is one of a failure."""
        return "primary" in self.truth

    @property
    def evident(self) -> str:
        """Whether the log shows the cause: yes, partly, no."""
        told = self.truth.get("evident_from_log", "")
        return {True: "yes", False: "no"}.get(told, told)

    @property
    def wanted(self) -> list[str]:
        """The causes that are right."""
        return [self.truth["primary"], *self.truth.get("accept", [])]

    @property
    def wanted_ranks(self) -> list[int]:
        """The culprits that the log names."""
        return sorted(self.truth.get("culprit_ranks") or [])

    @property
    def alarmed(self) -> bool:
        """Whether it was called hung or failed."""
        return self.verdict in ("hung", "failed")

    @property
    def right(self) -> bool:
        """Whether the class, or the absence of a failure, is right."""
        if self.fails:
            return self.cause in self.wanted
        return not self.alarmed and (
            self.verdict != "unknown" or self.truth["kind"] in ("foreign", "slow_but_ok")
        )

    @property
    def claims(self) -> bool:
        """Whether it named a cause, or said that there is none."""
        return self.cause != "unknown"

    def line(self) -> str:
        """The result in one line."""
        mark = "ok  " if self.right else "MISS"
        said = (
            f"{mark} {self.id} {self.verdict:7} {self.confidence:6} {self.cause} [{self.signature}]"
        )
        if not self.fails:
            return f"{said} wanted {self.truth['kind']}"
        ranks = (
            ""
            if self.ranks == self.wanted_ranks
            else f" ranks {self.ranks} not {self.wanted_ranks}"
        )
        return (
            f"{said} wanted {'/'.join(self.wanted)} ({self.evident}){ranks}"
            f" phase {self.phase} ({self.truth.get('phase')})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each log")
    parser.add_argument("--calibration", type=Path, help="where to write the table of confidence")
    options = parser.parse_args()
    found: dict[str, list[Told]] = {}
    for folder in options.sets:
        found[folder.name] = [judge(path) for path in sorted(folder.glob("*.yaml"))]
        print(f"== {folder.name}: {len(found[folder.name])} logs")
        if options.verbose:
            print(*[told.line() for told in found[folder.name]], sep="\n")
        report(found[folder.name])
    if options.calibration:
        options.calibration.write_text(calibration(found))


def judge(path: Path) -> Told:
    truth = yaml.safe_load(path.read_text())
    log = truth.get("log")
    job = diagnose.load(path.parent / truth["file"]) if log is None else diagnose.load_text(log)
    result = diagnose.diagnose(job)
    root = result.root_cause
    return Told(
        truth["id"], truth, result.verdict, root.cause, root.signature, root.confidence,
        sorted(result.culprits.ranks), result.phase,
    )  # fmt: skip


def report(told: Sequence[Told]) -> None:
    """Print the rates of one set."""
    failed, fine = [t for t in told if t.fails], [t for t in told if not t.fails]
    if failed:
        for evident, target in (("yes", 92), ("partly", 75), ("no", None)):
            part = [t.right for t in failed if t.evident == evident]
            rate(f"right class, cause evident: {evident}", part, target)
        for level, limit in (("high", 2), ("medium", 10), ("low", None)):
            wrong = [not t.right for t in failed if t.confidence == level and t.claims]
            rate(f"wrong among {level} confidence", wrong, limit, upper=True)
        rate("unknown", [not t.claims for t in failed], None)
        calm = [t.verdict in ("healthy", "running") for t in failed if t.evident != "no"]
        rate("failures called healthy or running", calm, 0, upper=True)
        named = [t for t in failed if t.wanted_ranks]
        rate("culprit ranks exactly right", [t.ranks == t.wanted_ranks for t in named], 85)
        blamed = [t for t in failed if not t.wanted_ranks and t.ranks]
        print(f"ranks blamed where the truth names none: {len(blamed)}")
        rate(
            "phase right",
            [t.phase == t.truth["phase"] for t in failed if t.truth.get("phase")],
            None,
        )
    if fine:
        well = [t for t in fine if t.truth["kind"] in ("healthy", "running")]
        rate("healthy or running told as such", [t.right for t in well], 90)
        rate("called hung or failed", [t.alarmed for t in fine], 2, upper=True)
    print("confidence:", dict(Counter(t.confidence for t in told)))


def rate(name: str, values: Sequence[bool], target: int | None, *, upper: bool = False) -> None:
    share = 100 * sum(values) / len(values) if values else 0.0
    goal = "" if target is None else f"  (target {'<=' if upper else '>='} {target} %)"
    print(f"{name}: {sum(values)}/{len(values)} = {share:.1f} %{goal}")


def calibration(found: dict[str, list[Told]]) -> str:
    """A Markdown table: of the verdicts of each confidence that name a cause, the right ones."""
    rows = [
        "# How often a verdict was right",
        "",
        "Verdicts that name a cause, by the confidence they were given; made by",
        "`python benchmarks/accuracy.py DIR... --calibration benchmarks/calibration.md`. A set",
        "whose misses were mended since then is no forecast; only a first sight of new logs is.",
        "",
        "| set | logs | high | medium | low | unknown |",
        "|---|---|---|---|---|---|",
    ]
    everything = [told for part in found.values() for told in part]
    for name, part in [*found.items(), ("all", everything)]:
        cells = []
        for level in LEVELS:
            claimed = [t.right for t in part if t.confidence == level and t.claims]
            cells.append(f"{sum(claimed)} of {len(claimed)}" if claimed else "-")
        unknown = sum(not t.claims for t in part)
        rows.append(f"| {name} | {len(part)} | {' | '.join(cells)} | {unknown} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
