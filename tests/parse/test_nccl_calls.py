"""NCCL's call lines: the last call of every rank in every communicator, for any chunking."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.ingest.source import Chunk, Source
from diagnose.parse import nccl_calls, nccl_inits
from diagnose.parse.comm_rank import CollCall, CommRank
from diagnose.parse.nccl_calls import CallReader

A, B = "0x7f2f4c0090d0", "0x55d0a0b1c200"


def who(host: str = "node01", pid: int = 4001, dev: int = 1) -> str:
    return f"{host}:{pid}:{pid + 900} [{dev}] NCCL INFO "


def call(op: str, count: int, comm: str = A, size: int = 8, elements: int = 1024,
         dtype: int = 7, root: int = 0) -> str:  # fmt: skip
    send = "(nil)" if op == "Recv" else "0x7f51a2000000"
    return (
        f"{op}: opCount {count:x} sendbuff {send} recvbuff 0x7f51b2000000 count {elements} "
        f"datatype {dtype} op 0 root {root} comm {comm} [nranks={size}] stream 0x55d0a0b1c200"
    )


def init(comm: str, rank: int, size: int, rest: str = "commId 0x8d3b11c4a09e52f7 - Init COMPLETE",
         func: str = "ncclCommInitRank ", bus: str = "1b000") -> str:  # fmt: skip
    return f"{func}comm {comm} rank {rank} nranks {size} cudaDev 1 nvmlDev 1 busId {bus} {rest}"


def read(text: str, cuts: list[int] | None = None, source: Source | None = None) -> list[CommRank]:
    reader = CallReader(source or Source("job.log", "text", 0, lambda: iter(())))
    data = text.encode()
    for start, end in pairwise([0, *sorted({c for c in cuts or () if c < len(data)}), len(data)]):
        if start < end:
            reader.feed(Chunk(data[start:end], start, data[:start].count(b"\n") + 1))
    return reader.result()


def only(text: str) -> CommRank:
    (found,) = read(text)
    return found


def test_the_last_call_with_its_init_line() -> None:
    text = "\n".join(
        [
            "starting",
            who() + init(A, 9, 16, "commId 0x8d3b11c4a09e52f7 - Init START"),
            who() + init(A, 9, 16),
            who() + call("AllReduce", 0xE, size=16),
            who() + call("AllGather", 0xF, size=16, elements=123456789012, dtype=9),
            who() + call("ReduceScatter", 0x10, size=16, dtype=11),
            "",
        ]
    )
    assert only(text) == CommRank(
        "job.log", 6, "0x8d3b11c4a09e52f7", 9, 16, None, "node01", 4001, 1, "1b000",
        [
            CollCall(14, "all_reduce", 1024, "Float", 4),
            CollCall(15, "all_gather", 123456789012, "BFloat16", 5),
            CollCall(16, "reduce_scatter", 1024, "Float8_e5m2", 6),
        ],
        16,
    )  # fmt: skip


@pytest.mark.parametrize("count", [0, 9, 0x1F, 0xABCDEF, 0x1234567, 0x12345678, 0x123456789AB])
def test_op_counts_are_hexadecimal(count: int) -> None:
    assert only(who() + call("Broadcast", count) + "\n").launched == count


@pytest.mark.parametrize(
    ("ahead", "rank"),
    [
        ("[default3]:", None),
        ("[rank3]:", 3),
        ("[rank3]: ", 3),
        ("11: ", 11),
        ("[1,3]<stdout>:", 3),
        ("[2026-01-01 10:00:00] ", None),
        ("[2026-01-01 10:00:00.123456] ", None),
        ("[2026-01-01 10:00:00]", None),
        ("2026-08-20T10:00:00.123456789Z stdout F [default3]:", None),
        ("[pod/train-worker-2/pytorch] ", None),
        (" 40%|####      | 4/10\r", None),
        ("(RayTrainWorker pid=77, ip=10.0.0.7) ", None),
    ],
)
def test_prefixes_of_launchers(ahead: str, rank: int | None) -> None:
    found = read(
        ahead + who() + call("AllReduce", 1) + "\n" + ahead + who(pid=5) + call("Reduce", 2) + "\n"
    )
    assert [(c.host, c.pid, c.device, c.rank, c.launched) for c in found] == [
        ("node01", 4001, 1, rank, 1),
        ("node01", 5, 1, rank, 2),
    ]


def test_a_stamp_glued_to_the_host_is_no_part_of_it() -> None:
    text = "".join(f"[2026-01-01 10:00:0{n}]{who()}{call('AllReduce', n)}\n" for n in range(9))
    assert (only(text).launched, len(only(text).calls)) == (8, 9)


def test_the_rank_of_the_file() -> None:
    source = Source("rank_5.log", "text", 0, lambda: iter(()), rank=5)
    (found,) = read(who() + call("AllReduce", 1) + "\n", source=source)
    assert (found.source, found.rank) == ("rank_5.log", 5)


def test_threads_of_a_process_are_one_rank() -> None:
    other = "node01:4001:77 [1] NCCL INFO "
    text = f"{who()}{call('AllReduce', 3)}\n{other}{call('AllReduce', 4)}\n"
    assert [c.seq for c in only(text).calls] == [3, 4]


def test_equal_pids_and_pointers_on_two_hosts_are_two() -> None:
    hosts = [
        "a",
        "b",
        "train-worker-with-a-very-long-name-0",
        "train-worker-with-a-very-long-name-1",
    ]
    text = "".join(who(host, 17) + call("AllReduce", n) + "\n" for n, host in enumerate(hosts))
    assert [(c.host, c.launched) for c in read(text)] == list(zip(hosts, range(4), strict=True))


@pytest.mark.parametrize(
    ("line", "name", "bus"),
    [
        # 2.7 to 2.15 tell no id
        (f"comm {A} rank 2 nranks 8 cudaDev 2 busId 47000 - Init COMPLETE", "", "47000"),
        (f"comm {A} rank 2 nranks 8 cudaDev 2 busId 47000 commId 0xa1 - Init COMPLETE", "0xa1",
         "47000"),
        (f"comm {A} rank 2 nranks 8 cudaDev 2 nvmlDev 2 busId 47000 commId 0xa1 - Init START",
         "0xa1", "47000"),
        (f"ncclCommSplit comm {A} rank 2 nranks 8 cudaDev 2 nvmlDev 2 busId 47000 parent {B} "
         "color 1 key 2 commId 0xa1 - Init START", "0xa1", "47000"),
        (f"[Rank 2] ncclCommInitRankConfig comm {A} rank 2 nranks 8 cudaDev 2 nvmlDev 2 "
         "busId 47000 commId 0xa1 - Init START", "0xa1", "47000"),
        (f"ncclCommInitRank comm {A} rank 2 nranks 8 cudaDev 2 nvmlDev 2 busId 47000 "
         "commId 0xa1 - Init COMPLETE", "0xa1", "47000"),
    ],
)  # fmt: skip
def test_init_lines_of_all_versions(line: str, name: str, bus: str) -> None:
    found = only(f"{who()}{line}\n{who()}{call('AllReduce', 2)}\n")
    assert (found.comm, found.comm_rank, found.size, found.bus_id) == (name, 2, 8, bus)
    assert found.launched == 2


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("parent {p} splitCount 3 color 77 key 0 - Init START", "0x8d3b11c4a09e52f7/3.77"),
        ("parent {p} childCount 4 color -5 key 1- Init COMPLETE", "0x8d3b11c4a09e52f7/4.-5"),
        ("parent {p} color 77 key 0- Init START", "0x8d3b11c4a09e52f7/n1.77"),
    ],
)
def test_splits_without_an_id_are_named_by_their_parent(split: str, expected: str) -> None:
    parents = {"a": "0x10", "b": "0x20"}
    text = "".join(
        who(host) + init(p, n, 8) + "\n" + who(host)
        + init(p + "f", n % 2, 2, split.format(p=p), "ncclCommSplit ") + "\n"
        for n, (host, p) in enumerate(parents.items())
    )  # fmt: skip
    found = [c.comm for c in read(text)]
    assert found == ["0x8d3b11c4a09e52f7", expected] * 2


def test_the_second_split_of_a_color_is_another() -> None:
    rest = f"parent {A} color 7 key 0- Init "
    text = who() + init(A, 0, 2) + "\n"
    for comm in ("0x100", "0x200"):
        text += who() + init(comm, 0, 2, rest + "START", "ncclCommSplit ") + "\n"
        text += who() + init(comm, 0, 2, rest + "COMPLETE", "ncclCommSplit ") + "\n"
    name = "0x8d3b11c4a09e52f7"
    assert [c.comm for c in read(text)] == [name, f"{name}/n1.7", f"{name}/n2.7"]


def test_an_init_that_never_completes() -> None:
    found = only(who() + init(A, 3, 8, "commId 0xa1 - Init START") + "\n")
    assert (found.launched, found.calls) == (-1, [CollCall(-1, "init", -1, "", 1)])


def test_a_communicator_without_a_call() -> None:
    found = only(who() + init(A, 3, 8) + "\n")
    assert (found.launched, found.calls, found.line) == (-1, [], 1)


def test_a_pointer_used_again_is_another_communicator() -> None:
    text = "\n".join(
        [
            who() + init(A, 3, 8, "commId 0xa1 - Init COMPLETE"),
            *(who() + call("AllReduce", n) for n in range(40)),
            who() + init(A, 1, 2, "commId 0xa2 - Init COMPLETE"),
            who() + call("AllReduce", 0, size=2),
            "",
        ]
    )
    found = only(text)
    assert (found.comm, found.comm_rank, found.size, found.launched) == ("0xa2", 1, 2, 0)
    assert [c.line for c in found.calls] == [43]


def test_sends_and_receives_are_counted_by_peer_and_not_with_collectives() -> None:
    calls = [
        ("AllReduce", 0, 0),
        ("Send", 1, 4),
        ("Recv", 1, 4),  # one launch
        ("Send", 2, 5),
        ("Send", 3, 4),
        ("AllReduce", 4, 0),
        ("AllReduce", 5, 0),
    ]
    text = who() + init(A, 3, 8) + "\n"
    text += "".join(who() + call(op, n, root=r) + "\n" for op, n, r in calls)
    found = only(text)
    assert [(c.op, c.seq) for c in found.calls] == [
        ("all_reduce", 0),
        ("send 3->4", 0),
        ("recv 3<-4", 0),
        ("send 3->5", 0),
        ("send 3->4", 1),
        ("all_reduce", 1),
        ("all_reduce", 2),
    ]
    assert found.launched == 2


def test_a_log_without_its_beginning_leaves_counts_with_sends_open() -> None:
    text = "".join(
        who() + call(op, n) + "\n" for op, n in [("AllReduce", 7), ("Send", 8), ("AllReduce", 9)]
    )
    assert (only(text).launched, only(text).calls) == (None, [])


def test_torn_lines_are_left_out() -> None:
    whole = who() + call("AllReduce", 3)
    torn = [
        whole[:90] + who(pid=9) + call("AllReduce", 5),  # the second one is whole
        whole[: whole.index("comm ")],
        whole.replace("sendbuff", "sendbu"),
        whole.replace("4001:", "4001;").replace("opCount 3", "opCount 4"),
        whole.replace("opCount 3", "opCount x"),
        whole[: whole.index("[nranks") + 9],
    ]
    text = "\n".join([who() + call("AllReduce", 2), *torn, ""])
    assert [(c.pid, c.launched) for c in read(text)] == [(4001, 2), (9, 5)]


def test_the_end_of_a_file_without_a_newline() -> None:
    assert only(who() + call("AllReduce", 3)).launched == 3


def test_only_the_last_calls_are_kept() -> None:
    text = "".join(who() + call("AllReduce", n) + "\n" for n in range(3000))
    calls = only(text).calls
    assert [c.seq for c in calls] == list(range(3000 - nccl_calls.KEEP_CALLS, 3000))
    assert [c.line for c in calls] == [c.seq + 1 for c in calls]


def test_more_communicators_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (nccl_calls, nccl_inits):
        monkeypatch.setattr(module, "MAX_COMMS", 10)
    source = Source("job.log", "text", 0, lambda: iter(()))
    found = read("".join(who(pid=n) + call("AllReduce", n) + "\n" for n in range(20)), None, source)
    assert [c.launched for c in found] == list(range(10))
    assert source.notes == [
        "more than 10 NCCL communicators or 200,000 senders and receivers: the rest is left out"
    ]


def test_lines_of_pasted_text_keep_their_numbers() -> None:
    data = (who() + call("AllReduce", 3) + "\n" + who() + call("AllReduce", 4) + "\n").encode()
    reader = CallReader(Source("<paste>", "text", 0, lambda: iter(())))
    reader.feed(Chunk(data, 0, 1, lines=[4, 7]))
    assert [c.line for c in reader.result()[0].calls] == [4, 7]


def test_init_lines_may_be_read_before_the_first_chunk() -> None:
    lines = [who() + init(A, 9, 16, "commId 0x8d - Init START"), who() + init(A, 9, 16)]
    lines += [who() + call("AllReduce", 0, size=16)]
    inits = nccl_inits.Inits()
    for number, line in enumerate(lines[:2]):
        inits.read(line.encode(), number + 1)
    source = Source("job.log", "text", 0, lambda: iter(()))
    assert inits.result(source) == read("\n".join(lines[:2]) + "\n")
    reader = CallReader(source, inits)
    reader.feed(Chunk(lines[2].encode() + b"\n", 0, 3))
    assert reader.result() == read("\n".join(lines) + "\n")


def test_chunks_between_may_be_left_out() -> None:
    reader = CallReader(Source("job.log", "text", 0, lambda: iter(())))
    for line, text in [(1, who() + call("AllReduce", 3)), (900, who() + call("AllReduce", 4))]:
        reader.feed(Chunk((text + "\n").encode(), 0, line))
    assert [(c.seq, c.line) for c in reader.result()[0].calls] == [(3, 1), (4, 900)]


_OPS = {
    "AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast", "Reduce": "reduce", "AlltoAll": "all_to_all", "Gather": "gather",
    "Scatter": "scatter",
}  # fmt: skip
_LINE = re.compile(
    r"(\S+):(\d+):\d+ \[\d\] NCCL INFO (\w+): opCount (\w+) .* count (\d+) .* comm (0x\w+) "
)
_PREFIXES = st.sampled_from(
    ["", "", "[default3]:", "12: ", "[1,3]<stdout>:", "[2026-01-01 10:00:00] ", "\r", "a b c d "]
)
_CALLS = st.builds(
    lambda ahead, host, pid, op, comm, elements: (
        lambda count: ahead + who(host, pid) + call(op, count, comm, 8, elements)
    ),
    _PREFIXES, st.sampled_from(["n1", "node-02"]), st.sampled_from([7, 41234]),
    st.sampled_from([*_OPS]), st.sampled_from(["0xa", A, "0xffffffffffffffff"]),
    st.sampled_from([1, 4096, 12345678901]),
)  # fmt: skip
_NOISE = st.sampled_from(["", "step 5 loss=2.1", "x" * 3000, "a=b=c", "\r", who() + "Using IB"])
_TEXTS = st.lists(st.one_of(_CALLS, _CALLS, _CALLS, _NOISE), max_size=60)
_COUNTS = st.integers(0, 2**33)


def expected(lines: list[str]) -> dict[tuple[str, int, str], list[CollCall]]:
    found: dict[tuple[str, int, str], list[CollCall]] = {}
    for number, line in enumerate(lines, 1):
        match = _LINE.search(re.sub(r".*[\]>\r]:?(?=\S+:\d+:\d+ )", "", line))
        if match:
            host, pid, op, count, elements, comm = match.groups()
            made = CollCall(int(count, 16), _OPS[op], int(elements), "Float", number)
            found.setdefault((host, int(pid), comm), []).append(made)
    return {key: calls[-nccl_calls.KEEP_CALLS :] for key, calls in found.items()}


@given(_TEXTS, _COUNTS, st.lists(st.integers(0, 12000), max_size=12), st.booleans())
@settings(deadline=None)
@pytest.mark.slow
def test_any_cut_gives_what_reading_line_by_line_gives(
    parts: list[object], first: int, cuts: list[int], end: bool
) -> None:
    lines = [part if isinstance(part, str) else part(first + n) for n, part in enumerate(parts)]  # type: ignore[operator]
    text = "\n".join(lines) + ("\n" if end and lines else "")
    found = {
        (c.host, c.pid, comm): c for c, comm in zip(read(text, cuts), keys(lines), strict=True)
    }
    assert {key: c.calls for key, c in found.items()} == expected(lines)


def keys(lines: list[str]) -> Iterator[str]:
    """The pointers in order of appearance, which the reader does not tell without init lines."""
    return (comm for _, _, comm in expected(lines))


_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("init"), st.sampled_from([A, B]), st.integers(0, 1)),
        st.tuples(st.sampled_from(["AllReduce", "Send", "Recv"]), st.sampled_from([A, B]),
                  st.integers(0, 2)),
    ),
    max_size=60,
)  # fmt: skip


@given(_EVENTS, st.lists(st.integers(0, 12000), max_size=12))
@settings(deadline=None)
def test_any_cut_gives_the_same_with_sends_and_new_communicators(
    events: list[tuple[str, str, int]], cuts: list[int]
) -> None:
    text, counts = "", {A: 0, B: 0}
    for number, (what, comm, value) in enumerate(events):
        if what == "init":
            counts[comm] = 0
            text += who() + init(comm, value, 8, f"commId {number:#x} - Init START") + "\n"
        else:
            text += who() + call(what, counts[comm], comm, root=value) + "\n"
            counts[comm] += value > 0
    assert read(text, cuts) == read(text)


def test_of_very_many_communicators_fewer_calls_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_calls, "KEEP_TOTAL", 100)
    text = "".join(who(pid=n % 7) + call("AllReduce", n // 7) + "\n" for n in range(2000))
    found = read(text)
    assert [len(c.calls) for c in found] == [8] * 7
    assert [c.launched for c in found] == [285] * 5 + [284] * 2
