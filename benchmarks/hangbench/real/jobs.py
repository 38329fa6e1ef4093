"""Runs one job: writes its folder, starts it, lets go wrong what is to, keeps the evidence."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchmarks.hangbench.case import Files
from benchmarks.hangbench.real.lab import Forker
from benchmarks.hangbench.real.scenario import Event, Job
from benchmarks.hangbench.real.scrub import Interpreter, Scrubber

PROGRAMS = Path(__file__).with_name("programs")
BATCH = 4
ROWS_BEFORE = 5 * BATCH  # good rows of an odd shard
QUIET_S = 3.0  # a job whose ranks made no step for this long stands still
POLL_S = 0.02
_MEMORY_LEFT = 300 << 20
_FORKERS = threading.Lock()
_forkers: list[Forker] = []
_SHARED = ("util", "data", "loader", "model", "checkpoint")


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run: what a tool may see, and what really happened.

    onset: time of the last step of the first rank that went wrong, or None. steps: the last step
    of each rank. status: of the launcher; None: it was still there.
    """

    files: Files
    onset: datetime | None
    steps: dict[int, int]
    status: int | None


def free_port() -> int:
    """A TCP port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(job: Job, folder: Path, seed: int, interpreter: Interpreter) -> Recorded:
    """Run a job in a new folder, which is removed afterwards, and all its processes with it."""
    if job.launcher == "forks":
        return _forks(job, interpreter)
    folder.mkdir(parents=True)
    try:
        with _servers(job) as ports:
            _write(job, folder, seed, ports)
            return _Running(job, folder, ports["master"], interpreter).watch()
    finally:
        end_processes(folder)
        shutil.rmtree(folder, ignore_errors=True)


# ------------------------------------------------------------------------------ the folder


def _write(job: Job, folder: Path, seed: int, ports: dict[str, int]) -> None:
    for name in ("progress", "data", "logs", "traces", "tmp"):
        (folder / name).mkdir()
    sources = {f"{name}.py": PROGRAMS / f"{name}.py" for name in _SHARED}
    sources |= {"train.py": PROGRAMS / f"{job.program}.py"}
    sources |= {"callbacks.py": PROGRAMS / "callbacks" / f"{job.callbacks}.py"}
    for name, source in sources.items():
        shutil.copy(source, folder / name)
    for name, text in job.sources.items():
        (folder / name).write_text(text, encoding="utf-8")
    settings = {
        "steps": job.steps, "timeout": job.timeout_s, "pace": job.pace_s, "style": "dated",
        "all_ranks_log": False, "trace": "dumps" in job.kept, "num_workers": 0,
        "save_every": 1000, "world": job.world, "port": ports["master"],
        "tracking_port": ports["tracking"], **job.settings,
    }  # fmt: skip
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    for name, content in job.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    for name in job.fifos:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(folder / name)
    draw = random.Random(seed)
    for rank in range(job.world):
        path = folder / "data" / f"shard-{rank:05d}.jsonl"
        write_shard(path, job.shards.get(rank, ""), job.steps, draw)


def write_shard(path: Path, odd: str, steps: int, draw: random.Random) -> None:
    """A shard of a rank, with what is odd after five batches.

    odd: `missing`; `short` ends there; `torn` breaks a row off; `no_label`; `wide` has rows of nine
    numbers; `text` has a word for a number; `binary`; `fifo` gives nothing more.
    """
    rows = [
        json.dumps({"x": [round(draw.random(), 3) for _ in range(8)], "y": round(draw.random(), 3)})
        for _ in range(steps * BATCH + 2 * BATCH)
    ]
    good, rest = rows[:ROWS_BEFORE], rows[ROWS_BEFORE:]
    nine = [0.5] * 9
    tail = {
        "": rest,
        "short": [],
        "torn": [rest[0][:20]],
        "no_label": ['{"x": [0, 0, 0, 0, 0, 0, 0, 0]}', *rest],
        "wide": [json.dumps({"x": nine, "y": 0.5})] * BATCH + rest,
        "text": ['{"x": ["n/a", 0, 0, 0, 0, 0, 0, 0], "y": 0}', *rest],
        "binary": ["\udcff\udcfe\udc80", *rest],
        "fifo": [],
    }
    if odd == "missing":
        return
    text = "".join(f"{row}\n" for row in good + tail[odd])
    if odd == "torn":
        text = text.rstrip("\n")
    content = text.encode("utf-8", "surrogateescape")
    if odd != "fifo":
        path.write_bytes(content)
        return
    os.mkfifo(path)
    threading.Thread(target=_feed, args=(path, content), daemon=True).start()


def _feed(path: Path, content: bytes) -> None:
    """Give a reader the good rows, and then nothing while the job lives."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR)
        os.write(descriptor, content)
        while path.exists():
            time.sleep(0.5)
        os.close(descriptor)


@contextmanager
def _servers(job: Job) -> Iterator[dict[str, int]]:
    """Ports of a job: one for its ranks, and the tracking server's if it has one."""
    with socket.socket() as silent, socket.socket() as other:
        ports = {"master": free_port(), "tracking": free_port()}
        if job.tracking == "silent":
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            ports["tracking"] = int(silent.getsockname()[1])
        if job.busy_port:
            other.bind(("127.0.0.1", 0))
            other.listen()
            ports["master"] = int(other.getsockname()[1])
        yield ports


