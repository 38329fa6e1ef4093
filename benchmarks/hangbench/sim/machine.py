"""What stands still: hosts that run ahead of their devices, devices that execute in order.

Every rank runs a program of instructions. Its host enqueues work and goes on, until it synchronises
(`SYNC`, as `.item()` does) or has `ahead` works unfinished. Each process group has a stream of its
own on the device, and so has each pair of ranks that exchange single sends and receives; in a
stream work runs in order. Between streams the order is that of the compute stream: a work starts
when everything has finished that the compute stream waited for when it was enqueued. A call makes
the compute stream wait at once, unless it is `later`; then `WAIT` does.

A collective finishes when the devices of all members have come to the same operation of the same
sizes and type; a send when the device of its peer has come to the receive, and the other way round.

Times follow by max-plus: a work starts when all that it waits for has finished, and finishes
`TRANSFER_S` after the last of its members has started. What is computed depends on the programs
alone, never on the order in which this module visits them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.hangbench.sim.outcome import End, Frame, Group, Rank, Work

TRANSFER_S, ENQUEUE_S = 0.002, 0.0002

Site = tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """Enqueues a collective, or the sends and receives of `parts` ((`send` or `recv`, peer) each).

    compute_s: how long the device computes before it comes to this work. later: the compute stream
    does not wait for it before the next `WAIT`.
    """

    group: str
    op: str
    numel_in: int
    numel_out: int
    site: Site
    dtype: str = "BFloat16"
    parts: tuple[tuple[str, int], ...] = ()
    compute_s: float = 0.0
    later: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """Any other instruction.

    wait: the compute stream waits for all work. sync: the host waits for the compute stream.
    step: the step of that `number` is printed. busy: the host is at work for `seconds`. end: the
    process ends or is held up here, as `end` says; `what` is `Rank.stuck_in`. device: from here on
    the device is stuck in a computation.
    """

    kind: Literal["wait", "sync", "step", "busy", "end", "device"]
    site: Site = ()
    number: int = 0
    seconds: float = 0.0
    end: End = "stuck"
    what: str = ""


WAIT = Mark("wait")
Instruction = Call | Mark
Program = list[Instruction]


@dataclass(eq=False, slots=True)
class _Kernel:
    """A work on its rank's device."""

    work: Work
    call: Call
    waits: int = 0  # kernels before it that have not finished
    ready_s: float = 0.0  # when the last of these finished
    holds: list[_Kernel] = field(default_factory=list)  # kernels that wait for this one
    open: int = 0  # parts whose other side has not come
    begun_s: float = 0.0  # when the last of its other sides came


@dataclass(eq=False, slots=True)
class _Process:
    program: Program
    rank: Rank
    clock: float = 0.0
    at: int = 0
    queue: dict[_Kernel, None] = field(default_factory=dict)  # what is not finished, in order
    waited: dict[_Kernel, None] = field(default_factory=dict)  # of it what compute waits for
    streams: dict[tuple[str, tuple[int, ...]], _Kernel] = field(default_factory=dict)
    seqs: dict[tuple[str, bool], int] = field(default_factory=dict)
    finished_s: float = 0.0  # when the last work finished that compute waited for
    device_stuck: bool = False
    over: bool = False  # its host does not go on, whatever finishes


