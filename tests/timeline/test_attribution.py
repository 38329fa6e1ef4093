"""Who wrote a line: what its prefix, its file and other lines tell together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import diagnose
from diagnose.ingest import text_source
from diagnose.job.load import read
from diagnose.timeline.attribution import name_authors
from diagnose.timeline.event import Event, Learned, Meaning, Timeline

from .told import ERROR, WATCHDOG, matches, of, timeline


def test_the_rank_of_the_line_wins_over_the_file() -> None:
    text = f"[rank3]: {ERROR} a\n{ERROR} b\n"
    found = read([replace(text_source(text), rank=0)]).events
    assert (of(found, f"{ERROR} a").rank, of(found, f"{ERROR} b").rank) == (3, 0)


INIT = (
    "{host}:{pid}:99 [{dev}] NCCL INFO ncclCommInitRank comm 0x5581 rank {rank} nranks {size} "
    "cudaDev {dev} nvmlDev {dev} busId {bus} commId 0x77 - Init COMPLETE\n"
)


def init(host: str, pid: int, rank: int, size: int) -> str:
    return INIT.format(host=host, pid=pid, rank=rank, size=size, dev=rank % 8, bus="9b000")


def warn(host: str, pid: int) -> str:
    return f"{host}:{pid}:99 [0] transport.cc:1 NCCL WARN Cuda failure 'pid {pid} of {host}'\n"


def test_nccl_init_lines_map_processes_to_ranks() -> None:
    lines = [init("a", 500, 0, 2), init("b", 500, 1, 2), warn("a", 500), warn("b", 500)]
    found = timeline(job="".join(lines))
    assert of(found, "pid 500 of a").rank == 0
    assert of(found, "pid 500 of b").rank == 1, "the same pid on another host is another process"


def test_only_the_world_communicator_tells_global_ranks() -> None:
    lines = [init("a", 500 + n, n, 4) for n in range(4)]
    lines += [init("a", 502, 0, 2), init("a", 503, 1, 2), warn("a", 502), warn("a", 503)]
    found = timeline(job="".join(lines))
    assert of(found, "pid 502 of a").rank == 2
    assert of(found, "pid 503 of a").rank == 3


def test_a_local_rank_seen_with_its_rank_tells_the_rank() -> None:
    text = f"[default1]:[rank5]: {ERROR} a\n[default1]: {ERROR} b\n[default0]: {ERROR} c\n"
    found = timeline(job=text)
    assert of(found, f"{ERROR} b").rank == 5
    assert of(found, f"{ERROR} c").rank is None, "rank 5 shows that there are more nodes"


def test_on_one_node_the_local_rank_is_the_rank() -> None:
    found = timeline(job=f"[default0]: {ERROR} a\n[default3]: {ERROR} b\n")
    assert (of(found, f"{ERROR} a").rank, of(found, f"{ERROR} b").rank) == (0, 3)


def test_a_task_is_the_rank_where_one_is_started_per_rank() -> None:
    found = timeline(job=f"0: {ERROR} a\n1: {ERROR} b\n1: quiet\n0: quiet\n")
    assert (of(found, f"{ERROR} a").rank, of(found, f"{ERROR} b").rank) == (0, 1)


def test_a_task_with_many_local_ranks_is_a_node() -> None:
    text = "".join(
        f"{task}: [default{local}]: {ERROR} t{task}l{local}\n"
        for task in (0, 1)
        for local in (0, 1)
    )
    found = matches(timeline(job=text))
    assert {event.rank for event in found} == {None}
    assert {event.task for event in found} == {0, 1}


@pytest.mark.parametrize("rank", [1, 5])
def test_a_task_that_names_another_rank_is_a_node(rank: int) -> None:
    """`srun --label` of torchrun: the label of a node stands before the rank."""
    found = timeline(job=f"0: [rank{rank}]: {ERROR} a\n0: {ERROR} b\n")
    assert (of(found, f"{ERROR} a").rank, of(found, f"{ERROR} b").rank) == (rank, None)
    assert of(found, f"{ERROR} b").task == 0


def test_a_rank_in_the_largest_known_group_does_not_make_a_task_a_node() -> None:
    """Of eight tasks NCCL's lines show two groups of four, in which each number is there twice."""
    inits = [f"{n}: {init('a', 500 + n, n % 4, 4)}" for n in range(8)]
    found = timeline(job="".join(inits) + "".join(f"{n}: {ERROR} t{n}\n" for n in range(8)))
    assert [of(found, f"{ERROR} t{n}").rank for n in range(8)] == [*range(8)]


