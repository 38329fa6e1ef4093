"""What two runs differ in, the most telling first; and what is no difference."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

import diagnose
from diagnose.comparison import profile as profiles
from diagnose.diagnosis import SourceLine
from tests.compare.runs import differing, first, log

GIVEN = ("torch==2.5.1", "NCCL_IB_HCA=mlx5_0", "train.py --lr 0.1 --bf16")


def test_two_runs_of_the_same_job_do_not_differ(tmp_path: Path) -> None:
    found = differing(tmp_path, log(1), log(2))
    assert found.differences == []
    assert (found.good.verdict, found.bad.verdict) == ("running", "running")
    assert found.good.lines == found.bad.lines > 80


@pytest.mark.parametrize(
    ("changed", "kind", "name", "good", "bad"),
    [
        (("torch==2.6.0", *GIVEN[1:]), "version", "torch", "2.5.1", "2.6.0"),
        (
            (GIVEN[0], "NCCL_IB_HCA=mlx5_1", GIVEN[2]),
            "environment", "NCCL_IB_HCA", "mlx5_0", "mlx5_1",
        ),
        ((GIVEN[0], GIVEN[2]), "environment", "NCCL_IB_HCA", "mlx5_0", None),
        ((*GIVEN[:2], "train.py --lr 0.3 --bf16"), "argument", "--lr", "0.1", "0.3"),
        ((*GIVEN[:2], "train.py --lr 0.1"), "argument", "--bf16", "", None),
    ],
)  # fmt: skip
def test_what_the_run_was_given(
    tmp_path: Path, changed: tuple[str, ...], kind: str, name: str, good: str, bad: str | None
) -> None:
    found = differing(tmp_path, log(1), log(2, given=changed))
    one = first(found)
    assert (one.kind, one.name, one.good, one.bad) == (kind, name, good, bad)
    assert len([each for each in found.differences if each.kind != "gone"]) == 1
    line = 2 + GIVEN.index(next(row for row in GIVEN if row not in changed))
    assert one.good_at == SourceLine("good.log", line)


def test_a_version_that_lines_state_in_another_form_than_the_catalog(tmp_path: Path) -> None:
    good, bad = ("n1:1:1 [0] NCCL INFO NCCL version " + one for one in ("2.21.5", "2.22.1"))
    found = differing(
        tmp_path, log(1, given=[f"{good}+cuda12.4"]), log(2, given=[f"{bad}+cuda12.4"])
    )
    assert (first(found).kind, first(found).name, first(found).bad) == (
        "version", "nccl", "2.22.1+cuda12.4",
    )  # fmt: skip


def test_a_value_that_one_rank_has_names_it(tmp_path: Path) -> None:
    bad = log(2).replace(
        "[rank1]: 2026-11-12 10:00:01 NCCL_IB_HCA=mlx5_0", "[rank1]: NCCL_IB_HCA=mlx5_7"
    )
    one = first(differing(tmp_path, log(1), bad))
    assert (one.kind, one.who, one.good, one.bad) == ("environment", "rank 1", "mlx5_0", "mlx5_7")


def test_a_new_line_before_the_end_comes_before_what_a_dying_run_says(tmp_path: Path) -> None:
    late = ["prefetch queue ran empty, waited 31 ms", "some banner of a library"]
    crash = (
        "Traceback (most recent call last):\n"
        '[rank0]:   File "/job/train.py", line 7, in <module>\n[rank0]: RuntimeError: no batch'
    )
    found = differing(tmp_path, log(1), log(2, late=late, end=crash))
    assert found.bad.verdict == "failed"
    one = first(found)
    assert (one.kind, one.bad, one.early, one.who) == ("new", late[0], True, "rank 1")
    assert one.bad_at is not None
    assert late[0] in (tmp_path / "bad.log").read_text().splitlines()[one.bad_at.line - 1]
    after = [each for each in found.differences if not each.early]
    assert all(found.differences.index(each) > 0 for each in after)


def test_a_line_in_which_a_word_is_another_is_one_difference(tmp_path: Path) -> None:
    good, bad = (
        log(run, given=(*GIVEN, f"all-reduce goes over {way} now"))
        for run, way in ((1, "NVLink"), (2, "PCIe"))
    )
    (one,) = differing(tmp_path, good, bad).differences
    assert (one.kind, one.good, one.bad) == (
        "changed", "all-reduce goes over NVLink now", "all-reduce goes over PCIe now",
    )  # fmt: skip


def test_a_part_of_a_step_that_takes_longer(tmp_path: Path) -> None:
    one = first(differing(tmp_path, log(1), log(2, data_s=0.03)))
    assert (one.kind, one.name, one.who) == ("pace", "data", "")
    assert one.ratio == pytest.approx(3, rel=0.1)


def test_collectives_are_compared_in_their_order(tmp_path: Path) -> None:
    def calls(run: int, *ops: str) -> str:
        rows = [
            f"node{rank}:{90 + rank + run}:{95 + run} [0] NCCL INFO {op}: opCount {number:x} "
            f"sendbuff 0x7f{run}a recvbuff 0x7f{run}b count 64 datatype 7 op 0 root 0 "
            f"comm 0x5{run} [nranks=2] stream 0x1"
            for rank in (0, 1)
            for number, op in enumerate(ops if rank else ("AllReduce",) * 4)
        ]
        rows = [f"[rank{at // 4}]: {row}" for at, row in enumerate(rows)]
        return log(run) + "\n".join(rows) + "\n"

    usual = ("AllReduce",) * 4
    other = ("AllReduce", "AllReduce", "AllGather", "AllReduce")
    assert differing(tmp_path, calls(1, *usual), calls(2, *usual)).differences == []
    one = first(differing(tmp_path, calls(1, *usual), calls(2, *other)))
    assert (one.kind, one.name, one.who) == ("collective", "call 2 of communicator 0", "rank 1")
    assert (one.good, one.bad) == ("AllReduce of 64 Float", "AllGather of 64 Float")


def test_only_some_nodes_that_differ_come_first(tmp_path: Path) -> None:
    def on(*hosts: str) -> list[str]:
        return [
            *GIVEN,
            *(f"worker {at} of 4 is on {host}, device cuda:0" for at, host in enumerate(hosts)),
        ]

    good = log(1, given=on("node01", "node02", "node03", "node04"))
    some = differing(tmp_path, good, log(2, given=on("node01", "node02", "node03", "node77")))
    assert (first(some).kind, first(some).good, first(some).bad) == ("node", "node04", "node77")
    every = differing(tmp_path, good, log(2, given=on("node05", "node06", "node07", "node08")))
    assert [one.kind for one in every.differences] == ["nodes"]


@pytest.mark.slow
def test_of_a_large_log_the_beginning_and_the_end_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "MAX_BYTES", 1)
    monkeypatch.setattr(profiles, "_LEAST", 4 << 20)
    filler = "[rank0]: 2026-11-12 10:00:00 nothing to see here, line 123456\n" * 200_000
    found = differing(
        tmp_path, log(1) + filler, log(2) + filler + "[rank0]: something else at the end\n"
    )
    assert [one.bad for one in found.differences] == ["something else at the end"]
    assert found.notes
    assert all("only its beginning and its end" in note for note in found.notes)


def test_what_is_shown_is_little_of_the_logs(tmp_path: Path) -> None:
    late = [
        f"{word} happened to the loader" for word in map("word{}".format, "abcdefghijklmnopqrst")
    ]
    found = differing(tmp_path, log(1), log(2, late=[f"{one} {one}" for one in late]))
    assert found.worth_reading <= max(5, (found.good.lines + found.bad.lines) // 100)
    assert found.to_dict()["schema"] == "diagnose-compare/1"


def test_kinds_of_lines_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worked_out: list[str] = []

    def alike(text: str, hosts: Iterable[str]) -> str:
        worked_out.append(text)
        return text

    monkeypatch.setattr(profiles, "MAX_SHAPES", 20)
    monkeypatch.setattr(profiles, "alike", alike)
    many = "\n".join("x" * size + " is a word" for size in range(1, 300))
    found = differing(tmp_path, log(1), log(2) + many + "\n")
    assert any("too many kinds of lines" in note for note in found.notes)
    assert len(worked_out) <= 2 * 20


def test_it_is_part_of_the_library(tmp_path: Path) -> None:
    for name, text in (("good.log", log(1)), ("bad.log", log(2, data_s=0.05))):
        (tmp_path / name).write_text(text)
    found = diagnose.compare(tmp_path / "good.log", [tmp_path / "bad.log"])
    assert [one.kind for one in found.differences] == ["pace"]
