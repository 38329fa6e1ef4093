"""A seed's case: a job, its fault, the evidence that is left of it, and the truth."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.hangbench.case import Case, Files, Truth, is_sealed
from benchmarks.hangbench.sim import oracle
from benchmarks.hangbench.sim.damage import GARBLINGS, damage, garble
from benchmarks.hangbench.sim.damage import Kind as Damage
from benchmarks.hangbench.sim.evidence import c10d, flight_recorder, layouts, nccl, ras, stacks
from benchmarks.hangbench.sim.evidence.endings import Teardown
from benchmarks.hangbench.sim.evidence.launchers import Launcher
from benchmarks.hangbench.sim.evidence.names import names, wall
from benchmarks.hangbench.sim.evidence.releases import RELEASES
from benchmarks.hangbench.sim.faults import ALSO, FAULTS
from benchmarks.hangbench.sim.outcome import Outcome
from benchmarks.hangbench.sim.programs import NAMES, draw
from benchmarks.hangbench.sim.simulate import simulate

_WORLDS = (
    ((2, 4, 4, 8, 8, 16), 40),
    ((24, 32, 64), 32),
    ((128, 256), 22),
    ((512, 1024), 5),
    ((2048, 4096), 1),
)
_LARGE = 512  # from here on programs are cut to what still fits into seconds
_TORCH = ("1.13", "2.1", "2.4", "2.7", "2.13")
_RECORDED = ("2.4", "2.7", "2.13")  # releases whose recorder writes what others can read
# Of a form with the releases that can leave it: RAS came with NCCL 2.24.
_RELEASES = {
    "dumps": _RECORDED, "console+dumps": _RECORDED, "rank-files+dumps": _RECORDED,
    "ras": ("2.7", "2.13"), "ras+console": ("2.7", "2.13"),
}  # fmt: skip
# Faults with others of their kind beside them are drawn less often.
_WEIGHTS = {"stuck": 4, "slow": 2, "killed": 2, "raised": 2, "left": 2, "device": 2}


@dataclass(slots=True)
class _Evidence:
    """What is left of a job: files, what can be seen in them, and whether they show the time.

    glance: that it is one look at processes, which does not show for how long they stand so.
    """

    files: Files = field(default_factory=dict)
    sights: list[oracle.Sight] = field(default_factory=list)
    timed: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    glance: bool = False


def ranks(seed: int) -> int:
    """How many ranks the job of a seed has about; its grid may need some more or fewer."""
    return _world(random.Random(f"sim {seed}"))


def _world(rng: random.Random) -> int:
    sizes, _ = rng.choices(_WORLDS, [weight for _, weight in _WORLDS])[0]
    return rng.choice(sizes)


def make(seed: int) -> tuple[Case, Files] | None:
    """The case of a seed; None where its fault has no place in its job or does no harm."""
    rng = random.Random(f"sim {seed}")
    world = _world(rng)
    program = rng.choice(NAMES if world < _LARGE else ("ddp", "fsdp", "hsdp"))
    layout = draw(rng, program, world, rng.randint(3, 5) if world < _LARGE else 2)
    fault = rng.choices(FAULTS, [_WEIGHTS.get(name, 1) for name in FAULTS])[0]
    if fault in ALSO and rng.random() < 0.5:
        fault = ALSO[fault]
    per_node = rng.choice((8, 8, 8, 4)) if world > 8 else rng.choice((8, world, 2))
    outcome = simulate(rng, layout, fault, per_node, timing=rng.random() < 0.3)
    if outcome is None:
        return None
    form = rng.choice([*_FORMS])
    torch = rng.choice([name for name in _TORCH if name in _RELEASES.get(form, _TORCH)])
    evidence = _FORMS[form](rng, outcome, torch)
    if evidence is None:
        return None
    truth = _truth(outcome, evidence, layout.step_s)
    labels = {
        "program": outcome.program, "grid": layout.grid, "fault": fault, "torch": torch,
        **evidence.labels,
    }  # fmt: skip
    case = Case(f"sim-{seed:07d}", "sim", seed, is_sealed(seed), form, outcome.world, truth, labels)
    return case, evidence.files


Form = Callable[[random.Random, Outcome, str], _Evidence | None]


def _printed(kind: layouts.Kind, harm: Sequence[Damage] = (), *, full: bool = False) -> Form:
    """Lines in one of the layouts. harm: the damage that suits it; `full`: there is none."""

    def print_job(rng: random.Random, outcome: Outcome, torch: str) -> _Evidence | None:
        launcher, teardowns = _LAUNCHERS.get(kind) or rng.choice(_BY_HAND)
        statuses = rng.random() < 0.75  # else somebody has searched the log for the timeouts
        lines = c10d.lines(
            outcome, torch, rng, statuses=statuses, launcher=launcher,
            teardown=_teardown(rng, outcome, launcher, teardowns),
            stack_traces=rng.random() < 0.3,
        )  # fmt: skip
        done, missing = "none", frozenset[int]()
        if not full and rng.random() < 0.4:
            done = rng.choice((*_ANYWHERE, *harm))
            damaged = damage(lines, outcome, rng, done)
            lines, missing = damaged.lines, damaged.missing
        printed = layouts.layout(lines, outcome, kind, rng, missing=missing)
        files = printed.files
        if not any(line.shows in _TROUBLE for line in lines):
            return None  # what is left is the log of a job at work
        if done == "none" and not full and rng.random() < 0.1:
            done = rng.choice(GARBLINGS)
            files = garble(files, rng, done)
        sight = oracle.of_lines(
            outcome, lines, _AUTHORS[printed.authors], world=printed.world, sizes=_sized(torch)
        )
        dated = kind == "cri" or (RELEASES[torch].clock and done != "undated")
        timed = dated and any(line.shows == "waits" for line in lines)
        labels = {"damage": done, "statuses": "yes" if statuses else "no"}
        return _Evidence(files, [sight], timed, labels)

    return print_job


def _teardown(
    rng: random.Random, outcome: Outcome, launcher: Launcher, teardowns: Sequence[Teardown]
) -> Teardown:
    """Who ends the other processes: an agent of torchrun sees at once that one of its own died."""
    if launcher in ("torchrun", "kubernetes") and outcome.fault in ("killed", "raised"):
        return "node"
    return rng.choice(teardowns)


def _dumped(rng: random.Random, outcome: Outcome, torch: str) -> _Evidence | None:
    """Flight Recorder dumps, in a third of all cases not of every rank."""
    alive = [rank.rank for rank in outcome.ranks if rank.ended is None]
    done = "none"
    if rng.random() < 0.35:
        done = "ranks"
        alive = sorted(rng.sample(alive, max(len(alive) * rng.randint(4, 9) // 10, 1)))
    container = rng.choice(("pickle", "pickle", "json")) if torch in _JSON else "pickle"
    files = flight_recorder.dumps(
        outcome, torch, rng, container=container, ring=rng.choice((None, None, 20, 8)),
        only_pending=rng.random() < 0.15, frames=rng.random() < 0.7, ranks=alive,
    )  # fmt: skip
    labels = {"damage": done, "container": container}
    files = {name.replace(".cache/torch/", "dumps/"): data for name, data in files.items()}
    return _Evidence(files, [oracle.of_dumps(outcome, alive)], True, labels) if files else None


def _called(rng: random.Random, outcome: Outcome, torch: str) -> _Evidence | None:
    """A job that ran with NCCL_DEBUG=INFO: a line for each call beside all others."""
    launcher, teardowns = rng.choice(_BY_HAND)
    lines = c10d.lines(
        outcome, torch, rng, statuses=True, launcher=launcher,
        teardown=_teardown(rng, outcome, launcher, teardowns),
    )  # fmt: skip
    lines += nccl.info_lines(outcome, torch, rng) + nccl.link_lines(outcome, torch, rng)
    lines.sort(key=lambda line: line.time)
    printed = layouts.layout(lines, outcome, rng.choice(("console", "rank_files")), rng)
    sights = [
        oracle.of_lines(outcome, lines, _AUTHORS[printed.authors], world=True, sizes=_sized(torch)),
        oracle.of_counts(outcome, range(outcome.world)),
    ]
    return _Evidence(printed.files, sights, RELEASES[torch].clock, {"damage": "none"})


def _reported(rng: random.Random, outcome: Outcome, torch: str) -> _Evidence | None:
    """What `ncclras` says while the job hangs."""
    data = rng.random() < 0.5
    files = ras.reports(outcome, rng, text=not data or rng.random() < 0.5, data=data)
    there = [rank.rank for rank in outcome.ranks if rank.ended is None]
    sight = oracle.of_report(outcome, there)
    text = files.get("ncclras-1.txt", b"").decode()
    if not data and not ras.names_all(text):
        sight = oracle.Sight()
    # Text lists only counts that differ: without any it does not show whether anything moves.
    glance = not data and not any(word in text for word in ("MISMATCH", "INCOMPLETE", "DEAD"))
    return _Evidence(files, [sight], False, {"damage": "none"}, glance) if files else None


def _stacked(rng: random.Random, outcome: Outcome, torch: str) -> _Evidence | None:
    """Stacks that somebody took of the processes that are there, of some ranks or all."""
    there = [rank.rank for rank in outcome.ranks if rank.ended is None]
    done = "none"
    if rng.random() < 0.25:
        done = "ranks"
        there = sorted(rng.sample(there, max(len(there) * rng.randint(5, 9) // 10, 1)))
    form = rng.choice(("py-spy", "py-spy", "faulthandler"))
    files = stacks.stacks(outcome, torch, rng, form=form, ranks=there)
    return _Evidence(
        files, [oracle.of_stacks(outcome, there)], False, {"damage": done}, glance=True
    )


def _sized(torch: str) -> bool:
    """Whether the watchdog prints how many elements a call has."""
    return torch != "1.13"


def _before_timeouts(rng: random.Random, outcome: Outcome, torch: str) -> _Evidence | None:
    """The console of a job that still hangs when somebody looks at it."""
    launcher, _ = rng.choice(_BY_HAND)
    lines = c10d.lines(outcome, torch, rng, statuses=False, launcher=launcher, teardown="none")
    seen = (outcome.onset or 0.0) + 0.6 * outcome.timeout_s
    lines = [line for line in lines if line.time < seen]
    printed = layouts.layout(lines, outcome, rng.choice(("console", "rank_files")), rng)
    sight = oracle.of_lines(
        outcome, lines, _AUTHORS[printed.authors], world=printed.world, sizes=_sized(torch)
    )
    return _Evidence(printed.files, [sight], False, {"damage": "none"})


def _both(one: Form, other: Form) -> Form:
    """Two kinds of evidence beside each other."""

    def join(rng: random.Random, outcome: Outcome, torch: str) -> _Evidence | None:
        found, more = one(rng, outcome, torch), other(rng, outcome, torch)
        if found is None or more is None:
            return None
        for sight in more.sights:
            sight.world |= any(known.world for known in found.sights)
        return _Evidence(
            found.files | more.files, found.sights + more.sights, found.timed or more.timed,
            more.labels | found.labels, more.glance,
        )  # fmt: skip

    return join


_JSON = ("2.7", "2.13")
_AUTHORS: dict[str, oracle.Authors] = {
    "global": "global", "local": "local", "node": "node", "process": "none", "none": "none",
}  # fmt: skip
# By layout the launcher, and who ends the other processes (evidence/endings.py).
_LAUNCHERS: dict[str, tuple[Launcher, tuple[Teardown, ...]]] = {
    "tee": ("torchrun", ("abort", "abort", "node")),
    "torchrun_dir": ("torchrun", ("abort", "abort", "node")),
    "srun": ("srun", ("job", "abort", "none")),
    "slurm": ("srun", ("job", "abort", "none")),
    "kubectl": ("kubernetes", ("abort", "node")),
    "cri": ("kubernetes", ("abort", "node")),
    "mpirun": ("mpirun", ("job", "abort")),
}
_BY_HAND: tuple[tuple[Launcher, tuple[Teardown, ...]], ...] = (
    ("torchrun", ("abort", "abort", "node")), ("none", ("none", "abort")),
)  # fmt: skip
# Of what a line shows (outcome.py), what tells that a job does not go on.
_TROUBLE = frozenset({"waits", "status", "raised", "exit", "left", "busy", "link"})
_ANYWHERE: tuple[Damage, ...] = ("start", "end", "undated", "lost")
_CONSOLE: tuple[Damage, ...] = ("tail", "rank_0")
_FILES: tuple[Damage, ...] = ("ranks", "ranks", "nodes")
_FORMS: dict[str, Form] = {
    "console": _printed("console", _CONSOLE),
    "tee": _printed("tee", _CONSOLE),
    "torchrun-dir": _printed("torchrun_dir", _FILES),
    "rank-files": _printed("rank_files", _FILES),
    "node-files": _printed("node_files", ("nodes",)),
    "srun": _printed("srun", _CONSOLE),
    "slurm": _printed("slurm", _CONSOLE),
    "kubectl": _printed("kubectl", ("nodes", "tail")),
    "cri": _printed("cri", ("nodes",)),
    "ray": _printed("ray", _CONSOLE),
    "mpirun": _printed("mpirun", _CONSOLE),
    "dumps": _dumped,
    "console+dumps": _both(_printed("console", full=True), _dumped),
    "rank-files+dumps": _both(_printed("rank_files", full=True), _dumped),
    "calls": _called,
    "ras": _reported,
    "ras+console": _both(_before_timeouts, _reported),
    "stacks": _stacked,
    "stacks+console": _both(_before_timeouts, _stacked),
}


def _truth(outcome: Outcome, evidence: _Evidence, step_s: float) -> Truth:
    found = oracle.conclude(outcome, evidence.sights)
    verdicts, classes = _ANSWERS[outcome.fault]
    held = (
        _CLASS_OF_HOLD.get(outcome.ranks[outcome.culprits[0]].stuck_in)
        if outcome.culprits
        else None
    )
    if evidence.glance and found.determines != "rank":
        verdicts = (*verdicts, "unknown")
    if not any({*outcome.culprits} <= sight.stated for sight in evidence.sights):
        # Nothing says what happened to the culprit: held up, killed and gone look the same.
        classes = tuple(dict.fromkeys((*classes, *_UNSTATED.get(outcome.fault, ()))))
    unclear = ("unknown",) if found.determines == "nothing" else ()
    known, nodes = names(outcome), {outcome.ranks[rank].node for rank in outcome.culprits}
    nodes |= {*(outcome.link or ())}
    hosts = [known.hosts[node] for node in sorted(nodes)]
    text = b"\n".join(evidence.files.values())
    began = [time for time in (outcome.fault_at, outcome.onset) if time is not None]
    onset = wall(outcome, min(began)).replace(microsecond=0) if began and evidence.timed else None
    return Truth(
        verdicts,
        (*classes, *([held] if held else []), *unclear),
        outcome.culprits,
        found.accepted,
        found.suspects,
        found.determines,
        tuple(host for host in hosts if host.encode() in text),
        onset.isoformat() if onset else None,
        10.0 + 3 * step_s,
    )


_HUNG, _DIED = ("hung",), ("hung", "failed")
_DESYNC = ("desync.mismatch", "desync.conditional", "desync.missing_rank")
_KILLED = ("crash.killed", "crash.native", "crash.host_oom", "net.shm")
_RAISED = (
    "crash.exception", "crash.gpu_oom", "crash.cuda_error", "data.loader", "slow.storage",
    "env.config", "numeric.nan",
)  # fmt: skip
_ANSWERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "stuck": (_HUNG, ("desync.missing_rank", "stall.host")),
    "slow": (_HUNG, ("desync.missing_rank", "slow.straggler")),
    "device": (_HUNG, ("hw.gpu", "net.fabric", "stall.host", "desync.missing_rank", "unknown")),
    "killed": (_DIED, (*_KILLED, "desync.missing_rank")),
    "raised": (_DIED, (*_RAISED, "desync.missing_rank")),
    "left": (_DIED, ("desync.uneven_work", "desync.missing_rank", "desync.conditional")),
    "skip": (_HUNG, (*_DESYNC, "desync.uneven_work")),
    "extra": (_HUNG, _DESYNC),
    "other_op": (_HUNG, _DESYNC),
    "other_size": (_HUNG, (*_DESYNC, "desync.uneven_work")),
    "other_dtype": (_HUNG, _DESYNC),
    "uneven": (_DIED, (*_DESYNC, "desync.uneven_work")),
    "swapped": (_HUNG, (*_DESYNC, "desync.deadlock")),
    "crossed": (_HUNG, ("desync.deadlock", "desync.mismatch")),
    "created": (_HUNG, _DESYNC),
    "node": (_DIED, ("hw.node", "crash.killed", "desync.missing_rank", "net.fabric")),
    "link": (_DIED, ("net.fabric", "net.socket", "hw.node", "unknown")),
    "rail": (_DIED, ("net.fabric", "net.socket", "hw.node", "unknown")),
}  # fmt: skip
_UNSTATED: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("stuck", "slow", "killed", "raised", "left", "node"),
    ("desync.missing_rank", "stall.host", "crash.killed", "unknown"),
)
_CLASS_OF_HOLD = {
    "loader": "data.loader", "file": "slow.storage", "lock": "stall.host",
    "compile": "slow.compile", "evaluation": "slow.evaluation",
    "preparation": "data.preparation", "save": "slow.checkpoint",
}  # fmt: skip
