"""Is the right earlier incident found, and do confirmations repair confidence?

`python benchmarks/memory.py [--jobs 600] [--seed 1] [--cache FILE]`. Three figures, all of jobs and
sites that are made here:

- recall: an archive of jobs in which incidents come again, six times each: a fault in a program, no
  pair of them twice. In half of them it is the same bug, at the same place; in the others the same
  kind of fault, elsewhere, on other ranks. Times, addresses and the lines that were lost differ.
  Each job is asked for before it is confirmed with its truth and the fix of its incident.
- ECE at sites whose base rates differ: of each class and confidence another share of verdicts is
  right. Before and after so many confirmations, of fresh verdicts.
- nodes that records would exclude or drain, against the truth: in the jobs of the archive, and
  over fleets (`--fleets N`), half of which have a bad node.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean

import numpy as np

from benchmarks import make_fleet
from benchmarks.hangbench.case import Files, Truth
from benchmarks.hangbench.sim import draw as sim
from benchmarks.hangbench.sim.faults import FAULTS
from benchmarks.hangbench.sim.programs import NAMES, draw
from benchmarks.hangbench.sim.simulate import simulate
from diagnose.act.record import ON_NODES, decide, of_suspects
from diagnose.catalog.load import load_catalog
from diagnose.diagnosis import WELL, Confidence, Diagnosis
from diagnose.fingerprint import fingerprint
from diagnose.fleet import read as read_fleet
from diagnose.fleet.nodes import nodes
from diagnose.infer.pipeline import diagnose
from diagnose.ingest import find_sources
from diagnose.job.load import read
from diagnose.memory.features import features
from diagnose.memory.recall import earlier, key_of
from diagnose.memory.site import CLAIMS, level, record
from diagnose.memory.store import Incident, keep, opened

REPEATS = 6
CONFIRMED = 50
SITES, CLASSES, FRESH = 40, 8, 4000
_WORLDS = (4, 8, 8, 16)


@dataclass(frozen=True)
class Job:
    """A job of the archive: which incident it is, whether at the same place, and its truth."""

    incident: int
    same_bug: bool
    hosts: list[str]
    classes: list[str]
    diagnosis: Diagnosis


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fleets", type=int, default=20)
    parser.add_argument("--cache", type=Path, help="keeps the diagnoses between runs")
    options = parser.parse_args()
    jobs = archive(options.jobs, options.seed, options.cache)
    print_recall(jobs)
    print_nodes(jobs)
    print_fleets(options.fleets, options.seed)
    print_sites(options.seed)


# --- an archive -----------------------------------------------------------------------------------


def archive(count: int, seed: int, cache: Path | None) -> list[Job]:
    if cache and cache.exists():
        lines = cache.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
    else:
        rows = [*made(count, seed)]
        if cache:
            cache.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    jobs = [Job(**row | {"diagnosis": Diagnosis.from_dict(row["diagnosis"])}) for row in rows]
    random.Random(f"order {seed}").shuffle(jobs)
    return jobs


def made(count: int, seed: int) -> Iterator[dict[str, object]]:
    kinds = [(program, fault) for program in NAMES for fault in FAULTS]
    random.Random(f"kinds {seed}").shuffle(kinds)
    left = count
    for incident, (program, fault) in enumerate(kinds):
        kind = random.Random(f"incident {seed} {incident}")
        world, form = kind.choice(_WORLDS), kind.choice([*sim._FORMS])
        known = sim._RELEASES.get(form, sim._TORCH)
        torch = kind.choice([one for one in sim._TORCH if one in known])
        same_bug = kind.random() < 0.5
        rows = []
        for repeat in range(3 * REPEATS):
            rng = random.Random(f"job {seed} {incident} {repeat}")
            happens = random.Random(f"bug {seed} {incident} {0 if same_bug else repeat}")
            site = random.Random(f"site {seed} {incident}")
            found = case(happens, site, program, world, fault, form, torch)
            if found is not None:
                truth, files = found
                rows.append({
                    "incident": incident, "same_bug": same_bug, "hosts": list(truth.hosts),
                    "classes": list(truth.classes),
                    "diagnosis": judged(changed(rng, files)).to_dict(),
                })  # fmt: skip
            if len(rows) == min(REPEATS, left):
                break
        if len(rows) > 1:
            yield from rows
            left -= len(rows)
        if left < 2:
            return


_STAMP = re.compile(r"\b(\d\d):(\d\d):(\d\d)")
_HEX = re.compile(r"\b0x[0-9a-f]{6,16}\b")
_PID = re.compile(r"(?<=\[)\d{3,6}(?=\])")


def changed(rng: random.Random, files: Files) -> Files:
    """The texts of a job on another day: other times, addresses and pids, lines that were lost."""
    hours, pids = rng.randrange(24), rng.randrange(1, 900)
    lost, end = rng.choice((0.0, 0.0, 0.02, 0.1)), rng.choice((1.0, 1.0, 1.0, 0.97))

    def line(text: str) -> str:
        text = _STAMP.sub(lambda m: f"{(int(m[1]) + hours) % 24:02d}:{m[2]}:{m[3]}", text)
        text = _HEX.sub(lambda _: f"0x{rng.getrandbits(44):012x}", text)
        return _PID.sub(lambda m: str(int(m[0]) + pids), text)

    found = dict(files)
    for name, content in files.items():
        lines = content.decode(errors="replace").splitlines(keepends=True)
        if b"\0" not in content and not name.endswith(".json") and len(lines) > 3:
            kept = [line(one) for one in lines[: int(end * len(lines))] if rng.random() >= lost]
            found[name] = "".join(kept).encode()
    return found


def case(
    at: random.Random,
    rng: random.Random,
    program: str,
    world: int,
    fault: str,
    form: str,
    torch: str,
) -> tuple[Truth, Files] | None:
    """One job: `at` draws what happens, `rng` what is left of it."""
    layout = draw(at, program, world, at.randint(3, 5))
    outcome = simulate(at, layout, fault, min(8, world // 2), timing=False)
    evidence = outcome and sim._FORMS[form](rng, outcome, torch)
    if not outcome or not evidence:
        return None
    return sim._truth(outcome, evidence, layout.step_s), evidence.files


def judged(files: Files) -> Diagnosis:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder, "job", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return diagnose(read(find_sources([Path(folder, "job")])))


# --- the figures ----------------------------------------------------------------------------------


def confirmed(job: Job, number: int) -> Incident:
    root = job.diagnosis.root_cause
    right = root.cause in job.classes
    return Incident(
        key=key_of(job.diagnosis), name=str(job.incident), fingerprint=fingerprint(job.diagnosis),
        verdict=job.diagnosis.verdict, given=root.cause, confidence=root.confidence,
        cause=job.classes[0], correct=right, fix=f"fix {job.incident}", made=f"{number:06d}",
    )  # fmt: skip


def print_recall(jobs: Sequence[Job]) -> None:
    asked: Counter[str] = Counter()
    hit: Counter[str] = Counter()
    first = alarms = 0
    met: set[int] = set()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "memory.sqlite")
        for number, job in enumerate(jobs):
            found: list[str] = []
            if job.diagnosis.verdict not in WELL and file.exists():
                with opened(file) as memory:
                    found = [one.fix for one in earlier(job.diagnosis, memory)]
            if job.incident in met:
                for kind in ("all", "same bug" if job.same_bug else "same kind of fault"):
                    asked[kind] += 1
                    hit[kind] += f"fix {job.incident}" in found
            else:
                first += 1
                alarms += bool(found)
            met.add(job.incident)
            keep(file, confirmed(job, number), features(job.diagnosis))
    print(f"{len(jobs)} jobs, {len(met)} incidents: the right earlier one among the first three")
    for kind, count in asked.items():
        print(f"  {kind:20} {hit[kind]:4} of {count:4}  {hit[kind] / count:6.1%}")
    print(f"  new incidents for which something is shown  {alarms} of {first}")


def print_nodes(jobs: Sequence[Job]) -> None:
    catalog, now = load_catalog(), datetime.now(UTC)
    named = right = 0
    for job in jobs:
        for one in decide(job.diagnosis, catalog, "", "", 7, now).actions:
            if one.action in ON_NODES:
                named += len(one.targets)
                right += len({*one.targets} & {*job.hosts})
    print(f"nodes of records that are those of the truth: {right} of {named}")


def print_fleets(count: int, seed: int) -> None:
    catalog, now = load_catalog(), datetime.now(UTC)
    staying = {name for name, one in catalog.classes.items() if one.stays_with_node}
    named = right = planted = 0
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        kind = "node" if number % 2 else "none"
        fleet = make_fleet.plant(rng, kind, 10.0, 20_000.0, 20_000, 256)
        with tempfile.TemporaryDirectory() as folder:
            make_fleet.write(rng, Path(folder), fleet, make_fleet.SHAPES["training"], 256)
            suspects = nodes(read_fleet(Path(folder)), staying).suspects
        targets = {one for a in of_suspects(suspects, "", 7, now).actions for one in a.targets}
        planted += kind == "node"
        named += len(targets)
        right += fleet.unit in targets
    print(f"{count} fleets, {planted} with a bad node: {right} of {named} nodes of records are bad")


def print_sites(seed: int) -> None:
    before, after, shown = [], [], []
    for number in range(SITES):
        rng = random.Random(f"site {seed} {number}")
        site = Site(rng)
        table: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        for _ in range(CONFIRMED):
            cause, confidence, right = site.verdict(rng)
            table[cause, confidence][0] += 1
            table[cause, confidence][1] += right
        rows = [(*key, *counts) for key, counts in table.items()]
        fresh = [site.verdict(rng) for _ in range(FRESH)]
        states = [record(rows, cause, confidence) for cause, confidence, _ in fresh]
        shares = [
            state.share if state else CLAIMS[one[1]]
            for one, state in zip(fresh, states, strict=True)
        ]
        rights = [right for *_, right in fresh]
        before.append(ece([CLAIMS[confidence] for _, confidence, _ in fresh], rights))
        after.append(ece(shares, rights))
        levels = [level(share, one[1]) for one, share in zip(fresh, shares, strict=True)]
        shown.append(ece([CLAIMS[one] for one in levels], rights))
    print(f"{SITES} sites whose base rates differ, {CONFIRMED} confirmations each: mean ECE")
    print(
        f"  before {mean(before):.3f}, after {mean(after):.3f} (share), {mean(shown):.3f} (level)"
    )
    halved = sum(2 * b <= a for a, b in zip(before, after, strict=True))
    print(f"  sites where it is halved: {halved} of {SITES}")


class Site:
    """A site: how often each class and confidence is given, and how often that is right."""

    def __init__(self, rng: random.Random) -> None:
        self.weights = [1 / (one + 1) for one in range(CLASSES)]
        self.levels: dict[str, list[float]] = {}
        self.right: dict[tuple[str, Confidence], float] = {}
        skill = rng.uniform(0.5, 1.0)  # of the tool at this site
        for one in range(CLASSES):
            name = f"class{one}"
            self.levels[name] = [rng.random() for _ in CLAIMS]
            for confidence, claim in CLAIMS.items():
                self.right[name, confidence] = min(1.0, claim * skill * rng.uniform(0.85, 1.15))

    def verdict(self, rng: random.Random) -> tuple[str, Confidence, bool]:
        """Class, confidence, and whether it is right."""
        cause = f"class{rng.choices(range(CLASSES), self.weights)[0]}"
        confidence = rng.choices([*CLAIMS], self.levels[cause])[0]
        return cause, confidence, rng.random() < self.right[cause, confidence]


def ece(stated: Sequence[float], right: Sequence[bool]) -> float:
    """Expected calibration error over ten bins of what was stated."""
    bins: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for one, good in zip(stated, right, strict=True):
        bins[min(9, int(10 * one))].append((one, good))
    off = (abs(sum(one - good for one, good in some)) for some in bins.values())
    return sum(off) / len(stated)


if __name__ == "__main__":
    main()
