"""The jobs that the fuzzer starts from: all fixtures, and synthetic jobs of every fault and layout.

Of each is known which lines nothing was found in and which tell of a death.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import yaml

from diagnose.catalog.load import load_catalog
from diagnose.catalog.schema import Signature
from diagnose.match.scanner import SourceScan
from tests.fuzz.case import Case, Outcome, job, load, run, said
from tests.fuzz.synthetic import FAULTS, LAYOUTS, Run, files_of

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
# Lines that other readers than the catalog make something of.
_READ = re.compile(rb"opCount |- Init |Traceback|Exception ignored")
_PARTIAL = re.compile(rb"^\S+ std(?:out|err) P ", re.MULTILINE)  # pieces of a line in CRI logs


def names() -> list[str]:
    """All jobs of the corpus."""
    fixtures = sorted(path.parent.name for path in FIXTURES.glob("*/expected.yaml"))
    return fixtures + [f"lab {fault} {layout}" for fault in FAULTS for layout in LAYOUTS]


@cache
def case(name: str) -> Case:
    """A job by its name, with what is known of its lines."""
    bare = job(name, _synthetic(name) if name.startswith("lab ") else _fixture(name))
    scans = {scan.source.name: scan for scan in load(bare).scans}
    known = tuple(
        replace(
            file,
            log=file.name in scans and scans[file.name].source.kind == "text",
            spare=_spare(file.data, scans.get(file.name)),
        )
        for file in bare.files
    )
    well = ends_well(name)
    every = {text for file in known if file.log for text in _texts(file.data)}
    grave = {text for scan in scans.values() for text in _grave(scan)}
    return replace(
        bare,
        files=known,
        fatal=frozenset() if well else frozenset(grave),
        tame=frozenset(every) if well else frozenset(),
    )


@cache
def outcome(name: str) -> Outcome:
    """What the engine says of a job as it is."""
    return run(case(name))


def ends_well(name: str) -> bool:
    """Whether a job does not fail, as whoever wrote it knows."""
    if name.startswith("lab "):
        return name.startswith("lab none ")
    want = yaml.safe_load((FIXTURES / name / "expected.yaml").read_text("utf-8"))
    return bool(want["verdict"] == "healthy")


@cache
def grave_signatures() -> dict[str, Signature]:
    """The signatures whose match by itself tells why a job died; not what detectors say of it."""
    return {
        signature.id: signature
        for signature in load_catalog(examples=True).signatures
        if signature.role == "cause" and signature.strength != "weak"
        if signature.signal != "concluded"
    }


def _fixture(name: str) -> dict[str, bytes]:
    top = FIXTURES / name
    found = sorted(path for path in top.rglob("*") if path.is_file())
    return {
        path.relative_to(top).as_posix(): path.read_bytes()
        for path in found
        if path.name != "expected.yaml"
    }


def _synthetic(name: str) -> dict[str, bytes]:
    _, fault, layout = name.split()
    rng = Random(name)
    world = rng.choice([2, 4, 8])
    what = Run(
        fault, world, rng.randrange(world), summary=fault == "sigkill" or rng.random() < 0.5,
        clock=rng.random() < 0.5,
    )  # fmt: skip
    return files_of(what, layout, rng)


def _texts(data: bytes) -> list[str]:
    return [text for line in data.decode(errors="replace").split("\n") for text in said(line)]


def _grave(scan: SourceScan) -> list[str]:
    """The lines of a source that match a grave signature."""
    signatures = load_catalog().signatures
    grave = grave_signatures()
    return [
        text
        for line in scan.lines
        if any(signatures[number].id in grave for number, _ in line.matches)
        for text in said(line.text)
    ]


def _spare(data: bytes, scan: SourceScan | None) -> frozenset[bytes]:
    """The lines of a log in which nothing was found, with nothing in any line of the same text."""
    if scan is None or scan.source.kind != "text" or _PARTIAL.search(data):
        return frozenset()
    rows = data.split(b"\n")
    matched = {line.line for line in scan.lines}
    used = set()
    for chunk in scan.source.chunks():
        count = chunk.data.count(b"\n") + 1
        numbers = list(chunk.lines or range(chunk.first_line, chunk.first_line + count))
        # A line that was joined of several, as pasting wraps them, uses all of these.
        for first, following in zip(numbers, [*numbers[1:], len(rows) + 1], strict=True):
            if first in matched:
                used.update(range(first, max(following, first + 1)))
    texts = {rows[number - 1].strip() for number in used if number <= len(rows)}
    return frozenset(
        row for row in rows if row.strip() not in texts and row.strip() and not _READ.search(row)
    )
