"""Every version and kind of dump reads into the same columns; bad files end in one line."""

from __future__ import annotations

import json
import pickle
from types import ModuleType
from typing import Any

import pytest

from diagnose.parse import flight_recorder, flight_recorder_entries
from diagnose.parse.flight_recorder import (
    COMPLETED,
    ENQUEUED,
    STARTED,
    Dump,
    DumpError,
    Status,
    batched,
    close_lone_members,
    is_dump,
    rank_of,
    read_dump,
)

TORCH = {"name": "all_reduce", "filename": "/env/site-packages/torch/d.py", "line": 9}
STEP = {"name": "step", "filename": "/app/train.py", "line": 141}


def entry(number: int, **changes: Any) -> dict[str, Any]:
    """An entry of version 2.10."""
    return {
        "record_id": number,
        "pg_id": 1,
        "process_group": ("35", "TENSOR_MODEL_PARALLEL_GROUP"),
        "collective_seq_id": number + 1,
        "p2p_seq_id": 0,
        "op_id": number + 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1_758_580_155_793_872_443 + number,
        "input_sizes": [[2048, 1, 5120]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[2048, 1, 5120]],
        "output_dtypes": ["BFloat16"],
        "state": "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": True,
        "timeout_ms": 180000,
        "is_p2p": False,
        "thread_id": "1",
        "thread_name": "python",
        "frames": [TORCH, STEP],
        **changes,
    }


def content(entries: list[dict[str, Any]], version: str = "2.10") -> dict[str, Any]:
    return {
        "version": version,
        "comm_lib_version": "2.26.2",
        "pg_config": {
            "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
            "35": {"name": "35", "desc": "TENSOR_MODEL_PARALLEL_GROUP", "ranks": "[2, 3]"},
        },
        "pg_status": {
            "0": _status(7, -1, 7),
            "1": _status(2, -1, 1),
        },
        "entries": entries,
    }


def _status(*counts: int) -> dict[str, int]:
    names = ("enqueued", "started", "completed")
    return {f"last_{n}_collective": c for n, c in zip(names, counts, strict=True)}


def read(value: Any, name: str = "nccl_trace_rank_3") -> Dump:
    return read_dump(pickle.dumps(value, 2), name)


def test_columns_of_the_newest_version() -> None:
    pending = entry(1, state="scheduled", retired=False, profiling_name="nccl:broadcast")
    dump = read(content([entry(0), pending]))

    assert (dump.rank, dump.version, len(dump), dump.partial) == (3, (2, 10), 2, False)
    assert dump.record.tolist() == [0, 1]
    assert dump.seq.tolist() == [1, 2]
    assert dump.p2p.tolist() == [False, False]
    assert dump.state.tolist() == [COMPLETED, ENQUEUED]
    assert dump.retired.tolist() == [True, False]
    assert dump.created.tolist() == [1_758_580_155_793_872_443, 1_758_580_155_793_872_444]
    assert dump.timeout_ms.tolist() == [180000, 180000]
    assert [dump.sites[code] for code in dump.site] == ["/app/train.py:141"] * 2
    assert [dump.pgs[code] for code in dump.pg] == [("35", "TENSOR_MODEL_PARALLEL_GROUP")] * 2
    first, second = (dump.calls[code] for code in dump.call)
    assert (first.op, first.backend, first.dtype) == ("all_reduce", "nccl", "BFloat16")
    assert first.size_in == first.size_out == ((2048, 1, 5120),)
    assert second.op == "broadcast"
    assert [(g.name, g.ranks) for g in dump.config] == [("0", (0, 1, 2, 3)), ("35", (2, 3))]
    assert dump.status == {"0": Status(7, -1, 7), "35": Status(2, -1, 1)}


def test_json_reads_like_pickle() -> None:
    whole = content([entry(0), entry(1, state="started", retired=False)])
    for status in whole["pg_status"].values():
        status.update({key: str(value) for key, value in status.items()})
    dump = read_dump(json.dumps(whole, sort_keys=True).encode(), "trace_3.json")

    same = read(whole)
    assert dump.state.tolist() == [COMPLETED, STARTED]
    assert dump.calls == same.calls
    assert dump.pgs == same.pgs
    assert dump.status == same.status == {"0": Status(7, -1, 7), "35": Status(2, -1, 1)}
    assert dump.rank == 3


def test_json_without_entries() -> None:
    whole = content([])
    del whole["entries"]
    assert len(read_dump(json.dumps(whole).encode(), "trace_3.json")) == 0


