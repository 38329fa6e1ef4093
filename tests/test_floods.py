"""The work of reading and judging grows with the lines of a log, and by little for each.

Counted are the instructions that Python runs in this package and the functions called outside of
it, so that a loop over all rows for each row shows; and the operations on frames, none of which a
single line may cost.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

import diagnose
from diagnose.catalog.load import load_catalog
from diagnose.catalog.schema import Catalog, Signature
from diagnose.ingest import text_source
from diagnose.job.model import Job
from diagnose.match.compile import Matcher, compile_matcher
from diagnose.match.scanner import scan_source
from tests.counting import Count

# Instructions and calls that one more line may cost: twice what the dearest costs.
SCAN, TIMELINE, INFER = 12_000, 3_600, 3_600


@cache
def catalog() -> tuple[Catalog, Matcher, dict[str, str]]:
    """The catalog, its matcher and the first example of each signature, without its rank."""
    found = load_catalog(examples=True)
    examples = {s.id: s.examples[0].line for s in found.signatures if s.examples}
    bare = {id_: re.sub(r"^\[rank\d+\]: ?", "", line) for id_, line in examples.items()}
    return found, compile_matcher(found), bare


def of_lines() -> list[Signature]:
    """The signatures that lines match; records state others."""
    return [signature for signature in catalog()[0].signatures if signature.match]


def numbered(line: str, number: int) -> str:
    """The line with another status for each `number`."""
    return re.sub(r"exit code \d+", f"exit code {number}", line)


def counts(lines: list[str], ranks: int) -> tuple[Count, Count, Count]:
    """What scan, timeline and verdict of a log are, whose lines `ranks` ranks print in turn."""
    scan, timeline, infer = Count(), Count(), Count()
    text = "".join(f"[rank{n % ranks}]: {line}\n" for n, line in enumerate(lines))
    job = Job([text_source(text)], [], catalog()[0])
    scan.during(lambda: job.scans.append(scan_source(job.sources[0], catalog()[1])))
    timeline.during(lambda: job.timeline)
    infer.during(lambda: diagnose.diagnose(job))
    return scan, timeline, infer


def check(ids: list[str], times: int, ranks: int | None = 8) -> None:
    """Examples repeated `times` times, and twice as often; `ranks` None: a rank for every line.

    What costs once, as the examples that are looked through where nothing is known, may fall
    between the two: what grows faster than the lines costs more still up to four times as many.
    """
    more = len(ids) * times
    lines = [numbered(catalog()[2][id_], n) for n, id_ in enumerate(ids * 4 * times)]

    def grown(first: int) -> list[tuple[float, float]]:
        once = counts(lines[:first], ranks or first)
        twice = counts(lines[: 2 * first], ranks or 2 * first)
        return [
            ((after.work - before.work) / first, (after.frames - before.frames) / first)
            for before, after in zip(once, twice, strict=True)
        ]

    limits = {"scan": SCAN, "timeline": TIMELINE, "infer": INFER}
    found = grown(more)
    if any(work >= limit for (work, _), limit in zip(found, limits.values(), strict=True)):
        found = grown(2 * more)
    for (name, limit), (work, frames) in zip(limits.items(), found, strict=True):
        assert work < limit, name
        # A frame made for each line of one signature takes tens of calls.
        assert frames * len(ids) < 5, name


def one_of_each_kind() -> list[str]:
    """A signature for each role and each thing that signatures tell, but restarts.

    Of attempts only the last is judged.
    """
    kinds = {(s.role, s.signal): s.id for s in of_lines() if s.signal != "restart"}
    return [*kinds.values()]


def at_work() -> list[str]:
    """Signatures of a job that goes on."""
    roles = ("progress", "phase", "context")
    kinds = {(s.role, s.signal): s.id for s in of_lines() if s.role in roles}
    return [*kinds.values()]


@pytest.mark.slow
def test_every_kind_of_line() -> None:
    check(one_of_each_kind(), 12)


@pytest.mark.slow
def test_a_job_at_work() -> None:
    check(at_work(), 12)


@pytest.mark.parametrize(
    "ids",
    [
        ["python.exception.ignored"],
        ["python.exception.any", "deepspeed.launcher.finished"],
        ["torch.cuda.out-of-memory", "torch.elastic.restart"],
        ["torch.elastic.table-rank", "torch.elastic.table-exit"],
        ["slurm.task.exit-code"],
    ],
    ids=["ignored", "ends", "restarts", "tables", "statuses"],
)
def test_lines_that_cost_much_before(ids: list[str]) -> None:
    check(ids, 100 // len(ids))


def test_a_stack_of_every_rank() -> None:
    check(["torch.call.collective", "torch.gloo.timeout"], 40, ranks=None)


PARTS = 8  # so that several workers share them


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_signature(part: int) -> None:
    everything = sorted(of_lines(), key=lambda s: (s.role, s.signal or "", s.id))
    ids = [signature.id for signature in everything if signature.signal != "restart"]
    for start in range(10 * part, len(ids), 10 * PARTS):
        check(ids[start : start + 10], 16)
