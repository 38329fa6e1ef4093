"""The record of a decision (schema `diagnose-action/1`), and the rule by which it is made.

Nothing is decided of a cause that is unknown or of low confidence. A node is only acted on where
the cause stays with a node (`patterns/classes.yaml`), the evidence names it, and it is at most half
of the job's nodes, or its only one: who names more blames what they share.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import WELL, Confidence, Diagnosis, SourceLine, made_of
from diagnose.errors import InputError
from diagnose.report.safe import masked_line
from diagnose.text.hosts import is_host

if TYPE_CHECKING:
    from diagnose.fleet.nodes import Suspect

SCHEMA = "diagnose-action/1"
ActionName = Literal["exclude", "drain", "retry", "retry_elsewhere", "stop"]
ON_NODES: tuple[ActionName, ...] = ("exclude", "drain")
MAX_EVIDENCE = 3
MAX_REASON, _PATH = 240, 1000  # characters
_SURE = 0.01  # adjusted p of a suspect node, for a drain


@dataclass(frozen=True, slots=True)
class Action:
    """One decision. `cause` is the cause class (`class` in the JSON).

    `exclude`: the next attempt leaves out the `targets` (names of nodes); `drain`: no job runs
    there before somebody has looked; `retry`, `retry_elsewhere`: start the job again, also on other
    nodes; `stop`: do not start it before its cause is fixed. Times are ISO 8601, UTC; after
    `expires` it is no longer meant. Decisions with one `fingerprint` are of the same failure, and
    two with one `key` are the same decision. `evidence` is where the logs show it.
    """

    action: ActionName
    targets: list[str]
    reason: str
    cause: str
    confidence: Confidence
    evidence: list[SourceLine]
    job: str
    fingerprint: str
    made: str
    expires: str

    @property
    def key(self) -> str:
        """The same for the same decision on the same failure: what receivers deduplicate by."""
        text = "\0".join([self.fingerprint, self.action, *self.targets])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done; without `actions` `why_none` says why."""

    actions: list[Action] = field(default_factory=list)
    why_none: str = ""


def decide(
    diagnosis: Diagnosis, catalog: Catalog, job: str, fingerprint: str, days: int, now: datetime
) -> Decision:
    """What to do about one job. `days` is how long that is meant for."""
    root, cause = diagnosis.root_cause, catalog.classes.get(diagnosis.root_cause.cause)
    if diagnosis.verdict == "unknown" or cause is None:
        return Decision(why_none="the cause is unknown")
    if root.cause == "none":
        return Decision(why_none="nothing went wrong")
    if root.confidence == "low" or root.suggested:
        return Decision(why_none=f"{root.cause} is of low confidence")
    nodes = _nodes(diagnosis) if cause.stays_with_node else []
    works = diagnosis.verdict in WELL
    if nodes:
        action: ActionName = "drain" if root.confidence == "high" and not works else "exclude"
    elif works:
        return Decision(why_none="the job works on, and no node is to blame")
    elif diagnosis.restart.advice == "none":
        return Decision(why_none=f"nothing is to be done about {root.cause}")
    else:
        action = _RESTARTS[diagnosis.restart.advice]
    reason = f"{root.cause}: {root.title} ({root.confidence} confidence)"
    evidence = [
        SourceLine(masked_line(one.source, _PATH), one.line)
        for one in diagnosis.evidence[:MAX_EVIDENCE]
    ]
    return Decision([
        Action(
            action, nodes, masked_line(reason, MAX_REASON), root.cause, root.confidence,
            evidence, masked_line(job, 120), fingerprint, _iso(now),
            _iso(now + timedelta(days=days)),
        )
    ])  # fmt: skip


_RESTARTS: dict[str, ActionName] = {
    "retry": "retry", "retry_elsewhere": "retry_elsewhere", "fix_first": "stop",
}  # fmt: skip


def _nodes(diagnosis: Diagnosis) -> list[str]:
    """The nodes to blame, if they are few enough, and names of nodes at all."""
    blamed = sorted({*diagnosis.culprits.hosts})
    others = {*diagnosis.job.hosts, *blamed}
    few = 2 * len(blamed) <= len(others) or len(others) == 1
    return blamed if few and all(map(is_host, blamed)) else []


def of_suspects(suspects: Sequence[Suspect], fleet: str, days: int, now: datetime) -> Decision:
    """What to do about the suspect nodes of many jobs: each by itself."""
    actions = []
    for one in suspects:
        if not is_host(one.host):
            continue
        sure = one.p <= _SURE
        cause = max(one.causes, key=lambda name: one.causes[name], default="unknown")
        reason = (
            f"{cause}: blamed in {one.blamed} incidents of {one.jobs} jobs, {one.expected:.1f} "
            f"expected (p {one.p:.1g})"
        )
        mark = hashlib.blake2b(f"{one.host}\0{cause}".encode(), digest_size=8).hexdigest()
        actions.append(Action(
            "drain" if sure else "exclude", [one.host], reason, cause,
            "high" if sure else "medium", [], masked_line(fleet, 120), mark, _iso(now),
            _iso(now + timedelta(days=days)),
        ))  # fmt: skip
    return Decision(actions, "" if actions else "no node is suspect")


def read(text: str) -> list[Action]:
    """The decisions of a document that `act` wrote. Raises InputError."""
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']!r}")
        found: list[Action] = made_of(list[Action], data["actions"])
        return [_checked(one) for one in found]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(
            f"no records of schema {SCHEMA}: give what `act --form json` printed ({error})"
        ) from error


def _checked(one: Action) -> Action:
    """A record whose times are in UTC. Raises ValueError for a target that no node is called."""
    for name in one.targets:
        if not is_host(name):
            raise ValueError(f"{name!r} is no name of a node")
    made, expires = (_iso(_time(text)) for text in (one.made, one.expires))
    return replace(one, made=made, expires=expires)


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def meant(actions: Sequence[Action], now: datetime) -> Decision:
    """Those of some decisions that have not expired."""
    found = [one for one in actions if _time(one.expires) > now]
    expired = "they have expired" if actions else "there is no record in it"
    return Decision(found, "" if found else expired)


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")