def test_the_list_of_torch_2_2() -> None:
    old = {
        "pg_id": 0,
        "seq_id": 4,
        "profiling_name": "nccl:all_reduce",
        "time_created_us": 1_700_000_000_000_000,
        "input_sizes": [[8]],
        "output_sizes": [[8]],
        "state": "scheduled",
        "retired": False,
        "frames": [],
    }
    dump = read([old, {**old, "seq_id": 5}], "nccl_trace_rank_0")
    assert dump.version is None
    assert dump.seq.tolist() == [4, 5]
    assert dump.record.tolist() == [0, 1]
    assert dump.created.tolist() == [1_700_000_000_000_000_000] * 2
    assert dump.pgs == [("0", "")]
    assert dump.timeout_ms.tolist() == [-1, -1]


@pytest.mark.parametrize("version", ["2.1", "2.4", "2.7", "2.9", "2.10"])
def test_versions_with_less(version: str) -> None:
    item = entry(0)
    if version == "2.1":
        for key in ("timeout_ms", "thread_id", "thread_name"):
            del item[key]
    whole = content([item], version)
    if version in ("2.1",):
        del whole["pg_status"]
    dump = read(whole)
    assert dump.version == tuple(map(int, version.split(".")))
    assert dump.seq.tolist() == [1]


def test_version_1_4_names_groups_by_number_and_order() -> None:
    items = []
    for number, pg_id in enumerate((0, 4, 0)):
        item = entry(number, pg_id=pg_id, seq_id=number + 10)
        for key in ("process_group", "collective_seq_id", "p2p_seq_id", "is_p2p", "timeout_ms"):
            del item[key]
        items.append(item)
    whole = content(items, "1.4")
    del whole["pg_status"]
    dump = read(whole)
    assert [dump.pgs[code][0] for code in dump.pg] == ["0", "35", "0"]
    assert dump.seq.tolist() == [10, 11, 12]


def test_gloo_tells_by_retired_only() -> None:
    done = entry(0, profiling_name="gloo:all_reduce", state="scheduled", retired=True)
    open_ = entry(1, profiling_name="gloo:all_reduce", state="scheduled", retired=False)
    whole = content([done, open_])
    whole["pg_config"] = {"": {"name": "", "desc": "", "ranks": "[]"}}
    dump = read(whole)
    assert dump.state.tolist() == [COMPLETED, ENQUEUED]
    assert dump.config == []


def test_retired_by_nccl_before_it_completed_is_pending() -> None:
    dump = read(content([entry(0, state="scheduled", retired=True)]))
    assert dump.state.tolist() == [ENQUEUED]


def test_sends_and_receives() -> None:
    send = entry(0, profiling_name="nccl:send 1->0", is_p2p=True, p2p_seq_id=7)
    recv = entry(1, profiling_name="nccl:recv 1<-0", is_p2p=True, p2p_seq_id=8)
    dump = read(content([send, recv]))
    assert dump.p2p.tolist() == [True, True]
    assert dump.seq.tolist() == [7, 8]
    assert [(dump.calls[c].op, dump.calls[c].peer) for c in dump.call] == [("send", 0), ("recv", 0)]


def test_members_of_a_batch_have_its_state() -> None:
    batch = [
        entry(0, profiling_name="nccl:send 1->0", is_p2p=True, p2p_seq_id=3, state="scheduled"),
        entry(1, profiling_name="nccl:recv 1<-0", is_p2p=True, p2p_seq_id=3, state="scheduled"),
        entry(2, profiling_name="nccl:coalesced", is_p2p=True, p2p_seq_id=3, state="completed"),
        entry(3, profiling_name="nccl:send 1->0", is_p2p=True, p2p_seq_id=4, state="scheduled"),
    ]
    assert read(content(batch)).state.tolist() == [COMPLETED] * 3 + [ENQUEUED]


def member(number: int, seq: int, name: str, **changes: Any) -> dict[str, Any]:
    return entry(
        number, profiling_name=name, is_p2p=True, p2p_seq_id=seq, state="scheduled",
        retired=False, **changes,
    )  # fmt: skip


def test_which_groups_send_in_batches() -> None:
    pair = [member(0, 3, "nccl:send 1->0"), member(1, 3, "nccl:recv 1<-0")]
    assert batched(read(content(pair))) == {"TENSOR_MODEL_PARALLEL_GROUP"}
    lone = member(3, 4, "nccl:recv 1<-0")
    assert batched(read(content([lone]))) == set()
    assert batched(read(content([lone, member(4, 4, "nccl:coalesced")]))) != set()
    assert batched(read(content([entry(0), entry(0)]))) == set()


