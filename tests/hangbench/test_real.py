"""Track real: the tape holds neutral, distinct cases; the scrubber lets no word through."""

from __future__ import annotations

import getpass
import itertools
import json
import pickle
import re
import socket
import sys
from dataclasses import replace
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest
import yaml

from benchmarks.hangbench import real
from benchmarks.hangbench.case import Case, Files, is_sealed, seeds
from benchmarks.hangbench.real import tape
from benchmarks.hangbench.real.jobs import Recorded, write_shard
from benchmarks.hangbench.real.lab import LAB, STUCK, WORKER, worker_source
from benchmarks.hangbench.real.scenario import Job, Wrong, job_of
from benchmarks.hangbench.real.scenarios import SCENARIOS
from benchmarks.hangbench.real.scrub import (
    HOST,
    WORKSPACE,
    Interpreter,
    Scrubber,
    markers,
    neutral_source,
)
from benchmarks.hangbench.real.truth import shows_time, truth_of
from benchmarks.hangbench.shape import shape_of

ROOT = Path(__file__).resolve().parents[2]
Taped = list[tuple[Case, Files]]


@pytest.fixture(scope="module")
def taped() -> Taped:
    return list(tape.read_tape())


# ------------------------------------------------------------------------------ the tape


@pytest.mark.slow
def test_the_tape_has_enough_distinct_cases(taped: Taped) -> None:
    assert len({shape_of(files) for _, files in taped}) == len(taped) >= 150
    assert tape.TAPE.stat().st_size <= 3 << 20
    assert sum(case.truth.verdicts[0] in ("healthy", "running") for case, _ in taped) >= 12
    assert len({case.labels["framework"] for case, _ in taped}) >= 8
    about = tape.about()
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", about["recorded"])
    assert "torch" in about["versions"]


