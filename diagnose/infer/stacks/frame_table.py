"""What a stack frame says, by the rows of `formats/frames/*.yaml`: of Python and native frames.

A stack is read from its innermost frame outwards; the first frame that a rule of the first level
knows decides. Only when no frame does, the next level is asked: the system call at the bottom of a
stack means little while a frame further out says what it is for.

Where no other rank is there to compare with: threads of a healthy process wait as well, for work,
for events, for the GPU, and say nothing. A mutex, Python's lock below the GPU driver, or a call of
the driver that only hands work over do not last in a healthy process.
"""

from __future__ import annotations

import re
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
# How the C library waits for a lock, from the innermost frame on.
_WAITING = expression(
    r"(do_)?futex\w*|lll_lock_wait\w*|pthread_(mutex|rwlock|spin)_\w*lock\w*|(new_)?sem_\w*wait\w*"
    r"|syscall|std::(mutex|unique_lock|lock_guard|shared_mutex)::.*|gthread_mutex_lock|\?\?"
)
_MUTEX = expression(r"lll_lock_wait\w*|pthread_(mutex|rwlock|spin)_\w*lock\w*")
_SEMAPHORE = expression(r"(do_)?futex\w*|(new_)?sem_\w*wait\w*")
_LIBC = expression(r"(?:lib(?:c|pthread)[.\-].*|[\w\-.]+\.[chS])?")
_GIL = expression(r"take_gil|PyEval_(?:Restore|Acquire)Thread|PyGILState_Ensure")
_OWN_LOCKS = expression(r"(?:take|drop)_gil|Py\w+|pthread_cond_\w+|std::condition_variable.*")
_PROFILER = expression(r"nv\d*cupti|cupti\w*")
_DRIVER = expression(r"lib(?:cuda|cupti|amdhip64|hsa-runtime64)[.\-].*")
_GPU = expression(r"lib(?:cuda|cudart|cupti|amdhip64|hsa-runtime64)[.\-].*")
# Calls that hand work to the GPU or give something back; none waits for kernels to end.
_CALLS = expression(
    r"(?:cuda|cu|hip)(?:(?:Graph)?Launch|Mem(?:cpy|set)\w*Async|HostRegister|Module(?:Unl|L)oad"
    r"|EventRecord|Stream(?:Create|Destroy)|CtxCreate|Init|Ipc)\w*|ncclGroupEnd\w*"
)
_ABORT = expression(r"ncclCommAbort\w*")
# Values and tensors fetched from the GPU come once its kernels have ended.
_FETCHES = expression(r"at::.*(?:_local_scalar_dense|item|copy)\w*|at::.*::to\w*")
_SYNCHRONIZES = expression(r"(?:cuda|cu|hip)\w*Synchronize\w*")
# The kernel's ways to sleep, whatever for.
_SLEEPS = expression(r"(io_)?schedule|mutex_lock|rwsem_|down|rt_mutex|wait_for_|bit_wait|out_of_")


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


def stuck(frames: Sequence[Frame], *, shown: bool) -> tuple[State, int] | None:
    """What a thread of native frames (innermost first) is stuck in, and the frame that shows it.

    `shown`: it is the main thread, or was shown for itself (without a heading). Other threads idle
    at semaphores, and take turns at Python's lock.
    """
    if not frames or not frames[0].native:
        return None
    locked = _locked(frames)
    if locked is not None:
        return "mutex", locked
    call = _first(frames, _ABORT)  # waits for nobody
    call = _handed_over(frames) if call is None else call
    if call is not None:
        return "driver_call", call
    waits = _first(frames, _GIL)
    if waits is not None and (shown or _has(frames[waits:], _GPU)):
        return "gil_wait", waits
    profiler = _profiles(frames) if shown else None
    return None if profiler is None else ("driver_call", profiler)


def in_kernel(frames: Sequence[Frame], *, asleep: bool) -> tuple[State, int] | None:
    """Where a task is in the kernel: in a driver, or, if nothing wakes it (`asleep`), anywhere."""
    found = read(frames)
    if found is not None and found[0].state == "device_driver":
        return "driver_call", found[1]
    if not asleep:
        return None
    awake = (i for i, frame in enumerate(frames) if not _SLEEPS.match(names(frame)[0]))
    return "kernel_wait", next(awake, 0)


def _locked(frames: Sequence[Frame]) -> int | None:
    """Whoever called for the mutex that the innermost frames wait for."""
    outer = _called(frames)
    if outer is None or _OWN_LOCKS.fullmatch(names(frames[outer])[0]):
        return None
    inner = [names(frame)[0] for frame in frames[:outer]]
    return outer if any(map(_MUTEX.fullmatch, inner)) else None


def _handed_over(frames: Sequence[Frame]) -> int | None:
    """A call that hands over work, whose innermost frames are in the driver itself."""
    if not any(_DRIVER.fullmatch(names(frame)[1]) for frame in frames[:2]):
        return None
    if _first(frames, _FETCHES) is not None:
        return None
    call = _first(frames, _CALLS)
    waits = _first(frames, _SYNCHRONIZES)
    return call if call is not None and (waits is None or call < waits) else None


def _profiles(frames: Sequence[Frame]) -> int | None:
    """A call of the profiler or the driver that waits at a semaphore."""
    outer = _called(frames)
    if outer is None or not any(_SEMAPHORE.fullmatch(names(frame)[0]) for frame in frames[:outer]):
        return None
    func, file = names(frames[outer])
    return outer if _PROFILER.fullmatch(func) or _DRIVER.fullmatch(file) else None


def _called(frames: Sequence[Frame]) -> int | None:
    """The first frame that is not the C library's way to wait; None where it does not wait."""
    for index, frame in enumerate(frames):
        func, file = names(frame)
        if not (_WAITING.fullmatch(func) and _LIBC.fullmatch(file)):
            return index or None
    return None


def _first(frames: Sequence[Frame], func: re.Pattern[str]) -> int | None:
    return next((i for i, frame in enumerate(frames) if func.fullmatch(names(frame)[0])), None)


def _has(frames: Sequence[Frame], file: re.Pattern[str]) -> bool:
    return any(file.fullmatch(names(frame)[1]) for frame in frames)