def test_members_of_completed_batches_in_a_dump_of_pending_operations() -> None:
    """Such a dump leaves out the batches that completed, but not their members."""
    lone = [member(n, 3 + n, "nccl:send 1->0") for n in range(3)]
    dump = read(content([*lone, member(5, 7, "nccl:send 1->0"), member(6, 7, "nccl:coalesced")]))
    assert dump.state.tolist() == [ENQUEUED] * 5
    close_lone_members(dump, {"default_pg"})
    assert dump.state.tolist() == [ENQUEUED] * 5
    close_lone_members(dump, {"TENSOR_MODEL_PARALLEL_GROUP"})
    assert dump.state.tolist() == [COMPLETED] * 3 + [ENQUEUED] * 2

    known = content(lone)
    known["pg_status"]["1"] = _status(5, -1, 4)  # what the status says to be pending stays so
    dump = read(known)
    close_lone_members(dump, {"TENSOR_MODEL_PARALLEL_GROUP"})
    assert dump.state.tolist() == [COMPLETED] * 2 + [ENQUEUED]

    whole = read(content([*lone, entry(9)]))  # lists what completed: these have not
    close_lone_members(whole, {"TENSOR_MODEL_PARALLEL_GROUP"})
    assert whole.state.tolist() == [ENQUEUED] * 3 + [COMPLETED]


def test_a_dump_of_pending_operations_only_may_be_empty() -> None:
    dump = read(content([], "2.9"), "_dump_3")
    assert len(dump) == 0
    # Without entries the numbers of groups are mapped by the order of the names.
    assert dump.status == {"0": Status(7, -1, 7), "35": Status(2, -1, 1)}


def test_unknown_keys_and_missing_frames_are_no_matter() -> None:
    item = entry(0, colour="red")
    del item["frames"]
    dump = read({**content([item]), "nccl_comm_state": {}, "extra": 1})
    assert [dump.sites[code] for code in dump.site] == [""]


def test_a_truncated_pickle_is_partial() -> None:
    data = pickle.dumps(content([entry(n) for n in range(40)]), 2)
    dump = read_dump(data[: len(data) // 2], "_dump_3")
    assert dump.partial
    assert 5 < len(dump) < 40
    assert dump.record.tolist() == list(range(len(dump)))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "_dump_3: empty dump"),
        (b"\x80\x02}(X\x07\x00\x00\x00vers", "truncated dump, no entry is complete"),
        (b'{"entries": [{"record_id": 1', "truncated or damaged JSON"),
        (b"[[[" * 200_000, "truncated or damaged JSON"),
        (b"hello", "neither a pickle nor JSON"),
        (b"\x80\x02cos\nsystem\n.", "refused: pickle with opcode GLOBAL"),
        (pickle.dumps({"weights": [1.0]}, 2), "none of its keys"),
        (pickle.dumps({"entries": [1]}, 2), "an entry is not a dict"),
        (pickle.dumps({"entries": [{"x": 1}]}, 2), "entries without operations"),
        (pickle.dumps({"entries": [entry(0, input_sizes=[["a"]])]}, 2), "sizes are not numbers"),
        (pickle.dumps({"entries": [entry(0, record_id=[1])]}, 2), "not a Flight Recorder dump"),
        (pickle.dumps({"entries": [entry(0, state=[1])]}, 2), "not a Flight Recorder dump"),
        (pickle.dumps({"entries": [entry(0, frames=[1])]}, 2), "not a Flight Recorder dump"),
        (pickle.dumps({"entries": [entry(0, process_group=3)]}, 2), "not a Flight Recorder dump"),
    ],
)
def test_bad_files_end_in_one_line(data: bytes, says: str) -> None:
    with pytest.raises(DumpError) as caught:
        read_dump(data, "_dump_3")
    assert says in str(caught.value)
    assert str(caught.value).startswith("_dump_3: ")
    assert "\n" not in str(caught.value)


def test_one_list_named_a_million_times_is_refused() -> None:
    sizes = [[1] * 20_000] * 1_000
    with pytest.raises(DumpError, match="more than"):
        read(content([entry(0, input_sizes=sizes)]))


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_12", 12),
        ("_dump_0", 0),
        ("run/node07_5.pickle", 5),
        ("host-12_rank_3.json", 3),
        ("trace7.json.gz", 7),
        ("nccl_trace_rank_node3_rank_5", 5),
        ("dump", None),
        ("trace_20251121", None),
    ],
)
def test_ranks_of_file_names(name: str, rank: int | None) -> None:
    assert rank_of(name) == rank


