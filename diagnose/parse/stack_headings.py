"""Headings between stack dumps: whose stacks follow."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from diagnose.lazy import expression
from diagnose.parse.machines import node_like
from diagnose.parse.stack_blocks import Where

# torch/distributed/debug/_debug_handlers.py of 2.13: StacksHandler.dump, PySpyHandler.dump
DEBUG_SERVER = expression(
    r"=== Rank (\d{1,7}): (?:https?://\[?([^\s/\]]{1,200}?)\]?(?::\d{1,5})?(?:/\S*)?)? ===\s*\Z"
)
DEBUG_SERVER_ERROR = expression(r"Error: (\d{3})\s*\Z")

_DECORATED = expression(r"\s{0,8}(?:[=#*>~+@|$]+|-{2,}|<{2,})\s*(.*)")
_KEYED = expression(
    r"(?i)[\[(]?(?:global[ _]?)?(?:rank|local_?rank|host|hostname|node|pid|pod)[\W\d_]*\Z"
)
_HOST_KEY = expression(r"(?i)\W*(?:host|hostname|node|pod)\W*\Z")
_ENVIRONMENT = expression(r"[A-Z_][A-Z0-9_]{1,60}=\S{0,2000}\Z")
_RANK = expression(
    r"(?i)(?<![a-z\d])(?:([a-z]{1,12})[_\-]|(local|node|global) )?"
    r"rank[ _:=#.\-\[]{0,3}(\d{1,7})(?!\d)"
)
# Open MPI's `mpirun --get-stack-traces`: job, step and rank.
_OPEN_MPI = expression(
    r"STACK TRACE FOR PROC \[\[\d{1,9},\d{1,9}\],(\d{1,7})\] \((\S{1,255}), PID (\d{1,9})\)"
)
_PROCID = expression(r"(?:SLURM_PROCID|PMIX?_RANK)=(\d{1,7})\Z")
_PID = expression(r"(?i)(?<![a-z\d])pid[ _:=#\-]{0,3}(\d{1,9})(?!\d)")
_HOST_PID = expression(r"(?=[\w.\-]*[\d.\-])([A-Za-z][\w.\-]{0,120})[ :/]{1,3}(\d{2,9})\W*\Z")
_OPTION = expression(r"(?:--?(local[_\-])?rank[= ]|\b(LOCAL_)?RANK=)(\d{1,7})(?!\d)")
# Ranks inside something smaller than the job.
_PARTIAL = frozenset(
    {"local", "node", "group", "role", "machine", "tp", "pp", "dp", "cp", "ep", "mp", "sp", "pg",
     "data", "pipe", "model", "tensor", "expert", "context"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Heading:
    """What a line between dumps says; `environment`: a variable of the process, not a title."""

    where: Where
    environment: bool = False


def heading(line: str) -> Heading | None:
    """`# rank 3`, `=== node1 4242 ===`, `==> out/rank_3.txt <==`, `RANK=3`, `node7:`; else None.

    A line of decoration, or a title without any of this, is a heading that says nothing.
    """
    text = line.strip()
    if len(text) > 2000:
        return None
    if found := _OPEN_MPI.match(text):
        return Heading(Where(int(found[1]), found[2], int(found[3])))
    if _ENVIRONMENT.match(text):
        procid = _PROCID.match(text)
        where = Where(int(procid[1])) if procid else _where(text)
        return Heading(_without_host(where), environment=True)
    decorated = _DECORATED.match(text)
    if decorated:
        return Heading(_where(decorated[1]))
    words = text.split()
    alone = len(words) == 1 and node_like(words[0].rstrip(":"))
    return Heading(_where(text)) if alone or _keyed(words) else None


def _without_host(where: Where) -> Where:
    """A host in a variable is mostly that of rank 0 (MASTER_ADDR)."""
    return Where(where.rank, None, where.pid, where.local_rank)


def _keyed(words: list[str]) -> bool:
    """Words like `rank 3 (pid 77):`; any other word makes it a sentence of a log."""
    if not words or len(words) > 8 or not _KEYED.match(words[0]):
        return False
    return all(
        _KEYED.match(word) or not word.strip("()[]:,").isalpha() or _HOST_KEY.match(before)
        for before, word in pairwise(words)
    )


def of_command(command: str) -> Where:
    """Who a command line says it is: `--rank=3`, `--local_rank 3`, `RANK=3 python …`."""
    rank = local = None
    for found in _OPTION.finditer(command[:5000]):
        if found[1] or found[2]:
            local = int(found[3])
        else:
            rank = int(found[3])
    return Where(rank, local_rank=local)


def _where(text: str) -> Where:
    rank = local = pid = None
    for found in _RANK.finditer(text):
        of = (found[1] or found[2] or "").lower()
        if of == "local":
            local = int(found[3])
        elif of not in _PARTIAL and rank is None:
            rank = int(found[3])
    if match := _PID.search(text):
        pid = int(match[1])
    pair = _HOST_PID.match(text.strip("=#*-<>~+@| "))
    if pair and pid is None and not _RANK.match(text) and not _PID.match(text):
        return Where(rank, pair[1], int(pair[2]), local)
    words = (word.strip("=#*<>[](),;'\"").partition(":")[0] for word in text.split()[:12])
    host = next((word for word in words if word and node_like(word)), None)
    return Where(rank, host, pid, local)
