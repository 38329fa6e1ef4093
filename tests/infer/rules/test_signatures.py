"""Hypotheses that lines state: whom they name, and when they count less."""

from typing import Any

import pytest

import diagnose
from diagnose.catalog.load import load_catalog
from diagnose.infer.rules.base import Hypothesis, Tier
from diagnose.infer.rules.signatures import culprits_of, gpu_ranks, pci_bus, propose
from diagnose.timeline.event import Learned, Timeline

from ..rows import at, catalog, context, matched, signature, step, wait

OOM = signature("t.oom", "crash.gpu_oom", culprit="self", strength="decisive")
CONFIG = signature("t.config", "env.config", culprit="self")
WEAK = signature("t.weak", "env.config", strength="weak")
NAMED = signature("t.named", "net.socket", culprit="captured")
EXCEPTION = signature(
    "t.exception", "crash.exception", signal="exception", generic=True, strength="weak",
    culprit="self",
)  # fmt: skip
LIMIT = signature("t.limit", "scheduler.limit", strength="decisive")
MEMORY = signature("t.memory", "crash.host_oom", strength="decisive")
KILLED = signature("t.killed", "crash.killed", signal="exit")
CATALOG = catalog(OOM, CONFIG, WEAK, NAMED, EXCEPTION, LIMIT, MEMORY, KILLED)


def only(timeline: Timeline, world: int | None = 8) -> Hypothesis:
    (found,) = propose(context(timeline, CATALOG, world))
    return found


# --------------------------------------------------------------------------- who


def test_self_names_who_printed_it(make: Any) -> None:
    hypothesis = only(make(matched(OOM, rank=3, host="node3"), matched(OOM, rank=3, host="node3")))
    assert (hypothesis.cause, hypothesis.signature) == ("crash.gpu_oom", "t.oom")
    assert (hypothesis.ranks, hypothesis.hosts, hypothesis.kind) == ([3], ["node3"], "crashed")
    assert (hypothesis.tier, hypothesis.sure, hypothesis.rows) == (Tier.PROVEN, True, [0, 1])
    assert hypothesis.why == "it printed the error"
    assert hypothesis.summary == "Title of t.oom (rank 3)."


def test_what_most_ranks_say_accuses_nobody(make: Any) -> None:
    rows = [matched(CONFIG, rank=rank, host="a") for rank in (0, 1, 2)]
    hypothesis = only(make(*rows), 4)
    assert (hypothesis.ranks, hypothesis.hosts, hypothesis.kind, hypothesis.why) == (
        [],
        [],
        None,
        "",
    )
    assert only(make(*rows[:2]), 4).ranks == [0, 1], "half of them may be to blame"


def test_a_process_that_a_line_is_about_names_the_rank_that_it_said_it_has(make: Any) -> None:
    """Who kills a process knows its number only."""
    of = {"pid": "700", "host": "b"}
    own = step(1, rank=2, pid=700, host="b")
    assert only(make(own, matched(NAMED, fields=of))).ranks == [2]
    assert only(make(own | {"host": "a"}, matched(NAMED, fields=of))).ranks == []
    assert only(make(own, own | {"rank": 3}, matched(NAMED, fields=of))).ranks == []


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("Exception on rank 5: out of memory", [5]),
        ("out of memory (at global rank=5, step 7)", [5]),
        ("out of memory while waiting for rank 5", []),
        ("out of memory on rank 5, not on rank 6", []),
    ],
)
def test_a_line_without_an_author_says_on_which_rank_it_was(
    make: Any, text: str, ranks: list[int]
) -> None:
    assert only(make(matched(OOM, text=text))).ranks == ranks
    assert only(make(matched(OOM, text=text, rank=1))).ranks == [1]
    assert only(make(matched(CONFIG, text=text))).ranks == [], "that is of no one rank"


