"""A process killed before its first step, with nothing that says who killed it.

While weights and data are read each process takes what it will ever take, and copies beside it:
then the usual sender of SIGKILL is the kernel, for want of memory. Later, anybody may have sent it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.infer.rules.busy import doing, unstated
from diagnose.infer.tiers import Tier

_KILLED, _ANY_END = "crash.killed", "crash.exception"


def propose(context: Context) -> Iterator[Hypothesis]:
    """Host memory, where the log shows no step and no other reason for the kill."""
    killed = next((one for one in context.proposed if one.cause == _KILLED), None)
    if killed is None or killed.signature or context.timeline.kind("progress"):
        return
    others = [one for one in context.proposed if one.cause not in (_KILLED, _ANY_END)]
    if any(one.tier >= Tier.WEAK for one in others):
        return
    phase = context.activity.phase
    when = f"while it was {doing(phase)}" if context.activity.moving else "before the first step"
    summary = (
        f"{killed.summary.removesuffix('.')} {when}; nothing says by whom. Most often it is the "
        "kernel, because the host ran out of memory."
    )
    found = unstated("crash.host_oom", Tier.STRONG, context.catalog, summary)
    yield replace(
        found,
        rows=killed.rows,
        ranks=killed.ranks,
        hosts=killed.hosts,
        kind=killed.kind,
        why=killed.why,
        basis="exit",
    )
