"""Small jobs for the tests of the page: text in, job and diagnosis out."""

from functools import lru_cache
from pathlib import Path

import diagnose
from diagnose.diagnosis import Diagnosis
from diagnose.job.model import Job

ROOT = Path(__file__).parents[3]


@lru_cache
def fixture(name: str) -> tuple[Job, Diagnosis]:
    """A fixture of the repository, diagnosed."""
    job = diagnose.load(ROOT / "fixtures" / name)
    return job, diagnose.diagnose(job)


def pasted(text: str) -> tuple[Job, Diagnosis]:
    job = diagnose.load_text(text)
    return job, diagnose.diagnose(job)


def watchdog(rank: int, clock: str = "08:25:12", seq: int = 7, op: str = "ALLREDUCE") -> str:
    """The line of a watchdog that gave up after ten minutes."""
    return (
        f"[rank{rank}]:[E602 {clock}.100000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog "
        f"caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=4, "
        "NumelOut=4, Timeout(ms)=600000) ran for 600100 milliseconds before timing out."
    )
