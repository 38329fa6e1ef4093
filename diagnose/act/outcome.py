"""Did it help? What became of a decision, by the jobs of a scan that started after it.

The next attempt is the first of these with the same label `run` as the job of the decision. Of a
node its later jobs count: one of them that blames it again, for what stays with a node, says that
it is still bad. Where there is nothing to go by the outcome is open.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np

from diagnose.act.record import ON_NODES, Action
from diagnose.diagnosis import WELL
from diagnose.fleet.columns import Lists
from diagnose.fleet.jobs import Jobs
from diagnose.fleet.nodes import blamed_hosts
from diagnose.report.words import names
from diagnose.text.ranks import counted

State = Literal["helped", "no_help", "still_bad", "node_fine", "open"]
RUN = "run"  # the label that the attempts of one run share


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a decision.

    helped: the next attempt ended well. no_help: the same failure came again. still_bad: a target
    was blamed again. node_fine: it was not, in later jobs. open: nothing is known yet.
    """

    action: Action
    state: State
    why: str


def outcome(action: Action, jobs: Jobs, causes: Collection[str]) -> Outcome:
    """What became of a decision; `causes` are the classes that stay with a node."""
    later = jobs.started > np.datetime64(action.made.removesuffix("+00:00"), "us")
    on_nodes = action.action in ON_NODES
    if on_nodes:
        there = _with(jobs.hosts, action.targets, later)
        blamed = _with(blamed_hosts(jobs, causes), action.targets, later)
        if len(blamed):
            of = len(np.union1d(there, blamed))
            why = f"blamed again in {len(blamed)} of {counted(of, 'later job')}"
            return Outcome(action, "still_bad", f"{why}: {_named(jobs, blamed)}")
    same = _in_time(jobs, later & jobs.fingerprint.where(action.fingerprint.__eq__))
    if action.fingerprint and len(same):
        why = f"the same failure came again in {counted(len(same), 'job')}"
        return Outcome(action, "no_help", f"{why}: {_named(jobs, same)}")
    attempt = _next_attempt(action, jobs, later)
    if attempt is not None:
        name = _named(jobs, attempt)
        verdict = jobs.verdict.of(attempt)[0]
        if verdict in WELL:
            return Outcome(action, "helped", f"the next attempt, {name}, is {verdict}")
        cause = jobs.cause.of(attempt)[0]
        return Outcome(action, "open", f"the next attempt, {name}, {verdict} for {cause}")
    if on_nodes and len(there):
        why = f"not blamed in {counted(len(there), 'later job')}: {_named(jobs, there)}"
        return Outcome(action, "node_fine", why)
    return Outcome(action, "open", "no later job says anything of it")


def _with(lists: Lists, names_: list[str], rows: np.ndarray) -> np.ndarray:
    """Those of the rows whose lists have one of these."""
    items = [at for at, value in enumerate(lists.values) if value in names_]
    found = np.unique(lists.rows[np.isin(lists.items, items)])
    kept: np.ndarray = found[rows[found]]
    return kept


def _next_attempt(action: Action, jobs: Jobs, later: np.ndarray) -> np.ndarray | None:
    own = [row for row, name in enumerate(jobs.job.to_pylist()) if name == action.job]
    run = jobs.labels.of(np.array(own[:1], dtype=np.int64))[0].get(RUN) if own else None
    if not run:
        return None
    of_run: Callable[[dict[str, str]], bool] = lambda labels: labels.get(RUN) == run  # noqa: E731
    rows = _in_time(jobs, later & jobs.labels.where(of_run))
    return rows[:1] if len(rows) else None


def _in_time(jobs: Jobs, mask: np.ndarray) -> np.ndarray:
    return jobs.in_time(np.flatnonzero(mask))


def _named(jobs: Jobs, rows: np.ndarray) -> str:
    return names(jobs.names(rows), 3)
