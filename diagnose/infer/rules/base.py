"""A cause under consideration, and the rules of which cause explains which."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field

from diagnose.catalog.schema import Remedy
from diagnose.diagnosis import CulpritKind


@dataclass(slots=True)
class Candidate:
    """One possible root cause.

    `score` orders candidates: 6 decisive, 4 strong, 2 weak, adjusted for order and corroboration.
    `rows` are timeline positions of its evidence, the first one its own first sign. `sure` marks
    evidence that proves the class by itself; `late` one seen only after the first failure.
    """

    cause: str
    score: float
    title: str
    summary: str
    rows: list[int] = field(default_factory=list)
    signature: str | None = None
    ranks: list[int] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    kind: CulpritKind | None = None
    why: str = ""
    sure: bool = False
    late: bool = False
    inferred: bool = False
    explains: list[str] = field(default_factory=list)
    remedies: list[Remedy] = field(default_factory=list)
    restart: str | None = None
    lost: str = ""  # why it is not the root cause, once that is known


# What a cause of one class accounts for, beyond what its own entry says. The watch words: a dead
# rank explains every wait, a broken device explains CUDA errors, a full /dev/shm explains dying
# loader workers, and anything specific explains a bare exception or exit.
_SOFT = ("crash.exception", "crash.killed")
_WAITS = ("desync.*", "slow.*", "data.preparation", "rendezvous.timeout", "stall.host")
EXPLAINS: dict[str, tuple[str, ...]] = {
    "crash.gpu_oom": (*_SOFT, "crash.cuda_error", "crash.native", "net.*", "data.loader", *_WAITS),
    "crash.host_oom": (
        *_SOFT, "data.loader", "data.preparation", "crash.native", "net.*", "slow.checkpoint",
        "scheduler.preempted", "user.interrupt", *_WAITS,
    ),
    "crash.cuda_error": (*_SOFT, "crash.native", "net.*", *_WAITS),
    "crash.native": (*_SOFT, "net.*", *_WAITS),
    "crash.killed": ("crash.exception", "net.*", *_WAITS),
    "crash.exception": (
        "net.socket", "net.fabric", "crash.killed", "desync.missing_rank", "slow.*",
        "data.preparation", "rendezvous.timeout", "stall.host",
    ),
    "hw.gpu": (*_SOFT, "crash.cuda_error", "crash.native", "net.*", "env.config", *_WAITS),
    "hw.node": (
        *_SOFT, "net.*", "rendezvous.*", "crash.native", "scheduler.preempted", *_WAITS,
    ),
    "net.fabric": (*_SOFT, "net.socket", *_WAITS),
    "net.socket": (*_SOFT, "rendezvous.timeout", *_WAITS),
    "net.p2p": (*_SOFT, "crash.cuda_error", *_WAITS),
    "net.shm": (*_SOFT, "data.loader", "crash.native", "crash.cuda_error", *_WAITS),
    "rendezvous.port_in_use": (*_SOFT, "rendezvous.timeout", "net.socket", *_WAITS),
    "rendezvous.rank_mapping": (*_SOFT, "net.*", *_WAITS),
    "rendezvous.timeout": _SOFT,
    "data.loader": (*_SOFT, *_WAITS),
    "data.preparation": _SOFT,
    "env.version": (*_SOFT, "crash.native", "net.*", *_WAITS),
    "env.config": (*_SOFT, "net.socket", *_WAITS),
    "checkpoint.corrupt": (*_SOFT, "checkpoint.partial", *_WAITS),
    "checkpoint.partial": (*_SOFT, *_WAITS),
    "slow.storage": (*_SOFT, *_WAITS),
    "scheduler.limit": (*_SOFT, "scheduler.preempted", "user.interrupt", "net.*"),
    "scheduler.preempted": (*_SOFT, "user.interrupt", "net.*", "rendezvous.timeout"),
    "user.interrupt": (*_SOFT, "net.*"),
    "desync.mismatch": (*_SOFT, "net.socket", "desync.missing_rank"),
    "desync.conditional": (*_SOFT, "net.socket", "desync.missing_rank", "desync.mismatch"),
    "desync.uneven_work": (*_SOFT, "net.socket", "desync.missing_rank", "desync.mismatch"),
    "desync.missing_rank": ("crash.killed",),
}  # fmt: skip


def explains(cause: Candidate, other: Candidate) -> bool:
    """Whether `cause` accounts for what speaks for `other`."""
    if cause.cause == other.cause:
        return False
    patterns = (*cause.explains, *EXPLAINS.get(cause.cause, ()))
    names = (other.cause, other.signature or "")
    return any(fnmatch.fnmatchcase(name, p) for p in patterns for name in names if name)
