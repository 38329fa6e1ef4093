"""Made-up /proc folders, and what they hold of a process."""

from __future__ import annotations

from pathlib import Path

MOUNTS = """\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 21 0:40 / /data rw - nfs4 server:/export/my\\040data rw
31 30 0:41 / /data/local rw - xfs /dev/vdb rw
"""


class Machine:
    """A folder that looks like /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def process(
        self,
        pid: int,
        command: str = "python train.py",
        *,
        parent: int = 1,
        env: str = "",
        state: str = "S",
        name: str = "",
        started: int = 100,
        ticks: int = 0,
        switches: int = 0,
        call: str = "",
        wchan: str = "0",
        maps: str = "",
        uid: int = 1000,
    ) -> None:
        """A process; `env` are words like RANK=3."""
        words = command.split()
        name = name or (words[0].rpartition("/")[2] if words else "kthread")
        line = (
            f"{pid} ({name}) {state} {parent} {pid} 7 0 -1 4194304 0 0 0 0 {ticks} 0 0 0 20 0 1 0 "
            f"{started} 0 0" + " 0" * 30
        )
        task = self.root / str(pid) / "task" / str(pid)
        task.mkdir(parents=True, exist_ok=True)
        own = self.root / str(pid)
        status = (
            f"Name:\t{name}\nState:\t{state} (x)\nThreads:\t1\nUid:\t{uid}\t0\t0\t0\n"
            f"voluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t0\n"
        )
        for folder in (own, task):
            (folder / "stat").write_text(line)
            (folder / "status").write_text(status)
            (folder / "wchan").write_text(wchan)
            (folder / "syscall").write_text(call or "running\n")
        (own / "cmdline").write_text("\0".join(words) + "\0" if words else "")
        (own / "environ").write_text("\0".join(env.split()) + "\0" if env else "")
        (own / "maps").write_text(maps)
        (own / "mountinfo").write_text(MOUNTS)
        (own / "fd").mkdir(exist_ok=True)
        (own / "io").write_text("rchar: 5\nwchar: 6\nread_bytes: 7\nwrite_bytes: 8\n")
        (own / "cgroup").write_text("0::/job\n")
        for link, target in (("cwd", "/work"), ("root", "/")):
            if not (own / link).is_symlink():
                (own / link).symlink_to(target)

    def open(self, pid: int, fd: int, target: str) -> None:
        (self.root / str(pid) / "fd" / str(fd)).symlink_to(target)


def ranks(
    machine: Machine, count: int, *, parent: int = 10, first: int = 20, more: str = ""
) -> None:
    """`count` ranks of torchrun, from process `first` on."""
    for rank in range(count):
        env = f"RANK={rank} LOCAL_RANK={rank} WORLD_SIZE={count} LOCAL_WORLD_SIZE={count} {more}"
        machine.process(first + rank, "python -u train.py", parent=parent, env=env)
