"""Real gloo jobs with one fault: their dumps alone must name the culprit, whatever is missing.

Some sixty short jobs of eight ranks from one process, and a few under torchrun, whose text logs
are judged as well. They take minutes and run on request only: `pytest -m lab tests/lab/dumps`.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path

import pytest
from board_dumps import KINDS, Plan
from launch_dumps import WORKER, Server, torchrun

from diagnose.diagnosis import Diagnosis
from diagnose.infer.collectives.analyze import judge
from diagnose.infer.collectives.parallelism import smallest_unit, topology
from diagnose.infer.collectives.table import Table, table
from diagnose.infer.judge.verdict import Verdict
from diagnose.parse.flight_recorder import Dump, read_dump

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(find_spec("torch") is None, reason="needs torch"),
]

WORLD = 8
HALVES = 16  # of the seventy
ENDS = (0, 1, WORLD - 2, WORLD - 1)  # both places in the first and in the last tensor group
Run = Callable[[Plan], Path]


@dataclass(frozen=True)
class Case:
    """One job and what its dumps must say; `site` is the line behind this text in the worker."""

    plan: Plan
    kind: str
    site: str | None = None


CASES = {
    "asleep": Case(Plan("sleep", (3,)), "stuck_host"),
    "asleep, tensor groups of four": Case(Plan("sleep", (6,), tensor=4), "stuck_host"),
    "stopped": Case(Plan("stop", (3,)), "missing"),
    "asleep in a pipeline": Case(Plan("sleep", (4,), shape="pipeline"), "stuck_host"),
    "first stage asleep": Case(Plan("sleep", (0,), shape="pipeline"), "stuck_host"),
    "last stage asleep": Case(Plan("sleep", (7,), shape="pipeline"), "stuck_host"),
    "a whole stage asleep": Case(Plan("sleep", (4, 5), shape="pipeline"), "stuck_host"),
    "stopped in a pipeline": Case(Plan("stop", (4,), shape="pipeline"), "missing"),
}
for _where in ("tensor", "data", "world"):
    for _fault, _site in (
        ("op", 'hit("op"'),
        ("empty", 'hit("empty"'),
        ("extra", 'hit("extra"'),
        ("extra_op", 'hit("extra_op"'),
        ("skip", None),
    ):
        CASES[f"{_fault} in {_where}"] = Case(Plan(_fault, (3,), _where), "mismatched", _site)

IN_TURN = {
    "asleep": ("sleep", "tensor", "stuck_host"),
    "stopped": ("stop", "tensor", "missing"),
    "op in tensor": ("op", "tensor", "mismatched"),
    "op in data": ("op", "data", "mismatched"),
    "extra in data": ("extra", "data", "mismatched"),
    "skip in world": ("skip", "world", "mismatched"),
}


@pytest.fixture(autouse=True, scope="module")
def on_request_only(request: pytest.FixtureRequest) -> None:
    """Skip unless the marker was asked for: a plain run of the tests starts no jobs."""
    if "lab" not in request.config.getoption("-m"):
        pytest.skip("starts real jobs; run with -m lab")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a plan once and gives the folder of its job."""
    server, known = Server(), dict[Plan, Path]()

    def once(plan: Plan) -> Path:
        if plan not in known:
            known[plan] = server.run(plan, tmp_path_factory.mktemp("job"))
        return known[plan]

    yield once
    server.close()


@cache
def read(file: Path) -> Dump:
    """A dump, which many tests judge together with others."""
    return read_dump(file.read_bytes(), file.name)


def dumped(
    folder: Path, only: Collection[int] = range(WORLD), kind: str = "dumps", seed: int | None = None
) -> Table:
    """The table of a job's dumps; `seed` shuffles the files."""
    files = sorted((folder / kind).iterdir())
    files = [file for file in files if int(file.name.split("_")[-1]) in only]
    if seed is not None:
        random.Random(seed).shuffle(files)
    return table([read(file) for file in files], WORLD)


def judged(
    folder: Path, only: Collection[int] = range(WORLD), kind: str = "dumps", seed: int | None = None
) -> Verdict:
    found = judge(dumped(folder, only, kind, seed))
    assert found is not None
    return found


def line_behind(text: str) -> str:
    """`worker_dumps.py:` and the number of the line that follows `text` in the worker."""
    lines = WORKER.read_text().splitlines()
    (number,) = [n for n, line in enumerate(lines, start=2) if text in line]
    return f"{WORKER.name}:{number}"


@pytest.mark.parametrize("name", CASES)
def test_the_culprit_by_dumps_alone(name: str, run: Run) -> None:
    case = CASES[name]
    found = judged(run(case.plan))
    assert (found.kind, found.ranks) == (case.kind, case.plan.culprits), found
    if case.site is not None:
        assert re.search(rf"{re.escape(line_behind(case.site))}\b", found.why), found.why


@pytest.mark.parametrize("name", CASES)
def test_the_way_of_dumping_does_not_matter(name: str, run: Run) -> None:
    """Pickle, JSON, active entries only, no stack traces."""
    folder = run(CASES[name].plan)
    found = [judged(folder, kind=kind) for kind in KINDS]
    said = [(v.kind, v.ranks, v.group, v.op, v.seq, v.joined, v.missing) for v in found]
    assert said == said[:1] * len(KINDS)


