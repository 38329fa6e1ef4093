"""A case while it is made: its job, how it is seen, and the lines so far."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from benchmarks.hangbench.words import layouts, programs
from benchmarks.hangbench.words.job import Job, Line, make_job
from benchmarks.hangbench.words.layouts import Layout
from benchmarks.hangbench.words.programs import Program


@dataclass(slots=True)
class Story:
    """One case while it is made.

    who: ranks that print progress. members: each rank tells its number at the start. loop: seconds
    after the start when the training loop began. labels: those of the case.
    """

    job: Job
    layout: Layout
    program: Program
    who: tuple[int, ...]
    members: bool
    lines: list[Line] = field(default_factory=list)
    loop: float = 0.0
    labels: dict[str, str] = field(default_factory=dict)

    def work(self, count: int, rest: float) -> tuple[list[int], list[float]]:
        """Print the opening; the numbers of `count` progress lines, and when they are.

        rest: how many times the steps shown the whole run has, 1 if it comes to its end.
        """
        job = self.job
        steps = [job.first + job.every * (place + 1) for place in range(count)]
        job.total = job.every * int(steps[-1] * rest / job.every)
        lines, self.loop = programs.opening(job, self.program, self.who, members=self.members)
        self.lines += lines
        return steps, programs.times(job, self.loop, count)

    def progress(self, rank: int, steps: list[int], at: list[float]) -> None:
        """Print the progress lines of a rank; ranks are a little apart."""
        apart = min(0.4, 0.05 * self.job.interval)
        for step, when in zip(steps, at, strict=True):
            late = self.job.rng.uniform(0, apart)
            self.lines += programs.progress(
                self.job, self.program, rank, step, when + late, self.loop
            )


def begin(
    rng: random.Random,
    layout: Layout,
    program: Program,
    *,
    every_rank: bool,
    per_host: int | None = None,
) -> Story:
    """The job and what its launcher prints first."""
    world = rng.choice((2, 4, 8)) if layout.one_host else None
    job = make_job(rng, world=world, per_host=world or per_host)
    if program.name == "keras":  # a line an epoch
        job.first, job.every = 0, 1
    who = programs.printers(job, program, every_rank=every_rank)
    members = rng.random() < 0.33 or (layout.files is not None and not every_rank)
    story = Story(job, layout, program, who, members)
    if layout.launcher == "ray":
        ips = [layouts.ray_ip(job, rank) for rank in range(job.world)]
        story.lines += programs.ray_workers(job, ips)
    return story
