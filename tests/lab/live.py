"""Jobs of the lab while they run: started, looked into, and ended again."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from diagnose.collect import bundle, proc
from diagnose.collect.bundle import Manifest, Node, NodeOptions
from diagnose.collect.node import collect_node
from tests.lab.launch import WORKER, free_port

STUCK = Path(__file__).with_name("stuck.py")
__all__ = ["STUCK", "WORKER", "Live", "collected", "live"]


@dataclass(frozen=True)
class Live:
    """A running job: its launcher, and its folder with console.log."""

    launcher: subprocess.Popen[bytes]
    folder: Path

    @property
    def console(self) -> str:
        return (self.folder / "console.log").read_text(encoding="utf-8", errors="replace")

    @property
    def ranks(self) -> list[int]:
        """The processes that the launcher started."""
        stats = (proc.stat(pid) for pid in proc.pids())
        return [stat.pid for stat in stats if stat and stat.parent == self.launcher.pid]

    def await_(self, done: Callable[[], bool], seconds: float = 60.0) -> None:
        ends = time.monotonic() + seconds
        while not done():
            assert self.launcher.poll() is None, self.console[-3000:]
            assert time.monotonic() < ends, self.console[-3000:]
            time.sleep(0.1)

    def settle(self, quiet: float = 2.0) -> None:
        """Until no rank, nor what it started, used CPU time for a while, or only one rank does."""

        def idle() -> bool:
            before = self._spent()
            time.sleep(quiet)
            after = self._spent()
            busy = [pid for pid, ticks in after.items() if ticks - before.get(pid, 0) > 10]
            return len(busy) <= 1 and before.keys() == after.keys()

        self.await_(idle)

    def _spent(self) -> dict[int, int]:
        found = {}
        for pid in self.ranks:
            stat = proc.stat(pid)
            if stat is not None:
                found[pid] = stat.user + stat.system
        return found


@contextmanager
def live(
    folder: Path,
    script: Path,
    *options: str,
    nproc: int = 4,
    env: dict[str, str] | None = None,
    launcher: Sequence[str] = (),
) -> Iterator[Live]:
    """A torchrun job of a script with options; it is killed at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={nproc}"]
    command += ["--master-addr=127.0.0.1", f"--master-port={free_port()}", *launcher]
    plain = {key: text for key, text in os.environ.items() if not key.startswith(("TORCH", "NCCL"))}
    with (folder / "console.log").open("wb") as console:
        process = subprocess.Popen(
            [*command, str(script), *options],
            cwd=folder,
            env={**plain, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **(env or {})},
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    job = Live(process, folder)
    try:
        yield job
    finally:
        # Each rank leads a session of its own, in which its workers are.
        for pid in [*job.ranks, process.pid]:
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def collected(job: Live, folder: Path, **options: object) -> Node:
    """A bundle of a running job, in `folder`."""
    asked = NodeOptions(pids=(job.launcher.pid,), **options)  # type: ignore[arg-type]
    node = collect_node(folder, asked)
    manifest = Manifest(node.tool, node.started, node.ended, nodes=[node.to_dict()])
    bundle.write_manifest(folder, manifest)
    return node


@contextmanager
def silent_mount(point: Path) -> Iterator[Path]:
    """A FUSE file system whose server answers nothing but the first request; needs fusermount3."""
    point.mkdir(parents=True, exist_ok=True)
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, its:
        subprocess.run(
            ["fusermount3", "-o", "fsname=silent,subtype=silent", "--", str(point)],
            env={**os.environ, "_FUSE_COMMFD": str(its.fileno())},
            pass_fds=[its.fileno()],
            check=True,
        )
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    try:
        # FUSE_INIT of linux/fuse.h: 40 bytes of header, then what the kernel can; the answer has 16
        # bytes of header, protocol 7.23 and limits.
        _, _, unique = struct.unpack_from("=IIQ", os.read(fds[0], 1 << 17))
        told = struct.pack("=IIIIHHIIHHI28x", 7, 23, 0, 0, 8, 6, 4096, 1, 0, 0, 0)
        os.write(fds[0], struct.pack("=IiQ", 16 + len(told), 0, unique) + told)
        yield point
    finally:
        os.close(fds[0])  # whoever waits gets an error
        subprocess.run(["fusermount3", "-u", "-z", "--", str(point)], check=False)
