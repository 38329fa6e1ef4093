"""Hypotheses from how processes ended."""

from dataclasses import replace
from typing import Any

import pytest

from diagnose.infer.events.facts import Facts
from diagnose.infer.rules.base import Hypothesis, Tier
from diagnose.infer.rules.endings import propose_exits as propose
from diagnose.timeline.ends import exit_code
from diagnose.timeline.event import Learned

from ..rows import context, ended, finished, step, wait


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"exitcode": "1"}, 1),
        ({"exitcode": "-9"}, -9),
        ({"exitcode": "137"}, -9),  # 128 + 9, as shells tell
        ({"exitcode": "139"}, -11),
        ({"exitcode": "255"}, 255),
        ({"exitcode": "1", "signal": "15"}, -15),
        ({"signal": "SIGSEGV"}, -11),
        ({"signal": "kill"}, -9),
        ({"signal": "Segmentation fault"}, -11),
        ({"signal": "Out Of Memory"}, -9),
        ({"signal": "terminate"}, -6),
        ({"exitcode": "many"}, None),
        ({"signal": "9" * 20}, None),
        ({"signal": "9" * 5000}, None),
        ({"signal": "\u00b2"}, None),
        ({}, None),
    ],
)
def test_exit_codes(fields: dict[str, str], code: int | None) -> None:
    assert exit_code(fields) == code


@pytest.mark.parametrize(
    ("code", "cause", "ranks"),
    [
        ("-9", "crash.killed", [3]),
        ("137", "crash.killed", [3]),
        ("-11", "crash.native", [3]),
        ("-7", "net.shm", [3]),
        ("-2", "user.interrupt", []),
        ("-6", "crash.native", [3]),
        ("-15", "scheduler.preempted", []),
        ("3", "crash.exception", [3]),
    ],
)
def test_what_an_exit_alone_says(make: Any, code: str, cause: str, ranks: list[int]) -> None:
    """Whom a scheduler or a user ended is not to blame."""
    (hypothesis,) = propose(context(make(ended(3, exitcode=code))))
    assert (hypothesis.cause, hypothesis.ranks) == (cause, ranks)
    assert (hypothesis.kind, hypothesis.inferred) == ("crashed" if ranks else None, True)


def test_sigterm_and_sigabrt_are_what_victims_die_of(make: Any) -> None:
    timeline = make(ended(0, exitcode="-15"), ended(3, exitcode="-9"), ended(5, exitcode="-6"))
    (hypothesis,) = propose(context(timeline))
    assert (hypothesis.cause, hypothesis.ranks) == ("crash.killed", [3])
    assert hypothesis.summary == "Rank 3 was killed by SIGKILL."


def test_an_abort_after_a_wait_is_the_watchdogs(make: Any) -> None:
    assert list(propose(context(make(wait(3), ended(3, exitcode="-6"))))) == []


def test_who_aborts_along_with_processes_of_other_nodes_is_not_to_blame(make: Any) -> None:
    """The last lines of a console: failure tables of the agents of several nodes."""
    rows = [
        ended(rank, exitcode="-6") | {"local_rank": rank % 4} for rank in (1, 3, 5, 6)
    ]  # fmt: skip
    (hypothesis,) = propose(context(make(*rows)))
    assert (hypothesis.cause, hypothesis.ranks, hypothesis.kind) == ("crash.native", [], None)
    (hypothesis,) = propose(context(make(*rows[:2])))
    assert hypothesis.ranks == [], "of one node as well: a crash stays in its process"
    (hypothesis,) = propose(context(make(*rows[:1])))
    assert hypothesis.ranks == [1]


def _of_torch(timeline: Any) -> list[Hypothesis]:
    known = Facts(values={"framework": ["torch"]}, world_size=8)
    return [*propose(replace(context(timeline), facts=known))]


