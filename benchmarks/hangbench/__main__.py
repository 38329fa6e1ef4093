"""The command line of HangBench: `python -m benchmarks.hangbench make | run | score | table`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from benchmarks.hangbench.bounds import Bounds, broken, read_bounds
from benchmarks.hangbench.case import TRACKS, Case, read_cases
from benchmarks.hangbench.make import MakeError, Wanted, make
from benchmarks.hangbench.report import SLICES, as_table, as_text, refresh, report
from benchmarks.hangbench.run import ENVIRONMENT, LIMIT_S, RunError, Settings, run
from benchmarks.hangbench.score import distinct
from benchmarks.hangbench.tools import TOOLS, adapter
from benchmarks.hangbench.tools.environment import install


class UsageError(Exception):
    """What was asked for cannot be; the message says what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    options = parser().parse_args(arguments)
    try:
        options.function(options)
    except (UsageError, MakeError, RunError) as error:
        print(f"hangbench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("hangbench: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(prog="python -m benchmarks.hangbench", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    one = commands.add_parser("make", help="write cases and their truth into a folder")
    one.add_argument("folder", type=Path, metavar="DIR")
    one.add_argument("--track", action="append", choices=TRACKS, help="repeatable; default: sim")
    one.add_argument("--cases", type=int, required=True, metavar="N", help="of each track")
    one.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed (default 0)")
    one.add_argument("--ranks", type=int, metavar="N", help="only jobs of up to so many ranks")
    one.add_argument("--sealed", action="store_true", help="draw from the sealed half of the seeds")
    one.add_argument("--add", action="store_true", help="add to the cases that the folder holds")
    one.set_defaults(function=_make)

    one = commands.add_parser("run", help="ask tools about each case, and measure what they cost")
    one.add_argument("folder", type=Path, metavar="DIR")
    one.add_argument("--tool", action="append", metavar="NAME", help=f"of {', '.join(TOOLS)}")
    one.add_argument("--only", metavar="TRACK/LABEL", help="cases of a track, or with a form or "
                     "label: sim, sim/console, sim/fault=killed")  # fmt: skip
    _running(one)
    one.add_argument("--fast", action="store_true", help="many cases a process, nothing measured")
    one.set_defaults(function=_run)

    one = commands.add_parser("score", help="print figures; asks a tool first where it must")
    one.add_argument("folder", type=Path, metavar="DIR")
    one.add_argument("--tool", action="append", metavar="NAME", help="default: diagnose")
    one.add_argument("--format", choices=("text", "json"), default="text")
    one.add_argument("--by", action="append", default=[], metavar="LABEL", help="slice by a label")
    half = one.add_mutually_exclusive_group()
    half.add_argument("--open-only", dest="half", action="store_const", const="open", default="")
    half.add_argument("--sealed-only", dest="half", action="store_const", const="sealed")
    _running(one)
    one.add_argument("--measure", action="store_true", help="a process a case, with its cost")
    one.add_argument("--bounds", type=Path, metavar="FILE", help="fail where a figure breaks one")
    one.set_defaults(function=_score)

    one = commands.add_parser("table", help="print the table of all tools that were asked")
    one.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    one.add_argument("--out", type=Path, metavar="PAGE", help="renew the table of this page")
    one.add_argument("--date", type=date.fromisoformat, default=date.today(), metavar="DAY")
    one.set_defaults(function=_table)

    one = commands.add_parser(
        "tools", help="install the other tools in an environment of their own"
    )
    one.add_argument("environment", type=Path, nargs="?", default=ENVIRONMENT, metavar="DIR")
    one.add_argument("--wheel", type=Path, action="append", default=[], metavar="FILE",
                     help="a tool that no package index has, such as ascend-fd")  # fmt: skip
    one.set_defaults(function=_tools)
    return top


def _running(one: argparse.ArgumentParser) -> None:
    one.add_argument("--workers", type=int, default=2, metavar="N", help="processes (default 2)")
    one.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="seconds for a case")
    one.add_argument("--rerun", action="store_true", help="ask even where there is an answer")
    one.add_argument("--env", type=Path, default=ENVIRONMENT, metavar="DIR",
                     help="the environment with the other tools")  # fmt: skip


def _make(options: argparse.Namespace) -> None:
    tracks = options.track or ["sim"]
    wanted = Wanted(options.cases, options.seed, options.sealed, options.ranks)
    made = make(options.folder, tracks, wanted, add=options.add)
    kept, _ = distinct(read_cases(options.folder))
    for track, count in made.items():
        if count < options.cases and not options.add:
            print(f"{track} has no more than {count} cases from seed {options.seed} on")
        total = sum(case.track == track for case in kept)
        print(f"{track}: {count} cases made; {total} distinct ones in {options.folder}")


def _run(options: argparse.Namespace) -> None:
    cases = _cases(options.folder, options.only)
    for tool in options.tool or ["diagnose"]:
        if tool in TOOLS and adapter(tool).version(options.env) is None:
            print(f"{tool}: not installed, left out")
            continue
        count = run(options.folder, cases, tool, _settings(options, fast=options.fast))
        print(f"{tool}: {count} cases asked, {len(cases) - count} answered before")


def _score(options: argparse.Namespace) -> None:
    cases = _cases(options.folder, None)
    if options.half:
        cases = [case for case in cases if case.sealed == (options.half == "sealed")]
        if not cases:
            how = "--sealed --add" if options.half == "sealed" else "--add"
            raise UsageError(f"{options.folder} has no {options.half} cases; make some with {how}")
    tools = options.tool or ["diagnose"]
    for tool in tools:
        run(options.folder, cases, tool, _settings(options, fast=not options.measure))
    found = report([options.folder], tools, options.by, options.half)
    if options.format == "json":
        print(json.dumps(found.to_dict(), indent=1))
    else:
        print(as_text(found), end="")
    if options.bounds is not None and (faults := [*broken(found, _bounds(options.bounds))]):
        raise UsageError("\nhangbench: ".join(faults))


def _bounds(path: Path) -> Bounds:
    try:
        return read_bounds(path)
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error


def _table(options: argparse.Namespace) -> None:
    for folder in options.folders:
        _cases(folder, None)
    answered = {path.stem for folder in options.folders for path in folder.glob("answers/*.jsonl")}
    tools = [tool for tool in TOOLS if tool in answered] + sorted(answered.difference(TOOLS))
    if not tools:
        raise UsageError("no tool was asked about these cases; `run` asks them")
    labels = sorted({label for label, _ in SLICES.values() if label != "form"})
    table = as_table(report(options.folders, tools, labels), options.date)
    if options.out is None:
        print(table, end="")
        return
    try:
        refresh(options.out, table)
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error


def _tools(options: argparse.Namespace) -> None:
    install(options.environment, options.wheel)
    for tool in TOOLS:
        version = adapter(tool).version(options.environment)
        print(f"{tool:14}{version or 'not installed'}")


def _settings(options: argparse.Namespace, *, fast: bool) -> Settings:
    return Settings(options.env, fast, options.workers, options.limit, options.rerun)


def _cases(folder: Path, only: str | None) -> list[Case]:
    """The cases of a folder, or those of `TRACK`, `TRACK/FORM`, `TRACK/LABEL=VALUE`."""
    if not (folder / "truth.jsonl").exists():
        raise UsageError(f"{folder} has no truth.jsonl; `make` writes cases into a folder")
    cases = read_cases(folder)
    if only is None:
        return cases
    track, _, rest = only.partition("/")
    label, equals, value = rest.partition("=")
    chosen = [
        case
        for case in cases
        if case.track == track
        and (not rest or (case.labels.get(label) == value if equals else case.form == rest))
    ]
    if not chosen:
        known = sorted({f"{case.track}/{case.form}" for case in cases})
        raise UsageError(f"no case is of {only}; there are {', '.join(known)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
