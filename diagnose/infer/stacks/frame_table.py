"""What a stack frame says, by the rows of `formats/frames/*.yaml`: of Python and native frames.

A stack is read from its innermost frame outwards; the first frame that a rule of the first level
knows decides. Only when no frame does, the next level is asked: the system call at the bottom of a
stack means little while a frame further out says what it is for.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from diagnose.diagnosis import CulpritKind
from diagnose.formats import table
from diagnose.lazy import expression
from diagnose.parse.tracebacks import Frame, is_generated, library_path

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

# Waiting for other ranks: whoever is here has come, and is a victim.
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

_PREFIXES = expression(r"_+(?:GI_+)?(?:libc_+)?")


class Rule(NamedTuple):
    """What frames say whose function and file match whole: a state, a phase, or that of a helper.

    Python functions are matched without their class, native ones without leading `_`, `__GI_` and
    `__libc_`; files from their package on (`torch/…`), native ones without their folder.
    `level` is -1 without a state. `backward`: the caller's side of the backward pass, which waits
    while autograd's threads work. `own`: of the user's own code only.
    """

    level: int
    state: State = "unknown"
    phase: str | None = None
    func: str = ".*"
    file: str = ".*"
    native: bool = False
    backward: bool = False
    helper: bool = False
    own: bool = False

    def file_form(self) -> str:
        """The expression for the whole of a file; states are of files in any folder."""
        return self.file if self.level < 0 else rf"(?:.*/)?(?:{self.file})"


RULES = tuple(
    Rule(**{**row, "level": _LEVELS.index(row["level"]) if "level" in row else -1})
    for row in table.read(table.FRAMES).rows
)
_COMPILED = tuple((rule, expression(rule.func), expression(rule.file_form())) for rule in RULES)
# By precedence.
_PHASES = [rule for rule in RULES if rule.phase is not None and not rule.own]


@lru_cache(maxsize=65_536)
def names(frame: Frame) -> tuple[str, str]:
    """Function and file of a frame as the rules see them (`Rule`)."""
    if frame.native:
        prefix = _PREFIXES.match(frame.func)
        return frame.func[prefix.end() if prefix else 0 :], frame.file.rpartition("/")[2]
    return frame.func.rpartition(".")[2], library_path(frame.file) or frame.file.replace("\\", "/")


def is_library(frame: Frame) -> bool:
    """Is the frame outside of the user's own code?"""
    return frame.native or frame.line is None or library_path(frame.file) is not None


def is_torch_or_python(frame: Frame) -> bool:
    """A library frame of torch or Python itself, which says nothing about who called it."""
    if frame.native or frame.line is None or is_generated(frame.file):
        return True
    top = names(frame)[1].partition("/")[0].removesuffix(".py")
    return top == "torch" or top in sys.stdlib_module_names


def read(frames: Sequence[Frame]) -> tuple[Rule, int] | None:
    """The rule that decides where a stack (innermost frame first) is, and the frame's index."""
    known = [_known(frame) for frame in frames]
    for level in range(BARE + 1):
        for index, rules in enumerate(known):
            rule = next((rule for rule in rules if rule.level == level), None)
            if rule is not None and not (rule.backward and _computes(known[:index])):
                return rule, index
    return None


def is_helper(frames: Sequence[Frame]) -> bool:
    """Is it the stack of a process that is no rank?"""
    return any(rule.helper for frame in frames for rule in _known(frame))


def phase(frames: Sequence[Frame]) -> str | None:
    """The phase a stack shows, in the catalog's words."""
    shown = [rule for frame in frames for rule in _known(frame) if rule.phase is not None]
    first = min((rule for rule in shown if not rule.own), key=_PHASES.index, default=None)
    if first is not None and first.phase not in ("init", "training"):
        return first.phase
    return next((rule.phase for rule in shown if rule.own), first.phase if first else None)


@lru_cache(maxsize=65_536)
def _known(frame: Frame) -> tuple[Rule, ...]:
    """All rules that know the frame."""
    func, file = names(frame)
    return tuple(
        rule
        for rule, in_func, in_file in _COMPILED
        if rule.native == frame.native
        and in_func.fullmatch(func)
        and in_file.fullmatch(file)
        and not (rule.own and is_library(frame))
    )


def _computes(inner: Sequence[tuple[Rule, ...]]) -> bool:
    return any(rule.level == COMPUTE and rule.native for rules in inner for rule in rules)
