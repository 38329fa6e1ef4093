"""One large source scanned in parts: nothing of the diagnosis depends on the parts or the workers.

The sizes of chunks, parts and windows are made small, so that short logs have many of them.
"""

from __future__ import annotations

import gzip
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import diagnose
from diagnose.errors import InputError
from diagnose.ingest import chunks, find_sources, read
from diagnose.ingest.read import TextChunks
from diagnose.ingest.source import Chunk, Source
from diagnose.job import parallel
from diagnose.job.load import read as read_job
from diagnose.job.model import Job
from diagnose.match import calls, gather, steps
from diagnose.parse import nccl_calls
from diagnose.runtime import workers
from diagnose.search import Automaton, Hits
from tests.job.test_parallel import Elsewhere

LIMIT = 64 << 10


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for where, name, value in (
        (chunks, "_PROBE", 8 << 10), (read, "PASTE_LIMIT", LIMIT), (parallel, "PASTE_LIMIT", LIMIT),
        (parallel, "PART", LIMIT), (steps, "FULL", 16 << 10), (steps, "STRIDE", 16 << 10),
        (steps, "WINDOW", 1 << 10), (steps, "GLANCE", 256), (steps, "BLOCK", LIMIT),
        (steps, "TAIL_MIN", 8 << 10), (steps, "TAIL_MAX", LIMIT), (gather, "TAIL_MAX", LIMIT),
        (gather, "KEEP_FIRST", 20), (gather, "KEEP_LAST", 10), (nccl_calls, "KEEP_CALLS", 5),
    ):  # fmt: skip
        monkeypatch.setattr(where, name, value)


def opened(path: Path) -> Source:
    (source,) = find_sources([path])
    assert isinstance(source.chunks, TextChunks)
    return replace(source, chunks=replace(source.chunks, chunk_limit=LIMIT))


def told(job: Job) -> list[Any]:
    """All that a job says."""
    scan = job.scans[0]
    # The message is left out where lines share their prefixes; it is in the text.
    edges = [replace(line, prefix=replace(line.prefix, message="")) for line in scan.edges]
    return [
        diagnose.diagnose(job).to_json(),
        [*job.events],
        scan.counts, scan.total_lines, scan.beats, edges,
        [asdict(rank) for rank in scan.comm_ranks],
        job.notes, job.unread,
    ]  # fmt: skip


def call(rank: int, count: int, op: str = "AllReduce", root: int = 0, comm: int = 1) -> str:
    return (
        f"[default{rank}]:node01:{4000 + rank}:{4900 + rank} [{rank}] NCCL INFO {op}: opCount "
        f"{count:x} sendbuff 0x7f51a2000000 recvbuff 0x7f51b2000000 count {1024 + count} datatype 7"
        f" op 0 root {root} comm 0x55d0a0b{comm}c20{rank} [nranks=4] stream 0x55d0a0b1c200\n"
    )


def init(rank: int, comm: int, state: str) -> str:
    return (
        f"[default{rank}]:node01:{4000 + rank}:{4900 + rank} [{rank}] NCCL INFO "
        f"ncclCommInitRankConfig comm 0x55d0a0b{comm}c20{rank} rank {rank} nranks 4 cudaDev {rank} "
        f"nvmlDev {rank} busId 1{rank}000 commId 0xa{comm} - Init {state}\n"
    )


def watchdog(n: int, number: int) -> str:
    return (
        f"[rank{n % 3}]:[E1103 {9 + number % 9:02d}:00:{n % 60:02d}.000000001 "
        f"ProcessGroupNCCL.cpp:632] [Rank {n % 3}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000)"
        " ran for 600123 milliseconds before timing out.\n"
    )


def traceback(n: int) -> str:
    rows = ("Traceback (most recent call last):", f'  File "a.py", line {n}, in main', "    run()")
    return "".join(f"[rank{n % 4}]: {row}\n" for row in (*rows, f"ValueError: bad {n}"))


def both(rank: int, comm: int) -> str:
    return init(rank, comm, "START") + init(rank, comm, "COMPLETE")


