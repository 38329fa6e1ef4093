"""Several files printed one after the other, each under its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import diagnose
from diagnose.ingest import Source, find_sources, text_source
from diagnose.ingest.raw import BytesStore, JoinedStore
from diagnose.ingest.recognise import parts_of

HEADINGS = "==> rank_0.log <==\nstep 1\nstep 2\n\n==> rank_1.log <==\nstep 1\n"


def texts(sources: Sequence[Source]) -> list[bytes]:
    return [b"".join(chunk.data for chunk in source.chunks()) for source in sources]


def test_each_part_is_the_file_that_its_heading_names() -> None:
    found = parts_of(text_source(HEADINGS, "all.log"))
    assert [source.name for source in found] == ["all.log!rank_0.log", "all.log!rank_1.log"]
    assert [source.rank for source in found] == [0, 1]
    assert texts(found) == [b"step 1\nstep 2\n\n", b"step 1\n"]


def test_files_under_the_heads_of_more() -> None:
    rule = ":" * 14
    heads = [f"{rule}\nrank_{rank}.log\n{rule}\n" for rank in range(2)]
    found = parts_of(text_source(f"{heads[0]}step 1\nstep 2\n{heads[1]}step 1\n", "all.log"))
    assert [source.rank for source in found] == [0, 1]
    assert texts(found) == [b"step 1\nstep 2\n", b"step 1\n"]
    banner = f"{rule}\nstarting the job\n{rule}\n"
    source = text_source(f"{banner}step 1\n{banner}step 2\n")
    assert parts_of(source) == [source]


def test_the_command_may_stand_above_the_first_heading() -> None:
    found = parts_of(text_source("$ tail -n +1 rank_*.log\n" + HEADINGS))
    assert [source.rank for source in found] == [0, 1]


def test_what_is_no_list_of_files_stays_one_source() -> None:
    for text in (
        "==> rank_0.log <==\nstep 1\n",
        "==> a.log <==\nstep 1\n\n==> a.log <==\nstep 2\n",
        "==> WARNING: A newer version of conda exists. <==\nstep 1\n",
        "step 1\n" * 1000 + HEADINGS,
    ):
        source = text_source(text)
        assert parts_of(source) == [source]


def test_headings_are_found_in_a_file_of_any_size(tmp_path: Path) -> None:
    step = b"a line of a log that is neither long nor short\n"
    for size in ((1 << 20) - 20, (1 << 20) + 20):
        first = step * (size // len(step)) + b"x" * (size % len(step) - 1) + b"\n"
        file = tmp_path / "all.log"
        file.write_bytes(b"==> rank_0.log <==\n" + first + b"\n==> rank_1.log <==\nstep 1\n")
        found = parts_of(find_sources([file])[0])
        assert texts(found) == [first + b"\n", b"step 1\n"]


def test_the_first_rank_died_and_the_others_made_the_steps_before() -> None:
    steps = "".join(f"step {n} loss 2.1\n" for n in range(1, 19))
    died = (
        'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n    main()\n'
        "KeyError: 'labels'\n"
    )
    ranks = [steps + died * (rank == 0) for rank in range(4)]
    text = "\n".join(f"==> rank_{rank}.log <==\n{own}" for rank, own in enumerate(ranks))
    found = diagnose.diagnose(diagnose.load_text(text))
    assert (found.verdict, found.root_cause.cause) == ("failed", "crash.exception")
    assert found.culprits.ranks == [0]


def test_a_paste_of_several_files_is_a_paste() -> None:
    assert diagnose.load_text(HEADINGS).pasted


def test_what_tail_follows_is_each_file_once() -> None:
    died = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    text, own = "", dict.fromkeys(range(3), "")
    for step in range(1, 12):
        for rank in range(3):
            if rank == 2 and step > 7:
                continue
            line = f"step {step} loss 2.1\n" + died * (rank == 2 and step == 7)
            own[rank] += line
            text += "\n" * bool(text) + f"==> logs/rank_{rank}.log <==\n{line}"
    source = text_source(text, "all.log")
    found = parts_of(source)
    assert [one.name for one in found] == [f"all.log!logs/rank_{rank}.log" for rank in range(3)]
    assert [text.decode() for text in texts(found)] == [*own.values()]
    result = diagnose.diagnose(diagnose.load_text(text))
    assert (result.root_cause.cause, result.culprits.ranks) == ("crash.gpu_oom", [2])
    assert (result.job.attempts, result.evidence[0].line) == (1, 8)


@pytest.mark.parametrize("spans", [[(0, 3), (5, 0), (7, 4), (2, 2)], [(4, 1)], []])
def test_stretches_of_a_store_are_read_as_one(spans: list[tuple[int, int]]) -> None:
    data = b"0123456789abc"
    whole = b"".join(data[start : start + size] for start, size in spans)
    with JoinedStore(BytesStore(data), spans).open() as reader:
        assert reader.size == len(whole)
        for offset in range(len(whole) + 2):
            for length in range(len(whole) + 2):
                assert reader.read_at(offset, length) == whole[offset : offset + length]