def test_who_aborts_unseen_in_a_job_with_a_watchdog_waited(make: Any) -> None:
    """Of a log that lost the lines of the ranks that aborted, only their ends are left."""
    ends = [ended(rank, exitcode="-6") | {"local_rank": rank % 4} for rank in (1, 5)]
    (found,) = _of_torch(make(step(3, rank=0), *ends[:1]))
    assert (found.cause, found.ranks, found.hung) == ("desync.missing_rank", [], True)
    assert found.summary.startswith("Rank 1 aborted (SIGABRT), as a watchdog ends what waits")
    (found,) = _of_torch(make(step(3, rank=1), *ends))
    assert (found.cause, found.ranks) == ("desync.missing_rank", []), "of two nodes"
    (found,) = _of_torch(make(step(3, rank=1), *ends[:1]))
    assert (found.cause, found.ranks) == ("crash.native", [1]), "it printed no timeout"
    (found,) = propose(context(make(step(3, rank=0), *ends[:1])))
    assert (found.cause, found.ranks) == ("crash.native", [1]), "nothing tells of a watchdog"
    lost = {"role": "effect", "signal": "peer_gone", "rank": 0}
    (found,) = _of_torch(make(step(3, rank=0), lost, *ends[:1]))
    assert (found.cause, found.ranks) == ("crash.native", [1]), "its peers lost it first"


def test_who_had_finished_before_others_aborted_unseen_is_missing(make: Any) -> None:
    timeline = make(step(3, rank=0), finished(0), ended(1, exitcode="-6"))
    (found,) = _of_torch(timeline)
    assert (found.cause, found.ranks, found.kind) == ("desync.missing_rank", [0], "missing")
    assert found.why == "had finished when its peers aborted"


def test_a_launcher_stops_the_others_of_who_aborted(make: Any) -> None:
    rows = [step(3, rank=1), ended(0, exitcode="-15"), ended(1, exitcode="-6")]
    (found,) = propose(context(make(*rows)))
    assert (found.cause, found.ranks) == ("crash.native", [1])


def test_what_was_thrown_says_more_than_that_it_aborted(make: Any) -> None:
    thrown = {"signal": "terminate", "type": "std::out_of_range"}
    row = {"role": "effect", "signal": "dies", "rank": 2, "fields": thrown}
    (hypothesis,) = propose(context(make(row)))
    assert (hypothesis.cause, hypothesis.ranks) == ("crash.native", [2])
    assert hypothesis.summary == "Rank 2 ended with an uncaught C++ exception: std::out_of_range."


_ABORTS = {"role": "effect", "signal": "dies", "fields": {"signal": "Aborted"}}
_STOPS = {"role": "aftermath", "signal": "teardown"}


def test_a_process_that_says_that_it_aborts_needs_no_launcher_to_report_it(make: Any) -> None:
    """What the launcher does because of it is no reason for it."""
    (hypothesis,) = propose(context(make(_ABORTS | {"rank": 1}, _STOPS, ended(1, signal="6"))))
    assert (hypothesis.cause, hypothesis.ranks) == ("crash.native", [1])
    assert not [*propose(context(make(_STOPS, _ABORTS | {"rank": 1})))]
    assert not [*propose(context(make(_ABORTS | {"rank": 1}, wait(1))))]
    assert not [*propose(context(make(_ABORTS | {"fields": {"type": "std::runtime_error"}})))]


def test_clean_exits_and_aftermath_are_no_failure(make: Any) -> None:
    aftermath = ended(1, exitcode="-9") | {"role": "aftermath"}
    assert list(propose(context(make(ended(0, exitcode="0"), aftermath)))) == []


def test_equal_ends_are_one_hypothesis(make: Any) -> None:
    timeline = make(ended(2, exitcode="-9"), ended(1, exitcode="137"), ended(0, exitcode="1"))
    found = {c.cause: c for c in propose(context(timeline))}
    assert found["crash.killed"].ranks == [1, 2]
    assert found["crash.exception"].ranks == [0]


_STOPPING = {"role": "aftermath", "signal": "stopping"}


def test_what_a_launcher_kills_after_a_task_ended_is_its_victim(make: Any) -> None:
    timeline = make(ended(5, exitcode="1"), _STOPPING, ended(3, signal="Killed"))
    (hypothesis,) = propose(context(timeline))
    assert (hypothesis.cause, hypothesis.ranks) == ("crash.exception", [5])