def test_the_rank_in_a_group_is_global_only_where_nothing_else_names_ranks() -> None:
    line = "[Rank {}] " + WATCHDOG.format(seq=7) + "\n"
    assert of(timeline(job=line.format(2)), "Watchdog").rank == 2
    found = timeline(job=line.format(0) + f"[rank6]: [Rank 0] {WATCHDOG.format(seq=8)}\n")
    assert of(found, "SeqNum=8").rank == 6
    assert of(found, "SeqNum=7").rank is None


def test_the_rank_in_a_group_is_global_where_it_is_for_all_that_are_known() -> None:
    """Two hosts with one pid: what lines of the process say of its rank may be of either."""
    line = "({}) [E] [Rank {}] " + WATCHDOG.format(seq=7) + " of {}\n"
    ranks = [line.format(f"A pid={500 + n}, ip=10.0.0.{n}", n, n) for n in range(3)]
    known = "".join(f"[rank{n}]: [Rank {n}] {WATCHDOG.format(seq=8)}\n" for n in (4, 5))
    found = timeline(job=known + "".join(ranks))
    assert [of(found, f" of {n}").rank for n in range(3)] == [0, 1, 2]
    found = timeline(job=known.replace("rank5", "rank0") + "".join(ranks))
    assert {of(found, f" of {n}").rank for n in range(3)} == {None}


# ---------------------------------------------------------------------- what NCCL's lines tell


def channel(host: str, pid: int, dev: int, said: str) -> str:
    return f"{host}:{pid}:99 [{dev}] NCCL INFO Channel 00/0 : {said}\n"


def device_warn(host: str, pid: int, dev: int) -> str:
    return f"{host}:{pid}:99 [{dev}] transport.cc:1 NCCL WARN Cuda failure 'pid {pid} of {host}'\n"


def who(found: Timeline, text: str) -> tuple[int | None, Learned | None]:
    event = of(found, text)
    return event.rank, event.learned


def test_who_sends_over_a_channel_is_its_left_and_who_receives_its_right() -> None:
    text = channel("a", 500, 7, "39[7] -> 88[0] [send] via NET/IB/0")
    text += channel("b", 600, 0, "39[7] -> 88[0] [receive] via NET/IB/0")
    found = timeline(job=text + device_warn("a", 500, 7) + device_warn("b", 600, 0))
    assert who(found, "pid 500 of a") == (39, Learned.PEERS)
    assert who(found, "pid 600 of b") == (88, Learned.PEERS)


def test_a_report_of_a_process_is_about_the_rank_that_it_has_in_its_group() -> None:
    gone = (
        "(raylet) Worker IP address: 10.0.0.7 Worker port: 100 Worker PID: {} Worker exit type: "
        "SYSTEM_ERROR\n"
    )
    own = "(Actor pid={}) INFO:2026-06-02 08:00:00,000:[Rank {}] Saved model to /ckpt/m_{}.pt\n"
    shards = [own.format(500 + rank, rank, rank) for rank in range(4)]
    found = timeline(job="".join([*shards, gone.format(502)]))
    assert of(found, "Worker PID: 502").rank == 2
    again = [own.format(600 + rank, rank, rank) for rank in range(4)]
    found = timeline(job="".join([*shards, *again, gone.format(602)]))
    assert of(found, "Worker PID: 602").rank is None, "numbers of two groups name nobody"


