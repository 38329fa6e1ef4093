"""What maintainers ask for: every row by its samples, and how it is found in a job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import diagnose
from diagnose.catalog.load import load_catalog
from diagnose.job.asked import OF_A_LOG, Item, find, fit, items, projects, questions

ITEMS = items()
QUESTIONS = questions()
PROJECTS = projects()


def _answers(item: Item, sample: str) -> bool:
    first, *rest = sample.split("\n")
    if item.is_file(sample) or (item.says(sample) and not rest):
        return True
    return item.begins(first) and all(map(item.goes_on, rest))


@pytest.mark.parametrize("name", ITEMS)
def test_samples(name: str) -> None:
    item = ITEMS[name]
    for sample in item.samples:
        assert _answers(item, sample), sample
        assert item.is_file(sample) or any(mark in sample for mark in item.holds), sample
    for sample in item.refused:
        assert not _answers(item, sample), sample
    assert item.get
    assert bool(item.lines or item.block or item.files) <= bool(item.samples and item.refused)


@pytest.mark.parametrize("name", ITEMS)
def test_every_expression_has_a_line_that_shows_it(name: str) -> None:
    item = ITEMS[name]
    for pattern in item.lines:
        assert len(pattern) <= 200
        alone = Item(name, "", [], lines=[pattern])
        assert any(map(alone.says, item.samples)), pattern
    assert not item.holds or item.lines or item.block


@pytest.mark.parametrize("name", PROJECTS)
def test_projects_are_whole(name: str) -> None:
    project = PROJECTS[name]
    assert project.open.startswith("https://")
    asked = [ask.item.item for ask in project.asks]
    headings = [ask.heading for ask in project.asks]
    assert len(asked) == len({*asked}) == len({*headings})
    assert {"launch", "environment", "calls", "logs"} <= {*asked}
    assert any("script" in one.ask for one in project.questions)
    assert len(project.questions) <= 8  # what else may be asked is folded away
    first = [one.question for one in project.questions]
    later = [one.question for one in project.later_questions]
    assert len({*first, *later}) == len(first) + len(later)
    assert not {*asked} & {ask.item.item for ask in project.later_asks}
    assert all(len(how) <= 200 and "\n" not in how for ask in project.asks for how in ask.get)


def test_every_row_is_asked_by_those_it_concerns() -> None:
    for name, one in PROJECTS.items():
        every = {ask.item.item for ask in (*one.asks, *one.later_asks)}
        every |= {row.question for row in (*one.questions, *one.later_questions)}
        rows = {**ITEMS, **QUESTIONS}
        assert every >= {key for key, row in rows.items() if not row.only or name in row.only}
        assert all(name in rows[key].only for key in every if rows[key].only), name
    assert all({*row.only} <= {*PROJECTS} for row in (*ITEMS.values(), *QUESTIONS.values()))


def test_rows_fit_causes_that_there_are() -> None:
    causes = [*load_catalog().classes]
    for row in (*ITEMS.values(), *QUESTIONS.values()):
        for pattern in row.causes:
            assert any(fit(replace(row, causes=[pattern]), cause) for cause in causes), pattern
    for row in QUESTIONS.values():
        assert row.ask[-1] == "?" or row.question == "reproducer"
        assert len(row.ask) <= 200
        assert len(row.how) <= 200


def _job(folder: Path, log: str) -> diagnose.Job:
    (folder / "console.log").write_text(log)
    return diagnose.load([str(folder)])


def _found(folder: Path, log: str, *names: str) -> dict[str, list[str]]:
    job = _job(folder, log)
    found = find(job, diagnose.diagnose(job), [ITEMS[name] for name in names])
    return {name: found[name].lines for name in names}


def test_the_same_line_of_many_ranks_is_there_once(tmp_path: Path) -> None:
    line = "n1:{0}:{0} [{0}] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0\n"
    found = _found(tmp_path, "".join(map(line.format, range(8))), "environment")
    assert found == {"environment": [line.format(0).strip()]}


def test_a_block_ends_where_other_lines_begin(tmp_path: Path) -> None:
    log = "PyTorch version: 2.8.0\nOS: Ubuntu\n\nGPU 0: H100\nstep 1 of 9, loss 2.5\nOS: none\n"
    found = _found(tmp_path, log, "collect-env")
    assert found == {"collect-env": ["PyTorch version: 2.8.0", "OS: Ubuntu", "", "GPU 0: H100"]}


def test_only_so_much_of_a_log_is_read(tmp_path: Path) -> None:
    far = "x" * 99 + "\n"
    log = "+ torchrun --nnodes 2 a.py\n" + far * (OF_A_LOG // 100 + 1) + "+ torchrun -m late\n"
    assert _found(tmp_path, log, "launch") == {"launch": ["+ torchrun --nnodes 2 a.py"]}


def test_a_line_without_an_end_is_looked_at_by_its_beginning(tmp_path: Path) -> None:
    log = "NVRM: " * 500_000  # each of which begins what an expression looks for
    assert _found(tmp_path, log, "kernel", "launch") == {"kernel": [], "launch": []}


def test_more_than_fits_is_counted(tmp_path: Path) -> None:
    job = _job(tmp_path, "".join(f"n1 kernel: eth{n}: link is down\n" for n in range(40)))
    found = find(job, diagnose.diagnose(job), [ITEMS["kernel"]])["kernel"]
    assert (len(found.lines), found.more, found.place) == (30, 10, "console.log")


def test_the_environment_of_a_bundle_is_folded(tmp_path: Path) -> None:
    for rank in range(4):
        folder = tmp_path / "nodes" / "node-0" / f"rank-{rank}"
        folder.mkdir(parents=True)
        given = {"NCCL_DEBUG": "INFO", "RANK": str(rank), "NCCL_ALGO": "Tree" if rank else "Ring"}
        document = {"diagnose": "process/1", "pid": rank + 9, "rank": rank, "environment": given}
        (folder / "process.json").write_text(json.dumps(document))
    found = _found(tmp_path, "step 1\n", "environment")
    assert found["environment"] == [
        "NCCL_ALGO=Tree   # 3 of 4 ranks", "NCCL_ALGO=Ring   # 1 of 4 ranks", "NCCL_DEBUG=INFO",
    ]  # fmt: skip


def test_calls_of_a_dump_and_of_watchdogs() -> None:
    root = Path(__file__).parents[2] / "fixtures"
    for name, lines in (
        (
            "gpu-recorder-missing-rank",
            [
                "ranks 0-1, 3: all_reduce [388328] Float seq 21 of default_pg (0): started, "
                "not finished",
                "rank 2: idle; the last operation was all_reduce [387584] Float seq 20 of "
                "default_pg (0)",
            ],
        ),
        (
            "torchrun-missing-rank",
            [
                "ranks 0-4, 6-7: ALLREDUCE seq 3391 of 25,559,081 elements in group 0 exceeded "
                "its timeout of 600 s",
                "rank 5: no call known",
            ],
        ),
    ):
        job = diagnose.load([str(root / name)])
        found = find(job, diagnose.diagnose(job), [ITEMS["calls"]])["calls"]
        assert found.lines == lines
