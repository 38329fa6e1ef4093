"""Side by side with what else people use: `python benchmarks/peers.py [--install]`.

One log of 128 ranks that hangs for ripgrep, drain3 and the restart agent of NVIDIA's Resiliency
Extension (NVRx, without its language model); one folder of Flight Recorder dumps for torch's
analyzer and that of NVRx; both for `diagnose triage`. Each command runs alone, pinned to one core,
in the same run. Prints a table (Markdown) of seconds of CPU, peak memory and what each one says;
the truth is below it.

`--install` makes an environment (--env) with drain3 and NVRx from the package index. Of NVRx only
modules of plain Python run, so its wheel is unpacked as if for the platform that it is built for.
torch is taken from --torch, an interpreter that has it. What is missing is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from as_used import keep_byte_code

HERE = Path(__file__).parent
NVRX = "nvidia_resiliency_ext.attribution"
NVRX_NEEDS = ("httpx", "numpy", "packaging", "psutil", "pydantic", "pydantic-settings", "pyyaml")
NVRX_WHEEL = ("--platform", "manylinux_2_39_x86_64", "--python-version", "3.12")
DRAIN = """
import logging, sys
from drain3 import TemplateMiner
logging.disable()
miner = TemplateMiner()
for line in open(sys.argv[1], errors="replace"):
    miner.add_log_message(line.rstrip())
