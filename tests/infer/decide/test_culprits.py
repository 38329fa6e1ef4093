"""Whom the verdict names."""

from typing import Any

import pytest

import diagnose
from diagnose.catalog.load import load_catalog
from diagnose.infer.decide.culprits import borrow_culprits, name_culprits
from diagnose.timeline.event import Learned

from ..rows import ended, marker, step, stories_of
from ..rows import hypothesis as one

CLASSES = load_catalog().classes


def test_a_cause_without_a_rank_names_the_one_it_struck(make: Any) -> None:
    oom = one("crash.host_oom", 6.0)
    killed = one("crash.killed", 4.0, ranks=[3], hosts=["a"], why="was killed")
    borrow_culprits([oom, killed], stories_of(make()), CLASSES)
    assert (oom.ranks, oom.hosts, oom.kind, oom.why) == ([3], ["a"], "crashed", "was killed")


def test_not_if_many_were_struck(make: Any) -> None:
    oom = one("crash.host_oom", 6.0)
    borrow_culprits([oom, one("crash.killed", 4.0, ranks=[1, 2, 3])], stories_of(make()), CLASSES)
    assert oom.ranks == []


def test_the_only_exception_names_the_rank(make: Any) -> None:
    exception = {"kind": "exception", "signal": "exception", "role": "cause", "rank": 2}
    config = one("env.config", 6.0)
    borrow_culprits(
        [config],
        stories_of(make(exception, ended(0, exitcode="1"), ended(1, exitcode="1"))),
        CLASSES,
    )
    assert (config.ranks, config.why) == ([2], "the only rank with its own exception")


def test_the_only_exit_names_the_rank(make: Any) -> None:
    config = one("env.config", 6.0)
    borrow_culprits([config], stories_of(make(ended(1, exitcode="1"))), CLASSES)
    assert (config.ranks, config.why) == ([1], "the only rank with its own exit")
    other = one("env.config", 6.0)
    borrow_culprits(
        [other], stories_of(make(ended(1, exitcode="1"), ended(2, exitcode="1"))), CLASSES
    )
    assert other.ranks == []


def test_settings_of_all_name_no_rank_whose_lines_alone_were_kept(make: Any) -> None:
    exception = {"kind": "exception", "signal": "exception", "role": "cause", "rank": 2}
    config = one("env.config", 6.0)
    borrow_culprits([config], stories_of(make(exception)), CLASSES)
    assert config.ranks == []
    data = one("data.loader", 6.0)
    borrow_culprits([data], stories_of(make(exception)), CLASSES)
    assert data.ranks == [2]


def test_a_traceback_of_one_rank_names_it_though_its_exception_is_cut_off(make: Any) -> None:
    header = {"signal": "trouble", "role": "aftermath", "rank": 1}
    for rows, ranks in (([header], [1]), ([header, header | {"rank": 2}], [])):
        unknown = one("unknown", 1.0, inferred=True)
        borrow_culprits([unknown], stories_of(make(*rows)), CLASSES)
        assert unknown.ranks == ranks
    silent = one("unknown", 4.0, inferred=True, basis="silence")
    borrow_culprits([silent], stories_of(make(header)), CLASSES)
    assert silent.ranks == []


@pytest.mark.parametrize("cause", ["crash.native", "crash.killed", "crash.host_oom"])
def test_what_a_rank_raised_does_not_name_it_as_the_one_that_a_signal_ended(
    make: Any, cause: str
) -> None:
    raised = {"kind": "exception", "signal": "exception", "role": "cause", "rank": 3}
    traceback = {"signal": "trouble", "role": "aftermath", "rank": 3}
    stories = stories_of(make(raised, traceback, step(1, rank=1)))
    struck = one(cause, 6.0)
    borrow_culprits([struck, one("crash.exception", 4.0, ranks=[3], rows=[0])], stories, CLASSES)
    assert struck.ranks == []


def test_a_crash_in_one_file_of_several_ranks_is_not_of_who_raised_something_else() -> None:
    """As `cat` joins the files of ranks: nothing ties the crash to a rank."""
    found = diagnose.diagnose(diagnose.load_text(
        "[rank3]: Traceback (most recent call last):\n"
        '[rank3]:   File "/w/train.py", line 150, in midway\n'
        '[rank3]:     print(batch["labels"])\n'
        "[rank3]: KeyError: 'labels'\n"
        "{'loss': 0.0463, 'epoch': 0.17}\n"
        "{'loss': 0.0336, 'epoch': 0.33}\n"
        "Fatal Python error: Segmentation fault\n\n"
        "Current thread 0x00007f617f27ab80 (most recent call first):\n"
        '  File "/w/train.py", line 154 in midway\n'
        "[rank2]: RuntimeError: Connection closed by peer [127.0.0.1]:7561\n"
    ))  # fmt: skip
    assert found.root_cause.cause == "crash.native"
    assert found.culprits.ranks == []