# What the n-th line of a block is; `number` is that of the block, so steps and calls go on.
KINDS: dict[str, Callable[[int, int, random.Random], str]] = {
    "steps": lambda n, number, _: (
        f"[rank{n % 4}]: 2025-11-03 {8 + number:02d}:{n // 60 % 60:02d}:{n % 60:02d},123 INFO "
        f"step {number * 1000 + n}/99999 loss 2\n"
    ),
    "bar": lambda n, _, __: f"\r {n % 100}%|####    | {n}/900 [00:{n % 60:02d}<01:00, 2.1it/s]",
    "traceback": lambda n, _, __: traceback(n),
    "watchdog": lambda n, number, _: watchdog(n, number),
    "init": lambda n, _, __: both(n % 4, 1 + n // 4 % 2),
    "restart": lambda n, number, _: (
        f"W1103 09:{number:02d}:{n % 60:02d}.1 77 torch/distributed/elastic/agent/server/api.py:900"
        "] [default] Worker group FAILED. 1/3 attempts left; will restart worker group\n"
    ),
    "quiet": lambda n, _, __: f"another line with nothing to tell, number {n}\n",
    "escapes": lambda n, _, __: f"\x1b[36m(RayTrainWorker pid={n % 4})\x1b[0m working on {n}\n",
    "nuls": lambda _, __, chance: "\0" * chance.choice([1, 700, 40_000]),
    "warning": lambda n, _, __: f"[rank{n % 4}]: UserWarning: old; NCCL_ASYNC_ERROR_HANDLING {n}\n",
    "windows": lambda n, _, __: f"line {n} of a log of Windows\r\n",
    "long": lambda _, __, chance: (
        "word " * chance.choice([300, 9000, 30_000]) + "CUDA out of memory\n"
    ),
    "clock": lambda n, _, __: f"{n % 24:02d}:{n % 60:02d}:00 INFO still here\n",
    "stack": lambda n, _, __: (
        f'Thread 0x7f{n:010x} (most recent call first):\n  File "x.py", line {n} in wait\n'
    ),
}


def log(path: Path, blocks: list[tuple[str, int]], seed: int, *, p2p: bool, ends: bool) -> Path:
    chance = random.Random(seed)
    text = "".join(init(rank, 1, "COMPLETE") for rank in range(4)) if chance.random() < 0.7 else ""
    made = Counter[tuple[int, int]]()  # calls by rank and communicator
    for number, (kind, times) in enumerate(blocks):
        count = min(times, 20) if kind in ("nuls", "long") else times
        if kind == "init":
            made.clear()
        elif kind == "calls":
            for n in range(times):
                own = n % 4, 1 + (n % 50 == 7)
                text += call(own[0], made[own], comm=own[1])
                made[own] += 1
            text += call(0, made[0, 1], "Send", 1) + call(1, made[1, 1], "Recv", 0) if p2p else ""
            continue
        text += "".join(KINDS[kind](n, number, chance) for n in range(count))
    path.write_bytes(text.encode() + (b"\n" if ends else b"the end"))
    return path


BLOCKS = st.lists(
    st.tuples(st.sampled_from([*KINDS, "steps", "calls", "calls"]), st.integers(1, 500)),
    min_size=1,
    max_size=12,
)
# A hole that ends a little before the place of a cut.
HOLE = [("nuls", 272), ("restart", 149), ("stack", 257), ("init", 139), ("windows", 412)]


@given(BLOCKS, st.integers(0, 99), st.booleans(), st.booleans())
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.slow
def test_parts_change_nothing(
    tmp_path: Path, blocks: list[tuple[str, int]], seed: int, p2p: bool, ends: bool
) -> None:
    path = log(tmp_path / "job.log", blocks, seed, p2p=p2p, ends=ends)
    whole = told(read_job([opened(path)]))
    for times in (1, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parallel, "PART", times * LIMIT)
            assert told(read_job([opened(path)], executor=Elsewhere())) == whole


@pytest.mark.parametrize(("more", "sizes"), [(0.2, [1, 1.2]), (0.8, [1, 1, 0.8])])
def test_a_small_rest_is_no_part(tmp_path: Path, more: float, sizes: list[float]) -> None:
    """Last words would be looked for in it, and again in it and the part before."""
    path = tmp_path / "job.log"
    path.write_text("loss 2.1\n" * int((2 + more) * LIMIT / 9))
    source = opened(path)
    bounds = [end or source.size for _, end in parallel._parts(source)]
    starts = [start for start, _ in parallel._parts(source)]
    found = [(end - start) / LIMIT for start, end in zip(starts, bounds, strict=True)]
    assert found == pytest.approx(sizes, abs=0.01)


@given(BLOCKS, st.integers(0, 99), st.booleans())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.slow
def test_call_lines_from_the_end_tell_what_all_of_them_tell(
    tmp_path: Path, blocks: list[tuple[str, int]], seed: int, p2p: bool
) -> None:
    path = log(tmp_path / "job.log", [("init", 8), *blocks], seed, p2p=p2p, ends=True)
    reader = nccl_calls.CallReader(opened(path))
    for chunk in opened(path).chunks():
        reader.feed(chunk)
    assert read_job([opened(path)]).scans[0].comm_ranks == reader.result()


FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
TINY = 4 << 10  # bytes of a chunk and of a part
LOGS = sorted(
    path
    for path in FIXTURES.glob("*/**/*")
    if path.is_file() and path.suffix in {".log", ".out", ".txt", ".err"}
    if path.stat().st_size > 3 * TINY
)


@pytest.fixture(autouse=True)
def copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are copies, which know of patched sizes, whatever threads other tests left behind."""
    monkeypatch.setattr(workers, "possible", lambda: True)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for where, name, value in (
        (chunks, "_PROBE", TINY // 2), (read, "PASTE_LIMIT", TINY), (parallel, "PASTE_LIMIT", TINY),
        (parallel, "PART", TINY), (steps, "FULL", TINY // 4), (steps, "STRIDE", TINY // 4),
        (steps, "WINDOW", 256), (steps, "GLANCE", 64), (steps, "BLOCK", TINY),
        (steps, "TAIL_MIN", TINY // 8), (steps, "TAIL_MAX", TINY), (gather, "TAIL_MAX", TINY),
    ):  # fmt: skip
        monkeypatch.setattr(where, name, value)


def in_parts(path: Path) -> Source:
    source = opened(path)
    assert isinstance(source.chunks, TextChunks)
    return replace(source, chunks=replace(source.chunks, chunk_limit=TINY))


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_parts_of_a_fixture_change_nothing(path: Path) -> None:
    whole = told(read_job([in_parts(path)]))
    assert told(read_job([in_parts(path)], executor=Elsewhere())) == whole


@pytest.mark.usefixtures("tiny")
def test_two_processes_tell_what_one_tells() -> None:
    path = max(LOGS, key=lambda path: path.stat().st_size)
    whole = told(read_job([in_parts(path)]))
    assert told(read_job([in_parts(path)], workers=2)) == whole


def test_what_the_parent_does_meanwhile_is_done_once(tmp_path: Path) -> None:
    path = log(tmp_path / "job.log", [("steps", 500)] * 8, 1, p2p=False, ends=True)
    done: list[str] = []
    read_job([opened(path)], executor=Elsewhere(), meanwhile=lambda: done.append("meanwhile"))
    assert done == ["meanwhile"]


def fed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first lines of all chunks that the reader of call lines is given."""
    lines: list[int] = []
    feed = nccl_calls.CallReader.feed

    def counted(self: nccl_calls.CallReader, chunk: Chunk) -> None:
        lines.append(chunk.first_line)
        feed(self, chunk)

    monkeypatch.setattr(nccl_calls.CallReader, "feed", counted)
    return lines


def test_call_lines_are_read_from_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(init(rank, comm, "COMPLETE") for rank in range(4) for comm in (1, 2, 3))
    text += "".join(call(rank, 0, comm=2) for rank in range(4))  # nobody calls it again
    text += "".join(call(n % 4, n // 4) for n in range(8000))
    path = tmp_path / "job.log"
    path.write_text(text)
    lines = fed(monkeypatch)
    ranks = read_job([opened(path)]).scans[0].comm_ranks
    assert sorted(rank.launched for rank in ranks) == [-1] * 4 + [0] * 4 + [1999] * 4
    assert len({*lines}) == 3  # the last two chunks, and the one that holds the second communicator
    assert len([*opened(path).chunks()]) > 20


@pytest.mark.parametrize("loud", [3, 4])
@pytest.mark.parametrize("inits", ["all", "none"])
def test_ranks_that_print_no_call_lines_are_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loud: int, inits: str
) -> None:
    text = "".join(init(rank, 1, "COMPLETE") for rank in range(4)) if inits == "all" else ""
    text += "".join(call(rank, n, comm=1) for n in range(1500) for rank in range(loud))
    path = tmp_path / "job.log"
    path.write_text(text)
    lines = fed(monkeypatch)
    searched = hits(monkeypatch)
    ranks = read_job([opened(path)]).scans[0].comm_ranks
    silent = [-1] * (4 - loud) if inits == "all" else []
    assert sorted(rank.launched for rank in ranks) == silent + [1499] * loud
    assert len({*lines}) <= 3  # the last two chunks, and the lines by which communicators begin
    assert searched == []


def hits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes are searched for the pointers of communicators, a chunk each."""
    sizes: list[int] = []

    def counted(automaton: Automaton, data: bytes) -> Hits:
        sizes.append(len(data))
        return automaton.hits(data)

    monkeypatch.setattr(calls, "hits_of", counted)
    return sizes


def test_a_communicator_is_looked_for_as_far_back_as_its_last_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a log without its beginning a rank stops; its pointer is that of another process."""
    text = "".join(call(rank, n, comm=1) for n in range(2000, 5000) for rank in range(3))
    text += "".join(call(rank, n, comm=1) for n in range(5000, 5700) for rank in range(2))
    path = tmp_path / "job.log"
    path.write_text(text.replace("c202", "c201"))
    searched = hits(monkeypatch)
    ranks = read_job([opened(path)]).scans[0].comm_ranks
    assert {rank.pid: rank.launched for rank in ranks} == {4000: 5699, 4001: 5699, 4002: 4999}
    assert [len(rank.calls) for rank in ranks] == [5, 5, 5]
    assert 0 < len(searched) <= 5 < len([*opened(path).chunks()]) / 4


@pytest.mark.parametrize("end", ["\n", "\r", f"\n{'x' * 3000}"], ids=["line", "bar", "long"])
def test_calls_above_a_long_line_or_between_carriage_returns_are_found(
    tmp_path: Path, end: str
) -> None:
    """Rank 1 stops early in a communicator that nobody calls any more at the end."""
    text = "".join(init(rank, comm, "COMPLETE") for rank in (0, 1) for comm in (1, 2))
    early = [call(rank, n, comm=2).rstrip() for n in range(40) for rank in (0, 1)]
    early += [call(0, n, comm=2).rstrip() for n in (40, 41)]
    text += end.join(["", *early]).lstrip() + "\n"
    path = tmp_path / "job.log"
    path.write_text(text + "".join(call(n % 2, n // 2) for n in range(4000)), newline="")
    ranks = read_job([opened(path)]).scans[0].comm_ranks
    assert [rank.launched for rank in ranks] == [1999, 41, 1999, 39]
    assert [[made.seq for made in rank.calls] for rank in ranks[1::2]] == [
        [37, 38, 39, 40, 41],
        [35, 36, 37, 38, 39],
    ]


def test_a_log_without_its_beginning_knows_who_stopped_in_the_middle_of_a_chunk(
    tmp_path: Path,
) -> None:
    """Rank 1 stops in a communicator that is called far behind the start of a chunk only."""
    text = "".join(call(n % 2, 2000 + n // 2) for n in range(900))
    text += "".join(call(rank, 70 + n, comm=2) for n in range(4) for rank in range(2 - n // 3))
    path = tmp_path / "job.log"
    path.write_text(text + "".join(call(n % 2, 2450 + n // 2) for n in range(4000)))
    ranks = read_job([opened(path)]).scans[0].comm_ranks
    assert sorted((rank.pid, rank.launched) for rank in ranks) == [
        (4000, 73), (4000, 4449), (4001, 72), (4001, 4449),
    ]  # fmt: skip


def test_all_call_lines_are_read_where_sends_are_to_be_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(init(rank, 1, "COMPLETE") for rank in range(4)) + call(0, 0, "Send", 1)
    path = tmp_path / "job.log"
    path.write_text(text + "".join(call(n % 4, 1 + n // 4) for n in range(4000)))
    lines = fed(monkeypatch)
    ranks = read_job([opened(path)]).scans[0].comm_ranks
    assert [rank.launched for rank in ranks] == [999, 1000, 1000, 1000]
    assert len({*lines}) == len([*opened(path).chunks()])


def test_a_large_source_is_sent_in_parts(tmp_path: Path) -> None:
    path = log(tmp_path / "job.log", [("steps", 5000)], 1, p2p=False, ends=True)
    executor = Elsewhere()
    read_job([opened(path)], executor=executor)
    assert executor.sent == ["job.log"] * (path.stat().st_size // LIMIT + 1)
    assert parallel.processes([opened(path)]) == 1  # so little does not pay


def scanned(path: Path, executor: Executor | None, workers: int = 1) -> list[Any]:
    return told(read_job([opened(path)], executor=executor, workers=workers))


def test_the_number_of_workers_changes_nothing(tmp_path: Path) -> None:
    blocks = [("init", 8), ("steps", 3000), ("calls", 900), ("warning", 200), ("watchdog", 3)]
    path = log(tmp_path / "job.log", blocks, 5, p2p=False, ends=True)
    whole = scanned(path, None)
    for count in (2, 3):
        assert scanned(path, None, count) == whole


def test_what_needs_what_came_before_is_read_as_a_whole(tmp_path: Path) -> None:
    split = "".join(
        f"2026-08-20T10:00:00.123456789Z stdout {'PF'[n % 2]} step {n}\n" for n in range(4000)
    )
    for name, data in (
        ("cri.log", split.encode()),
        ("utf16.log", ("\ufeff" + "step\n" * 20_000).encode("utf-16-le")),
        ("job.log.gz", gzip.compress(random.Random(1).randbytes(200_000).hex().encode())),
        ("short.log", b"step 1\n" * 5000),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        executor = Elsewhere()
        read_job([opened(path)], executor=executor)
        assert executor.sent == []


def test_a_sparse_source_of_little_text_may_be_a_paste(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    text = b"> [rank0]: ValueError: bad\n> \n" * 20
    with path.open("wb") as file:
        file.write(text)
        file.seek(LIMIT - len(text))
        file.write(text + text)
    whole = scanned(path, None)
    assert whole[1]
    assert scanned(path, Elsewhere()) == whole


def test_a_file_that_vanishes_is_told_once(tmp_path: Path) -> None:
    path = log(tmp_path / "job.log", [("steps", 5000)], 1, p2p=False, ends=True)

    class Late(Elsewhere):
        def submit(self, fn: Any, /, *args: Any, **more: Any) -> Any:
            path.unlink(missing_ok=True)
            return super().submit(fn, *args, **more)

    source = opened(path)
    with pytest.raises(InputError, match="no such file"):
        read_job([source], executor=Late())
    assert len(source.unread) == 1


def test_the_cadence_of_the_end_may_begin_in_another_part(tmp_path: Path) -> None:
    rows = "".join(f"spectra folded {n} of 9999, elbo {n % 7}\n" for n in range(1500))
    path = tmp_path / "job.log"
    path.write_text("q" * (2 * LIMIT + 999 - len(rows)) + "\n" + rows)
    *_, last = opened(path).chunks()
    assert len(last.data) < 2000  # far fewer than are looked at
    whole = read_job([opened(path)])
    assert whole.scans[0].beats
    assert told(read_job([opened(path)], executor=Elsewhere())) == told(whole)


@pytest.mark.parametrize("quiet", [0, LIMIT, 3 * LIMIT])
def test_last_words_are_found_where_progress_ended(tmp_path: Path, quiet: int) -> None:
    rows = "".join(
        f"[rank{n % 4}]: step {n}/99999 loss 2.1 lr 1e-4 tokens/s 17000\n" for n in range(5000)
    )
    path = tmp_path / "job.log"
    path.write_text(rows + "nothing to tell\n" * (quiet // 16))
    whole = read_job([opened(path)])
    assert set(whole.ranks["last_step"]) == {4996, 4997, 4998, 4999}
    assert told(read_job([opened(path)], executor=Elsewhere())) == told(whole)
