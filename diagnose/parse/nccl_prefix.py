"""The prefix of NCCL's and RCCL's own log (FORMATS 1.5). Function contract as in torch_prefixes."""

from __future__ import annotations

from diagnose.lazy import expression
from diagnose.parse.who import Prefix

_REACH = 500  # characters within which " NCCL " must follow; build paths can be long
# [dev] is missing on CALL lines; WARN has file:line, from 2.30 on also (function).
_NCCL = expression(
    r"(?:([A-Za-z0-9][\w.\-]{0,127}):(\d{1,7}):(?P<thread>\d{1,20}) (?:\[(-?\d{1,4})\] )?)?"
    r"(?:(\S{1,400}[: ]\d{1,7}) (?:\([\w:~<>]{1,120}\) )?)?"
    r"NCCL (INFO|WARN|TRACE|CALL|ABORT|VERSION|ATTN)(?: |\Z)"
)
_LEVELS = {"WARN": "WARNING", "ABORT": "FATAL", "TRACE": "DEBUG", "CALL": "DEBUG"}


def nccl(line: str, at: int, prefix: Prefix) -> int:
    """`host:pid:tid [dev] NCCL INFO `, `host:pid:tid [dev] net_ib.cc:1 (fn) NCCL WARN `.

    The host is cut at its first dot; dev is the calling thread's CUDA device. The time that 2.26
    and later print first is a bracketed date like others.
    """
    if line.find(" NCCL ", at, at + _REACH) < 0:
        return -1
    found = _NCCL.match(line, at)
    if found is None:
        return -1
    host, pid, _, dev, origin, kind = found.groups()
    if host is None and "." not in (origin or ""):
        return -1
    if host is not None:
        prefix.host, prefix.pid = host, int(pid)
    if dev is not None and int(dev) >= 0:
        prefix.dev = int(dev)
    if origin is not None:
        prefix.origin = origin
    prefix.level = _LEVELS.get(kind, "INFO")
    prefix.names.append("nccl")
    return found.end()


def thread(line: str, at: int) -> tuple[int, int]:
    """Where in such a prefix the number of the thread is, of which nothing is told."""
    found = _NCCL.match(line, at)
    return found.span("thread") if found and found["thread"] else (at, at)