def test_lightning_names_the_rank_that_raised_the_exception() -> None:
    found = diagnose.diagnose(diagnose.load_text(
        "pytorch_lightning.utilities.exceptions.DeadlockDetectedException: DeadLock detected from"
        " rank: 1\n"
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.8/site-packages/torch/utils/data/dataloader.py", line 1120, in'
        " _try_get_data\n"
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Aborted.\n"
    ))  # fmt: skip
    assert (found.root_cause.cause, found.culprits.ranks) == ("data.loader", [1])


def test_a_slow_class_takes_the_rank_the_others_waited_for(make: Any) -> None:
    storage = one("slow.storage", 6.0)
    waited = one("slow.checkpoint", 4.0, ranks=[0], kind="slow", why="busy saving")
    borrow_culprits([storage, waited], stories_of(make()), CLASSES)
    assert (storage.ranks, storage.kind, storage.why) == ([0], "slow", "busy saving")


@pytest.mark.parametrize(("basis", "host", "named"), [
    ("stack", "n2", [6]), ("stack", "n1", []), ("line", "n2", []),
])  # fmt: skip
def test_a_slow_host_takes_the_rank_that_is_seen_there(
    make: Any, basis: str, host: str, named: list[int]
) -> None:
    """Who raised something on that host, minutes later, is not whom the others waited for."""
    storage = one("slow.storage", 6.0, hosts=["n2"])
    other = one("crash.exception", 4.0, ranks=[6], hosts=[host], basis=basis, kind="stuck_host")
    borrow_culprits([storage, other], stories_of(make()), CLASSES)
    assert storage.ranks == named


@pytest.mark.parametrize("cause", ["scheduler.preempted", "user.interrupt", "desync.mismatch"])
def test_what_strikes_the_whole_job_borrows_nobody(make: Any, cause: str) -> None:
    ending = one(cause, 6.0)
    borrow_culprits([ending], stories_of(make(ended(1, exitcode="1"))), CLASSES)
    assert ending.ranks == []


@pytest.mark.parametrize("cause", ["net.fabric", "net.socket"])
def test_who_raised_about_a_broken_connection_may_be_its_victim(make: Any, cause: str) -> None:
    broken = one(cause, 6.0)
    borrow_culprits([broken], stories_of(make(ended(1, exitcode="1"))), CLASSES)
    assert broken.ranks == []


@pytest.mark.parametrize("more", [{"ranks": [5]}, {"inferred": True}])
def test_what_names_its_own_or_is_worked_out_borrows_nobody(
    make: Any, more: dict[str, Any]
) -> None:
    config = one("env.config", 6.0, **more)
    borrow_culprits([config], stories_of(make(ended(1, exitcode="1"))), CLASSES)
    assert config.ranks == more.get("ranks", [])


RAISED = {"kind": "exception", "role": "cause", "signature": "t.cause"}


@pytest.mark.parametrize(
    ("authors", "ranks"), [([0, 1], []), ([None] * 3, []), ([None] * 2, [2]), ([2, None], [2])]
)
def test_who_ends_first_of_several_that_raised_is_not_to_blame(
    make: Any, authors: list[int | None], ranks: list[int]
) -> None:
    told = one("env.version", 4.0, rows=list(range(len(authors))))
    first = one("crash.exception", 1.0, ranks=[2], why="exited")
    borrow_culprits(
        [told, first], stories_of(make(*(RAISED | {"rank": rank} for rank in authors))), CLASSES
    )
    assert told.ranks == ranks


@pytest.mark.parametrize(
    ("seen", "world", "named", "ranks"),
    [
        (range(4), 8, range(4), [0, 1, 2, 3]),
        (range(8), 8, range(5), []),
        (range(4), None, [0, 2, 3], []),  # the job has four at least
        ([12, 13, 14], None, [12, 13, 14], [12, 13, 14]),
        ([0, 1], None, [0, 1], [0, 1]),  # an excerpt may show two of many
    ],
)
def test_nearly_everybody_is_nobody(
    make: Any, seen: range, world: int | None, named: range, ranks: list[int]
) -> None:
    told = one("crash.exception", ranks=list(named), hosts=["a"], kind="crashed", why="printed it")
    name_culprits([told], stories_of(make(*(step(1, rank=rank) for rank in seen))), CLASSES, world)
    assert (told.ranks, told.hosts) == (ranks, ["a"] if ranks else [])