@pytest.mark.parametrize(
    ("links", "ranks"),
    [
        ([("4", "1")], [1, 4]),  # which end is at fault one link never says
        ([("4", "1, 2, 6")], [4]),
        ([("0", "3"), ("1", "3"), ("2", "3"), ("3", "0, 1, 2")], [3]),
        ([("0", "2, 3"), ("1", "2, 3")], []),  # two halves
    ],
)
def test_of_ranks_without_a_connection_the_one_at_which_all_end_is_named(
    make: Any, links: list[tuple[str, str]], ranks: list[int]
) -> None:
    rows = [matched(NAMED, fields={"rank": one, "ranks": others}) for one, others in links]
    assert only(make(*rows)).ranks == ranks


def test_captured_names_whom_the_line_names(make: Any) -> None:
    row = matched(NAMED, rank=0, fields={"rank": "4", "other_rank": "6", "host": "node2"})
    hypothesis = only(make(row))
    assert (hypothesis.ranks, hypothesis.hosts) == ([4, 6], ["node2"])
    assert hypothesis.why == "the error names it", "rank 0 printed it"


def test_a_number_that_stands_for_no_rank_names_nobody(make: Any) -> None:
    numbers = ("4294967295", "6")
    rows = [matched(NAMED, rank=1, fields={"other_rank": number}) for number in numbers]
    assert only(make(*rows)).ranks == [6]


def test_without_a_rule_nobody_is_named(make: Any) -> None:
    hypothesis = only(make(matched(LIMIT, rank=2, host="a", fields={"rank": "5", "host": "b"})))
    assert (hypothesis.ranks, hypothesis.hosts) == ([], [])


@pytest.mark.parametrize(
    ("text", "bus"),
    [("0000:9b:00.0", 0x9B), ("PCI:0000:18:00", 0x18), ("9b000", 0x9B), ("", None), ("x:y", None)],
)
def test_bus_numbers_as_kernel_and_nccl_print_them(text: str, bus: int | None) -> None:
    assert pci_bus(text) == bus


def test_a_bus_number_leads_to_the_rank_on_that_gpu_of_that_host(make: Any) -> None:
    xid = signature("t.xid", "hw.gpu", culprit="self")
    maps = [
        {"signal": "rank_map", "rank": rank, "host": host, "fields": {"busid": busid}}
        for rank, host, busid in [(0, "a", "18000"), (1, "a", "9b000"), (2, "b", "9b000")]
    ]
    timeline = make(*maps, matched(xid, host="b", fields={"busid": "0000:9b:00.0"}))
    assert gpu_ranks(timeline) == {("a", 0x18): 0, ("a", 0x9B): 1, ("b", 0x9B): 2}
    assert culprits_of(xid, [timeline.at(3)], 3, timeline) == ([2], ["b"])
    unplaced = make(*maps, matched(xid, fields={"busid": "0000:9b:00.0"}))
    assert culprits_of(xid, [unplaced.at(3)], 8, unplaced) == ([], [])  # two hosts have such a bus


@pytest.mark.parametrize(
    ("world", "hosts", "ranks"),
    [(8, ["a"], [5]), (None, ["a"], [5]), (16, ["a"], []), (8, ["a", "b"], [])],
)
def test_on_one_node_the_device_has_the_number_of_the_rank(
    make: Any, world: int | None, hosts: list[str], ranks: list[int]
) -> None:
    timeline = make(*[matched(CONFIG, host=host, fields={"dev": "5"}) for host in hosts])
    assert culprits_of(CONFIG, timeline.events, world, timeline)[0] == ranks


def test_a_device_is_no_rank_where_the_rest_of_the_log_shows_more_nodes(make: Any) -> None:
    failed = matched(CONFIG, fields={"dev": "2"})
    for others in (
        [{"host": "a"}, {"host": "b"}],
        [{"source": f"job-{n}.out"} for n in range(16)],
        [{"rank": 9}],
    ):
        timeline = make(failed, *others)
        assert culprits_of(CONFIG, [timeline.at(0)], None, timeline)[0] == []


