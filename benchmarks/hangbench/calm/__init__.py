"""Track calm: one rank died while others print on, and jobs that only look as if.

Half of the cases hold a death that must be seen, however calm the rest of the output is. Half are
healthy jobs with one or four frightening lines.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from benchmarks.hangbench.calm import fatal
from benchmarks.hangbench.calm.fatal import Fatal
from benchmarks.hangbench.calm.harmless import HARMLESS, Harmless
from benchmarks.hangbench.case import Case, Files, Truth, is_sealed
from benchmarks.hangbench.words import endings, layouts, programs
from benchmarks.hangbench.words.job import Line
from benchmarks.hangbench.words.layouts import Layout
from benchmarks.hangbench.words.programs import PROGRAMS, Program
from benchmarks.hangbench.words.story import Story, begin

MOST_LINES = 700  # of progress in one case
BUFFER = 8_000  # bytes: less than the block after which a process writes standard output to a file
ABSOLVING = 3  # later steps after which an error that nobody signed may have been caught

# What comes after the death.
#   nothing     the file ends, maybe after steps of the others
#   agent       torchrun ends the others and says which rank failed
#   complete    another rank says that training is complete
#   silence     the others wait; much later the job is ended
After = Literal["nothing", "agent", "complete", "silence"]
# How the output of the dead rank is ordered.
#   direct      as it was printed
#   buffered    its standard output comes when it exits, after the traceback
#   redraw      its bar is drawn once more, at the same count, when it exits
Order = Literal["direct", "buffered", "redraw"]
ORDERS: tuple[Order, ...] = ("direct", "buffered", "redraw")


def make(seed: int) -> tuple[Case, Files] | None:
    """The case of a seed, or None where what it drew would not let anybody tell what happened."""
    rng = random.Random(f"calm {seed}")
    layout = layouts.draw(rng)
    dies = rng.random() < 0.56
    order: Order = rng.choices(ORDERS, (62, 25, 13))[0] if dies else "direct"
    able = [one for one in PROGRAMS if layouts.shows(layout, one) and _can(one, layout, order)]
    if not dies:
        able = [one for one in able if one.name != "openfoam"]  # the harmless texts are Python's
    if not able:
        return None
    program = programs.draw(rng, able)
    every_rank = program.every_rank and rng.random() < 0.65
    story = begin(rng, layout, program, every_rank=every_rank)
    story.labels = {
        "style": program.name,
        "layout": layout.name,
        "printers": "all" if every_rank else "one",
        "buffered": order,
    }
    truth = _death(story, order) if dies else _well(story)
    if truth is None:
        return None
    case = Case(
        id=f"calm-{seed:07d}",
        track="calm",
        seed=seed,
        sealed=is_sealed(seed),
        form=layout.form,
        world=story.job.world,
        truth=truth,
        labels=story.labels,
    )
    return case, layouts.write(story.job, layout, story.lines)


def _can(program: Program, layout: Layout, order: Order) -> bool:
    """Whether the output of a program can come in an order.

    A buffer needs standard output in the same file as the traceback, and no Ray, whose workers
    flush each line; a redraw needs a bar.
    """
    if order == "redraw":
        return program.bar
    if order == "buffered":
        return program.prints and layout.name not in ("elastic-files", "ray")
    return True


# ---------------------------------------------------------------- a rank died


def _death(story: Story, order: Order) -> Truth | None:
    job, rng = story.job, story.job.rng
    dead = rng.randrange(job.world) if order == "direct" else rng.choice(story.who)
    most = 18 if order == "buffered" else min(60, MOST_LINES // 2 // len(story.who))
    before = rng.randrange(3, max(4, most))
    later = 0 if story.who == (dead,) else _later(story, order)
    steps, at = story.work(before + later, rng.uniform(1.2, 4))
    died = at[before - 1] + job.interval * rng.uniform(0.45, 0.8)
    last_step = steps[before - 1]
    uncaught = order != "direct"
    death = fatal.draw(job, story.layout, story.program, dead, died, last_step, uncaught=uncaught)
    if death.form == "launcher" and story.layout.launcher in ("torchrun", "mpirun", "ray"):
        # these launchers end the others as soon as they see it
        steps, at, later = steps[:before], at[:before], 0
    after = _after(story, death, order, dead, later)
    for rank in story.who:
        kept = before if rank == dead else len(steps)
        story.progress(rank, steps[:kept], at[:kept])
    _print_after(story, death, after, dead, died, at[-1])
    if order == "buffered" and not _flush(story, dead, died, after):
        return None
    author = None if death.outside else dead
    story.lines.append(Line(died, author, death.text, "bad", err=True))
    if order == "redraw":
        _redraw(story, dead, died, last_step)
    story.labels |= {
        "control": "no",
        "text": f"{death.form}: {death.words}",
        "fatal": death.form,
        "later_steps": str(later) if later < ABSOLVING else "3-10" if later <= 10 else "11-100",
        "after": after,
        "who": "prints steps" if dead in story.who else "prints none",
        "lines": "1",
    }
    return _truth_of_death(story, death, dead, later, after, order)


def _later(story: Story, order: Order) -> int:
    """Steps of the others after the death; most jobs cannot make many."""
    rng = story.job.rng
    most = 100 if len(story.who) <= 4 else max(2, min(100, MOST_LINES // 2 // len(story.who)))
    if order == "redraw" or story.layout.name in ("tee", "elastic-files"):
        most = 2
    if story.layout.launcher == "mpirun":
        most = 1  # it ends the job when a process dies
    return min(most, rng.choice((0, 0, 0, 1, 1, 2, 3, 5, 10, 30, 100)))


def _after(story: Story, death: Fatal, order: Order, dead: int, later: int) -> After:
    if death.form == "launcher" and story.layout.launcher in ("torchrun", "mpirun", "ray"):
        return "nothing"
    options: list[After] = ["nothing", "nothing", "nothing"]
    if story.layout.launcher == "torchrun" and not death.outside and later < ABSOLVING:
        options += ["agent", "agent"]
    if dead != 0 and later >= ABSOLVING:
        options += ["complete", "complete"]
    if order == "direct" and later <= 1 and death.form != "launcher":
        options.append("silence")
    return story.job.rng.choice(options)


def _flush(story: Story, dead: int, died: float, after: After) -> bool:
    """Order the lines as block buffers do: what a process printed comes when it exits.

    The others exit at the end; a process that SIGTERM ended never writes what it holds.
    False: the dead rank printed more than one buffer, so that a part came earlier.
    """
    end = max(died, *(line.at for line in story.lines)) + 5
    kept, size = [], 0
    for line in story.lines:
        if line.err or line.rank is None:
            kept.append(line)
        elif line.rank == dead:
            kept.append(replace(line, at=died + 0.05))
            size += len(line.text.encode()) + 1
        elif after != "agent" and story.layout.launcher != "mpirun":
            kept.append(replace(line, at=end + 0.2 * line.rank))
    story.lines = kept
    return size < BUFFER


def _redraw(story: Story, dead: int, died: float, step: int) -> None:
    """The bars close when the processes exit, which draws each a last time at its count."""
    head, tail = ("Epoch 0: ", ", v_num=0") if story.program.name == "lightning" else ("", "")
    for place in range(story.job.rng.choice((1, 1, 2))):
        text = programs.bar_text(story.job, step, died - story.loop, head=head, tail=tail)
        story.lines.append(
            Line(died + 0.02 + 0.1 * place, dead, text, "step", bar=True, err=True, step=step)
        )


def _print_after(
    story: Story, death: Fatal, after: After, dead: int, died: float, last: float
) -> None:
    job = story.job
    end = max(died, last)
    if after == "agent":
        text = fatal.agent_failed(job, dead, died + 1.5, death.code)
        story.lines.append(Line(max(died + 1.5, last + 0.5), None, text, "end"))
    elif after == "complete":
        story.lines += programs.closing(job, story.program, 0, end + 6)
    elif after == "silence":
        able = [
            one
            for one in endings.ENDINGS
            if story.layout.launcher in one.launchers and one.name != "Ctrl-C"
        ]
        if able:
            ended = end + max(1_200, 25 * job.interval) * job.rng.uniform(1, 3)
            story.lines += job.rng.choice(able).print(job, story.layout, ended)


def _truth_of_death(
    story: Story, death: Fatal, dead: int, later: int, after: After, order: Order
) -> Truth | None:
    """What an engineer can know; None where he would believe that the error was caught."""
    layout = story.layout
    told = (
        death.names_rank
        or after == "agent"
        or (
            not death.outside
            and (death.form == "json" or (death.form == "logged" and story.program.names_rank))
        )
    )
    named = told or (layout.author != "none" and not death.outside)
    # a shell or the C library may speak of a helper process, a log without author of anything
    ended = after == "agent" or (death.proves and (named or death.form not in ("logged", "json")))
    fell_silent = named and dead in story.who and order == "direct"
    doubt = (
        not ended
        and not fell_silent
        and (later >= ABSOLVING or (order == "buffered" and not named))
    )
    if doubt and death.form == "bare":
        return None
    verdicts = ["failed"]
    if after == "silence" or (after == "nothing" and 0 < later < ABSOLVING):
        verdicts.append("hung")
    weak = death.form == "kernel" or (death.form == "bare" and later < ABSOLVING)
    if doubt or weak:
        verdicts.append("unknown")
    if death.outside and not told and layout.author != "pod":
        return Truth(
            tuple(verdicts),
            classes=death.classes,
            culprits=(dead,),
            suspects=tuple(range(story.job.world)),
            determines="nothing",
        )
    known = told or (story.members and layout.author == "pod")
    determines, suspects, hosts = layouts.blame(story.job, layout, dead, rank_known=known)
    return Truth(
        tuple(verdicts),
        classes=death.classes,
        culprits=(dead,),
        suspects=suspects,
        determines=determines,
        hosts=hosts,
    )


# ---------------------------------------------------------------- nothing happened


def _well(story: Story) -> Truth:
    job, rng = story.job, story.job.rng
    completes = rng.random() < 0.6
    most = max(26, min(120, MOST_LINES // len(story.who)))
    count = rng.randrange(24, most)
    steps, at = story.work(count, 1 if completes else rng.uniform(1.2, 4))
    for rank in story.who:
        story.progress(rank, steps, at)
    able = [one for one in HARMLESS if not one.families or story.program.family in one.families]
    number = rng.choice((1, 1, 1, 4))
    chosen = rng.sample(able, number)
    others = [rank for rank in range(job.world) if rank not in story.who]
    quiet = bool(others) and rng.random() < 0.5
    for one in chosen:
        rank = rng.choice(others if quiet else story.who)
        place = rng.randrange(0, count - 12)
        when = at[place] + job.interval * rng.uniform(0.45, 0.7)
        _frighten(story, one, rank, when, steps[place])
    if completes:
        story.lines += programs.closing(job, story.program, story.who[0], at[-1] + 1)
    verdicts = ("healthy", "running") if completes else ("running",)
    story.labels |= {
        "control": "complete" if completes else "cut",
        "text": chosen[0].kind if number == 1 else "four",
        "fatal": "no",
        "later_steps": "many",
        "after": "nothing",
        "who": "prints none" if quiet else "prints steps",
        "lines": str(number),
    }
    return Truth(verdicts, determines="none")


def _frighten(story: Story, one: Harmless, rank: int, at: float, step: int) -> None:
    """Print a harmless text, its later parts a few seconds after."""
    job = story.job
    for part in one.texts:
        now = job.clock(at)
        text = part.format(
            rank=rank, local=job.local(rank), host=job.host(rank), pid=job.pids[rank], step=step,
            other=job.pids[0] + 5_003, number=100 + job.number % 900, folder=job.folder,
            data=job.data, model=job.model, port=9_000 + job.number % 900,
            port2=9_001 + job.number % 900, batch=32, half=16, md=f"{now:%m%d}",
            hms=f"{now:%H:%M:%S}", ymd=f"{now:%Y-%m-%d}", kernel=f"{now:%a %b %d %H:%M:%S %Y}",
            kernel2=f"{job.clock(at + 3):%a %b %d %H:%M:%S %Y}",
        )  # fmt: skip
        if one.logged:
            text = story.program.write(job, rank, now, text)
        author = None if one.outside else rank
        story.lines.append(Line(at, author, text, "bad", err=not one.logged or story.program.err))
        at += job.rng.uniform(2, 9)
