"""The adapters: short, and what each makes of its tool's output."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.hangbench import tools
from benchmarks.hangbench.case import Case, Truth, read_answers
from benchmarks.hangbench.commands import CommandError, Commands, Output
from benchmarks.hangbench.run import Settings, run
from benchmarks.hangbench.tools import (
    TOOLS,
    Found,
    adapter,
    baseline,
    dumps,
    gpualert,
    link_dumps,
    logs,
    one_log,
)
from benchmarks.hangbench.tools import ascend_fd as ascend
from benchmarks.hangbench.tools import diagnose as ours
from benchmarks.hangbench.tools import nvrx as nvidia
from benchmarks.hangbench.tools import torchfrtrace as torch

PICKLE = b"\x80\x02]q\x00."


class Printing(Commands):
    """Commands that print what they are told to, one text after the other."""

    def __init__(self, *texts: str, errors: str = "", status: int = 0) -> None:
        super().__init__(Path("/environment"), 10)
        self.texts, self.errors, self.status = list(texts), errors, status
        self.ran: list[list[str]] = []

    def run(self, command: object, variables: object = None) -> Output:
        self.ran.append([str(word) for word in command])  # type: ignore[attr-defined]
        return Output(self.texts.pop(0), self.errors, self.status)


def folder(path: Path, **files: bytes) -> Path:
    path.mkdir(exist_ok=True)
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


@pytest.mark.parametrize("tool", TOOLS)
def test_an_adapter_has_at_most_fifty_lines(tool: str) -> None:
    path = Path(tools.__file__).parent / f"{tool.replace('-', '_')}.py"
    assert len(path.read_text().splitlines()) <= 50


@pytest.mark.parametrize("tool", TOOLS)
def test_an_adapter_says_what_its_tool_can_and_whether_it_is_there(
    tool: str, tmp_path: Path
) -> None:
    found = adapter(tool)
    assert {"verdict", "class", "confidence", "ranks", "onset"} >= found.GIVES
    assert bool(found.version(tmp_path)) == (tool in ("diagnose", "baseline"))


@pytest.mark.parametrize("tool", [name for name in TOOLS if name not in ("baseline", "ascend-fd")])
def test_a_tool_that_fails_is_no_answer(tool: str, tmp_path: Path) -> None:
    case = folder(tmp_path, rank_0=PICKLE if tool == "torchfrtrace" else b"log\n")
    commands = Printing("", errors="Traceback …\nKeyError: 3\n", status=1)
    with pytest.raises(CommandError, match=r"^KeyError: 3$"):
        adapter(tool).answer(case, commands)


# ------------------------------------------------------------------ baseline


def watchdog(rank: int) -> bytes:
    return b"[E104 10:00:00 ProcessGroupNCCL.cpp:685] [Rank %d] Watchdog caught collective\n" % rank


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"world size: 4\n" + watchdog(0) + watchdog(1) + watchdog(3), (True, [2])),
        (b"[rank7]: step 3\n" + watchdog(0), (True, [])),  # seven of eight are silent: not few
        (b"".join(watchdog(rank) for rank in range(4)), (True, [])),
        (b"[rank0]: loss 3.2\n[rank1]: loss 3.1\n", (False, [])),
    ],
)
def test_the_baseline_blames_those_without_a_timeout_line(
    tmp_path: Path, text: bytes, expected: tuple[bool, list[int]]
) -> None:
    case = folder(tmp_path, job=text)
    assert baseline.blame(case) == expected
    commands = Commands(tmp_path, 20)
    late, ranks = expected
    if ranks:  # as a command, once
        found = baseline.answer(case, commands)
        assert found == Found("hung" if late else "unknown", ranks=tuple(ranks))


def test_the_baseline_takes_ranks_from_the_names_of_files(tmp_path: Path) -> None:
    for rank in range(4):
        text = b"step 1\n" if rank == 3 else watchdog(rank)
        (tmp_path / f"rank_{rank}.log").write_bytes(text)
    assert baseline.blame(tmp_path) == (True, [3])


# ------------------------------------------------------------------ the others


def test_diagnose() -> None:
    said = {
        "verdict": "hung",
        "root_cause": {"class": "stall.host", "confidence": "medium"},
        "culprits": {"ranks": [3], "hosts": ["node-0"]},
        "onset": {"time": "2026-01-01T12:00:00"},
    }
    expected = Found("hung", "stall.host", "medium", (3,), ("node-0",), "2026-01-01T12:00:00")
    commands = Printing(json.dumps(said))
    assert ours.answer(Path("case"), commands) == expected
    assert commands.ran == [
        [sys.executable, "-m", "diagnose", "triage", "--format", "json", "case"]
    ]
    with pytest.raises(CommandError, match="InputError: no log"):
        ours.parse('{"error": "InputError: no log"}')


@pytest.mark.slow
def test_diagnose_says_the_same_in_a_batch(tmp_path: Path) -> None:
    text = b"[rank1]: KeyError: 'labels'\n" + b"".join(watchdog(rank) for rank in (0, 2, 3))
    cases = [Case(f"real-{n}", "real", n, False, "console", 4, Truth(("hung",))) for n in (0, 1)]
    (tmp_path / "cases" / "real-0").mkdir(parents=True)
    folder(tmp_path / "cases" / "real-0", job=text)
    run(tmp_path, cases, "diagnose", Settings(fast=True, workers=1))
    first, second = read_answers(tmp_path, "diagnose")
    single = ours.answer(tmp_path / "cases" / "real-0", Commands(tmp_path, 60))
    assert first.verdict in ("hung", "failed")
    assert single == Found(
        first.verdict, first.cause, first.confidence, first.ranks, first.hosts, first.onset
    )
    assert "InputError" in (second.error or "")  # there is no such folder


def test_torchfrtrace_reads_dumps_alone(tmp_path: Path) -> None:
    case = folder(tmp_path, job=b"log\n", nccl_trace_rank_3=PICKLE)
    text = "missing ranks: {2}\nexpected ranks: {0, 1, 2}\nerror msg: Culprit rank 10; Error\n"
    commands = Printing(text)
    assert torch.answer(case, commands) == Found(ranks=(2, 10))
    assert commands.ran[0][1:3] == ["-m", "torch.distributed.flight_recorder.fr_trace"]
    assert torch.answer(folder(tmp_path / "logs", job=b"log\n"), Printing()) == Found()


def test_nvrx_reads_dumps_first_and_else_the_log(tmp_path: Path) -> None:
    table = "PGID | Group | Missing Ranks\n37 | TENSOR,0 | 9\n64 | DATA,0 | 9,14\n"
    failure = {"failure_class": "cuda_oom", "rank": "5"}
    both = folder(tmp_path, job=b"log\n", _dump_3=PICKLE)
    commands = Printing(table)
    assert nvidia.answer(both, commands) == Found("hung", ranks=(9, 14))
    assert commands.ran[0][2].endswith("trace_analyzer.fr_attribution")
    only = folder(tmp_path / "json", dump_1=b'{"version": "2.5", "entries": []}')
    assert nvidia.answer(only, Printing(table)) == Found("hung", ranks=(9, 14))
    found = nvidia.answer(both, Printing("", json.dumps({"primary_failure": failure})))
    assert found == Found("failed", "crash.gpu_oom", ranks=(5,))
    timeout = {"failure_class": "observed_distributed_operation_timeout", "rank": None}
    found = nvidia.answer(both, Printing("", json.dumps({"primary_failure": timeout})))
    assert found == Found("hung", "observed_distributed_operation_timeout")
    nothing = Printing("", json.dumps({"primary_failure": None}))
    assert nvidia.answer(both, nothing) == Found("unknown")


def test_gpualert_names_a_class_where_its_word_is_one_of_ours(tmp_path: Path) -> None:
    case = folder(tmp_path, job=b"log\n")
    oom = Printing("high\nGPU out-of-memory (CUDA OOM)\n")
    assert gpualert.answer(case, oom) == Found("failed", "crash.gpu_oom", "high")
    network = Printing("high\nNCCL communication error\n")
    assert gpualert.answer(case, network) == Found("failed", "NCCL communication error", "high")
    assert gpualert.answer(case, Printing("none\n\n")) == Found("unknown")


class Reporting(Printing):
    """`ascend-fd`, which writes its report into the folder of `diag -o`."""

    def __init__(self, codes: list[str], devices: list[str]) -> None:
        super().__init__("", "")
        self.found = {
            "Knowledge_Graph": {"fault": [{"code": code} for code in codes]},
            "Root_Cluster": {"root_cause_device": devices},
        }
        self.inputs: list[str] = []

    def run(self, command: object, variables: object = None) -> Output:
        output = super().run(command, variables)
        if self.ran[-1][1] == "parse":
            self.inputs = sorted(path.name for path in Path(self.ran[-1][3]).iterdir())
        else:
            report = Path(self.ran[-1][-1]) / "fault_diag_result" / "diag_report.json"
            report.parent.mkdir()
            report.write_text(json.dumps(self.found))
        return output


def test_ascend_fd(tmp_path: Path) -> None:
    case = folder(tmp_path, rank_12=b"log\n", console=b"log\n")
    nothing = Reporting(["NORMAL_OR_UNSUPPORTED"], ["Unknown Device"])
    assert ascend.answer(case, nothing) == Found("unknown")
    assert nothing.inputs == ["rank-0.txt", "rank-12.txt"]
    fault = Reporting(["AISW_1"], ["worker-0 device-11"])
    assert ascend.answer(case, fault) == Found("failed", "AISW_1", ranks=(11,))


# ------------------------------------------------------------------ what they share


def test_dumps_are_linked_by_their_ranks(tmp_path: Path) -> None:
    folder(tmp_path / "node-7", comm_lib_trace_rank_12=PICKLE)
    (tmp_path / "links").mkdir()
    link_dumps(dumps(tmp_path), str(tmp_path / "links"), "_dump_")
    assert (tmp_path / "links" / "_dump_12").read_bytes() == PICKLE


def test_files_of_a_case(tmp_path: Path) -> None:
    case = folder(tmp_path, b=b"two", a=b"one\n", dump_0=PICKLE)
    assert [path.name for path in logs(case)] == ["a", "b"]
    assert [path.name for path in dumps(case)] == ["dump_0"]
    one_log(case, tmp_path.parent / "whole")
    assert (tmp_path.parent / "whole").read_bytes() == b"one\ntwo\n"