@pytest.mark.parametrize(
    "rows",
    [
        (ended(5, exitcode="1"), ended(3, signal="Killed"), _STOPPING),  # before it stopped any
        (_STOPPING, ended(3, signal="Killed"), ended(5, exitcode="1")),  # nobody had ended before
        (ended(5, exitcode="1"), _STOPPING, ended(3, signal="Killed") | {"source": "n2.log"}),
        (ended(5, signal="Killed"), _STOPPING, ended(3, signal="Killed")),
    ],
)
def test_a_kill_that_no_launcher_announced_counts(
    make: Any, rows: tuple[dict[str, Any], ...]
) -> None:
    found = {one.cause: one.ranks for one in propose(context(make(*rows)))}
    assert 3 in found["crash.killed"]


def test_a_code_belongs_to_the_rank_named_on_the_line_above(make: Any) -> None:
    named, far = ended(2) | {"host": "n1"}, {"line": 9}
    (hypothesis,) = propose(context(make(named, ended(None, exitcode="1"))))
    assert (hypothesis.ranks, hypothesis.hosts) == ([2], ["n1"])
    (hypothesis,) = propose(context(make(named, ended(None, exitcode="1") | far)))
    assert hypothesis.ranks == []
    both = make(ended(2, exitcode="-9"), ended(None, exitcode="1"))
    assert [one.ranks for one in propose(context(both))] == [[2], []]


def test_a_process_that_the_agent_killed_itself_is_no_cause(make: Any) -> None:
    killed = {"signal": "teardown", "role": "aftermath", "line": 5}
    killed |= {"fields": {"pid": "4547", "signal": "9"}}
    ends = [
        ended(0, exitcode="-9", pid="4547"),
        ended(1, exitcode="1", pid="4548"),
    ]
    (hypothesis,) = propose(context(make(killed, *ends)))
    assert (hypothesis.cause, hypothesis.ranks) == ("crash.exception", [1])
    other = killed | {"fields": {"pid": "4549", "signal": "9"}}
    assert {h.cause for h in propose(context(make(other, *ends)))} == {
        "crash.killed",
        "crash.exception",
    }


def test_who_ended_without_a_word_was_ended(make: Any) -> None:
    dead = ended(1) | {"learned": Learned.LINE}
    (hypothesis,) = propose(context(make(dead)))
    assert (hypothesis.cause, hypothesis.tier, hypothesis.ranks) == (
        "crash.killed",
        Tier.GUESS,
        [1],
    )
    assert hypothesis.summary == "Rank 1 ended without a word; nothing says what ended it."
    # Another end says how, the rank is a guess, or it was a victim.
    (other,) = propose(context(make(dead, ended(2, exitcode="3"))))
    assert (other.cause, other.ranks) == ("crash.exception", [2])
    assert not [*propose(context(make(dead, ended(2, exitcode="0"))))]
    assert not [*propose(context(make(ended(1) | {"learned": Learned.ALONE})))]
    assert not [*propose(context(make(wait(0), dead)))]


def test_a_rank_whose_wait_ran_out_did_not_end_by_itself(make: Any) -> None:
    """It raises as well, and ends with the same status as the one it waited for."""
    gave_up = {"signal": "store_wait", "role": "effect", "signature": "t.store"}
    waits = [gave_up | {"group_rank": rank} for rank in (1, 2)]
    ends = [ended(rank, exitcode="1") for rank in (1, 2, 8)]
    (hypothesis,) = propose(context(make(*waits, *ends)))
    assert hypothesis.ranks == [8]
    (hypothesis,) = propose(context(make(*waits, *ends[:2])))
    assert hypothesis.ranks == [1, 2], "nobody else is there"
    repeated = [gave_up | {"group_rank": rank} for rank in (1, 2, 1)]
    (hypothesis,) = propose(context(make(*repeated, *ends)))
    assert hypothesis.ranks == [1, 2, 8], "numbers of several groups name nobody"
    (hypothesis,) = propose(context(make(gave_up | {"rank": 8}, *ends)))
    assert hypothesis.ranks == [1, 2]