def test_the_one_device_that_a_process_sees_is_number_0_on_every_rank(make: Any) -> None:
    alone = make(matched(CONFIG, fields={"dev": "0"}))
    assert culprits_of(CONFIG, alone.events, 8, alone) == ([], [])
    both = make(matched(CONFIG, fields={"dev": "0"}), matched(CONFIG, fields={"dev": "3"}))
    assert culprits_of(CONFIG, both.events[:1], 8, both) == ([0], [])


# --------------------------------------------------------------------------- how much it counts


@pytest.mark.parametrize(
    ("entry", "tier"), [(OOM, Tier.PROVEN), (CONFIG, Tier.STRONG), (WEAK, Tier.WEAK)]
)
def test_strength_is_the_score(make: Any, entry: Any, tier: Tier) -> None:
    assert only(make(matched(entry))).tier == tier


@pytest.mark.parametrize(
    ("entry", "tier"),
    [
        (CONFIG, Tier.CIRCUMSTANTIAL),  # seen after the wait: less likely its cause
        (OOM, Tier.PROVEN),  # memory is often reported late
        (LIMIT, Tier.CIRCUMSTANTIAL),  # what ends a job that hangs is not why it hangs
    ],
)
def test_causes_after_the_wait_count_less(make: Any, entry: Any, tier: Tier) -> None:
    hypothesis = only(make(wait(0), matched(entry)))
    assert (hypothesis.tier, hypothesis.late) == (tier, True)


def test_endings_may_follow_a_teardown(make: Any) -> None:
    teardown = {"signal": "teardown", "role": "aftermath"}
    ending = only(make(teardown, matched(LIMIT)))
    assert (ending.tier, ending.late) == (Tier.PROVEN, False)
    other = only(make(teardown, matched(CONFIG)))
    assert (other.tier, other.late) == (Tier.CIRCUMSTANTIAL, True)


@pytest.mark.parametrize(
    ("signal", "role", "late"),
    [
        ("notified", "effect", True),  # the wait of another rank ran out
        ("frontier", "effect", True),  # as a watchdog prints the counters that it saw then
        ("frontier", "context", False),  # printed now and then
        ("notified", "aftermath", False),
    ],
)
def test_who_ends_a_job_whose_watchdog_had_fired_is_late(
    make: Any, signal: str, role: str, late: bool
) -> None:
    """The last lines of a console may lack the timeout itself."""
    assert only(make({"signal": signal, "role": role}, matched(LIMIT))).late is late


@pytest.mark.parametrize(
    ("source", "clock", "late"),
    [
        ("job.log", None, True),  # the same source: its order is sure
        ("other.log", None, False),  # another without time: nobody knows
        ("other.log", "08:00:01", False),  # clocks of hosts differ by this much
        ("other.log", "08:00:03", True),
    ],
)
def test_later_needs_the_same_source_or_the_clock(
    make: Any, source: str, clock: str | None, late: bool
) -> None:
    row = matched(CONFIG, source=source, time=at(clock) if clock else None)
    assert only(make(wait(0, time=at("08:00:00")), row)).late is late


@pytest.mark.parametrize(("line", "late"), [(5, False), (6, True)])
def test_the_cause_that_a_teardown_states_in_its_own_line_is_not_late(
    make: Any, line: int, late: bool
) -> None:
    teardown = {"signal": "teardown", "role": "aftermath", "source": "job.log", "line": 5}
    found = only(make(teardown, matched(CONFIG, source="job.log", line=line)))
    assert found.late is late


def test_training_that_went_on_clears_a_cause(make: Any) -> None:
    assert only(make(matched(CONFIG), step(1), step(2), step(3))).tier == Tier.GUESS
    assert only(make(matched(CONFIG), step(1), step(2))).tier == Tier.STRONG
    restarted = make(matched(CONFIG), step(9), step(1), step(2))
    assert only(restarted).tier == Tier.STRONG, "steps that start anew are no continuation"