def test_numbers_that_repeat_are_ranks_of_smaller_groups() -> None:
    text = channel("a", 500, 0, "0[0] -> 1[1] via P2P/IPC")
    text += channel("b", 600, 0, "0[0] -> 1[1] via P2P/IPC")
    found = timeline(job=text + device_warn("a", 500, 0) + device_warn("b", 600, 0))
    assert [who(found, f"pid {pid}")[0] for pid in (500, 600)] == [None, None]


def test_what_a_process_says_of_itself_outweighs_its_channels() -> None:
    text = init("a", 500, 5, 8) + channel("a", 500, 5, "1[5] -> 0[4] via P2P/IPC")
    found = timeline(job=text + device_warn("a", 500, 5))
    assert who(found, "pid 500 of a") == (5, Learned.PROCESS)


def test_a_proxy_tells_the_rank_of_its_process() -> None:
    proxy = "n:5:9 [0] proxy.cc:1518 NCCL WARN [Proxy Service 93] Failed to execute operation Setup"
    found = timeline(job=f"{device_warn('n', 5, 0)}{proxy} from rank 93, retcode 1\n")
    assert who(found, "pid 5 of n") == (93, Learned.PEERS)


def test_on_one_node_the_device_is_the_rank() -> None:
    found = timeline(job=device_warn("a", 500, 0) + device_warn("a", 501, 3))
    assert who(found, "pid 501") == (3, Learned.DEVICE)


@pytest.mark.parametrize(
    "other",
    [device_warn("b", 600, 3), f"[rank12]: {ERROR}\n", init("a", 502, 2, 16)],
    ids=["another node", "a rank of another node", "a larger world"],
)
def test_a_device_is_no_rank_where_the_job_is_larger_than_a_node(other: str) -> None:
    assert who(timeline(job=device_warn("a", 500, 3) + other), "pid 500") == (None, None)


def test_a_device_is_no_rank_where_another_rank_uses_it() -> None:
    swapped = init("a", 501, 1, 2).replace("cudaDev 1", "cudaDev 0").replace("[1]", "[0]")
    assert who(timeline(job=swapped + device_warn("a", 500, 1)), "pid 500")[0] is None


def test_a_device_is_no_rank_where_every_process_sees_its_own_as_number_0() -> None:
    found = timeline(job=device_warn("a", 500, 0) + device_warn("a", 501, 0))
    assert [who(found, f"pid {pid}")[0] for pid in (500, 501)] == [None, None]


def test_the_one_process_of_a_log_is_the_one_rank_it_names() -> None:
    text = device_warn("a", 500, 6) + f"[2025-01-27 11:08:34 TP14] {ERROR}\n"
    assert who(timeline(job=text), "pid 500") == (14, Learned.ALONE)
    found = timeline(job=text.replace("TP14", "TP13"))
    assert who(found, "pid 500") == (None, None), "device 6 is not the one of rank 13"


# --------------------------------------------------------------------------- tables and tasks


TABLE = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-06-02_08:15:11
  host      : node1
  rank      : 5 (local_rank: 1)
  exitcode  : -9 (pid: 4242)
  error_file: <N/A>
"""


def test_the_exit_of_an_elastic_table_is_that_of_the_rank_above_it() -> None:
    event = of(timeline(job=TABLE), "exitcode")
    assert (event.rank, event.local_rank, event.kind) == (5, 1, "exit")
    assert event.fields["exitcode"] == "-9"


def test_a_table_row_far_away_is_no_part_of_it() -> None:
    lines = TABLE.splitlines()
    apart = "\n".join([*lines[:5], "quiet", "quiet", "quiet", *lines[5:]])
    assert of(timeline(job=apart), "exitcode").rank is None


def test_srun_tells_of_many_tasks_in_one_line() -> None:
    text = "0: quiet\n5: quiet\nsrun: error: node1: tasks 0-2,5: Killed\n"
    exits = timeline(job=text).kind("exit")
    assert [event.task for event in exits] == [0, 1, 2, 5]
    assert [event.rank for event in exits] == [0, 1, 2, 5]
    assert {event.host for event in exits} == {"node1"}


def test_what_srun_says_of_a_task_is_no_row_below_the_rank_of_another_line() -> None:
    text = (
        "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/64\n"
        "quiet\n"
        "srun: error: node7: task 31: Killed\n"
    )
    (event,) = timeline(job=text).kind("exit")
    assert (event.task, event.rank, event.learned) == (31, 31, Learned.TASK)


def test_a_task_on_another_host_than_its_rank_is_a_node() -> None:
    """One launcher a node: task 1 is node1's, whose ranks are 2 and 3."""
    text = """\
node0: [rank0]: step 1
node0: [rank1]: step 1
node1: [rank2]: step 1
node1: [rank3]: step 1
srun: error: node1: task 1: Exited with exit code 1
"""
    exits = timeline(job=text).kind("exit")
    assert [(event.task, event.rank) for event in exits] == [(1, None)]


