"""A case and its truth, an answer of a tool, and where they lie.

A benchmark folder holds `cases/ID/…`, which is all that a tool sees, `truth.jsonl` with a `Case`
a line, and `answers/TOOL.jsonl` with an `Answer` a line. The id and the names below `cases/` say
nothing of the fault.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Track = Literal["sim", "silent", "calm", "real", "numeric", "slow"]
TRACKS: tuple[Track, ...] = ("sim", "silent", "calm", "real", "numeric", "slow")

# What of the culprit the evidence can determine: the very rank, only a set of ranks that it is
# one of, or nothing. `none`: nobody is to blame.
Determines = Literal["rank", "group", "nothing", "none"]

Files = dict[str, bytes]  # path below the folder of a case → content


@dataclass(frozen=True, slots=True)
class Truth:
    """What is true of a case.

    verdicts: those that are right, of `hung`, `failed`, `healthy`, `running`, `unknown`.
    classes: cause classes (patterns/classes.yaml) that are right; empty: not scored.
    culprits: global ranks to blame; empty where nobody is.
    accepted: other sets that are as right, such as the other side of a mismatch of two.
    suspects: the culprits, and ranks that the evidence points at as much as at them. Naming one of
      them accuses no innocent; every other rank is one. Where it points at nobody (`nothing`) they
      are the culprits alone: whoever names a rank all the same had no reason to.
    determines: see `Determines`. With `rank` only `culprits` or one of `accepted` is exact; with
      `group` and `nothing` naming nobody is right too.
    hosts: those of the culprits, as the evidence spells them; empty where it has no hosts.
    onset: ISO 8601 in the job's own clock without a zone, when the trouble began; None: not scored.
    onset_tolerance_s: how far off an onset may be and still be right.
    """

    verdicts: tuple[str, ...]
    classes: tuple[str, ...] = ()
    culprits: tuple[int, ...] = ()
    accepted: tuple[tuple[int, ...], ...] = ()
    suspects: tuple[int, ...] = ()
    determines: Determines = "rank"
    hosts: tuple[str, ...] = ()
    onset: str | None = None
    onset_tolerance_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """One case without its files.

    id: such as `sim-0000123`; seed: what it was made from; sealed: of the half that is kept out of
    daily use. form: the kind of evidence, by which figures are given (`console`, `files`, `dumps`,
    `torchrun` …); labels: anything else to slice by (program, fault, torch, damage …).
    world: number of ranks; shape: digest of all files with their numbers masked, by which
    near-duplicates are found (`shape_of`).
    """

    id: str
    track: Track
    seed: int
    sealed: bool
    form: str
    world: int
    truth: Truth
    labels: dict[str, str] = field(default_factory=dict)
    shape: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool said of a case.

    verdict, cause (a class of ours, or the tool's own word), ranks, hosts, onset as in `Truth`;
    None or empty where the tool does not say. confidence: `high`, `medium`, `low` or None.
    cpu_s and peak_mib: of the tool's processes; error: why there is no answer.
    """

    case: str
    tool: str
    version: str = ""
    verdict: str | None = None
    cause: str | None = None
    confidence: str | None = None
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    onset: str | None = None
    cpu_s: float | None = None
    peak_mib: float | None = None
    error: str | None = None


def is_sealed(seed: int) -> bool:
    """Whether a seed belongs to the sealed half."""
    return bool(hashlib.sha256(b"hangbench %d" % seed).digest()[0] & 1)


def seeds(first: int, *, sealed: bool) -> Iterator[int]:
    """The seeds of one half from `first` on, endless."""
    seed = first
    while True:
        if is_sealed(seed) == sealed:
            yield seed
        seed += 1


def write_case(folder: Path, case: Case, files: Files) -> None:
    """Write the files of one case below `folder`/cases and its truth as a line of truth.jsonl."""
    for name, content in files.items():
        path = folder / "cases" / case.id / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with (folder / "truth.jsonl").open("a", encoding="utf-8") as out:
        out.write(json.dumps(asdict(case)) + "\n")


def read_cases(folder: Path) -> list[Case]:
    """The cases of a benchmark folder in the order in which they were made."""
    return [case_of(data) for data in _lines(folder / "truth.jsonl")]


def write_answers(folder: Path, tool: str, answers: Iterable[Answer]) -> None:
    """Replace what `folder` holds of one tool."""
    path = folder / "answers" / f"{tool}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(asdict(one)) + "\n" for one in answers), encoding="utf-8")


def read_answers(folder: Path, tool: str) -> list[Answer]:
    """What `run` has kept of one tool; empty where it has not run."""
    path = folder / "answers" / f"{tool}.jsonl"
    if not path.exists():
        return []
    return [
        Answer(**{**data, "ranks": tuple(data["ranks"]), "hosts": tuple(data["hosts"])})
        for data in _lines(path)
    ]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def case_of(data: dict[str, Any]) -> Case:
    """A case as it was before `asdict` and JSON."""
    truth = dict(data["truth"])
    for key in ("verdicts", "classes", "culprits", "suspects", "hosts"):
        truth[key] = tuple(truth[key])
    truth["accepted"] = tuple(tuple(ranks) for ranks in truth["accepted"])
    return Case(**{**data, "truth": Truth(**truth)})