def test_a_cause_that_ends_its_process_is_not_cleared_by_steps_of_nobody_known(make: Any) -> None:
    steps = [step(1), step(2), step(3)]
    after_all = next(iter(propose(context(make(matched(MEMORY), *steps), CATALOG))))
    assert "recovered" not in after_all.grounds
    killed = matched(KILLED, kind="exit")
    found = {
        one.cause: one for one in propose(context(make(matched(MEMORY), *steps, killed), CATALOG))
    }
    assert "recovered" not in found["crash.host_oom"].grounds


def test_the_own_exception_of_one_rank_counts_more(make: Any) -> None:
    one = matched(EXCEPTION, rank=3, fields={"message": "list  index\nout of range"})
    hypothesis = only(make(one))
    assert hypothesis.tier == Tier.LIKELY
    assert hypothesis.summary == "Title of t.exception (rank 3): list index out of range."
    assert only(make(one, one | {"rank": 4})).tier == Tier.GUESS
    assert only(make(wait(0), one)).tier == Tier.NONE


def test_what_is_wrong_with_the_program_many_ranks_raise(make: Any) -> None:
    for type_, tier in (
        ("KeyError", Tier.LIKELY),
        ("json.JSONDecodeError", Tier.LIKELY),
        ("RuntimeError", Tier.GUESS),
    ):
        one = matched(EXCEPTION, rank=3, fields={"type": type_, "message": "'labels'"})
        assert only(make(one, one | {"rank": 4})).tier == tier
        assert only(make(wait(0), one, one | {"rank": 4})).tier == Tier.NONE


@pytest.mark.parametrize(
    ("cause", "learned", "ranks"),
    [
        ("env.config", Learned.DEVICE, []),
        ("net.socket", Learned.DEVICE, []),
        ("env.config", Learned.LINE, [5]),
        ("crash.gpu_oom", Learned.DEVICE, [5]),
    ],
)
def test_a_device_that_met_the_setting_of_its_host_is_no_culprit(
    make: Any, cause: str, learned: Learned, ranks: list[int]
) -> None:
    entry = signature("t.own", cause, culprit="self")
    timeline = make(matched(entry, rank=5, host="a", learned=learned))
    author = load_catalog().classes[cause].author
    assert culprits_of(entry, timeline.events, 8, timeline, author) == (ranks, ["a"])


PAIR = signature("t.pair", "desync.mismatch", signal="mismatch", culprit="none")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, ""),
        (
            {"rank": "1", "op": "BROADCAST"},
            ": rank 1 called BROADCAST, and the line does not show what the other one called",
        ),
        (
            {"rank": "1", "op": "BROADCAST", "other_rank": "0", "other_op": "REDUCE"},
            ": rank 1 called BROADCAST, and rank 0 called REDUCE",
        ),
        (
            {
                "rank": "1", "op": "REDUCE", "shape": "3", "seq": "7",
                "other_rank": "0", "other_op": "REDUCE", "other_shape": "4", "other_seq": "8",
            },
            ": rank 1 called REDUCE of shape [3] as number 7, and rank 0 called REDUCE of shape [4]"
            " as number 8",
        ),
    ],
)  # fmt: skip
def test_a_mismatch_tells_who_called_what(make: Any, fields: dict[str, str], told: str) -> None:
    (found,) = propose(context(make(matched(PAIR, fields=fields)), catalog(PAIR), 8))
    assert found.summary == f"Title of t.pair{told}."


# --------------------------------------------------------------------------- order

FABRIC = signature("t.fabric", "net.fabric")
PROCESS = {"host": "n1", "pid": 7}