# --------------------------------------------------------------------------- single drafts


def ranks(*rows: dict[str, Any]) -> list[int | None]:
    """The ranks of drafts made of these, one line apart."""
    given = {
        "source": "a",
        "attempt": 0,
    }
    found = [Event(**(given | {"line": line} | row)) for line, row in enumerate(rows, 1)]
    name_authors(found)
    return [draft.rank for draft in found]


def test_a_process_is_one_rank_where_all_its_lines_agree() -> None:
    process = {"host": "a", "pid": 7}
    apart = {"host": "b", "pid": 8, "rank": 0}
    assert ranks(process | {"rank": 3}, process, apart) == [3, 3, 0]
    assert ranks(process | {"rank": 3}, process | {"rank": 4}, process, apart) == [3, 4, None, 0]
    assert ranks(process | {"rank": 3, "attempt": 0}, process | {"attempt": 1}, apart)[1] is None


def test_a_file_is_that_of_the_only_rank_it_names_if_every_file_names_another() -> None:
    first, second = {"source": "a", "rank": 0}, {"source": "b", "rank": 1}
    assert ranks(first, {"source": "a"}, second, {"source": "b"}) == [0, 0, 1, 1]
    assert ranks(first, {"source": "a"}, second | {"rank": 0}) == [0, None, 0]
    assert ranks(first, {"source": "a"}) == [0, None], "one file may hold all ranks"
    both = [second, {"source": "b", "rank": 2}]
    assert ranks(first, {"source": "a"}, *both) == [0, None, 1, 2]


@pytest.mark.parametrize(("distance", "rank"), [(1, 5), (3, 5), (4, None), (0, None)])
def test_a_table_names_the_rank_a_few_lines_above(distance: int, rank: int | None) -> None:
    named = {"meaning": Meaning(signal="rank_map"), "fields": {"rank": "5"}, "line": 10}
    exit_ = {"meaning": Meaning(signal="exit"), "line": 10 + distance}
    assert ranks(named, exit_)[1] == rank
    assert ranks(named, exit_ | {"source": "b"})[1] is None
    assert ranks(named, exit_ | {"rank": 2})[1] == 2


def test_a_table_means_its_ranks_in_whosever_file_it_is_printed() -> None:
    found = read([replace(text_source(TABLE), rank=3)]).events
    assert of(found, "exitcode").rank == 5


def test_who_a_launcher_says_has_failed_is_not_the_rank_of_its_file() -> None:
    failed = "E0730 api.py:869] failed (exitcode: 1) local_rank: 1 (pid: 88) of binary: python\n"
    found = read([replace(text_source(failed), rank=0)]).events
    event = of(found, "exitcode")
    assert (event.rank, event.local_rank) == (1, 1), "the log shows one node"


def test_ranks_of_a_smaller_communicator_are_not_global() -> None:
    world = {"mapped_rank": 3, "mapped_of": 8}
    assert ranks(world, {"mapped_rank": 1, "mapped_of": 2}, {"host": "b"}) == [3, None, None]


@pytest.mark.parametrize(
    ("apart", "rank"), [({}, 2), ({"host": "b"}, None), ({"node": 1}, None), ({"rank": 9}, None)]
)
def test_local_ranks_are_global_on_a_single_node(apart: dict[str, Any], rank: int | None) -> None:
    assert ranks({"host": "a", "node": 0, "local_rank": 2}, apart)[0] == rank


