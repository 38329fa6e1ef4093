"""A rank that printed nothing while all others lost a peer."""

from __future__ import annotations

from typing import Any

import pytest

import diagnose
from diagnose.infer.rules.base import Hypothesis, Tier
from diagnose.infer.rules.unstated import RULES

from ...rows import context, finished, step

propose = RULES["left_peers"]


def lost(rank: int) -> dict[str, Any]:
    return {"role": "effect", "kind": "signature", "rank": rank, "fields": {"peer": "node<1>"}}


def notified(rank: int) -> dict[str, Any]:
    return {"role": "effect", "kind": "signature", "signal": "notified", "rank": rank}


def signal(tier: Tier) -> Hypothesis:
    return Hypothesis("scheduler.preempted", tier, "", "", outside=True)


def aborted(cause: str, *ranks: int) -> Hypothesis:
    return Hypothesis(cause, Tier.GUESS, "", "", ranks=[*ranks], basis="exit")


@pytest.mark.parametrize(
    "proposed",
    [
        signal(Tier.WEAK),
        aborted("crash.exception", 1, 2),
        aborted("crash.native", 3),
        Hypothesis("desync.missing_rank", Tier.STRONG, "", ""),
    ],
    ids=["somebody ended the job", "a status", "an abort", "a line that one is missing"],
)
def test_it_ended_while_the_others_were_in_a_collective(make: Any, proposed: Hypothesis) -> None:
    rows = [step(1, rank=0), lost(1), lost(2), notified(3)]
    (found,) = propose(context(make(*rows), proposed=[proposed]))
    assert (found.cause, found.ranks) == ("desync.missing_rank", [0])
    assert found.summary.startswith("Ranks 1-3 lost a peer, and rank 0 printed no error")
    assert found.rows == [1, 2]


CRASHED = "The tasks have crashed. Check the task logs for an earlier error\n"
LATE = "DEADLINE_EXCEEDED: Barrier timed out. Id: sync_global_devices_1::0.\n"
LIST = "/job:jax_worker/replica:0/task:3\n/job:jax_worker/replica:0/task:5\n"


def test_who_is_listed_as_gone_is_not_waited_for() -> None:
    gone = diagnose.diagnose(diagnose.load_text(LIST + CRASHED))
    assert (gone.verdict, gone.root_cause.cause, gone.root_cause.confidence) == (
        "failed", "hw.node", "low",
    )  # fmt: skip
    assert gone.root_cause.summary == "Ranks 3, 5 stopped answering or crashed. Nothing says why."
    assert (gone.culprits.ranks, gone.culprits.kind) == ([3, 5], "crashed")
    late = diagnose.diagnose(diagnose.load_text(LATE + LIST))
    assert (late.verdict, late.root_cause.cause) == ("hung", "desync.missing_rank")
    assert (late.culprits.ranks, late.culprits.kind) == ([3, 5], "missing")


GONE = {"signal": "peer_gone", "fields": {}}


@pytest.mark.parametrize(
    "rows",
    [
        [finished(0), lost(1)],
        [finished(0), lost(1), lost(0)],  # as it left
        [step(1, rank=0), lost(1)],
        [finished(0), lost(1) | GONE],
    ],
)
def test_of_two_ranks_it_is_the_other_one(make: Any, rows: list[dict[str, Any]]) -> None:
    """The size of the job is known, or its launcher tells how it ended: it is no excerpt."""
    ended = Hypothesis("crash.exception", Tier.GUESS, "", "", ranks=[1], basis="exit")
    for more in ({"world": 2}, {"proposed": [ended]}):
        (found,) = propose(context(make(*rows), **more))
        assert (found.cause, found.ranks) == ("desync.missing_rank", [0])


LEFT = """\
2026-06-02 08:15:01,100 [rank0] INFO train: step 5/12 loss 0.1589
2026-06-02 08:15:01,100 [rank1] INFO train: step 5/12 loss 0.1589
2026-06-02 08:15:01,101 [rank1] INFO train: Training finished
E0602 08:15:11.7 5334 service.cc:1520] Shutdown barrier in coordination service has failed:
DEADLINE_EXCEEDED: Barrier timed out. Id: Shutdown::708::0. This usually happens because a task
# of tasks that reached the barrier: 1/2.
The first task at the barrier: 1. Some timed out task names:
0
"""


def test_who_waits_at_the_barrier_of_the_shutdown_left_the_others() -> None:
    found = diagnose.diagnose(diagnose.load_text(LEFT))
    assert (found.verdict, found.root_cause.cause) == ("failed", "desync.missing_rank")
    raised = LEFT.replace(
        "2026-06-02 08:15:01,101 [rank1] INFO train: Training finished",
        "[rank1]: KeyError: 'labels'",
    )
    found = diagnose.diagnose(diagnose.load_text(raised))
    assert (found.root_cause.cause, found.culprits.ranks) == ("crash.exception", [1])


@pytest.mark.parametrize(
    ("rows", "more"),
    [
        ([step(1, rank=0), lost(1)], {}),  # one alone says nothing of a job of unknown size
        ([step(1, rank=0, source="0.log"), lost(1)], {"world": 2}),  # nor from another file
        ([lost(1), finished(0)], {}),  # it finished later
        ([finished(0), lost(1), step(1, rank=2)], {}),  # nothing says what became of rank 2
        ([step(1, rank=0), step(1, rank=3), lost(1), lost(2)], {}),  # two are quiet
        ([lost(0), lost(1), lost(2)], {}),
        ([step(1, rank=0), lost(1), lost(2)], {"world": 4}),  # of rank 3 nothing is known
        ([step(1, rank=0), notified(1), notified(2)], {}),  # nobody lost a connection
        ([step(1, rank=0), lost(1), lost(2)], {"proposed": [signal(Tier.STRONG)]}),
        (
            [step(1, rank=0), lost(1), lost(2)],
            {"proposed": [Hypothesis("crash.exception", Tier.GUESS, "", "")]},
        ),
        ([step(1, rank=0), lost(1), lost(2)], {"proposed": [aborted("crash.exception", 0)]}),
        (
            [lost(1), lost(2), {"role": "cause", "kind": "signature", "rank": 0}],
            {},
        ),
    ],
)
def test_otherwise_nobody_is_named(
    make: Any, rows: list[dict[str, Any]], more: dict[str, Any]
) -> None:
    assert not [*propose(context(make(*rows), **more))]


def test_who_ended_for_a_lost_peer_is_not_to_blame_where_the_peer_is_unknown() -> None:
    text = """\
step 4 loss 0.7500
[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 23, in <module>
[rank0]:     dist.all_reduce(t)
[rank0]: RuntimeError: [/gloo/transport/tcp/pair.cc:537] Read error [10.0.0.1]:25833: Connection reset by peer
E1129 09:22:01.569000 23536 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 0 (pid: 23546) of binary: /usr/bin/python
Root Cause (first observed failure):
[0]:
  time      : 2026-11-29_09:22:01
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 23546)
"""  # noqa: E501
    result = diagnose.diagnose(diagnose.load_text(text))
    assert (result.verdict, result.root_cause.cause) == ("failed", "desync.missing_rank")
    assert (result.culprits.ranks, result.culprits.hosts) == ([], [])
    assert result.root_cause.summary == (
        "Rank 0 lost the connection to a peer, and ended for it. Nothing shows which process had "
        "ended before, or why."
    )