@pytest.mark.parametrize(
    ("rows", "preceding"),
    [
        ([matched(FABRIC, **PROCESS), matched(OOM, **PROCESS)], {"net.fabric"}),
        ([matched(OOM, **PROCESS), matched(FABRIC, **PROCESS)], set()),
        ([matched(FABRIC, host="n2", pid=7), matched(OOM, **PROCESS)], set()),
        ([matched(FABRIC), matched(OOM)], set()),  # whoever that was
        (
            [matched(FABRIC, **PROCESS), matched(OOM, **PROCESS), matched(OOM, host="n2", pid=9)],
            set(),
        ),
    ],
)
def test_what_its_own_processes_stated_before(
    make: Any, rows: list[Any], preceding: set[str]
) -> None:
    numbered = [{**row, "line": number, "source": "a"} for number, row in enumerate(rows, 1)]
    found = propose(context(make(*numbered), catalog(OOM, FABRIC)))
    assert {one.cause: one.preceded_by for one in found}["crash.gpu_oom"] == preceding


@pytest.mark.parametrize(
    ("lines", "hosts"),
    [
        (["Aborting, io error and missing step on node 10"], []),
        (["Aborting, io error and missing step on node 10", "Node failure on wn11"], ["wn11"]),
        (["Node failure on wn11"], ["wn11"]),
    ],
)
def test_the_index_of_a_node_in_a_step_names_no_host(lines: list[str], hosts: list[str]) -> None:
    result = diagnose.diagnose(
        diagnose.load_text("".join(f"srun: error: {line}\n" for line in lines))
    )
    assert (result.root_cause.cause, result.culprits.hosts) == ("hw.node", hosts)


def test_trouble_that_was_there_before_somebody_gave_up_is_no_consequence_of_that() -> None:
    refused = (
        "[1695675466.657697] [node07:7221 :0]  sock.c:323  UCX  ERROR   "
        "connect(fd=43, dest_addr=172.17.0.1:60657) failed: Connection refused"
    )
    for lines, cause in (
        ([refused, "^C"], "net.socket"),
        ([refused, "step 1 loss 2.0", "step 2 loss 1.9", "^C"], "user.interrupt"),
        (["^C", refused], "user.interrupt"),
    ):
        found = diagnose.diagnose(diagnose.load_text("step 0 loss 2.1\n" + "\n".join(lines) + "\n"))
        assert found.root_cause.cause == cause, lines


def test_the_sender_of_a_sigterm_below_a_dump_signal_is_no_cause() -> None:
    """ "Nothing is broken" would be wrong of a job that hung and was ended by hand."""
    dump = (
        "[rank0]:[E1127 04:28:13.434410444 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0 Rank 0] "
        "Received a dump signal due to a collective timeout from this local rank and we will try "
        "our best to dump the debug info. Last enqueued NCCL work: 22, last completed NCCL work: "
        "20.\n"
    )
    stop = (
        "W1127 04:28:37.712000 2809 torch/distributed/elastic/agent/server/api.py:739] Received 15 "
        "death signal, shutting down workers\n"
    )
    for text, cause in ((dump + stop, "unknown"), (stop + dump, "scheduler.preempted")):
        found = diagnose.diagnose(diagnose.load_text(text))
        assert (found.root_cause.cause, found.root_cause.confidence) == (cause, "low")
        assert "preempted" not in found.root_cause.title, "who sent it is not known"


def test_ranks_of_a_failure_table_that_aborted_are_victims_of_a_watchdog() -> None:
    """torchrun's table alone, as people paste it, says whose watchdog it may be."""
    entry = "  rank      : {0} (local_rank: {0})\n  exitcode  : -6 (pid: 9{0})\n"
    table = "".join(map(entry.format, (1, 2, 3))) + "Root Cause (first observed failure):\n"
    found = diagnose.diagnose(diagnose.load_text(table + entry.format(0)))
    assert (found.verdict, found.root_cause.cause) == ("hung", "desync.missing_rank")
    assert (found.root_cause.confidence, found.culprits.ranks) == ("low", [])
