"""The states of stack frames, and which frame shows which: the rows of `formats/frames/*.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from diagnose.diagnosis import CulpritKind
from diagnose.formats import table

State = Literal[
    "collective_wait", "cuda_sync", "comm_init", "store_get", "data_loading", "file_read",
    "file_write", "download", "preprocessing", "compile", "lock", "gil_wait", "evaluation",
    "python", "device_driver", "crashing", "exited", "sleep", "mutex", "driver_call", "kernel_wait",
    "stopped", "pipe", "gil_held", "reply", "message_wait", "unknown",
]  # fmt: skip


# What a state means, after "the rank is".
SAYS: dict[State, str] = {
    "collective_wait": "waiting in a collective",
    "cuda_sync": "waiting for the GPU",
    "comm_init": "waiting for other ranks to set up a communicator",
    "store_get": "waiting for a key in the store",
    "data_loading": "blocked in the data loader",
    "file_read": "reading files",
    "file_write": "writing files",
    "download": "waiting for a download",
    "preprocessing": "preparing data",
    "compile": "compiling",
    "lock": "waiting for a lock, a thread or a process",
    "gil_wait": "waiting for the GIL",
    "evaluation": "evaluating or generating",
    "python": "running Python code",
    "device_driver": "inside the GPU driver",
    "crashing": "crashing",
    "exited": "no longer running",
    "sleep": "sleeping",
    "mutex": "waiting for a mutex",
    "driver_call": "in a call of the GPU driver",
    "kernel_wait": "blocked in the kernel (D state)",
    "stopped": "stopped by a signal (state T)",
    "pipe": "waiting for the other end of a named pipe",
    "reply": "waiting for a reply over the network",
    "message_wait": "waiting for a message of another process",
    "gil_held": "holding the GIL in a call that sleeps",
    "unknown": "in an unrecognised frame",
}


# Waiting for other ranks: whoever stands here has come, and is a victim.
WAITING: frozenset[State] = frozenset(
    {"collective_wait", "cuda_sync", "comm_init", "store_get", "message_wait"}
)

# What is said of a rank that is there, where that does not depend on whether it moves.
KINDS: dict[State, CulpritKind] = {
    "device_driver": "stuck_device", "crashing": "crashed", "exited": "missing",
}  # fmt: skip
# States that hold a process up whatever it was about.
WHATEVER_FOR: frozenset[State] = frozenset({*KINDS, "stopped", "pipe", "kernel_wait"})


CALL, CHANNEL, PIPE, SYSTEM, CONTEXT, COMPUTE, BARE = range(7)
_LEVELS = ("call", "channel", "pipe", "system", "context", "compute", "bare")


@dataclass(frozen=True, slots=True)
class Rule:
    """Frames whose function and file match whole are in `state`.

    Python functions are matched without their class, native ones without leading `_`, `__GI_` and
    `__libc_`; files from their package on (`torch/…`), native ones without their folder.
    `backward`: the caller's side of the backward pass.
    """

    level: int
    state: State
    func: str
    file: str
    native: bool
    backward: bool


_ROWS = table.read(table.FRAMES).rows
RULES = tuple(
    Rule(
        _LEVELS.index(row["level"]), row["state"], row.get("func", ".*"), row.get("file", ".*"),
        row.get("native", False), row.get("backward", False),
    )
    for row in _ROWS if "state" in row
)  # fmt: skip
# Processes that are no rank of their own (workers of one, compilers, launchers): function, file.
HELPERS: tuple[tuple[str, str], ...] = tuple(
    (row.get("func", ".*"), row["file"]) for row in _ROWS if "helper" in row
)
_PHASES = [row for row in _ROWS if "phase" in row]
# Phases by functions of the user's own code.
OWN_PHASES: tuple[tuple[str, str], ...] = tuple(
    (row["phase"], row["func"]) for row in _PHASES if "own" in row
)
# Phases, functions and files by precedence.
PHASES: tuple[tuple[str, str, str], ...] = tuple(
    (row["phase"], row.get("func", ".*"), row.get("file", ".*"))
    for row in _PHASES
    if "own" not in row
)