print(len(miner.drain.clusters))
"""
# What one searches for by hand.
WORDS = (
    "ERROR", "Error:", "error:", "Exception", "Traceback", "FATAL", "CRITICAL", "panic",
    "NCCL WARN", "NCCL error", "ncclSystemError", "ncclInternalError", "ncclRemoteError",
    "ncclUnhandledCudaError", "Watchdog caught", "ran for", "timed out", "timeout", "Timeout(ms)",
    "heartbeat", "SIGABRT", "SIGKILL", "SIGSEGV", "SIGTERM", "SIGBUS", "Signal 6", "exitcode",
    "Segmentation fault", "core dumped", "Killed", "out of memory", "OutOfMemory", "oom-kill",
    "CUDA error", "CUDNN_STATUS", "CUBLAS_STATUS", "illegal memory access", "device-side assert",
    "uncorrectable ECC", "Xid", "fallen off the bus", "NVLink", "No space left", "Disk quota",
    "Input/output error", "Stale file handle", "not responding", "Connection refused",
    "Connection reset", "Connection closed", "Broken pipe", "No route to host", "unreachable",
    "Address already in use", "CANCELLED AT", "DUE TO TIME LIMIT", "NODE FAILURE", "preempt",
    "ChildFailedError", "RendezvousTimeout",
)  # fmt: skip


@dataclass(frozen=True)
class Peer:
    """A command, and how to tell in a few words what it prints."""

    name: str
    command: Sequence[str]
    verdict: Callable[[str], str]
    environment: dict[str, str] = field(default_factory=dict)


def main() -> None:
    keep_byte_code()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="64MiB", help="of the log")
    parser.add_argument("--ranks", type=int, default=64, help="with a dump each")
    parser.add_argument("--entries", type=int, default=2000, help="of a dump")
    parser.add_argument("--env", type=Path, default=HERE.parent / ".venv-peers")
    parser.add_argument("--install", action="store_true", help="make or renew --env")
    parser.add_argument("--torch", default=sys.executable, help="an interpreter with torch")
    options = parser.parse_args()
    if options.install:
        install(options.env)
    with tempfile.TemporaryDirectory() as folder:
        log, dumps, words = Path(folder, "job.log"), Path(folder, "dumps"), Path(folder, "words")
        missing, culprit = 77, options.ranks * 3 // 10
        generate("make_log.py", "--size", options.size, "--missing", missing, "--out", log)
        few = ["--ranks", options.ranks, "--entries", options.entries, "--culprit", culprit]
        generate("make_dumps.py", *few, "--out", dumps)
        words.write_text("\n".join(WORDS))
        compare(f"log of {options.size}, 128 ranks", of_log(log, words, options.env))
        title = f"{options.ranks} dumps of {options.entries:,} entries"
        compare(title, of_dumps(dumps, options.env, options.torch))
        print(f"\nTruth: rank {missing} never joins (log); rank {culprit} is stuck (dumps).")


def install(env: Path) -> None:
    """An environment with the peers that are in the package index."""
    subprocess.run([sys.executable, "-m", "venv", str(env)], check=True)
    pip = [str(env / "bin" / "pip"), "install", "-q", "--upgrade"]
    subprocess.run([*pip, "drain3", *NVRX_NEEDS], check=True)
    only = ["--no-deps", "--only-binary=:all:", "--target", str(env / "nvrx"), *NVRX_WHEEL]
    subprocess.run([*pip, *only, "nvidia-resiliency-ext"], check=True)


def generate(script: str, *options: object) -> None:
    command = [sys.executable, str(HERE / script), *map(str, options)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def ours(path: Path) -> Peer:
    command = [sys.executable, "-m", "diagnose", "triage", "--format", "json", str(path)]
    return Peer("diagnose", command, diagnosis)


def of_log(log: Path, words: Path, env: Path) -> list[Peer]:
    python, nvrx = str(env / "bin" / "python"), {"PYTHONPATH": str(env / "nvrx")}
    agent = [python, "-m", f"{NVRX}.restart_agent.cli", "--disable-l1", str(log)]
    return [
        ours(log),
        Peer(
            f"ripgrep, {len(WORDS)} words", ["rg", "-j1", "-cF", "-f", str(words), str(log)], lines
        ),
        Peer("drain3", [python, "-c", DRAIN, str(log)], lambda text: f"{text.strip()} templates"),
        Peer("NVRx restart agent", agent, restart, nvrx),
    ]


def of_dumps(dumps: Path, env: Path, torch: str) -> list[Peer]:
    python, nvrx = str(env / "bin" / "python"), {"PYTHONPATH": str(env / "nvrx")}
    prefix = "nccl_trace_rank_"
    module = "torch.distributed.flight_recorder.fr_trace"
    trace = [python, "-m", f"{NVRX}.trace_analyzer.fr_attribution", "--emit-stdout"]
    return [
        ours(dumps),
        Peer("torchfrtrace", [torch, "-m", module, str(dumps), "--prefix", prefix], missing_ranks),
        Peer(
            "NVRx trace analyzer",
            [*trace, "--fr-path", str(dumps), "-p", f"{prefix}*"], rows, nvrx,
        ),
    ]  # fmt: skip


def compare(title: str, peers: Sequence[Peer]) -> None:
    """Print the rows of a table."""
    print(f"\n| {title} | CPU s | peak MiB | says |\n|---|---|---|---|")
    run(peers[0])  # compiles the catalog, and warms the page cache
    for peer in peers:
        print(f"| {peer.name} | {' | '.join(run(peer))} |", flush=True)


def run(peer: Peer) -> tuple[str, str, str]:
    """Seconds of CPU, peak MiB and the verdict of a command; dashes where it cannot run."""
    if shutil.which(peer.command[0]) is None:
        return "-", "-", "not installed"
    with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            peer.command, stdout=told, stderr=errors, env=os.environ | peer.environment,
            preexec_fn=lambda: os.sched_setaffinity(0, {0}),
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        told.seek(0)
        errors.seek(0)
        text, trouble = told.read().decode(errors="replace"), errors.read().decode(errors="replace")
    if os.waitstatus_to_exitcode(status) not in (0, 1) or not (text + trouble).strip():
        return "-", "-", "failed"
    if "ModuleNotFoundError" in trouble:
        return "-", "-", "not installed"
    seconds = usage.ru_utime + usage.ru_stime
    return f"{seconds:.2f}", f"{usage.ru_maxrss / 1024:.0f}", peer.verdict(text or trouble)


def diagnosis(text: str) -> str:
    found = json.loads(text)
    return f"{found['verdict']}, {found['root_cause']['class']}, ranks {found['culprits']['ranks']}"


def lines(text: str) -> str:
    return f"{int(text.strip() or 0):,} lines"


def restart(text: str) -> str:
    """The decision and the primary failure of a response of the restart agent."""
    found = json.loads(text)
    first = found.get("primary_failure") or {}
    return f"{found['decision']}, {first.get('failure_class')}, rank {first.get('rank')}"


def missing_ranks(text: str) -> str:
    """The ranks that torch's analyzer blames."""
    return named(re.findall(r"(?:missing ranks|[Cc]ulprit rank)\D{0,12}([\d, ]+)", text))


def rows(text: str) -> str:
    """The ranks in the last column of the table of NVRx."""
    return named([row.rpartition("|")[2] for row in text.splitlines() if "|" in row])


def named(texts: Sequence[str]) -> str:
    ranks = [int(number) for text in texts for number in re.findall(r"\d+", text)]
    ranks = list(dict.fromkeys(ranks))
    shown = ", ".join(map(str, ranks[:4])) + (", …" if len(ranks) > 4 else "")
    return f"{len(ranks)} ranks missing: {shown}" if ranks else "names no rank"


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
