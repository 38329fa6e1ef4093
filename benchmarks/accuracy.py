"""Accuracy on labelled logs: `python benchmarks/accuracy.py DIR [-v]`.

DIR holds one YAML file a case: log, primary (cause class), accept (other right classes),
culprit_ranks, evident_from_log (yes, partly, no), phase. Prints the rates asked of the tool and,
with -v, a line per case.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

import diagnose


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", type=Path)
    parser.add_argument("-v", "--verbose", action="store_true", help="a line per case")
    options = parser.parse_args()
    results = [
        judge(yaml.safe_load(path.read_text())) for path in sorted(options.cases.glob("*.yaml"))
    ]
    if options.verbose:
        for result in results:
            print(describe(result))
    for evident, target in (("yes", 92), ("partly", 75), ("no", None)):
        part = [r for r in results if r["evident"] == evident]
        rate("right class, cause evident: " + evident, [r["right"] for r in part], target)
    rate("right class, all", [r["right"] for r in results], None)
    high = [r for r in results if r["confidence"] == "high"]
    rate("wrong among high confidence", [not r["right"] for r in high], 2, upper=True)
    rate("high confidence, share of all", [r["confidence"] == "high" for r in results], None)
    named = [r for r in results if r["wanted_ranks"]]
    rate("culprit ranks exactly right", [r["ranks"] == r["wanted_ranks"] for r in named], 85)
    blamed = [r for r in results if not r["wanted_ranks"] and r["ranks"]]
    print(f"ranks blamed where the case names none: {len(blamed)}")
    phases = [r for r in results if r["wanted_phase"]]
    rate("phase right", [r["phase"] == r["wanted_phase"] for r in phases], None)
    print("confidence:", dict(Counter(r["confidence"] for r in results)))


def judge(case: dict[str, Any]) -> dict[str, Any]:
    result = diagnose.diagnose(diagnose.load_text(case["log"]))
    root = result.root_cause
    return {
        "id": case["id"],
        "evident": case["evident_from_log"],
        "wanted": [case["primary"], *case["accept"]],
        "wanted_ranks": sorted(case.get("culprit_ranks") or []),
        "wanted_phase": case.get("phase"),
        "class": root.cause,
        "signature": root.signature,
        "confidence": root.confidence,
        "right": root.cause in [case["primary"], *case["accept"]],
        "ranks": sorted(result.culprits.ranks),
        "phase": result.phase,
    }


def describe(result: dict[str, Any]) -> str:
    mark = "ok  " if result["right"] else "MISS"
    ranks = (
        ""
        if result["ranks"] == result["wanted_ranks"]
        else (f" ranks {result['ranks']} not {result['wanted_ranks']}")
    )
    return (
        f"{mark} {result['id']} {result['evident']:6} {result['confidence']:6} {result['class']}"
        f" [{result['signature']}] wanted {'/'.join(result['wanted'])}{ranks}"
        f" phase {result['phase']} ({result['wanted_phase']})"
    )


def rate(name: str, values: list[bool], target: int | None, *, upper: bool = False) -> None:
    share = 100 * sum(values) / len(values) if values else 0.0
    goal = "" if target is None else f"  (target {'<=' if upper else '>='} {target} %)"
    print(f"{name}: {sum(values)}/{len(values)} = {share:.1f} %{goal}")


if __name__ == "__main__":
    main()