def test_an_exit_in_the_aftermath_names_nobody(make: Any) -> None:
    config = one("env.config", 6.0)
    borrow_culprits(
        [config], stories_of(make(ended(1, exitcode="1") | {"role": "aftermath"})), CLASSES
    )
    assert config.ranks == []


def test_the_hosts_of_the_culprits_are_those_of_their_ranks(make: Any) -> None:
    timeline = make(step(1, rank=2, host="b"), step(1, rank=3, host="a"), step(1, rank=4))
    winner, loser = one("desync.missing_rank", ranks=[3, 2, 4]), one("slow.storage", ranks=[2])
    name_culprits([winner, loser], stories_of(timeline), CLASSES)
    assert (winner.hosts, loser.hosts) == (["a", "b"], [])
    told = one("hw.gpu", ranks=[3], hosts=["c"])
    name_culprits([told], stories_of(timeline), CLASSES)
    assert told.hosts == ["c"], "the line itself knows better"


def test_a_borrowed_rank_has_its_host_too(make: Any) -> None:
    config = one("env.config", 6.0)
    name_culprits([config], stories_of(make(ended(1, exitcode="1") | {"host": "a"})), CLASSES)
    assert (config.ranks, config.hosts, config.kind) == ([1], ["a"], "crashed")


def said(rank: int | None) -> dict[str, Any]:
    return {"role": "cause", "signature": "t.cause", "rank": rank}


@pytest.mark.parametrize(
    ("cause", "ranks"),
    [("crash.cuda_error", [3]), ("net.shm", [3]), ("net.p2p", []), ("env.config", [])],
)
def test_whose_lines_a_cause_is_told_by(make: Any, cause: str, ranks: list[int]) -> None:
    told = one(cause, 6.0, rows=[0, 1])
    borrow_culprits([told], stories_of(make(said(None), said(3))), CLASSES)
    assert told.ranks == ranks


def test_two_that_printed_it_are_not_one(make: Any) -> None:
    told = one("crash.cuda_error", 6.0, rows=[0, 1])
    borrow_culprits([told], stories_of(make(said(2), said(3))), CLASSES)
    assert told.ranks == []


def test_last_words_about_one_rank_name_it(make: Any) -> None:
    told = one("crash.cuda_error", 6.0)
    destroyed = {"role": "effect", "signature": "t.gone", "fields": {"rank": "0"}}
    borrow_culprits([told], stories_of(make(destroyed)), CLASSES)
    assert (told.ranks, told.why) == ([0], "the only rank that its last lines name")
    waited = one("crash.cuda_error", 6.0)
    borrow_culprits([waited], stories_of(make(destroyed | {"signal": "timeout"})), CLASSES)
    assert waited.ranks == [], "who waits is a victim"


def test_who_is_listed_as_late_did_not_come_to_the_rendezvous(make: Any) -> None:
    late = [{"signal": "missing", "role": "context", "fields": {"missing": str(n)}} for n in (1, 3)]
    told = one("rendezvous.timeout", 4.0)
    borrow_culprits([told], stories_of(make(*late)), CLASSES)
    assert (told.ranks, told.kind) == ([1, 3], "missing")


def test_who_was_at_the_work_that_did_not_end_is_named_by_its_own_lines(make: Any) -> None:
    unfinished = one("data.preparation", 1.0, inferred=True)
    borrow_culprits(
        [unfinished], stories_of(make(marker("preprocessing", rank=0), step(3, rank=1))), CLASSES
    )
    assert (unfinished.ranks, unfinished.kind) == ([0], "slow")
    both = one("data.preparation", 1.0, inferred=True)
    markers = [marker("preprocessing", rank=rank) for rank in (0, 1)]
    borrow_culprits([both], stories_of(make(*markers)), CLASSES)
    assert both.ranks == [], "what all do is nobody's"
    other = one("slow.checkpoint", 1.0, inferred=True)
    borrow_culprits([other], stories_of(make(markers[0])), CLASSES)
    assert other.ranks == [], "other work than the cause is about"


@pytest.mark.parametrize(
    ("learned", "why"),
    [
        (Learned.LINE, "it printed the error"),
        (
            Learned.DEVICE,
            "it printed the error; its number is that of its device, as the log shows no other "
            "node",
        ),
    ],
)
def test_a_number_that_no_line_ties_to_the_culprit_is_told_as_such(
    make: Any, learned: Learned, why: str
) -> None:
    told = one("crash.gpu_oom", 6.0, ranks=[3], rows=[0], why="it printed the error")
    name_culprits([told], stories_of(make(said(3) | {"learned": learned})), CLASSES)
    assert told.why == why