class Machine:
    """Runs all programs until nothing moves.

    groups: by name. programs: by rank. severed: whether the network no longer carries what these
    ranks exchange, which holds for all that starts after `severed_s` seconds.
    """

    def __init__(
        self,
        groups: Mapping[str, Group],
        programs: Sequence[Program],
        *,
        ranks_per_node: int,
        ahead: int,
        severed: Callable[[Sequence[int]], bool] = lambda _: False,
        severed_s: float = 0.0,
    ) -> None:
        self._groups, self._ahead = groups, ahead
        self._severed, self._severed_s = severed, severed_s
        self._processes = [
            _Process(program, Rank(number, number // ranks_per_node, number % ranks_per_node))
            for number, program in enumerate(programs)
        ]
        self._joined: dict[tuple[str, int], list[_Kernel]] = {}
        self._channels: dict[tuple[str, int, int], tuple[list[_Kernel], list[_Kernel]]] = {}
        self._cut: dict[str, bool] = {}
        self._ready = deque(self._processes)  # whose hosts may go on
        self._free: deque[_Kernel] = deque()  # that wait for nothing on their device
        while self._free or self._ready:
            if self._free:
                self._start(self._free.popleft())
            else:
                self._run(self._ready.popleft())
        for process in self._processes:
            self._settle(process)
        self.ranks = [process.rank for process in self._processes]

    def position(self, rank: int) -> int:
        """The index of the instruction that the host of a rank has not completed."""
        return self._processes[rank].at

    def _run(self, process: _Process) -> None:
        """Let a host go on until it waits or ends."""
        while not process.over and process.at < len(process.program):
            instruction = process.program[process.at]
            if isinstance(instruction, Call):
                if len(process.queue) >= self._ahead:
                    return
                self._enqueue(process, instruction)
            elif instruction.kind == "sync":
                if process.device_stuck or process.waited:
                    return
                process.clock = max(process.clock, process.finished_s)
            elif instruction.kind == "end":
                self._end(process, instruction)
                return
            else:
                self._mark(process, instruction)
            process.at += 1

    def _mark(self, process: _Process, mark: Mark) -> None:
        if mark.kind == "wait":
            process.waited.update(process.queue)
        elif mark.kind == "step":
            process.rank.steps.append((process.clock, mark.number))
        elif mark.kind == "busy":
            process.clock += mark.seconds
        else:
            process.device_stuck = True

    def _end(self, process: _Process, mark: Mark) -> None:
        process.over, rank = True, process.rank
        rank.end, rank.stuck_in, rank.place = mark.end, mark.what, mark.site
        rank.ended = None if mark.end in ("stuck", "slow") else process.clock
        if rank.ended is not None:
            process.device_stuck = True

    def _settle(self, process: _Process) -> None:
        """How a process stands whose own instructions say nothing of it."""
        rank = process.rank
        if process.over:
            return
        if process.at >= len(process.program) and not process.queue:
            rank.end, rank.ended = "left", process.clock
        elif process.at < len(process.program):
            rank.place = process.program[process.at].site

    def _enqueue(self, process: _Process, call: Call) -> None:
        rank, p2p = process.rank, bool(call.parts)
        key = (call.group, p2p)
        seq = process.seqs[key] = process.seqs.get(key, 0) + 1
        process.clock += ENQUEUE_S
        work = Work(
            rank.rank, call.group, seq, call.op, call.numel_in, call.numel_out, call.dtype,
            process.clock, p2p, call.parts, call.site,
        )  # fmt: skip
        rank.works.append(work)
        kernel = _Kernel(work, call, ready_s=max(process.clock, process.finished_s))
        pair = tuple(sorted((rank.rank, call.parts[0][1]))) if len(call.parts) == 1 else ()
        before = dict.fromkeys(process.waited)
        last = process.streams.get((call.group, pair))
        if last in process.queue:
            before[last] = None
        for other in before:
            other.holds.append(kernel)
        kernel.waits = len(before) + process.device_stuck
        process.streams[call.group, pair] = kernel
        process.queue[kernel] = None
        if not call.later:
            process.waited[kernel] = None
        if not kernel.waits:
            self._free.append(kernel)

    def _start(self, kernel: _Kernel) -> None:
        """The device comes to a work."""
        work, call = kernel.work, kernel.call
        work.started = kernel.begun_s = kernel.ready_s + call.compute_s
        if call.parts:
            self._exchange(kernel)
            return
        joined = self._joined.setdefault((call.group, work.seq), [])
        joined.append(kernel)
        if len(joined) < len(self._groups[call.group].members) or not _alike(joined):
            return
        began = max(one.begun_s for one in joined)
        if not self._passes(call.group, began):
            return
        for one in joined:
            self._finish(one, began + TRANSFER_S)

    def _exchange(self, kernel: _Kernel) -> None:
        """Meet the other side of each part that is there; both ends wait for the later one."""
        kernel.open = len(kernel.call.parts)
        for op, peer in kernel.call.parts:
            mine = kernel.work.rank
            ends = (mine, peer) if op == "send" else (peer, mine)
            channel = self._channels.setdefault((kernel.call.group, *ends), ([], []))
            own, others = channel if op == "send" else channel[::-1]
            own.append(kernel)
            if len(others) < len(own):
                continue
            other = others[len(own) - 1]
            met = max(kernel.work.started or 0.0, other.work.started or 0.0)
            if met >= self._severed_s and self._severed(ends):
                continue
            for side in (kernel, other):
                side.open -= 1
                side.begun_s = max(side.begun_s, met)
                if not side.open:
                    self._finish(side, side.begun_s + TRANSFER_S)

    def _finish(self, kernel: _Kernel, time: float) -> None:
        kernel.work.finished = time
        process = self._processes[kernel.work.rank]
        del process.queue[kernel]
        if process.waited.pop(kernel, _MISSING) is not _MISSING:
            process.finished_s = max(process.finished_s, time)
        if len(process.queue) == self._ahead - 1:
            process.clock = max(process.clock, time)  # the host waited for a place
        self._ready.append(process)
        for later in kernel.holds:
            later.waits -= 1
            later.ready_s = max(later.ready_s, time)
            if not later.waits:
                self._free.append(later)

    def _passes(self, group: str, time: float) -> bool:
        """Whether what a group starts now can finish."""
        if time < self._severed_s:
            return True
        if group not in self._cut:
            self._cut[group] = self._severed(self._groups[group].members)
        return not self._cut[group]


_MISSING = object()


def _alike(joined: Sequence[_Kernel]) -> bool:
    """Whether all members are in the same operation.

    Of an all-to-all the sizes differ from rank to rank by nature.
    """
    first = joined[0].call
    uneven = first.op.startswith("all_to_all")
    return all(
        one.call.op == first.op
        and one.call.dtype == first.dtype
        and (uneven or (one.call.numel_in, one.call.numel_out) == (first.numel_in, first.numel_out))
        for one in joined[1:]
    )
