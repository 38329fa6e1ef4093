"""What `diagnose watch` costs beside a job of many ranks: CPU time and memory.

    python benchmarks/watch.py [--files 128] [--rate 5.0] [--seconds 60] [--folder DIR]

Writes so many logs, which grow by `rate` MB/s together, and watches them with the real command for
so many seconds. Prints one JSON line: the CPU time of the watch as a share of one core, its peak
memory and its size at the start and at the end, and how far the writer kept to its rate. Each rank
prints a step a second, the rest are lines of a busy logger; no line is like another.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from as_used import keep_byte_code

TICK_S = 0.1
SETTLE_S = 5.0  # for the start, which is not a part of what it costs


def main() -> None:
    keep_byte_code()
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=128)
    parser.add_argument("--rate", type=float, default=5.0, help="MB/s of all files together")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--folder", type=Path, help="for the logs; default: a temporary one")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="watch-", dir=given.folder))
    try:
        print(json.dumps(measured(folder, given.files, given.rate, given.seconds)))
    finally:
        shutil.rmtree(folder)


def measured(folder: Path, files: int, rate: float, seconds: float) -> dict[str, object]:
    logs = folder / "logs"
    logs.mkdir()
    writers = [(logs / f"rank_{rank}.log").open("ab", buffering=0) for rank in range(files)]
    random = Random(0)
    pieces = [filler(random) for _ in range(64)]
    said = (folder / "said.txt").open("wb")
    command = [sys.executable, "-m", "diagnose", "watch", str(logs)]
    watch = subprocess.Popen(command, stdout=said, stderr=said)
    begin = time.monotonic()
    written, measuring, turn = 0, False, 0
    cpu = resident = 0.0
    while (now := time.monotonic()) < begin + SETTLE_S + seconds:
        if not measuring and now >= begin + SETTLE_S:
            measuring, cpu, resident = True, cpu_of(watch.pid), memory_of(watch.pid, "VmRSS")
            written, measured_from = 0, now
        written += grow(writers, pieces, turn, int(rate * 1e6 * TICK_S / files))
        turn += 1
        time.sleep(max(0.0, begin + turn * TICK_S - time.monotonic()))
    spent = time.monotonic() - measured_from
    result = {
        "files": files,
        "mb_per_s": round(written / spent / 1e6, 2),
        "seconds": round(spent, 1),
        "core_percent": round(100 * (cpu_of(watch.pid) - cpu) / spent, 1),
        "peak_mb": round(memory_of(watch.pid, "VmHWM"), 1),
        "at_start_mb": round(resident, 1),
        "at_end_mb": round(memory_of(watch.pid, "VmRSS"), 1),
    }
    watch.terminate()
    watch.wait(300)
    text = (folder / "said.txt").read_text()
    return result | {"stalls": text.count("No progress"), "heartbeat": "Progress every" in text}


def grow(writers: list, pieces: list[bytes], turn: int, size: int) -> int:
    """Add so many bytes to each file; once a second a step."""
    written = 0
    for rank, file in enumerate(writers):
        text = pieces[(turn + rank) % len(pieces)]
        data = b"%d %b\n" % (turn, text[: size - 10].replace(b"@", b"%d" % (turn * 131 + rank)))
        if turn % 10 == 0:
            data += b"[rank%d]: step %d loss 0.%d tokens/s 1234.5\n" % (rank, turn // 10, turn)
        written += file.write(data)
    return written


def filler(random: Random) -> bytes:
    """Lines of a logger, 8 KB."""
    words = [
        "block",
        "cache",
        "shard",
        "fetched",
        "stored",
        "token",
        "batch",
        "queue",
        "reader",
        "buffer",
        "page",
        "slot",
    ]
    lines = []
    while sum(map(len, lines)) < 8 << 10:
        text = " ".join(random.choices(words, k=random.randint(4, 12)))
        lines.append(f"2026-11-02 10:00:01,@ DEBUG data.py:{random.randint(1, 999)} {text} @\n")
    return "".join(lines).encode()


def cpu_of(pid: int) -> float:
    """Seconds of CPU time of a process and its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int, name: str) -> float:
    """MB of a process, by its name in /proc."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    main()