# ------------------------------------------------------------------------------ the processes


class _Running:
    """A job that runs."""

    def __init__(self, job: Job, folder: Path, port: int, interpreter: Interpreter) -> None:
        self.job, self.folder, self.python = job, folder, interpreter.executable
        self.scrubber = Scrubber(folder, interpreter)
        self.extra: Files = {}
        self.onset: float | None = None
        self.seen = False
        self.events = list(job.events)
        env = environment(job, folder, self.python)
        self.console = folder / "console.log"
        with self.console.open("wb") as sink:
            self.launcher = subprocess.Popen(
                command(job, port, self.python, folder), cwd=folder, env=env, stdout=sink,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def watch(self) -> Recorded:
        began = moved = time.monotonic()
        before: dict[int, tuple[int, int]] = {}
        looked = False
        while self.launcher.poll() is None:
            time.sleep(POLL_S)
            now, ranks = time.monotonic(), self.ranks()
            if ranks != before:
                before, moved = ranks, now
            self._act(ranks)
            if now - began > self.job.limit_s:
                raise TimeoutError(
                    f"not at its end after {self.job.limit_s:g} s, steps {ranks}:\n"
                    + self.console.read_text(encoding="utf-8", errors="replace")[-1500:]
                )
            begun = len(ranks) == self.job.world and all(step for _, step in ranks.values())
            if self.seen:
                self._look(ranks)
                return self._recorded(None)
            begun |= self.job.look_early and len(ranks) == self.job.world
            if not looked and begun and now - moved > QUIET_S:
                looked = True
                self._look(ranks)
                if self.job.end == "alive":
                    return self._recorded(None)
                if self.job.end in ("term", "int"):
                    number = signal.SIGTERM if self.job.end == "term" else signal.SIGINT
                    time.sleep(self.job.timeout_s / 2)
                    if number == signal.SIGINT:
                        self._interrupt()
                    else:
                        self.launcher.send_signal(number)
        time.sleep(0.3)
        return self._recorded(self.launcher.returncode)

    def ranks(self) -> dict[int, tuple[int, int]]:
        """Process and step of each rank."""
        found = {}
        for rank in range(self.job.world):
            with suppress(OSError, ValueError):
                pid, step = (self.folder / "progress" / str(rank)).read_text().split()
                found[rank] = (int(pid), int(step))
        return found

    def _act(self, ranks: dict[int, tuple[int, int]]) -> None:
        for event in [one for one in self.events if ranks.get(one.rank, (0, -1))[1] >= one.step]:
            self.events.remove(event)
            if event.action == "look":
                self.seen = True
            elif event.action == "launcher-SIGTERM":
                self.launcher.send_signal(signal.SIGTERM)
            elif event.action == "launcher-SIGINT":
                self._interrupt()
            else:
                act(event, ranks[event.rank][0])
            self.onset = time.time()

    def _interrupt(self) -> None:
        """Ctrl-C reaches the whole foreground group."""
        with suppress(ProcessLookupError):
            os.killpg(self.launcher.pid, signal.SIGINT)

    def _look(self, ranks: dict[int, tuple[int, int]]) -> None:
        """Take stacks, dumps and a bundle of a job that stands still."""
        alive = {rank: pid for rank, (pid, _) in ranks.items() if Path(f"/proc/{pid}").exists()}
        if "dumps" in self.job.kept:
            (self.folder / "progress" / "trace").touch()
            ends = time.monotonic() + 3
            while time.monotonic() < ends:
                time.sleep(0.1)
                if all((self.folder / "progress" / f"traced-{one}").exists() for one in alive):
                    break
        if "stacks" in self.job.kept:
            for rank, pid in alive.items():
                taken = subprocess.run(
                    [str(Path(self.python).with_name("py-spy")), "dump", "--pid", str(pid)],
                    capture_output=True, check=False, timeout=20,
                )  # fmt: skip
                self.extra[f"stacks/rank-{rank}.txt"] = taken.stdout or taken.stderr
        if "faulthandler" in self.job.kept:
            for pid in alive.values():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)
        if "bundle" in self.job.kept:
            self.extra |= bundle(self.launcher.pid, self.folder)

    def _recorded(self, status: int | None) -> Recorded:
        """The files of the run, made neutral."""
        files = dict(self.extra)
        if "console" in self.job.kept:
            files["console.log"] = self.console.read_bytes()
        if "ranks" in self.job.kept:
            for path in sorted((self.folder / "logs").rglob("*")):
                if path.is_file() and not path.is_symlink() and path.stat().st_size:
                    files[str(path.relative_to(self.folder))] = path.read_bytes()
        for path in sorted((self.folder / "traces").iterdir()):
            files[f"dumps/{path.name}"] = path.read_bytes()
        files = {name: content for name, content in files.items() if content}
        steps = {rank: step for rank, (_, step) in self.ranks().items()}
        return Recorded(self.scrubber.files(files), self._onset(), steps, status)

    def _onset(self) -> datetime | None:
        wrong = [self.folder / "progress" / str(rank) for rank in self.job.wrong.ranks]
        times = [path.stat().st_mtime for path in wrong if path.exists()]
        if self.onset is not None:
            times.append(self.onset)
        if not times:
            return None
        return datetime.fromtimestamp(self.onset if self.onset is not None else min(times))


