"""Where every rank stands, from stack dumps; ranks that stand alike folded into classes.

The minority that does not wait for others while the majority does is the suspect. A rank that
waits has come and is a victim; ranks that wait in different collectives are a hint at a mismatch.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from diagnose.infer.events.exceptions import OP_OF_CALL
from diagnose.infer.stacks.frame_table import (
    CALL,
    CONTEXT,
    WAITING,
    Rule,
    State,
    in_kernel,
    is_helper,
    is_library,
    is_torch_or_python,
    names,
    phase,
    read,
    stuck,
)
from diagnose.lazy import expression
from diagnose.parse.tracebacks import STACK_FRAMES, Frame, Stack

_STAMP = expression(r"\d{8}[_\-T]?\d{6}|\d{10,13}")
_OF_THREADS = (("_bootstrap_inner", "threading.py"), ("_bootstrap", "threading.py"))
_PRINTED = "faulthandler"  # by the process itself, amid the lines of its log
_USUAL = 8  # stacks with which others are compared
_BESIDE = 3  # other threads named
_DIGITS = expression(r"(\d{1,18})")
_CALLERS = expression(r"(?:torch/distributed|deepspeed/comm|torch/autograd)/")
_NATIVE_CALL = expression(
    r"(?:c10d::(?:ops::|Async|ProcessGroup\w*::(?:Async)?)|nccl|gloo::|P?MPI_I?)_?"
    r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|bcast|barrier|reduce|gather"
    r"|scatter|send|recv)",
    re.IGNORECASE,
)
_SPELLED = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all", "bcast": "broadcast",
}  # fmt: skip

# States of a main thread that leave open what holds its process up.
_OPEN: frozenset[State] = frozenset({"lock", "gil_wait", "device_driver", "python", "unknown"})


@dataclass(frozen=True, slots=True)
class Place:
    """Where one rank stands.

    `detail` is the frame that tells it (`_try_get_data in torch/utils/data/dataloader.py`), `site`
    the innermost line of the user's own code (`train.py:141`), else of the framework's. `call` is
    the collective as called and `op` its operation as logs print it, when it waits in one. `key`
    is alike on ranks that stand alike. `vague`: the host may wait for the GPU in a call that shows
    no frame (`.item()` in Python). `moving`: the dump before shows it elsewhere. `stack` is the
    thread that tells all this. `certain`: the kernel says that it makes no step, whatever the other
    ranks do; `still`: its main thread made none between two samples (None: nobody looked).
    """

    rank: int
    state: State
    detail: str
    site: str | None
    phase: str | None
    call: str | None
    op: str | None
    key: tuple[str, ...]
    vague: bool
    moving: bool
    stack: Stack
    certain: bool = False
    still: bool | None = None

    @property
    def waits(self) -> bool:
        """Does it wait for other ranks?"""
        return self.state in WAITING

    @property
    def running(self) -> bool:
        """Was its process seen while it ran? A traceback is what one printed at its end."""
        return self.stack.kind not in ("traceback", "interrupt")


def places(stacks: Iterable[Stack], beside: Iterable[Stack] = ()) -> list[Place]:
    """One place a rank, by rank, from the last dump of it; stacks of unknown rank count nothing.

    Dumps are ordered by the times in their files' names, then the names, then lines; the order of
    `stacks` does not matter. Workers of a rank (data loader, compilers) are no rank. Where a dump
    was cut off nobody knows where its rank stands; `beside` are main threads of other ranks, which
    show how far most go out.
    """
    dumps = _without_cut(_dumps(stacks, headless=True), beside)
    by_rank: dict[int, list[list[Stack]]] = defaultdict(list)
    for dump in dumps:
        rank = dump[0].rank
        if rank is not None:
            by_rank[rank].append(dump)
    return [_place_of(rank, found) for rank, found in sorted(by_rank.items())]


def _without_cut(dumps: list[list[Stack]], beside: Iterable[Stack]) -> list[list[Stack]]:
    """The dumps, without frames of main threads that do not go out as far as most others do.

    Those of a Python program end where it begins, at the lines of its main module. One that a
    process printed, with some of the very frames of more others and no other frame, has lost lines:
    what prints it shares its log with others.
    """
    python = [dump for dump in dumps if any(not frame.native for frame in dump[0].frames)]
    lacking = _lacking([dump for dump in python if dump[0].kind == _PRINTED])
    mains = [dump[0] for dump in python]
    cut = {id(main) for main in mains if not _goes_out(main)}
    whole = sum(map(_goes_out, beside))
    if 2 * len(cut) > len(python) + whole:
        cut = set()
    cut |= {id(m) for m in mains if m.kind == _PRINTED and m.frames in lacking}
    return [
        [dump[0]._replace(frames=()), *dump[1:]] if id(dump[0]) in cut else dump for dump in dumps
    ]


def _lacking(dumps: Sequence[list[Stack]]) -> set[tuple[Frame, ...]]:
    """The frames of main threads that are a part of those of more others.

    Where the heading between two threads is lost as well, these are one.
    """
    mains = Counter(dump[0].frames for dump in dumps)
    every: Counter[tuple[tuple[Frame, ...], tuple[Frame, ...]]] = Counter()
    for dump in dumps:
        threads = sorted(dump, key=lambda thread: thread.line)
        every[tuple(frame for thread in threads for frame in thread.frames), dump[0].frames] += 1
        every[dump[0].frames, dump[0].frames] += len(dump) > 1
    usual = [one for one, count in every.most_common(_USUAL) if count > 1]
    return {
        own
        for own, count in mains.items()
        if any(count < mains[main] and _is_part(own, frames) for frames, main in usual)
    }


def _is_part(own: Sequence[Frame], frames: Sequence[Frame]) -> bool:
    """Whether a stack is another one of which frames are missing."""
    rest = iter(frames)
    return len(own) < len(frames) and all(frame in rest for frame in own)


def _goes_out(main: Stack) -> bool:
    """Whether it ends where Python runs a program, without frames of a thread that this started."""
    if any(names(frame) in _OF_THREADS for frame in main.frames):
        return False
    return len(main.frames) >= STACK_FRAMES or any(f.func == "<module>" for f in main.frames)


def unranked(stacks: Iterable[Stack]) -> list[Place]:
    """One place (of rank -1) for each process of unknown rank, in the order of their dumps."""
    return [_alone(dump) for dump in _dumps(stacks) if dump[0].rank is None and dump[0].frames]


def _alone(dump: list[Stack]) -> Place:
    """Where a process stands that can be compared with none: its main thread, or a stuck one."""
    place = _place(-1, dump)
    if not place.waits and place.state not in _OPEN:
        return place
    for thread in dump:
        if thread.kind == "kernel":
            found = in_kernel(thread.frames, asleep=thread.status == "D")
        else:
            shown = thread.main or thread.thread.startswith("#")
            found = stuck(thread.frames, shown=shown)
        if found is not None:
            state, index = found
            return replace(
                place, state=state, detail=_shown(thread.frames[index]), call=None, op=None,
                key=_key(thread.frames[index:]), vague=False, stack=thread,
            )  # fmt: skip
    return place


def _dumps(stacks: Iterable[Stack], *, headless: bool = False) -> list[list[Stack]]:
    """The threads of each process dump, main thread first, oldest dump first; ranks only.

    `headless`: also of those that lack it, with no frames in its place.
    """
    grouped: dict[tuple[str, int], list[Stack]] = defaultdict(list)
    for stack in stacks:
        grouped[stack.source, stack.dump].append(stack)
    found = []
    for threads in grouped.values():
        main = [stack for stack in threads if stack.main]
        if not main and headless:
            main = [threads[0]._replace(main=True, frames=())]
        if main and not is_helper(main[0].frames):
            others = (thread for thread in threads if not thread.main)
            found.append([*main[:1], *sorted(others, key=lambda thread: thread.line)])
    known = {(dump[0].source, dump[0].rank, dump[0].pid) for dump in found}
    roots = [d for d in found if (d[0].source, d[0].rank, d[0].parent or -1) not in known]
    return sorted(roots, key=lambda dump: _when(dump[0]))


def _when(stack: Stack) -> tuple[str, list[tuple[int, str]], int]:
    name = stack.source.rpartition("/")[2]
    stamp = _STAMP.search(name)
    parts = _DIGITS.split(stack.source)
    natural = [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
    return (re.sub(r"\D", "", stamp[0]) if stamp else "", natural, stack.line)


def _place_of(rank: int, dumps: list[list[Stack]]) -> Place:
    """The last dump with Python frames; a native one says what that leaves open."""
    framed = [dump for dump in dumps if dump[0].frames]
    if not framed:
        stack = dumps[-1][0]
        gone = stack.status == "error 503"  # refused: nobody listens there any more
        state: State = "exited" if gone else "unknown"
        detail = f"no stacks ({stack.status})" if stack.status else "no frames"
        return Place(rank, state, detail, None, None, None, None, (), True, False, stack)
    python = [dump for dump in framed if any(not frame.native for frame in dump[0].frames)]
    last, earlier = _last(python or framed)
    place = _place(rank, last)
    native = [dump for dump in framed if all(frame.native for frame in dump[0].frames)]
    if python and native and (place.vague or place.state == "unknown"):
        below = _place(rank, _last(native)[0])
        if not below.vague:
            place = replace(
                place, state=below.state, detail=below.detail, vague=False, stack=below.stack
            )
    before = _place(rank, earlier) if earlier else place
    same_wait = place.waits and (place.state, place.site) == (before.state, before.site)
    return replace(place, moving=before.key != place.key and not same_wait)


def _last(dumps: list[list[Stack]]) -> tuple[list[Stack], list[Stack] | None]:
    """The last dump and the one before. Of several processes in a source, the first is the rank."""
    source = [dump for dump in dumps if dump[0].source == dumps[-1][0].source]
    pid = source[0][0].pid
    own = [d for d in dumps if d[0].source != source[0][0].source or d[0].pid == pid]
    return own[-1], own[-2] if len(own) > 1 else None


def _place(rank: int, dump: list[Stack]) -> Place:
    main = stack = dump[0]
    found = read(main.frames)
    if found is not None and found[0].backward:
        stack, found = _in_autograd(dump[1:]) or (main, found)
    state: State = found[0].state if found else "python" if main.owns_gil else "unknown"
    if state == "message_wait" and rank >= 0 and not _is_child(main.frames):
        state = "lock"  # a rank may have children of its own
    index = found[1] if found else 0
    python = next((frame for frame in stack.frames if not frame.native), stack.frames[0])
    detail = _shown(stack.frames[index] if found else python)
    native = any(frame.native for frame in stack.frames)
    # Who waits for the GPU polls; a thread that sleeps below a line of Python waits for the host,
    # and so does one whose innermost call takes a lock.
    asleep = main.status == "idle" or (state == "lock" and index == 0)
    vague = (found is None or (found[0].level >= CONTEXT and not native)) and not asleep
    owner = next((thread for thread in dump if thread.owns_gil), None)
    if state == "gil_wait" and owner is not None:
        at = _site(owner.frames)
        detail += f", held by thread {owner.thread}" + (f" at {at}" if at else "")
    elif state == "lock":
        detail += "".join([text for thread in dump[1:] if (text := _beside(thread))][:_BESIDE])
    call, op = _call(stack.frames, dump) if state in WAITING else (None, None)
    return Place(
        rank, state, detail, _site(stack.frames) or _site(main.frames),
        phase(main.frames), call, op, _key(stack.frames[index:]),
        vague and not main.owns_gil, False, stack,
    )  # fmt: skip


def _is_child(frames: Sequence[Frame]) -> bool:
    """Whether it is a process of multiprocessing: its messages come from its parent or siblings."""
    return any(names(frame) == ("_bootstrap", "multiprocessing/process.py") for frame in frames)


def _beside(thread: Stack) -> str:
    """`; thread Thread-1 waits for one at a.py:7`, of a thread in the user's own code."""
    own = next((frame for frame in thread.frames if not frame.native), None)
    if own is None or is_library(own):
        return ""
    found = read(thread.frames)
    does = "waits for one" if found is not None and found[0].state == "lock" else "is"
    return f"; thread {thread.thread} {does} at {_site(thread.frames)}"