def test_the_tape_is_what_make_gives(taped: Taped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(real.LIVE, raising=False)
    assert all(case.sealed == is_sealed(case.seed) for case, _ in taped)
    for half in (False, True):
        numbers = [case.seed for case, _ in taped if case.sealed == half]
        assert numbers == [*itertools.islice(seeds(0, sealed=half), len(numbers))]
        assert len(numbers) >= len(taped) / 3
    case, files = taped[7]
    assert real.make(case.seed) == (case, files)
    assert real.make(max(case.seed for case, _ in taped) + 1) is None


@pytest.mark.slow
def test_every_truth_is_whole(taped: Taped) -> None:
    known = {
        one["id"] for one in yaml.safe_load((ROOT / "patterns/classes.yaml").read_text())["classes"]
    }
    for case, files in taped:
        truth = case.truth
        assert files, case.id
        assert set(truth.verdicts) <= {"hung", "failed", "healthy", "running", "unknown"}, case.id
        assert truth.verdicts, case.id
        assert truth.classes, case.id
        assert set(truth.classes) <= known, case.id
        assert (truth.determines == "none") == (not truth.culprits), case.id
        assert set(truth.culprits) <= set(truth.suspects) <= set(range(case.world)), case.id
        if truth.determines == "rank":
            assert truth.suspects == truth.culprits, case.id
        if truth.determines == "group":
            assert len(truth.suspects) > len(truth.culprits), case.id
        assert (truth.onset is None) or truth.onset_tolerance_s > 0, case.id


@pytest.mark.slow
def test_no_file_tells_of_the_recording(taped: Taped) -> None:
    """Neither a word of what was done nor a path, a name or an address of a machine."""
    private = re.compile(
        rb"/work/|/tmp/(?:job-|real-venv|raw)|/root\b|\.pyenv|/home/(?!user\b)|site-packages/diagnose"
        rb"|benchmarks|(?<![\d.])(?:172\.\d+|192\.168|10\.(?!0\.0\.11\b)\d+\.\d+)\.\d+"
    )
    for case, files in taped:
        for name, content in files.items():
            found = private.search(content)
            assert found is None, (case.id, name, content[max(0, found.start() - 60) : found.end()])
            assert not markers(content.decode("latin-1")), (case.id, name)
            assert not markers(name), (case.id, name)


# ------------------------------------------------------------------------------ the scrubber


@pytest.fixture
def scrubber(tmp_path: Path) -> Scrubber:
    return Scrubber(tmp_path, Interpreter(sys.executable))


def test_paths_and_names_of_the_machine_are_replaced(scrubber: Scrubber, tmp_path: Path) -> None:
    text = f'{socket.gethostname()}: File "{tmp_path}/train.py", {sys.prefix}/lib/x.py, 127.0.0.1'
    told = scrubber.text(text)
    assert told == f'{HOST}: File "{WORKSPACE}/train.py", /opt/venv/lib/x.py, 127.0.0.1'
    assert getpass.getuser() == "root" or getpass.getuser() not in scrubber.text(str(Path.home()))


def test_names_within_words_stay(scrubber: Scrubber, tmp_path: Path) -> None:
    inside = f"x{socket.gethostname()}y {tmp_path}-other"
    assert scrubber.text(inside) == inside


def test_strings_within_dumps_are_replaced(scrubber: Scrubber, tmp_path: Path) -> None:
    dump = {"version": "2.10", "entries": [{"filename": f"{tmp_path}/train.py", "line": 7}]}
    files = scrubber.files({"dumps/nccl_trace_rank_0": pickle.dumps(dump, protocol=2)})
    (content,) = files.values()
    assert pickle.loads(content)["entries"] == [{"filename": f"{WORKSPACE}/train.py", "line": 7}]


@pytest.mark.parametrize("name", sorted({*WORKER, *STUCK}))
def test_sources_of_the_lab_do_not_tell(name: str) -> None:
    script = "worker.py" if name in WORKER else "stuck.py"
    text = worker_source(script, fault=name, culprit="1", timeout=8.0)
    compile(text, script, "exec")
    assert markers(text) == []


@pytest.mark.parametrize("script", ["worker_dumps.py", "board_dumps.py"])
def test_sources_of_the_dump_lab_do_not_tell(script: str) -> None:
    text = neutral_source((LAB / "dumps" / script).read_text(encoding="utf-8"))
    compile(text, script, "exec")
    assert markers(text) == []


def test_programs_do_not_tell() -> None:
    for path in (ROOT / "benchmarks/hangbench/real/programs").rglob("*.py"):
        assert markers(path.read_text(encoding="utf-8")) == [], path


def test_words_of_systems_are_no_markers() -> None:
    harmless = "Segmentation fault, faulthandler, default, general protection fault, may hang"
    assert markers(harmless) == []
    assert markers("--fault=sleep on the culprit, [inject] mode") == ["fault", "culprit", "inject"]


# ------------------------------------------------------------------------------ runs and truths


def test_seeds_stand_for_runs() -> None:
    firsts = [one.first_seed for one in SCENARIOS]
    assert len(set(firsts)) == len(SCENARIOS) == len({one.name for one in SCENARIOS})
    for scenario in SCENARIOS:
        job = job_of(scenario, scenario.first_seed)
        assert job == job_of(scenario, scenario.first_seed)
        assert set(job.wrong.ranks) <= set(range(job.world))


def test_a_shard_is_odd_after_five_batches(tmp_path: Path) -> None:
    rows = {}
    for odd in ("", "short", "no_label", "torn"):
        write_shard(tmp_path / f"x{odd}", odd, 12, Random(0))
        rows[odd] = (tmp_path / f"x{odd}").read_text().splitlines()
    assert len(rows[""]) == 56
    assert all(found[:20] == rows[""][:20] for found in rows.values())
    assert rows["short"] == rows[""][:20]
    assert '"y"' not in rows["no_label"][20]
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        json.loads(rows["torn"][20])


def stalled(console: str, world: int = 3) -> Recorded:
    return Recorded({"console.log": console.encode()}, None, {}, 1)


STILL = Job("ddp", 3, "torchrun", Wrong("stall", (1,), ("stall.host",)))


def test_the_rank_without_an_error_is_found_by_that() -> None:
    truth = truth_of(STILL, stalled("[rank0]: RuntimeError: x\n[rank2]: RuntimeError: x\n"))
    assert (truth.determines, truth.suspects, truth.culprits) == ("rank", (1,), (1,))


def test_of_two_silent_ranks_neither_is_known() -> None:
    truth = truth_of(STILL, stalled("[rank0]: RuntimeError: Timed out\n"))
    assert (truth.determines, truth.suspects) == ("group", (1, 2))
    assert "desync.missing_rank" in truth.classes


def test_nothing_is_known_where_nobody_prints() -> None:
    truth = truth_of(STILL, stalled("step 5/12\n"))
    assert (truth.determines, truth.suspects) == ("nothing", (0, 1, 2))


def test_steps_that_each_rank_prints_show_who_is_behind() -> None:
    lines = "".join(f"x [rank{rank}] INFO train: step {4 + (rank != 1)}/9\n" for rank in range(3))
    truth = truth_of(STILL, stalled(lines))
    assert (truth.determines, truth.suspects) == ("rank", (1,))


def test_of_two_that_disagree_either_may_be_the_odd_one() -> None:
    job = Job("ddp", 2, "torchrun", Wrong("mismatch", (1,), ("desync.mismatch",)))
    truth = truth_of(job, stalled("[rank0]: RuntimeError: x\n"))
    assert (truth.determines, truth.suspects) == ("group", (0, 1))
    assert (0,) in truth.accepted


def test_a_console_that_just_ends_may_be_of_a_job_that_works() -> None:
    job = replace(STILL, end="term")
    assert {"hung", "running", "unknown"} == {*truth_of(job, stalled("step 5/12\n")).verdicts}
    told = truth_of(job, stalled("12:00:01 step 5/12\n12:09:00 Received SIGTERM\n"))
    assert told.verdicts == ("hung",)
    assert "scheduler.preempted" in told.classes


@pytest.mark.lab
@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_a_run_made_now(request: pytest.FixtureRequest) -> None:
    if "lab" not in request.config.getoption("-m"):
        pytest.skip("starts a real job; run with -m lab")
    number = next(n for n, one in enumerate(SCENARIOS) if one.name == "ddp: no label")
    made = real.live(number, sys.executable)
    assert made is not None
    case, files = made
    assert (case.truth.verdicts, case.truth.classes) == (("failed",), ("crash.exception",))
    assert b"KeyError: 'y'" in files["console.log"]
    assert str(ROOT).encode() not in b"".join(files.values())


@pytest.mark.parametrize(
    ("line", "shown"),
    [("12:00:04 step 3", True), ("12:00:06 step 3", False), ("step 3", False)],
)
def test_an_onset_is_asked_only_where_a_line_has_its_time(line: str, shown: bool) -> None:
    onset = datetime(2026, 11, 28, 12, 0, 0)
    assert shows_time({"console.log": line.encode()}, onset) is shown