def command(job: Job, port: int, python: str, folder: Path) -> list[str]:
    """The command line of a job."""
    world, options = str(job.world), list(job.options)
    if job.launcher == "torchrun":
        words = [python, "-m", "torch.distributed.run", f"--nproc-per-node={world}"]
        words += ["--master-addr=127.0.0.1", f"--master-port={port}"]
        words += ["--log-dir=logs", "--redirects=3", "--tee=3"] if job.tee else []
        words += [*options, "train.py"]
    elif job.launcher == "accelerate":
        words = [
            python,
            "-m",
            "accelerate.commands.launch",
            "--multi_gpu",
            "--num_processes",
            world,
        ]
        words += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
        words += ["--main_process_port", str(port), *options, "train.py"]
    elif job.launcher == "mpirun":
        words = [
            "mpirun",
            "-n",
            world,
            "--oversubscribe",
            *options,
            python,
            *job.python_options,
            "train.py",
        ]
    elif job.launcher == "processes":
        to = " > logs/process-$i.log 2>&1" if job.tee else ""
        ranks = " ".join(map(str, range(job.world)))
        script = f"for i in {ranks}; do\n  PROCESS_ID=$i python train.py{to} &\ndone\nstatus=0\n"
        script += 'for job in $(jobs -p); do\n  wait "$job" || status=$?\ndone\nexit $status\n'
        (folder / "launch.sh").write_text(script, encoding="utf-8")
        words = ["bash", "launch.sh"]
    else:
        words = [python, *options, "train.py"]
    if job.end == "limit":
        words = ["timeout", "-k", "5", f"{job.timeout_s * 2:g}", *words]
    return words


def environment(job: Job, folder: Path, python: str) -> dict[str, str]:
    """The environment of a job: little of ours, and nothing that tells what it is for."""
    env = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    env |= {
        "PATH": f"{Path(python).parent}:{env.get('PATH', '/usr/bin:/bin')}",
        "TMPDIR": str(folder / "tmp"), "HOME": str(folder / "tmp"), "OMP_NUM_THREADS": "1",
        "RAY_TMPDIR": str(folder / "tmp"), "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled", "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(folder),
        "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "JAX_PLATFORMS": "cpu",
        "ACCELERATE_USE_CPU": "true", **job.env,
    }  # fmt: skip
    if "dumps" in job.kept:
        env |= {"TORCH_FR_BUFFER_SIZE": "2000"}
    return env


def _forks(job: Job, interpreter: Interpreter) -> Recorded:
    with _FORKERS:
        if not _forkers:
            env = environment(job, Path(tempfile.gettempdir()), interpreter.executable)
            _forkers.append(Forker(interpreter.executable, env))
        forker = _forkers[0]
        files: Files = forker.run(job, free_port())
    return Recorded(Scrubber(forker.folder, interpreter).files(files), None, {}, None)


def act(event: Event, pid: int) -> None:
    """Do to a process what an event says."""
    if event.action == "kill-worker":
        for child in children(pid):
            if b"spawn" in cmdline(child) or cmdline(child) == cmdline(pid):
                os.kill(child, signal.SIGKILL)
                return
    elif event.action == "limit-memory":
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[0])
        most = pages * os.sysconf("SC_PAGE_SIZE") + _MEMORY_LEFT
        resource.prlimit(pid, resource.RLIMIT_AS, (most, most))
    else:
        os.kill(pid, getattr(signal, event.action))


def children(pid: int) -> list[int]:
    """Processes that a process started."""
    path = Path(f"/proc/{pid}/task")
    found: list[int] = []
    for thread in path.iterdir():
        with suppress(OSError):
            found += map(int, (thread / "children").read_text(encoding="ascii").split())
    return sorted(set(found))


def cmdline(pid: int) -> bytes:
    """Command line of a process; empty if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def bundle(pid: int, folder: Path) -> Files:
    """What `diagnose collect` finds at a process and those it started."""
    out = folder / "tmp" / "bundle"
    tool = str(Path(sys.executable).with_name("diagnose"))
    words = [tool, "collect", "--pid", str(pid), "--seconds", "2", "-o", str(out)]
    subprocess.run(words, capture_output=True, check=True, timeout=60)
    return {
        f"bundle/{path.relative_to(out)}": path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


def end_processes(folder: Path) -> None:
    """Kill all that was started in a folder: their environment names it."""
    wanted = f"={folder}/tmp".encode()
    for _ in range(3):
        found = [
            int(one.name)
            for one in Path("/proc").iterdir()
            if one.name.isdigit() and wanted in _environment(one)
        ]
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return
        time.sleep(0.3)


def _environment(process: Path) -> bytes:
    with suppress(OSError):
        return (process / "environ").read_bytes()
    return b""