def _in_autograd(threads: Iterable[Stack]) -> tuple[Stack, tuple[Rule, int]] | None:
    """What a thread of autograd does: hooks launch collectives there, not on the main thread."""
    for thread in threads:
        python = [frame for frame in thread.frames if not frame.native]
        started = python and names(python[-1]) == ("_bootstrap", "threading.py")
        if not thread.thread.startswith("pt_autograd") and (started or not python):
            continue
        found = read(thread.frames)
        if found is not None and found[0].level == CALL and not found[0].backward:
            return thread, found
    return None


def _call(frames: Sequence[Frame], dump: list[Stack]) -> tuple[str | None, str | None]:
    """The collective as the program calls it, and its operation (that of the innermost call)."""
    called: list[str] = []
    for frame in frames:
        func, file = names(frame)
        if not frame.native and _CALLERS.match(file):
            called += [func] if func in OP_OF_CALL else []
        elif called and not frame.native:
            break
    if called:
        return called[-1].replace("_engine_run_backward", "backward"), OP_OF_CALL[called[0]]
    for threads in ([frames], [stack.frames for stack in dump]):
        calls = {
            _SPELLED.get(found[1].lower().replace("_", ""), found[1].lower())
            for thread in threads
            for frame in thread
            if frame.native and (found := _NATIVE_CALL.match(frame.func))
        }
        if len(calls) == 1:
            call = calls.pop()
            return call, OP_OF_CALL[call]
    return None, None


def _site(frames: Sequence[Frame]) -> str | None:
    for frame in frames:
        if not is_library(frame):
            return f"{_base(frame)}:{frame.line}"
    for frame in frames:
        if not is_torch_or_python(frame):
            return f"{names(frame)[1]}:{frame.line}"
    return None


def _shown(frame: Frame) -> str:
    func, file = names(frame)
    if frame.native:
        return f"{frame.func} {frame.file}" if frame.file.startswith("[") else frame.func
    return f"{func} in {file if is_library(frame) else f'{_base(frame)}:{frame.line}'}"


def _key(frames: Sequence[Frame]) -> tuple[str, ...]:
    """Frames from the deciding one on; lines only of the user's code, which tell calls apart."""
    python = [frame for frame in frames if not frame.native]
    if not python:
        return tuple(names(frame)[0] for frame in frames)
    return tuple(
        "@".join(names(frame)) if is_library(frame) else f"{_base(frame)}:{frame.line}"
        for frame in python
    )


def _base(frame: Frame) -> str:
    return frame.file.replace("\\", "/").rpartition("/")[2]
