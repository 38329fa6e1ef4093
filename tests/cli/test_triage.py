"""`triage`: what it prints, and the real engine on odd logs."""

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from diagnose.cli import main as cli
from diagnose.diagnosis import Reason
from tests.cli.running import ROOT, TRACEBACK, Engine, answer, check_readme, triage


def test_triage_prints_the_verdict(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["triage", "a.log", "b.log", "--patterns", "x", "--patterns", "y"]) == 0
    assert (engine.sources, engine.patterns) == (["a.log", "b.log"], ["x", "y"])
    out, err = capsys.readouterr()
    assert out.startswith("HUNG  Wrong interface (high confidence)\n  NCCL chose docker0.\n")
    assert err == ""


def test_json_is_the_schema_and_nothing_else(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.diagnosis = answer(notes=("rank3.log: cut\x1b[2J",))
    assert cli.run(["triage", "a.log", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == engine.diagnosis.to_dict()
    assert err == "note: rank3.log: cut\n"


def test_why(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    won = Reason("verdict", "won", "net.socket", "highest_ranked", "It is\x1b[2J", "signatures")
    engine.diagnosis = replace(answer(), reasons=[won])
    assert cli.run(["triage", "a.log", "--why"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("HUNG  Wrong interface (high confidence)\n  NCCL chose docker0.\n\nWhy")
    assert out.split()[-6:] == ["won", "net.socket", "signatures", "highest_ranked", "It", "is."]
    assert "What to do" not in out
    assert cli.run(["triage", "a.log", "--why", "--format", "markdown"]) == 0
    assert "<summary>Why this verdict</summary>" in capsys.readouterr().out
    assert cli.run(["triage", "a.log"]) == 0
    assert "Why this verdict" not in capsys.readouterr().out


def test_why_is_not_for_messages(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["triage", "a.log", "--why", "--format", "slack"]) == 2
    assert "--why needs one of the formats terminal, markdown, json" in capsys.readouterr().err


def test_markdown(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["triage", "a.log", "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("### Hung: Wrong interface (high confidence)\n")


def test_colour(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["triage", "a.log", "--color", "always"])
    assert "\x1b[1;31mHUNG" in capsys.readouterr().out
    for choice in ("never", "auto"):
        cli.run(["triage", "a.log", "--color", choice])
        assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("columns", ["0", "²"])
def test_a_terminal_of_no_width_is_answered(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    columns: str,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert cli.run(["triage", "a.log"]) == 0
    assert capsys.readouterr().out.startswith("HUNG  Wrong interface (high confidence)\n")


LONG = b"[rank1]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate " + b"x y " * (
    13 << 20
)


BARS = b"".join(b"\r %3d%%|##  | %d/99 [00:09<00:09, 1.10it/s]" % (n, n) for n in range(60))


@pytest.mark.parametrize(
    ("data", "verdict", "cause", "ranks"),
    [
        (TRACEBACK.decode().encode("utf-16"), "failed", "crash.gpu_oom", [1]),
        (
            gzip.compress(TRACEBACK + random.Random(7).randbytes(999).hex().encode(), mtime=0)[
                :-40
            ],
            "failed",
            None,
            [1],
        ),
        (TRACEBACK[: TRACEBACK.index(b"Tried")], "failed", "crash.gpu_oom", [1]),
        (LONG, "failed", "crash.gpu_oom", [1]),
        (b"x" * (50 << 20), "unknown", "unknown", []),
        (BARS, "running", "none", []),
        (BARS + b"\r" + TRACEBACK.replace(b"\n", b"\r"), "failed", "crash.gpu_oom", [1]),
        (b"hello world\n", "unknown", "unknown", []),
    ],
    ids=["utf-16", "gz cut", "half a line", "52 MB line", "50 MB", "bars", "CR", "no job"],
)
def test_odd_logs_are_diagnosed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    data: bytes,
    verdict: str,
    cause: str | None,
    ranks: list[int],
) -> None:
    (tmp_path / "a.log").write_bytes(data)
    status, _, answer = triage(capsys, tmp_path / "a.log")
    assert (status, answer["verdict"]) == (0, verdict)
    assert answer["root_cause"]["class"] == (cause or "crash.gpu_oom")
    assert answer["culprits"]["ranks"] == ranks


def test_the_log_of_one_waiting_rank_blames_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (ROOT / "fixtures" / "torchrun-missing-rank" / "console.log").read_text("utf-8")
    one = [line for line in whole.splitlines() if "[rank3]" in line]
    (tmp_path / "rank3.log").write_text("\n".join(one))
    _, _, answer = triage(capsys, tmp_path / "rank3.log")
    assert (answer["verdict"], answer["root_cause"]["confidence"]) == ("hung", "low")
    assert (answer["culprits"]["ranks"], answer["culprits"]["hosts"]) == ([], [])
    assert answer["missing_evidence"]


def test_the_readme_shows_what_the_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command = "diagnose triage fixtures/torchrun-missing-rank"
    assert cli.run(["triage", str(ROOT / "fixtures" / "torchrun-missing-rank")]) == 0
    # the first screen and the evidence; the rest is for those who run it
    first, _, _ = capsys.readouterr().out.partition("Sequence of events\n")
    check_readme("output", f"$ {command}\n{first}[…]\n")