def test_groups_settle_a_doubtful_name() -> None:
    whole = content([entry(0)])
    assert read(whole, "trace_node013").rank == 3  # not 13: its groups have ranks 2 and 3
    alone = {"9": {"name": "9", "desc": "EXPERT", "ranks": "[6]"}}
    assert read({**whole, "pg_config": alone}, "dump").rank == 6


def test_what_looks_like_a_dump() -> None:
    whole = content([entry(0)])
    assert is_dump(pickle.dumps(whole, 2)[:4096])
    assert is_dump(pickle.dumps([entry(0)], 2)[:4096])
    assert is_dump(json.dumps(whole, sort_keys=True).encode()[:4096])
    assert not is_dump(b"2024-01-01 INFO record_id 7\n")
    assert not is_dump(b'{"level": "info"}')
    assert not is_dump(pickle.dumps({"weights": [1]}, 2))
    assert not is_dump(b"")


def counted(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[Any]:
    """The first arguments of all calls of a function of the reader."""
    seen: list[Any] = []
    function = getattr(module, name)

    def spy(first: Any, *more: Any) -> Any:
        seen.append(first)
        return function(first, *more)

    monkeypatch.setattr(module, name, spy)
    return seen


@pytest.mark.parametrize(
    "ranks",
    [[3, 4], [5_000_000] * 999, "[3, 4]", "[" + "9999999," * 99 + "9999999]", "[]", "no list"],
)
def test_ranks_that_groups_share_are_read_once(ranks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read_ranks = counted(monkeypatch, flight_recorder, "_members")
    groups = {str(n): {"name": str(n), "desc": "d", "ranks": ranks} for n in range(50)}
    dump = read({"pg_config": groups, "entries": []})
    assert len(read_ranks) == 1
    assert [group.ranks for group in dump.config] == [(3, 4)] * (50 if "4" in str(ranks) else 0)


def test_lists_that_entries_share_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = counted(monkeypatch, flight_recorder_entries, "_sizes")
    frames = counted(monkeypatch, flight_recorder_entries, "_first_site")
    shared: dict[str, Any] = {"input_sizes": [[4]] * 99, "output_sizes": [], "frames": [STEP] * 99}
    dump = read(content([entry(n, profiling_name=f"nccl:{n}", **shared) for n in range(40)]))
    assert (len(sizes), len(frames)) == (2, 1)
    assert {call.size_in for call in dump.calls} == {((4,),) * 99}
    assert len(dump.calls) == 40


def test_what_entries_share_is_bounded() -> None:
    shared = [[4] * 1000] * 1000
    calls = [entry(n, profiling_name=f"nccl:{n}", input_sizes=shared) for n in range(9)]
    with pytest.raises(DumpError, match="calls of more than 8,000,000 sizes"):
        read(content(calls))
    assert len(read(content(calls[:7])).calls) == 7
    with pytest.raises(DumpError, match="an entry is listed twice"):
        read(content([entry(0)] * 2))


def test_of_too_many_entries_the_newest_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_recorder, "MAX_ENTRIES", 3)
    assert read(content([entry(n) for n in range(5)])).record.tolist() == [2, 3, 4]


_ABSURD = [2**63 - 1, -(2**63), 2**64, 10**400, 1e308, float("inf"), float("nan"), -7]


@pytest.mark.parametrize("absurd", _ABSURD, ids=range(len(_ABSURD)))
@pytest.mark.parametrize(
    ("key", "column", "instead"),
    [
        ("time_created_ns", "created", 0),
        ("collective_seq_id", "seq", -1),
        ("record_id", "record", -1),
        ("timeout_ms", "timeout_ms", -1),
    ],
)
def test_absurd_numbers_count_as_missing(
    key: str, column: str, instead: int, absurd: float
) -> None:
    data = json.dumps(content([entry(0), entry(1, **{key: absurd})])).encode()
    found = getattr(read_dump(data, "trace_3.json"), column).tolist()
    assert found == [entry(0)[key], instead]


@pytest.mark.parametrize("absurd", _ABSURD, ids=range(len(_ABSURD)))
def test_an_absurd_status_counts_as_none(absurd: float) -> None:
    whole = content([entry(0)])
    whole["pg_status"]["1"]["last_started_collective"] = absurd
    assert read_dump(json.dumps(whole).encode(), "a").status["35"] == Status(2, -1, 1)


def test_the_time_of_old_versions_is_bounded_too() -> None:
    old = entry(0, time_created_us=2**62)
    del old["time_created_ns"]
    assert read(content([old])).created.tolist() == [0]
    old["time_created_us"] = 1_758_580_155_793_872
    assert read(content([old])).created.tolist() == [1_758_580_155_793_872_000]
