"""What is reached and what came of it: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """One command that is run here and answers with the stream of a node.

    name: What the node is called in messages.
    command: Its words; no shell reads them.
    stdin: What it is given, such as the program for the node; empty: nothing.
    lines: It answers for several nodes at once, in the lines of `frames`.
    """

    name: str
    command: tuple[str, ...]
    stdin: bytes = b""
    lines: bool = False


@dataclass(slots=True)
class Plan:
    """How the nodes of a job are reached; `problems` are lines for people.

    clean: Variables with these prefixes would change what the launcher does, and are left out of
        its environment; `keep` are exceptions.
    """

    via: str
    calls: list[Call] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    clean: tuple[str, ...] = ()
    keep: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Limits:
    """What reaching one node may cost, and how many are reached at a time.

    seconds: From the start of its command to its end.
    size: Bytes of its files.
    at_once: Commands that run at the same time.
    """

    seconds: float
    size: int
    at_once: int = 64


@dataclass(slots=True)
class Reached:
    """What one call came to.

    `nodes` are their documents as they are in the bundle, `files` and `size` what was unpacked.
    """

    name: str
    seconds: float = 0.0
    nodes: list[dict[str, Any]] = field(default_factory=list)
    files: int = 0
    size: int = 0
    problems: list[str] = field(default_factory=list)