def test_a_rank_known_by_the_device_in_the_line_is_told_as_such() -> None:
    found = diagnose.diagnose(diagnose.load_text(
        "step 1 loss 2\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
        "GPU 3 has a total capacity of 79.15 GiB of which 1.20 GiB is free.\n"
    ))  # fmt: skip
    assert found.culprits.ranks == [3]
    assert found.culprits.why.endswith("its number is that of its device, as the log shows no "
                                       "other node")  # fmt: skip


@pytest.mark.parametrize(("killed", "ranks"), [((1, 2, 3), [1, 2, 3]), ((0, 1, 2, 3), [])])
def test_who_is_listed_with_the_reason_is_meant(
    make: Any, killed: tuple[int, ...], ranks: list[int]
) -> None:
    ends = [ended(rank, signal="Out Of Memory") | {"role": "cause"} for rank in killed]
    oom = one("crash.host_oom", 6.0, rows=list(range(len(ends))))
    name_culprits([oom], stories_of(make(*ends)), CLASSES)
    assert oom.ranks == ranks


def test_settings_that_all_ranks_have_accuse_nobody(make: Any) -> None:
    rows = [step(1, rank=rank) for rank in (0, 1)]
    config = one("env.config", 6.0, ranks=[0, 1], kind="crashed")
    name_culprits([config], stories_of(make(*rows)), CLASSES)
    assert config.ranks == []
    config = one("env.config", 6.0, ranks=[0, 1], kind="crashed")
    name_culprits([config], stories_of(make(*rows, step(1, rank=2))), CLASSES, 8)
    assert config.ranks == [0, 1], "another one has no trouble"


def test_a_rank_that_failed_is_not_called_slow(tmp_path: Any) -> None:
    """The class is of storage that stalls; what this rank did is raise an error and end."""
    lines = [
        "[rank0]: step 10 loss 1.0",
        "[rank4]: step 10 loss 1.0",
        "[rank4]: Traceback (most recent call last):",
        '[rank4]:   File "/job/train.py", line 5, in <module>',
        "[rank4]: OSError: [Errno 5] Input/output error: '/mnt/data/x'",
    ]
    (tmp_path / "job.log").write_text("\n".join(lines))
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert found.root_cause.cause == "slow.storage"
    assert (found.culprits.ranks, found.culprits.kind) == ([4], "crashed")
    assert found.longer_timeout_helps == "no"


def test_a_pod_that_failed_is_not_called_slow(tmp_path: Any) -> None:
    start = "[pod/worker-{}/pytorch] 2026-01-02T03:00:0{}Z "
    lines = [
        start.format(0, 1) + "step 10 loss 1.0",
        start.format(4, 1) + "step 10 loss 1.0",
        start.format(4, 2) + "Traceback (most recent call last):",
        start.format(4, 2) + '  File "/job/train.py", line 5, in <module>',
        start.format(4, 2) + "OSError: [Errno 5] Input/output error: '/mnt/data/x'",
        start.format(0, 1) + "step 10 done",
    ]
    (tmp_path / "job.log").write_text("\n".join(lines))
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert (found.culprits.hosts, found.culprits.kind) == (["worker-4"], "crashed")


_STEPS = [f"[rank{rank}]: step {number} loss 2.1" for number in range(1, 9) for rank in range(3)]


@pytest.mark.parametrize("error", ["FATAL: no room for states", "mypkg.errors.ShardShort: shard 4"])
@pytest.mark.parametrize(
    ("last", "named"),
    [
        (["[rank0]: step 9 loss 2.1", "[rank2]: step 9 loss 2.1"], [1]),  # it wrote nothing more
        (["[rank1]: retrying with smaller states", "[rank1]: WARNING: half of it"], []),
        (["[rank2]: {}", "[rank0]: step 9 loss 2.1"], []),  # two of them
    ],
)
def test_who_printed_an_unknown_error_and_nothing_more(
    error: str, last: list[str], named: list[int]
) -> None:
    lines = [*_STEPS, f"[rank1]: {error}", *(line.format(error) for line in last)]
    result = diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))
    assert (result.verdict, result.culprits.ranks) == ("unknown", named)
    reasons = {one.predicate for one in result.reasons if one.outcome == "named"}
    assert reasons == ({"wrote_nothing_more"} if named else set())


def test_the_one_rank_of_a_log_is_not_blamed_for_being_seen() -> None:
    lines = ["[rank0]: step 1 loss 2.1", "[rank0]: step 2 loss 2.1", "[rank0]: FATAL: no room"]
    result = diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))
    assert (result.verdict, result.culprits.ranks) == ("unknown", [])
