"""Track silent: jobs that fall silent, all ranks or one first, and how they were ended.

Controls worked until they were ended, were cut off at work, or paused for a while and said so.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from benchmarks.hangbench.case import Case, Files, Truth, is_sealed
from benchmarks.hangbench.words import endings, layouts, programs
from benchmarks.hangbench.words.endings import ENDINGS, Ending
from benchmarks.hangbench.words.job import Job, Line
from benchmarks.hangbench.words.layouts import Layout
from benchmarks.hangbench.words.programs import PROGRAMS, Program
from benchmarks.hangbench.words.story import Story, begin

MOST_LINES = 600  # of progress in one case
SHORTEST_SILENCE_S = 1_200.0
INTERVALS_OF_SILENCE = 25
LATER_WITHOUT_TIMES = 6  # steps of the others that show without any time that one rank stands

# What a program says before a pause of 5 to 20 intervals, and after it.
PAUSES: dict[str, tuple[tuple[str, str], ...]] = {
    "checkpoint": (
        ("saving checkpoint to {folder}/out/step_{step}", "checkpoint saved in {took:.1f} s"),
        ("Saving model checkpoint to {folder}/out/checkpoint-{step}",
         "Model weights saved in {folder}/out/checkpoint-{step}/model.safetensors"),
        ("saving checkpoint at iteration {step:7d} to {folder}/ckpt in torch_dist format",
         "successfully saved checkpoint from iteration {step:7d} to {folder}/ckpt [ t 1/1 ]"),
        ("[Torch] Checkpoint global_step{step} is about to be saved!",
         "[Torch] Checkpoint global_step{step} is ready now!"),
    ),
    "evaluation": (
        ("***** Running Evaluation *****", "{{'eval_loss': 2.3106, 'eval_runtime': {took:.4f}}}"),
        ("running validation on 2,000 batches", "validation loss 2.3106, took {took:.1f} s"),
        ("Evaluating on 51200 samples",
         "validation loss at iteration {step} | lm loss value: 2.310600E+00"),
    ),
    "compilation": (
        ("compiling the model with torch.compile, the next step will be slow",
         "compilation finished after {took:.1f} s"),
        ("sequence length changes to 8192, kernels are tuned and compiled first",
         "autotuning done in {took:.1f} s"),
    ),
    "data": (
        ("building dataset index for the next epoch, this takes a while",
         "dataset index built in {took:.1f} s"),
        ("downloading shards of {data} for the next epoch ...", "all shards of {data} are there"),
        ("shuffling and tokenizing the next part of {data}", "tokenized, {took:.0f} s"),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """What a case is to show. silent: `all`, `one`, or `nobody` in a control; control: its kind."""

    silent: str
    control: str
    ending: Ending | None
    later: int | None  # steps of the others after the silent rank's last; None: to the end


def make(seed: int) -> tuple[Case, Files] | None:
    """The case of a seed, or None where what it drew would not let anybody tell what happened."""
    rng = random.Random(f"silent {seed}")
    layout = layouts.draw(rng)
    silent = rng.choices(("all", "one", "nobody"), (36, 26, 38))[0]
    program = programs.draw(
        rng,
        [
            one
            for one in PROGRAMS
            if layouts.shows(layout, one) and (silent != "one" or one.every_rank)
        ],
    )
    plan = _plan(rng, layout, program, silent)
    if not _can_tell(layout, program, plan):
        return None
    lone = silent == "one" and layout.author == "host" and not program.names_rank
    story = begin(
        rng,
        layout,
        program,
        every_rank=silent == "one" or (program.every_rank and rng.random() < 0.6),
        per_host=1 if lone else None,
    )
    story.labels = {
        "ending": plan.ending.name if plan.ending else "nothing",
        "who": silent,
        "control": plan.control,
        "style": program.name,
        "layout": layout.name,
        "stamps": "full" if layout.stamps else program.stamps,
        "later_steps": _bucket(plan.later),
        "stacks": "no",
    }
    truth = _tell(story, plan)
    case = Case(
        id=f"silent-{seed:07d}",
        track="silent",
        seed=seed,
        sealed=is_sealed(seed),
        form=layout.form,
        world=story.job.world,
        truth=truth,
        labels=story.labels,
    )
    return case, layouts.write(story.job, layout, story.lines)


def _bucket(later: int | None) -> str:
    if later is None:
        return "to the end"
    return str(later) if later < 2 else "2-6" if later <= 6 else "7-39"


def _plan(rng: random.Random, layout: Layout, program: Program, silent: str) -> Plan:
    possible = [
        one
        for one in ENDINGS
        if layout.launcher in one.launchers
        and (one.name != "Ctrl-C" or _shows_interrupt(layout, program))
    ]
    ending = rng.choice(possible) if possible else None
    if silent == "all":
        return Plan("all", "no", None if rng.random() < 0.22 else ending, 0)
    if silent == "one":
        if rng.random() < 0.25:
            return Plan("one", "no", None if rng.random() < 0.4 else ending, None)
        if not _shows_time(layout, program):
            return Plan("one", "no", ending, rng.randrange(LATER_WITHOUT_TIMES, 40))
        return Plan("one", "no", ending, rng.choice((1, 1, 1, 2, 3, 6)))
    control = rng.choices(("worked", "cut", "pause", "pause cut"), (10, 2, 4, 3))[0]
    return Plan("nobody", control, ending if control == "worked" else None, 0)


def _shows_interrupt(layout: Layout, program: Program) -> bool:
    """Whether Ctrl-C leaves stacks of Python and a time; compose prints none of itself."""
    return program.family != "mpi" and (layout.launcher != "compose" or layout.stamps)


def _shows_time(layout: Layout, program: Program) -> bool:
    return layout.stamps or program.stamps != "none" or _shows_elapsed(layout, program)


def _shows_elapsed(layout: Layout, program: Program) -> bool:
    """A bar tells how long it ran; a line of the batch script tells when the job began."""
    return program.bar and layout.files is None and layout.launcher in ("torchrun", "slurm")


def _can_tell(layout: Layout, program: Program, plan: Plan) -> bool:
    """Whether an engineer who reads the files can know the truth."""
    if plan.silent == "one":
        authored = layout.author != "none" or program.names_rank
        return authored and not program.bar and program.family != "keras"
    if plan.silent == "all" or plan.control == "worked":
        return _shows_time(layout, program)
    return True


def _tell(story: Story, plan: Plan) -> Truth:
    """Write the lines of the case and say what is true of them."""
    job = story.job
    if _shows_elapsed(story.layout, story.program):
        begun = f"Job {job.number} started on {job.hosts[0]} at {job.started:%a %b %d %H:%M:%S %Y}"
        story.lines.append(Line(0, None, begun, "start"))
    least = 30 if plan.later is None or plan.later > 6 else 10
    most = max(least + 2, min(100, MOST_LINES // len(story.who)))
    count = job.rng.randrange(least, most) + (plan.later or 0)
    if plan.silent == "nobody":
        return _control(story, plan, count)
    if plan.silent == "one":
        return _one_first(story, plan, count)
    return _all_at_once(story, plan, count)


def _silence(job: Job) -> float:
    """Seconds that the job stood still before it was ended."""
    least = max(SHORTEST_SILENCE_S, INTERVALS_OF_SILENCE * job.interval)
    return least * job.rng.uniform(1.1, 4)


def _onset(story: Story, rank: int | None) -> str | None:
    """When the last progress line of `rank`, or of any, was printed; None where none says."""
    if story.program.stamps != "full" and not story.layout.stamps:
        return None
    last = max(line.at for line in story.lines if line.mark == "step" and rank in (None, line.rank))
    return story.job.clock(last).isoformat(timespec="seconds")


# ---------------------------------------------------------------- jobs that fell silent


def _all_at_once(story: Story, plan: Plan, count: int) -> Truth:
    job = story.job
    steps, at = story.work(count, job.rng.uniform(1.3, 5))
    for rank in story.who:
        story.progress(rank, steps, at)
    onset = _onset(story, None)
    culprit = _stop(story, plan.ending, at[-1], at[-1] + _silence(job), None)
    verdicts = ("hung", "unknown") if story.labels["ending"] == "monitor" else ("hung",)
    tolerance = round(1.2 * job.interval + 1, 1)
    if culprit is None:
        return Truth(verdicts, determines="none", onset=onset, onset_tolerance_s=tolerance)
    return _blaming(story, culprit, verdicts, onset, tolerance, signed=True)


def _one_first(story: Story, plan: Plan, count: int) -> Truth:
    job, later = story.job, plan.later
    culprit = job.rng.randrange(job.world)
    ended_well = later is None and plan.ending is None and job.rng.random() < 0.5
    steps, at = story.work(count, 1 if ended_well else job.rng.uniform(1.3, 5))
    stop = len(steps) - later if later else job.rng.randrange(8, len(steps) // 2)
    for rank in story.who:
        if rank == culprit:
            story.progress(rank, steps[:stop], at[:stop])
        else:
            story.progress(rank, steps, at)
    onset = _onset(story, culprit)
    verdicts: tuple[str, ...] = ("hung",)
    if later is None:
        # the others did not need it, so its output alone may have stopped
        verdicts = ("hung", "unknown")
        if ended_well:
            story.labels["ending"] = "completion"
            speaker = 0 if culprit else 1
            story.lines += programs.closing(job, story.program, speaker, at[-1] + 1)
        elif plan.ending:
            _stop(story, plan.ending, at[-1], at[-1] + 0.6 * job.interval, culprit)
    else:
        if not _shows_time(story.layout, story.program):
            verdicts = ("hung", "unknown")
            if later > 1:  # the rank's output may be lost, and the job at work until it was ended
                verdicts = ("hung", "unknown", "failed")
        _stop(story, plan.ending, at[-1], at[-1] + _silence(job), culprit)
    tolerance = round(1.2 * job.interval + 1, 1)
    return _blaming(story, culprit, verdicts, onset, tolerance)


def _blaming(
    story: Story,
    culprit: int,
    verdicts: tuple[str, ...],
    onset: str | None,
    tolerance: float,
    *,
    signed: bool = False,
) -> Truth:
    known = signed or story.program.names_rank or (story.members and story.layout.author == "pod")
    determines, suspects, hosts = layouts.blame(story.job, story.layout, culprit, rank_known=known)
    return Truth(
        verdicts,
        culprits=(culprit,),
        suspects=suspects,
        determines=determines,
        hosts=hosts,
        onset=onset,
        onset_tolerance_s=tolerance,
    )


def _stop(
    story: Story, ending: Ending | None, last: float, at: float, culprit: int | None
) -> int | None:
    """Print what ended the job at `at`, or who saw that it stood; the rank that stacks blame."""
    job = story.job
    if ending is None:
        _witness(story, last, at)
        return culprit
    if ending.name != "Ctrl-C":
        story.lines += ending.print(job, story.layout, at)
        return culprit
    if culprit is None and story.program.family == "torch" and job.rng.random() < 0.5:
        culprit = job.rng.randrange(job.world)
    story.labels["stacks"] = "same" if culprit is None else "one differs"
    places = [job.rng.choice(endings.at_work(story.program.family))] * job.world
    if culprit is not None:
        places[culprit] = job.rng.choice(endings.HELD_UP)
    signed = story.program.family == "torch" and (
        story.layout.author in ("none", "pod", "host") or job.rng.random() < 0.5
    )
    story.lines += endings.interrupted(job, at, tuple(places), signed=signed)
    story.lines += endings.launcher_interrupted(job, story.layout, at)
    return culprit


def _witness(story: Story, last: float, end: float) -> None:
    """Lines of somebody else that show how long no progress was made."""
    job = story.job
    kinds = ["monitor", "watcher", "heartbeat"]
    if story.layout.launcher == "kubernetes":
        kinds = ["probe", "heartbeat"]
    witness = story.labels["ending"] = job.rng.choice(kinds)
    period = job.rng.choice((60, 120, 300))
    if witness == "heartbeat":
        form = job.rng.choice(
            ("heartbeat: process is alive, last step {step} was {ago} s ago",
             "alive; no step since {ago} s (last {step})")
        )  # fmt: skip
        done = [line for line in story.lines if line.step is not None]
        step = max(line.step or 0 for line in done)
        rank = story.who[0]
        at = last + period
        while at < end:
            text = form.format(step=step, ago=int(at - last))
            story.lines.append(programs.message(job, story.program, rank, at, text, "note"))
            at += period
        return
    at = float(period)
    while at < end:
        now = job.clock(at)
        if witness == "monitor":
            text = (
                f"{now:%Y-%m-%d %H:%M:%S} gpu-monitor {job.hosts[0]} gpu0 util "
                f"{job.rng.randrange(96, 101)}% mem {71_200 + at % 7:.0f}MiB power "
                f"{job.rng.randrange(180, 460)}W"
            )
            story.lines.append(Line(at, None, text, "note"))
        elif at > last + 600:
            ago = int(at - last)
            text = (
                f"{now:%Y-%m-%d %H:%M:%S} logwatch: no new output of job {job.number} for {ago} s"
                if witness == "watcher"
                else f"{now:%Y-%m-%dT%H:%M:%S}Z   Warning  Unhealthy   "
                f"pod/{layouts.pod(job, 0)}   Liveness probe failed: no step for {ago} s"
            )
            story.lines.append(Line(at, None, text, "end"))
        at += period


# ---------------------------------------------------------------- controls


def _control(story: Story, plan: Plan, count: int) -> Truth:
    job, kind = story.job, plan.control
    completes = kind == "pause"
    steps, at = story.work(count, 1 if completes else job.rng.uniform(1.3, 5))
    if kind.startswith("pause"):
        at = _pause(story, steps, at)
    for rank in story.who:
        story.progress(rank, steps, at)
    if kind == "worked":
        assert plan.ending is not None
        end = at[-1] + job.interval * job.rng.uniform(0.3, 0.8)
        story.lines += plan.ending.print(job, story.layout, end)
        return Truth(("failed",), classes=plan.ending.right, determines="none")
    if completes:
        story.lines += programs.closing(job, story.program, story.who[0], at[-1] + 1)
        return Truth(("healthy", "running"), determines="none")
    return Truth(("running",), determines="none")


def _pause(story: Story, steps: list[int], at: list[float]) -> list[float]:
    """Print a pause of 5 to 20 intervals; the times of the steps with it."""
    job = story.job
    kind = job.rng.choice(list(PAUSES))
    begin, end = job.rng.choice(PAUSES[kind])
    story.labels["ending"] = kind
    place = job.rng.randrange(1, len(at) - 8)
    took = job.interval * job.rng.uniform(5, 20)
    facts = {"folder": job.folder, "step": steps[place - 1], "took": took, "data": job.data}
    started = at[place - 1] + 0.3
    for when, text in ((started, begin), (started + took, end)):
        story.lines.append(
            programs.message(job, story.program, story.who[0], when, text.format(**facts), "note")
        )
    return at[:place] + [when + took for when in at[place:]]
