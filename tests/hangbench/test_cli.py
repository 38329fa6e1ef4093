"""The commands `make`, `run` and `score`, with generators and tools made up here."""

import json
import random
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.hangbench import run as runner
from benchmarks.hangbench.__main__ import main
from benchmarks.hangbench.case import (
    Answer,
    Case,
    Files,
    Truth,
    is_sealed,
    read_answers,
    read_cases,
)
from benchmarks.hangbench.commands import CommandError, Commands
from benchmarks.hangbench.run import RunError, Settings
from benchmarks.hangbench.tools import Found


def make_some(seed: int) -> tuple[Case, Files] | None:
    """A generator: nothing for every fifth seed, near-duplicates of those of every fourth."""
    if seed % 5 == 0:
        return None
    rng = random.Random(seed)
    word = "same" if seed % 4 == 0 else f"word {'x' * seed}"
    truth = Truth(("hung",), culprits=(seed % 4,), suspects=(seed % 4,))
    case = Case(f"real-{seed:07}", "real", seed, False, ("console", "files")[seed % 2], 4, truth,
                {"fault": ("stuck", "killed")[seed % 2]})  # fmt: skip
    return case, {"job.log": f"{word} {rng.random()}\n".encode(), "node/rank_1.log": b"step 1\n"}


@pytest.fixture(autouse=True)
def _track(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("benchmarks.hangbench.real")
    module.make = make_some  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benchmarks.hangbench.real", module)


def make(folder: Path, *options: str) -> int:
    return main(["make", "--track", "real", *options, str(folder)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with six cases, made once."""
    folder = tmp_path_factory.mktemp("bench") / "cases of six"
    with pytest.MonkeyPatch.context() as patch:
        module = ModuleType("benchmarks.hangbench.real")
        module.make = make_some  # type: ignore[attr-defined]
        patch.setitem(sys.modules, "benchmarks.hangbench.real", module)
        assert make(folder, "--cases", "6") == 0
    return folder


@pytest.fixture
def bench(made: Path, tmp_path: Path) -> Path:
    """The six cases without any answer."""
    folder = tmp_path / "bench"
    (folder / "cases").parent.mkdir()
    (folder / "cases").symlink_to(made / "cases")
    (folder / "truth.jsonl").write_bytes((made / "truth.jsonl").read_bytes())
    return folder


# ------------------------------------------------------------------ make


def test_made_cases_are_in_the_order_of_their_seeds_and_have_a_shape(made: Path) -> None:
    cases = read_cases(made)
    open_seeds = [seed for seed in range(100) if not is_sealed(seed) and seed % 5]
    assert [case.seed for case in cases] == open_seeds[:6]
    assert all(case.shape and not case.sealed for case in cases)
    assert len({case.shape for case in cases}) == 4
    files = sorted(path.name for path in (made / "cases" / cases[0].id).rglob("*.log"))
    assert files == ["job.log", "rank_1.log"]


def test_making_twice_gives_the_same_bytes_and_add_only_adds(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "second"
    assert make(folder, "--cases", "3") == 0
    assert make(folder, "--cases", "6", "--add") == 0
    assert (folder / "truth.jsonl").read_bytes() == (made / "truth.jsonl").read_bytes()
    for path in made.rglob("*.log"):
        assert (folder / path.relative_to(made)).read_bytes() == path.read_bytes()
    assert make(folder, "--cases", "2", "--sealed", "--add") == 0
    assert [case.sealed for case in read_cases(folder)] == [False] * 6 + [True] * 2


def test_jobs_of_up_to_so_many_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["benchmarks.hangbench.real"], "make", make_of_its_seed)
    assert make(tmp_path / "small", "--cases", "3", "--seed", "7", "--ranks", "64") == 0
    assert [case.world for case in read_cases(tmp_path / "small")] == [11, 16, 19]


def make_of_its_seed(seed: int) -> tuple[Case, Files]:
    """As many ranks as its seed, but for two of them."""
    world = seed * (100 if seed in (8, 13) else 1)
    case = Case(f"real-{seed}", "real", seed, False, "console", world, Truth(("hung",)))
    return case, {"job.log": b"step 1\n"}


def test_errors_of_make_say_what_to_do(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make(made, "--cases", "1") == 2
    assert "give --add, or another folder" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert make(tmp_path, "--cases", "1") == 2
    assert "holds no cases; give another folder" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "benchmarks.hangbench.real", None)
    assert make(tmp_path / "new", "--cases", "1") == 2
    assert "there is no track real here" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_generator_that_has_no_more_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["benchmarks.hangbench.real"], "make", make_below_ten)
    assert make(tmp_path / "few", "--cases", "50") == 0
    count = sum(1 for seed in range(10) if not is_sealed(seed) and seed % 5)
    assert f"no more than {count} cases" in capsys.readouterr().out


def make_below_ten(seed: int) -> tuple[Case, Files] | None:
    return make_some(seed) if seed < 10 else None


# ------------------------------------------------------------------ run


class Tool:
    """A tool that blames rank 3 and counts how often it is asked."""

    GIVES = frozenset({"verdict", "ranks"})

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.number = "1"

    def version(self, environment: Path) -> str | None:
        return self.number or None

    def answer(self, case: Path, commands: Commands) -> Found:
        self.asked.append(case.name)
        assert (case / "job.log").exists()
        assert not (case / "truth.jsonl").exists()
        commands.run([sys.executable, "-c", ""])
        return Found("hung", ranks=(3,))


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Tool:
    made = Tool()
    monkeypatch.setattr(runner, "TOOLS", ("mine",))
    monkeypatch.setattr(runner, "adapter", lambda name: made)
    return made


def ask(folder: Path, **settings: object) -> int:
    return runner.run(folder, read_cases(folder), "mine", Settings(**settings))  # type: ignore[arg-type]


def test_a_run_goes_on_where_it_was_cut_off(bench: Path, tool: Tool) -> None:
    assert ask(bench) == 6
    answers = read_answers(bench, "mine")
    assert [one.case for one in answers] == [case.id for case in read_cases(bench)]
    assert all(one.cpu_s and one.cpu_s > 0 and one.peak_mib for one in answers)
    path = bench / "answers" / "mine.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]) + lines[3][:20])  # killed while it wrote the fourth
    tool.asked.clear()
    assert ask(bench) == 3
    assert sorted(tool.asked) == [one.case for one in answers[3:]]
    assert [one.case for one in read_answers(bench, "mine")] == [one.case for one in answers]


def test_what_an_older_version_said_is_asked_anew(bench: Path, tool: Tool) -> None:
    assert [ask(bench), ask(bench), ask(bench, rerun=True)] == [6, 0, 6]
    tool.number = "2"
    assert ask(bench) == 6
    assert {one.version for one in read_answers(bench, "mine")} == {"2"}


def test_a_measured_run_replaces_what_was_not_measured(bench: Path, tool: Tool) -> None:
    cases = read_cases(bench)
    unmeasured = [Answer(case.id, "mine", "1", "failed") for case in cases]
    (bench / "answers").mkdir()
    runner.write_answers(bench, "mine", unmeasured)
    assert ask(bench, fast=True) == 0
    assert ask(bench) == 6
    assert {one.verdict for one in read_answers(bench, "mine")} == {"hung"}


def test_a_measured_run_over_some_cases_leaves_what_was_said_of_others(
    bench: Path, tool: Tool
) -> None:
    cases = read_cases(bench)
    runner.write_answers(bench, "mine", [Answer(case.id, "mine", "1", "failed") for case in cases])
    assert runner.run(bench, cases[:2], "mine", Settings()) == 2
    said = {one.case: one.verdict for one in read_answers(bench, "mine")}
    assert list(said.values()).count("failed") == 4
    assert {said[case.id] for case in cases[:2]} == {"hung"}


def test_a_tool_that_fails_or_takes_too_long_gives_no_answer(
    bench: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(case: Path, commands: Commands) -> Found:
        if case.name == read_cases(bench)[0].id:
            raise ValueError("no JSON")
        commands.run([sys.executable, "-c", "import time; time.sleep(60)"])
        return Found("hung")

    monkeypatch.setattr(tool, "answer", wait)
    assert ask(bench, limit_s=0.3, workers=6) == 6
    first, *others = read_answers(bench, "mine")
    assert first.error == "ValueError: no JSON"
    assert {one.error for one in others} == {"CommandError: no answer within 0.3 s"}
    assert {one.verdict for one in [first, *others]} == {None}


BATCH = """
import sys
for line in sys.stdin:
    name = line.rstrip("\\n").rpartition("-")[2]
    if int(name) == BAD:
        ACT
    print(name, flush=True)
"""


def parsed(line: str) -> Found:
    return Found("hung", ranks=(int(line),))


@pytest.mark.parametrize("act", ["sys.exit(3)", "import time; time.sleep(60)"])
@pytest.mark.slow
def test_a_batch_starts_anew_after_a_case_that_ends_it(
    bench: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    cases = read_cases(bench)
    script = textwrap.dedent(BATCH).replace("BAD", str(cases[2].seed)).replace("ACT", act)
    monkeypatch.setattr(tool, "batch", lambda: [sys.executable, "-c", script], raising=False)
    monkeypatch.setattr(
        tool, "parse", lambda line: Found("hung", ranks=(int(line),)), raising=False
    )
    assert ask(bench, fast=True, limit_s=1.5) == 6
    answers = read_answers(bench, "mine")
    assert [one.ranks for one in answers if not one.error] == [
        (case.seed,) for case in cases if case is not cases[2]
    ]
    assert answers[2].error == "CommandError: the process died or took too long"
    assert {one.cpu_s for one in answers} == {None}


def test_errors_of_run_say_what_to_do(
    bench: Path, tool: Tool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RunError, match="no tool other; there are mine"):
        runner.run(bench, [], "other", Settings())
    tool.number = ""
    with pytest.raises(RunError, match=r"mine is not installed; .*tools"):
        ask(bench)
    assert main(["run", str(tmp_path)]) == 2
    assert "has no truth.jsonl; `make` writes cases" in capsys.readouterr().err
    assert main(["run", str(bench), "--only", "sim/console"]) == 2
    assert "there are real/console, real/files" in capsys.readouterr().err


def test_only_some_cases(bench: Path) -> None:
    assert main(["run", str(bench), "--tool", "baseline", "--only", "real/fault=killed"]) == 0
    wanted = [case.id for case in read_cases(bench) if case.labels["fault"] == "killed"]
    assert [one.case for one in read_answers(bench, "baseline")] == wanted


def test_commands_measure_and_end_what_they_started() -> None:
    commands = Commands(Path(), 20)
    busy = "import time\nwhile time.process_time() < 0.3: pass\nx = bytearray(64 << 20); print(1)"
    assert commands.run([sys.executable, "-c", busy]).text == "1\n"
    assert 0.3 <= commands.cpu_s < 3
    assert commands.peak_mib > 64  # and what the process held that started it
    with pytest.raises(CommandError, match="No such file"):
        commands.run(["/nowhere/tool"])


# ------------------------------------------------------------------ score


def test_score_asks_first_and_prints_figures(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["score", str(bench), "--tool", "baseline", "--by", "fault"]
    assert main([*arguments, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    track = found["tracks"]["real"]
    tool = track["open"]["tools"]["baseline"]
    distinct = len({case.shape for case in read_cases(bench)})
    assert track["open"]["cases"] == distinct
    assert track["near_duplicates_dropped"] == 6 - distinct
    assert tool["rates"]["verdict"]["of"] == distinct
    assert set(tool["by"]["fault"]) == {"stuck", "killed"}
    assert set(tool["by"]["form"]) == {"console", "files"}
    assert sum(part["cases"] for part in tool["by"]["form"].values()) == distinct
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert f"real, open cases: {distinct} distinct ({6 - distinct} near-duplicates" in text
    assert "by fault" in text


def test_score_says_so_where_a_half_is_missing(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", str(bench), "--tool", "baseline", "--sealed-only"]) == 2
    assert "no sealed cases; make some with --sealed --add" in capsys.readouterr().err
