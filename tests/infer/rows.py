"""Events of a timeline by what they mean, and a catalog without wording of its own."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from diagnose.catalog.load import load_catalog
from diagnose.catalog.schema import Catalog, CauseClass, KnownIssue, Remedy, Signature
from diagnose.infer.events.facts import Facts
from diagnose.infer.events.failures import failures
from diagnose.infer.events.onset import find_activity
from diagnose.infer.judge.lines import stalls
from diagnose.infer.rules.base import Context, Hypothesis, Rule, Tier
from diagnose.stories.story import Stories
from diagnose.timeline.event import Timeline

Row = dict[str, Any]

CLASSES = (
    "crash.gpu_oom", "crash.host_oom", "crash.killed", "crash.exception", "crash.native",
    "crash.cuda_error", "numeric.nan", "numeric.spike", "hw.sdc",
    "hw.gpu", "hw.node", "net.fabric", "net.socket", "net.p2p", "net.shm",
    "rendezvous.timeout", "rendezvous.port_in_use", "rendezvous.rank_mapping", "desync.mismatch",
    "desync.missing_rank", "desync.uneven_work", "desync.conditional", "data.preparation",
    "data.loader", "slow.checkpoint", "slow.model_load", "slow.evaluation", "slow.storage",
    "slow.compile", "slow.straggler", "stall.host", "checkpoint.partial", "checkpoint.corrupt",
    "env.version", "env.config", "scheduler.limit", "scheduler.preempted", "user.interrupt",
    "none", "unknown",
)  # fmt: skip


def catalog(*signatures: Signature, issues: tuple[KnownIssue, ...] = ()) -> Catalog:
    """All cause classes, each titled "Title of <class>", and the given entries."""
    classes = {name: cause_class(name) for name in CLASSES}
    return Catalog(list(signatures), list(issues), classes, "test")


def cause_class(name: str, **more: Any) -> CauseClass:
    """A class of the shipped catalog without its wording, remedies and answers."""
    shipped = load_catalog().classes[name]
    given = {
        "title": f"Title of {name}", "explanation": "explanation", "restart": "retry",
        "restart_why": "why", "remedies": [Remedy("now", "look")], "capture": [],
        "longer_timeout": "unknown",
    } | more  # fmt: skip
    return replace(shipped, **given)


def signature(id_: str, cause: str = "env.config", **more: Any) -> Signature:
    role = more.pop("role", "cause")
    return Signature(id_, f"Title of {id_}", role, ["x"], cause=cause, **more)


def stories_of(timeline: Timeline) -> Stories:
    """The stories by the shipped cause classes."""
    return Stories(timeline, load_catalog().classes)


def hypothesis(cause: str, tier: Tier = Tier.STRONG, **more: Any) -> Hypothesis:
    """A hypothesis that explains what its class explains."""
    explained = [*more.pop("explains", []), *load_catalog().classes[cause].explains]
    return Hypothesis(cause, tier, f"Title of {cause}", "", explains=explained, **more)


def context(
    timeline: Timeline, entries: Catalog | None = None, world: int | None = None, **more: Any
) -> Context:
    """What rules see of this timeline, where nothing else of the job is known."""
    stories = stories_of(timeline)
    given = {"failing": failures(stories).counted} | more
    return Context(timeline, entries or catalog(), Facts(world_size=world), stories, **given)


def proposed(rule: Rule, timeline: Timeline, world: int | None) -> list[Hypothesis]:
    """What a rule proposes where it is known who waits for whom, and what the job was about."""
    stalled = stalls(timeline, world)
    waiting = {rank for stall in stalled for rank in stall.waiting if rank >= 0}
    end = next(iter(timeline.signalling("timeout")), None)
    activity = find_activity(timeline, end, waiting)
    return [*rule(context(timeline, world=world, stalls=stalled, activity=activity))]


def alone(rule: Rule, timeline: Timeline, world: int | None) -> Hypothesis:
    """The one hypothesis that a rule proposes so."""
    (hypothesis,) = proposed(rule, timeline, world)
    return hypothesis


def at(clock: str) -> int:
    """Nanoseconds of a time of one day."""
    since = datetime.fromisoformat(f"2026-06-02T{clock}+00:00") - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(microseconds=1) * 1000


def matched(entry: Signature, **more: Any) -> Row:
    """The event of a match of a signature."""
    kinds = {"exit": "exit", "exception": "exception"}
    return {
        "signature": entry.id, "role": entry.role, "cause": entry.cause or None,
        "strength": entry.strength, "signal": entry.signal,
        "kind": kinds.get(entry.signal or "", "signature"),
    } | more  # fmt: skip


def wait(rank: int | None, seq: int | None = 7, **more: Any) -> Row:
    """A watchdog line: a wait of 600 s for an ALLREDUCE of 1000 elements."""
    return {
        "signal": "timeout", "kind": "collective", "role": "effect", "rank": rank, "seq": seq,
        "op": "ALLREDUCE", "size_in": 1000, "size_out": 1000, "timeout_ms": 600_000,
        "elapsed_ms": 600_000, "signature": "t.watchdog",
    } | more  # fmt: skip


def barrier(rank: int | None, seq: int | None = 7, **more: Any) -> Row:
    return wait(rank, seq, size_in=1, size_out=1, **more)


def bar(phase: str | None, elapsed_s: float, done: int, total: int = 100, **more: Any) -> Row:
    """A state of a progress bar."""
    return {
        "kind": "progress", "role": "progress", "phase": phase, "elapsed_ms": int(elapsed_s * 1000),
        "signature": f"t.bar.{phase}", "step": done,
        "fields": {"step": str(done), "total": str(total)},
    } | more  # fmt: skip


def marker(phase: str, **more: Any) -> Row:
    """A line that says that a phase began."""
    return {"kind": "phase", "role": "phase", "phase": phase, "signature": f"t.{phase}"} | more


def step(number: int, **more: Any) -> Row:
    """A plain step line of training."""
    fields = {"step": str(number)}
    return {
        "kind": "progress", "role": "progress", "step": number, "signature": "t.step",
        "fields": fields,
    } | more  # fmt: skip


def stack(rank: int, *frames: tuple[str, int, str], dump: bool = False, **more: Any) -> list[Row]:
    """The frames (file, line, function) of a stack, as printed: innermost last, in dumps first."""
    ordered = reversed(frames) if dump else frames
    form = '  File "{}", line {} in {}' if dump else '  File "{}", line {}, in {}'
    return [
        {
            "kind": "frame", "signal": "frame", "rank": rank, "text": form.format(*frame),
            "signature": "t.frame",
            "fields": {"file": frame[0], "line": str(frame[1]), "func": frame[2]},
        } | more
        for frame in ordered
    ]  # fmt: skip


def ended(rank: int | None, **fields: str) -> Row:
    """A process ended with these captures (exitcode, signal)."""
    return {
        "signal": "exit", "kind": "exit", "role": "effect", "rank": rank, "fields": fields,
        "signature": "t.exit",
    }  # fmt: skip


def finished(rank: int) -> Row:
    return {"signal": "finished", "rank": rank, "signature": "t.finished"}
