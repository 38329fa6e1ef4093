"""Adapter of the baseline, a rule of thumb: the rank without a timeout line is to blame."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from benchmarks.hangbench.commands import CommandError, Commands
from benchmarks.hangbench.tools import Found, logs

TIMEOUT = re.compile(rb"\[Rank (\d+)\].*(?:Watchdog caught|operation timeout)")
RANK = re.compile(rb"\[(?:default)?(?:rank ?|Rank )(\d+)\]|\brank[ =:_](\d+)\b")
WORLD = re.compile(rb"\bworld[ _]?size\W{1,3}(\d+)", re.IGNORECASE)
FEW = 8  # ranks: more than a node without a line are not blamed

GIVES = frozenset({"verdict", "ranks"})


def blame(case: Path) -> tuple[bool, list[int]]:
    """Whether a rank prints a timeout; the ranks that print none, if others do and they are few."""
    text = b"\n".join(path.name.encode() + b"\n" + path.read_bytes() for path in logs(case))
    late = {int(rank) for rank in TIMEOUT.findall(text)}
    seen = {int(one or other) for one, other in RANK.findall(text)} | late
    world = max([*map(int, WORLD.findall(text)), max(seen, default=-1) + 1])
    silent = sorted(set(range(world)) - late)
    return bool(late), silent if late and len(silent) <= min(FEW, world // 2) else []


def version(environment: Path) -> str:
    return "1"


def answer(case: Path, commands: Commands) -> Found:
    output = commands.run([sys.executable, "-m", __name__, str(case)])
    if output.status:
        raise CommandError(output.errors.strip().rpartition("\n")[2])
    late, ranks = json.loads(output.text)
    return Found(verdict="hung" if late else "unknown", ranks=tuple(ranks))


if __name__ == "__main__":
    print(json.dumps(blame(Path(sys.argv[1]))))
