"""Short commands of a site whose answers say which nodes a job has."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from io import BytesIO

from diagnose.runtime.process import run

# What launchers and parsers of options add to what went wrong.
_AFTERMATH = re.compile(
    r"srun: error: \S+: tasks? \S+: (?:Exited|Terminated|Killed)|srun: (?:Terminating|Job step)"
    r"|command terminated with exit code|[Tt]ry [\"'`]?\w+ --help|Usage:|\W*\Z"
)
_SECONDS = 60.0
MAX_ANSWER = 256 << 20


class ToolError(Exception):
    """A command of the site failed; the message is its own last line, or says what happened."""


def absent(tool: str) -> list[str]:
    """A problem where a command is not installed here."""
    return [] if shutil.which(tool) else [f"{tool} is not installed here (or not in PATH)"]


def ask(command: Sequence[str], environment: Mapping[str, str] | None = None) -> bytes:
    """What a command answers on standard output. Raises ToolError."""
    out = BytesIO()
    ending = run(command, out, seconds=_SECONDS, limit=MAX_ANSWER, environment=environment)
    if ending.status is None:
        name = "" if ending.why.startswith(f"{command[0]}: ") else f"{command[0]}: "
        raise ToolError(f"{name}{ending.why}")
    if ending.status:
        raise ToolError(
            last_line(ending.errors) or f"{command[0]} ended with exit status {ending.status}"
        )
    return out.getvalue()


def last_line(data: bytes) -> str:
    """The last line that says something of the cause; else the last one."""
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line]
    telling = [line for line in lines if not _AFTERMATH.match(line)]
    return (telling or lines or [""])[-1]


def environment(
    clean: tuple[str, ...], keep: frozenset[str] = frozenset()
) -> dict[str, str] | None:
    """That of this process without variables of these prefixes; None: as it is."""
    if not clean:
        return None
    return {
        name: value
        for name, value in os.environ.items()
        if name in keep or not name.startswith(clean)
    }