@pytest.mark.parametrize(("nodes", "rank"), [("", 3), (1, 3), (2, None)])
def test_a_local_rank_is_no_global_one_where_the_launcher_counts_more_nodes(
    nodes: int | str, rank: int | None
) -> None:
    counted = f"  max_nodes            : {nodes}\n" if nodes else ""
    failed = "failed (exitcode: -9) local_rank: 3 (pid: 4711) of binary: python\n"
    exits = timeline(job=f"{counted}{failed}").kind("exit")
    assert [(event.local_rank, event.rank) for event in exits] == [(3, rank)]


def test_a_task_number_on_several_hosts_is_of_several_steps() -> None:
    text = "srun: error: n1: task 0: Out Of Memory\n{}srun: error: {}: task 0: Out Of Memory\n"
    same, other = (timeline(job=text.format("", host)) for host in ("n1", "n2"))
    assert [event.rank for event in same.kind("exit")] == [0, 0]
    assert [event.rank for event in other.kind("exit")] == [None, None]


@pytest.mark.parametrize(
    ("files", "world", "ranks"),
    [
        (["train.0.out", "train.1.out", "train.3.out"], "4", [0, 1, 3]),
        (["j7/w0.log", "j7/w1.log"], "2", [0, 1]),
        (["w0.log", "w1.log", "stack0.txt", "stack1.txt"], "2", [0, 1, 0, 1]),
        (["node.0.out", "node.1.out"], "8", [None, None]),
        (["train.1.out", "train.2.out"], "2", [None, None]),
    ],
    ids=["most ranks", "one number", "two of each rank", "nodes", "beyond the job"],
)
def test_numbered_files_are_of_ranks_where_most_ranks_have_one(
    files: list[str], world: str, ranks: list[int | None]
) -> None:
    found = [Event(source=name) for name in files]
    found[0] = replace(found[0], fields={"world_size": world})
    name_authors(found)
    assert [draft.rank for draft in found] == ranks


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ({"pod-0": 0, "pod-2": 2}, [0, 1, 2]),
        ({"pod-0": 0, "pod-2": None}, [0, None, None]),  # the first may stand for its node
        ({"pod-0": 0, "pod-2": 16}, [0, None, 16]),
        ({"pod-0": 1, "pod-2": 3}, [1, None, 3]),  # workers beside a master
    ],
)
def test_the_number_of_a_pod_is_its_rank_where_others_name_theirs(
    named: dict[str, int | None], found: list[int | None]
) -> None:
    first, last = ({"host": pod, "rank": rank} for pod, rank in named.items())
    assert ranks(first, {"host": "pod-1"}, last) == found


@pytest.mark.parametrize(
    ("world", "first", "found"),
    [
        ("32", 0, [0, 18]),
        ("64", 0, [0, None]),  # a second rank may run in each
        ("32", 1, [1, None]),  # a worker beside a master
        ("16", 0, [0, None]),  # more pods than ranks
    ],
)
def test_one_name_is_enough_where_each_pod_has_room_for_one_rank(
    world: str, first: int, found: list[int | None]
) -> None:
    stated = {"host": "pod-0", "rank": first, "fields": {"world_size": world}}
    assert ranks(stated, {"host": "pod-18"}) == found


@pytest.mark.parametrize(
    ("world", "local", "ranks"), [(8, 3, [3]), (16, 3, []), (16, 15, [15]), (32, 15, [])]
)
def test_a_local_rank_is_no_rank_in_a_world_beyond_one_node(
    world: int, local: int, ranks: list[int]
) -> None:
    text = (
        f"Initializing distributed: world_size {world}\n[default{local}]:step 1 loss 2\n"
        f"[default{local}]:torch.OutOfMemoryError: CUDA out of memory.\n"
    )
    assert diagnose.diagnose(diagnose.load_text(text)).culprits.ranks == ranks