@pytest.mark.parametrize("name", CASES)
def test_the_order_of_files_does_not_matter(name: str, run: Run) -> None:
    folder = run(CASES[name].plan)
    want = judged(folder)
    assert all(judged(folder, seed=seed) == want for seed in range(6))


@pytest.mark.parametrize("culprit", ENDS)
@pytest.mark.parametrize("name", IN_TURN)
def test_each_rank_in_turn(name: str, culprit: int, run: Run) -> None:
    fault, where, kind = IN_TURN[name]
    found = judged(run(Plan(fault, (culprit,), where)))
    assert (found.kind, found.ranks) == (kind, (culprit,)), found


@pytest.mark.parametrize("name", CASES)
def test_without_the_dump_of_the_culprit(name: str, run: Run) -> None:
    """Its absence is all there is; a stage of two may leave it open who it was."""
    case = CASES[name]
    lost = case.plan.culprits
    found = judged(run(case.plan), [rank for rank in range(WORLD) if rank not in lost])
    assert found.kind == "missing", found
    assert found.ranks == lost or (len(lost) > 1 and found.ranks == ())


@pytest.mark.parametrize("name", CASES)
def test_half_of_the_dumps_blames_no_victim(name: str, run: Run) -> None:
    """Of ranks that dumped only the culprit may be blamed; a cycle must hold it."""
    case = CASES[name]
    folder, culprits = run(case.plan), set(case.plan.culprits)
    halves = [*combinations(range(WORLD), WORLD // 2)]
    for half in random.Random(name).sample(halves, HALVES):
        found, seen = judged(folder, half), culprits & set(half)
        named = set(found.ranks)
        if found.kind == "cycle":
            assert named & seen, (half, found)
        elif found.kind == "missing":
            assert not named & set(half), (half, found)
            assert not named or named & culprits, (half, found)
        else:
            # of two that sleep one may be all that anybody is seen to wait for
            assert found.kind == case.kind, (half, found)
            assert named, (half, found)
            assert named <= seen, (half, found)


def test_a_killed_rank_is_missing(run: Run) -> None:
    """The peers' connections to it break: they go on with an error, as if they had finished."""
    found = judged(run(Plan("kill", (3,))))
    assert (found.kind, found.ranks) == ("missing", (3,)), found


def test_a_stuck_stage_is_told_as_a_stage(run: Run) -> None:
    found = dumped(run(CASES["a whole stage asleep"].plan))
    grid = topology(found.groups.values(), found.world)
    assert [(axis.name, axis.size) for axis in grid.axes] == [("DP", 2), ("PP", 4)]
    verdict = judge(found)
    assert verdict is not None
    unit = smallest_unit(verdict.ranks, grid)
    assert unit is not None
    assert (unit.kind, unit.text) == (
        "PP stage",
        "all suspects are in pipeline stage 2 (ranks 4-5)",
    )


def test_the_grid_of_a_gloo_job(run: Run) -> None:
    """gloo's dumps list no members: they are the ranks that share a group."""
    groups = dumped(run(CASES["asleep"].plan)).groups.values()
    grid = topology(groups, WORLD)
    assert [(axis.name, axis.groups) for axis in grid.axes] == [
        ("TP", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("DP", ((0, 2, 4, 6), (1, 3, 5, 7))),
    ]
    assert grid.coordinates[5] == {"TP": 1, "DP": 2}


def diagnosed(folder: Path) -> Diagnosis:
    import diagnose

    return diagnose.diagnose(diagnose.load(folder))


@pytest.mark.parametrize("name", CASES)
def test_a_folder_of_dumps_is_diagnosed(name: str, run: Run) -> None:
    case = CASES[name]
    result = diagnosed(run(case.plan) / "dumps")
    assert result.verdict == "hung"
    assert result.culprits.ranks == [*case.plan.culprits]
    assert result.culprits.kind == case.kind


UNDER_TORCHRUN = {
    "asleep": (Plan("sleep", (2,), world=4, timeout=6.0), "stall.host"),
    "op in data": (Plan("op", (1,), "data", world=4, timeout=6.0), "desync.mismatch"),
    "skip in world": (Plan("skip", (3,), "world", world=4, timeout=6.0), "desync.mismatch"),
}


@pytest.mark.parametrize("name", UNDER_TORCHRUN)
def test_logs_and_dumps_of_one_job_agree(name: str, tmp_path: Path) -> None:
    plan, cause = UNDER_TORCHRUN[name]
    job = torchrun(plan, tmp_path / "job")
    logs = tmp_path / "logs"
    shutil.copytree(job / "logs", logs / "logs")
    shutil.copy(job / "console.log", logs)
    both = tmp_path / "both"
    shutil.copytree(logs, both)
    shutil.copytree(job / "dumps", both / "dumps")

    by_dumps, by_both, by_logs = map(diagnosed, (job / "dumps", both, logs))
    assert (by_dumps.verdict, by_dumps.root_cause.cause) == ("hung", cause)
    assert by_dumps.culprits.ranks == [*plan.culprits]
    assert (by_both.verdict, by_both.root_cause.cause) == ("hung", cause)
    assert by_both.culprits.ranks == [*plan.culprits]
    assert by_logs.verdict == "hung"
    assert by_logs.culprits.ranks == [*plan.culprits]
