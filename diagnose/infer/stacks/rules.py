"""What a stack frame tells, by one table for Python and native frames; what native threads hang in.

A stack is read from its innermost frame outwards; the first frame that a rule of the first level
knows decides. Only when no frame does, the next level is asked: the system call at the bottom of a
stack means little while a frame further out says what it is for.

Where no other rank is there to compare with, a thread of a healthy process waits as well: for work,
for events, for the GPU. What such a thread says is nothing; a mutex, Python's lock below the GPU
driver, or a call of the driver that only hands work over do not last in a healthy process.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import lru_cache

from diagnose.infer.stacks.frame_table import (
    _BACKWARD,
    _ENGINE,
    _ENTRY,
    BARE,
    COMPUTE,
    HELPERS,
    OWN_PHASES,
    PHASES,
    RULES,
    Rule,
    State,
)
from diagnose.lazy import expression
from diagnose.parse.stacks import Frame
from diagnose.parse.tracebacks import is_generated, library_path

_PREFIXES = expression(r"_+(?:GI_+)?(?:libc_+)?")
_COMPILED = {
    native: tuple(
        (rule, expression(rule.func), expression(rf"(?:.*/)?(?:{rule.file})"))
        for rule in RULES
        if rule.native == native
    )
    for native in (False, True)
}
_COMPILED_HELPERS = tuple((expression(func), expression(file)) for func, file in HELPERS)
_COMPILED_OWN_PHASES = tuple((name, expression(func)) for name, func in OWN_PHASES)
_COMPILED_PHASES = tuple((expression(func), expression(file)) for _, func, file in PHASES)
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
    """The rule that decides where a stack (innermost frame first) stands, and the frame's index."""
    ruled = [(_rules(frame), index) for index, frame in enumerate(frames)]
    for level in range(BARE + 1):
        for rules, index in ruled:
            rule = rules[level]
            if rule is not None and not (is_backward(rule) and _computes(ruled[:index])):
                return rule, index
    return None


def is_backward(rule: Rule) -> bool:
    """The caller's side of the backward pass, which waits while autograd's threads work."""
    return rule.func in (_BACKWARD, _ENGINE, _ENTRY)


def is_helper(frames: Sequence[Frame]) -> bool:
    """Is it the stack of a process that is no rank?"""
    return any(_helps(frame) for frame in frames)


def phase(frames: Sequence[Frame]) -> str | None:
    """The phase a stack shows, in the catalog's words."""
    found = min((_phase(frame) for frame in frames), default=len(PHASES))
    if found < len(PHASES) and PHASES[found][0] not in ("init", "training"):
        return PHASES[found][0]
    own = next((own for frame in frames if (own := _own_phase(frame))), None)
    return own or (PHASES[found][0] if found < len(PHASES) else None)


@lru_cache(maxsize=65_536)
def _rules(frame: Frame) -> tuple[Rule | None, ...]:
    """The first rule of each level that knows the frame."""
    func, file = names(frame)
    found: list[Rule | None] = [None] * (BARE + 1)
    for rule, in_func, in_file in _COMPILED[frame.native]:
        if found[rule.level] is None and in_func.fullmatch(func) and in_file.fullmatch(file):
            found[rule.level] = rule
    return tuple(found)


def _computes(inner: Sequence[tuple[tuple[Rule | None, ...], int]]) -> bool:
    return any((rule := rules[COMPUTE]) is not None and rule.native for rules, _ in inner)


@lru_cache(maxsize=65_536)
def _helps(frame: Frame) -> bool:
    func, file = names(frame)
    return not frame.native and any(
        in_func.fullmatch(func) and in_file.fullmatch(file)
        for in_func, in_file in _COMPILED_HELPERS
    )


@lru_cache(maxsize=65_536)
def _phase(frame: Frame) -> int:
    func, file = names(frame)
    if frame.native:
        return len(PHASES)
    return next(
        (
            row
            for row, (in_func, in_file) in enumerate(_COMPILED_PHASES)
            if in_func.fullmatch(func) and in_file.fullmatch(file)
        ),
        len(PHASES),
    )


@lru_cache(maxsize=65_536)
def _own_phase(frame: Frame) -> str | None:
    if is_library(frame):
        return None
    func, _ = names(frame)
    return next((name for name, pattern in _COMPILED_OWN_PHASES if pattern.fullmatch(func)), None)


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
