"""Track numeric: trainings whose values go bad for good, and jobs with frightening numbers.

Some cases are real runs of small trainings on CPUs, which `record.py` keeps on a tape; the others
are made: the loss of a job of `words` is bent from a step on, in the forms of its program. Healthy
jobs skip steps, evaluate nothing, have a spike that comes back.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, nan
from pathlib import Path

from benchmarks.hangbench.case import Case, Files, Truth, is_sealed
from benchmarks.hangbench.real.tape import read_tape
from benchmarks.hangbench.words import layouts, programs
from benchmarks.hangbench.words.job import Line
from benchmarks.hangbench.words.programs import PROGRAMS, Program
from benchmarks.hangbench.words.story import Story, begin

TAPE = Path(__file__).with_name("recorded.tar.gz")
ROUND, OF_TAPE = 7, 2  # of so many seeds in a row so many are runs of the tape
MOST_LINES = 900

_ENDS = ("stops", "rerun")
_OF_A_RANK = ("first-rank", "stops", "rerun")
# Programs that print a loss, by name; those without it show nothing of one.
_NO_LOSS = ("lightning", "tqdm", "deepspeed", "openfoam", "solver", "solver-log", "trainer-bar")
_NORMS = ("trainer", "trainer5", "factory", "pipes", "titan", "flax", "olmo", "fairseq")
_TRAINERS = ("trainer", "trainer5", "factory")
_LOCAL = ("loss", "loss-log", "ranked", "ranked-bare", "iso", "epochs", "json", "json-ecs", "mnist")


@dataclass(frozen=True, slots=True)
class Kind:
    """A way in which values go bad, or only look so.

    classes: those that are right; none of a healthy job. names: of programs that can show it, all
    that print a loss where there are none.
    """

    name: str
    make: Callable[[Story, int], None]
    classes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    weight: int = 2


def make(seed: int) -> tuple[Case, Files] | None:
    """The case of a seed: of the tape, or made."""
    place = seed % ROUND
    if place < OF_TAPE:
        runs = _tape()
        case, files = runs[(seed // ROUND * OF_TAPE + place) % len(runs)]
        return replace(case, id=f"numeric-{seed:07d}", seed=seed), files
    return _made(seed)


@lru_cache(maxsize=1)
def _tape() -> list[tuple[Case, Files]]:
    found = [*read_tape(TAPE)]
    random.Random("tape").shuffle(found)
    return found


def _made(seed: int) -> tuple[Case, Files] | None:
    rng = random.Random(f"numeric {seed}")
    # With three of four runs of the tape failing, three of seven in all.
    kinds = [one for one in KINDS if bool(one.classes) == (rng.random() < 0.3)]
    if not kinds:
        return None
    kind = rng.choices(kinds, [one.weight for one in kinds])[0]
    layout = layouts.draw(rng)
    able = [
        one
        for one in PROGRAMS
        if layouts.shows(layout, one) and one.name not in _NO_LOSS and _fits(kind, one)
    ]
    if not able:
        return None
    program = programs.draw(rng, able)
    every_rank = program.every_rank and (kind.name == "first-rank" or rng.random() < 0.4)
    story = begin(rng, layout, program, every_rank=every_rank)
    count = rng.randrange(40, max(41, min(160, MOST_LINES // len(story.who))))
    bad = rng.randrange(14, count - 14)
    story.labels = {
        "kind": kind.name,
        "style": program.name,
        "layout": layout.name,
        "made": "words",
    }
    story.labels["control"] = "no" if kind.classes else "yes"
    steps = [story.job.first + story.job.every * (place + 1) for place in range(count)]
    story.labels["step"] = str(steps[bad])
    first = rng.randrange(story.job.world)
    if kind.name in _OF_A_RANK:
        first = rng.choice(story.who)
        story.labels["rank"] = str(first)
    kind.make(story, steps[bad])
    completes = rng.random() < 0.5 and kind.name not in _ENDS
    steps, at = story.work(count, 1 if completes else rng.uniform(1.2, 4))
    curve = story.job.curve
    for rank in story.who:
        if kind.name == "first-rank" and curve is not None:
            since = steps[bad] if rank == first else steps[bad + 1]
            story.job.curve = story.job.norms = _from(since, nan)
        story.progress(rank, steps, at)
    _extras(story, kind, steps, at, bad, first)
    if completes:
        story.lines += programs.closing(story.job, program, story.who[0], at[-1] + 1)
    truth = _truth(story, kind, first, completes=completes)
    case = Case(
        f"numeric-{seed:07d}", "numeric", seed, is_sealed(seed), layout.form, story.job.world,
        truth, story.labels,
    )  # fmt: skip
    return case, layouts.write(story.job, layout, story.lines)


def _fits(kind: Kind, program: Program) -> bool:
    return not kind.names or program.name in kind.names


def _truth(story: Story, kind: Kind, first: int, *, completes: bool) -> Truth:
    if not kind.classes:
        verdicts = ("healthy", "running") if completes else ("running",)
        return Truth(verdicts, ("none",), determines="none")
    # A job that dies of it has failed; whether one that goes on has ended, not every log shows.
    # Of one that ended well with a loss that had only risen a reader says whether it has.
    verdicts = ("failed",) if kind.name in _ENDS else ("running", "failed")
    if completes and "numeric.spike" in kind.classes:
        verdicts = ("running", "failed", "healthy")
    if kind.name in _OF_A_RANK:
        known = story.program.names_rank
        determines, suspects, hosts = layouts.blame(
            story.job, story.layout, first, rank_known=known
        )
        return Truth(
            verdicts, kind.classes, (first,), suspects=suspects, determines=determines,
            hosts=hosts,
        )  # fmt: skip
    return Truth(verdicts, kind.classes, determines="none")


# ---------------------------------------------------------------- values that go bad


def _from(since: int, value: float) -> Callable[[int, float], float]:
    return lambda step, good: value if step >= since else good


def _nan(story: Story, since: int) -> None:
    story.job.curve = story.job.norms = _from(since, nan)


def _inf(story: Story, since: int) -> None:
    later = since + 3 * story.job.every
    story.job.curve = lambda step, good: nan if step >= later else inf if step >= since else good
    story.job.norms = _from(since, inf)


def _nan_at_once(story: Story, since: int) -> None:
    story.job.curve = story.job.norms = _from(0, nan)


def _left_out(story: Story, since: int) -> None:
    """A Trainer prints 0 for a loss that is not finite."""
    story.job.curve, story.job.norms = _from(since, 0.0), _from(since, nan)


def _diverged(story: Story, since: int) -> None:
    rng = story.job.rng
    top = rng.uniform(3.2, 6)

    def curve(step: int, good: float) -> float:
        if step < since:
            return good * 0.25 + 0.4
        return (good * 0.25 + 0.4) * top * rng.uniform(0.92, 1.1)

    story.job.curve = curve
    story.job.norms = lambda step, good: good * 20 if step >= since else good


def _stops(story: Story, since: int) -> None:
    """The program notices it; what it prints comes with the extras."""
    _nan(story, since)


def _overflows(story: Story, since: int) -> None:
    """Steps are skipped to the end, and the loss stays as it is."""


# ---------------------------------------------------------------- numbers that frighten


def _well(story: Story, since: int) -> None:
    """Nothing but what the extras print."""


def _skipped(story: Story, since: int) -> None:
    every = story.job.every
    bad = {since, since + 4 * every, since + 9 * every}
    value = story.job.rng.choice((nan, inf))
    story.job.norms = lambda step, good: value if step in bad else good


def _returns(story: Story, since: int) -> None:
    every, top = story.job.every, story.job.rng.uniform(3, 9)
    length = story.job.rng.randrange(1, 6) * every
    story.job.curve = lambda step, good: good * top if since <= step < since + length else good
    story.job.norms = lambda step, good: good * 40 if since <= step < since + length else good


def _one_nan(story: Story, since: int) -> None:
    """A batch without labels has no loss; the next one has."""
    bad = {since} if story.job.rng.random() < 0.5 else {since, since + story.job.every}
    story.job.curve = lambda step, good: nan if step in bad else good


def _noisy(story: Story, since: int) -> None:
    rng = story.job.rng
    story.job.curve = lambda step, good: abs(rng.lognormvariate(-3.5, 1.1))


def _stage(story: Story, since: int) -> None:
    """Another part of the data, of which the loss is higher."""
    more = story.job.rng.uniform(1.2, 1.7)
    story.job.curve = lambda step, good: good * (more if step >= since else 1)


def _warms_up(story: Story, since: int) -> None:
    start = story.job.first
    every = story.job.every
    story.job.curve = lambda step, good: good + 300 / (1 + (step - start) / every) ** 2
    story.job.norms = lambda step, good: good + 900 / (1 + (step - start) / every) ** 2


def _zero(story: Story, since: int) -> None:
    """All samples are learned by heart."""
    story.job.curve = _from(since, 0.0)
    story.job.norms = _from(since, 0.0)


# What is printed between two steps, and again from there on: (text, whether it is logged).
_SCALES = (
    "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {before}, reducing to "
    "{scale}",
    "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {scale}",
    "NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: {scale}",
)
_STOPS = (
    "Loss is nan, stopping training",
    "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding. Try "
    "lowering the learning rate, using gradient clipping or increasing the batch size.",
    "RuntimeError: Function 'LogSoftmaxBackward0' returned nan values in its 0th output.",
    "AssertionError: Rank {rank}: found NaN in local forward loss calculation. Device: {local}, "
    "node: {host}",
    "RuntimeError: Train loss contains a NaN.",
    "ValueError: The loss returned in `training_step` is nan.",
    "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
    "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting "
    "run.",
    "FloatingPointError: invalid value (nan) encountered in jit(train_step)",
)
_TRACEBACK = (
    'Traceback (most recent call last):\n  File "train.py", line 88, in <module>\n    main()\n'
)
_RERUNS = (
    "ERROR:megatron.core.rerun_state_machine:Rank {rank}, node {host}, device {local}, iteration "
    "#{step}: Possible persistent error!!",
    "ERROR:megatron.core.rerun_state_machine:Rank {rank}, node {host}, device {local}, iteration "
    "#{step}: First rerun: unexpected result is not reproducible within the tolerance (2.31 != "
    "9.77)!",
    "AssertionError: Parameter hashes not matching across DP replicas",
)
_FRIGHTEN = (
    "{{'eval_loss': nan, 'eval_runtime': 0.01, 'eval_samples_per_second': 0.0, 'epoch': 0.5}}",
    "WARNING: non-finite loss detected, skipping this batch",
    "mIoU: nan  IoU.class7: nan  mAcc: nan  aAcc: 0.91",
    "eval: loss nan perplexity inf on 0 samples",
    "validation loss: nan | perplexity: inf | 0 batches",
    "val_loss is nan for bucket 3 (empty), ignored",
    "config: nan_policy=skip terminate_on_nan=True detect_anomaly=False max_loss=inf",
    "reward_std: nan  kl: 0.0  completion_length/max: inf  (group of 1)",
    "RuntimeWarning: invalid value encountered in divide",
    "RuntimeWarning: overflow encountered in exp",
    "best loss so far: inf, patience 3",
    "Result validation enabled",
    "grad_norm was inf at one step, clipped to 1.0",
    "Monitored metric val_acc did not improve. Best score: nan",
)


def _extras(
    story: Story, kind: Kind, steps: list[int], at: list[float], bad: int, first: int
) -> None:
    """The lines that belong to a kind, besides those of the steps."""
    job, rng = story.job, story.job.rng
    gap = 0.5 * job.interval
    if kind.name in ("scaler", "overflow"):
        endless = kind.name == "overflow"
        form = rng.choice(_SCALES)
        scale = 65536.0
        shown = range(bad, len(steps)) if endless else range(rng.choice((3, 6, 11)))
        for n, place in enumerate(shown):
            before, scale = scale, scale / 2
            if "deepspeed" in form and scale < 1:
                scale = 1.0
            text = form.format(before=before, scale=scale)
            for more in range(2 if endless and n else 1):
                _say(story, 0, at[place] + gap * (0.5 + 0.2 * more), text)
    if kind.name == "stops":
        rank = first
        text = rng.choice(_STOPS).format(rank=rank, local=job.local(rank), host=job.host(rank))
        cut = at[min(bad + 1, len(at) - 1)]
        story.lines = [line for line in story.lines if line.at < cut]
        head = "" if text.startswith("Loss is") else _TRACEBACK
        story.lines.append(Line(cut + gap, rank, head + text, "bad", err=True))
    if kind.name == "rerun":
        rank = first
        text = rng.choice(_RERUNS).format(
            rank=rank, local=job.local(rank), host=job.host(rank), step=steps[bad]
        )
        cut = at[bad]
        story.lines = [line for line in story.lines if line.at < cut]
        story.lines.append(Line(cut + gap, rank, text, "bad", err=True))
    if kind.name == "text":
        for _ in range(rng.choice((1, 3, 6))):
            place = rng.randrange(len(at) - 1)
            _say(story, story.who[0], at[place] + gap, rng.choice(_FRIGHTEN).format())


def _say(story: Story, rank: int, at: float, text: str) -> None:
    now = story.job.clock(at)
    text = story.program.write(story.job, rank, now, text)
    story.lines.append(Line(at, rank, text, "bad", err=story.program.err))


KINDS: tuple[Kind, ...] = (
    Kind("nan", _nan, ("numeric.nan",), weight=5),
    Kind("inf", _inf, ("numeric.nan",)),
    Kind("at-once", _nan_at_once, ("numeric.nan",)),
    Kind("left-out", _left_out, ("numeric.nan",), _TRAINERS),
    Kind("first-rank", _nan, ("numeric.nan",), _LOCAL),
    Kind("overflow", _overflows, ("numeric.nan",)),
    Kind("stops", _stops, ("numeric.nan",), weight=3),
    Kind("diverged", _diverged, ("numeric.spike",), weight=3),
    Kind("rerun", _well, ("hw.sdc",), ("megatron",)),
    Kind("scaler", _well),
    Kind("skipped", _skipped, names=_NORMS),
    Kind("returns", _returns),
    Kind("one-nan", _one_nan),
    Kind("noisy", _noisy),
    Kind("stage", _stage),
    Kind("warm-up", _warms_up),
    Kind("zero", _zero),
    Kind("text", _well, weight=6),
)
