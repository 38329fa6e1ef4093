import diagnose
from diagnose.diagnosis import Collective, Culprits, Diagnosis, JobFacts, RootCause, WaitGraph
from diagnose.report.html.ranks import states

from .jobs import fixture, watchdog

ROOT = RootCause("unknown", "", "", "low")


def test_every_rank_has_the_most_telling_state() -> None:
    log = "\n".join(
        [
            watchdog(0),
            "[rank1]: 2026-06-02 08:00:00,000 INFO step 3",
            "rank: 2 (local_rank: 2) exitcode: 1 (pid: 99)",
        ]
    )
    job = diagnose.load_text(log)
    diagnosis = Diagnosis(
        "hung",
        ROOT,
        culprits=Culprits([5]),
        collective=Collective(None, "ALLREDUCE", 1, [0], [3]),
        job=JobFacts(world_size=6, ranks_seen=[0, 1]),
    )
    found = states(job.events, diagnosis)
    assert found[0] == "waiting"
    assert found[1] == "seen"
    assert found[3] == "missing"
    assert found[4] == "no log"
    assert found[5] == "culprit"
    assert list(found) == sorted(found)


def test_the_graph_overrules_the_log_and_the_verdict_overrules_the_graph() -> None:
    job = diagnose.load_text(watchdog(0))
    graph = WaitGraph({0: "done", 1: "idle", 2: "waiting", 3: "no dump"}, [])
    diagnosis = Diagnosis("hung", ROOT, culprits=Culprits([2]), graph=graph)
    found = states(job.events, diagnosis)
    assert found == {0: "done", 1: "idle", 2: "culprit", 3: "no dump"}


def test_every_rank_that_waited_in_some_group_waited() -> None:
    job, diagnosis = fixture("megatron-tp-blocks-dp")
    found = states(job.events, diagnosis)
    assert found == dict.fromkeys(range(8), "waiting") | {5: "culprit"}


def test_hosts() -> None:
    job, _ = fixture("megatron-tp-blocks-dp")
    assert job.events.hosts_of_ranks == dict.fromkeys(range(4), "mg-0") | dict.fromkeys(
        range(4, 8), "mg-1"
    )


def test_ranks_whose_stacks_wait_waited() -> None:
    job, diagnosis = fixture("stacks-dataloader")
    found = states(job.events, diagnosis)
    assert found == {0: "waiting", 1: "waiting", 2: "waiting", 3: "culprit"}
