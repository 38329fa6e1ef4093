"""The console of a simulated job: its program, torch's watchdogs, its launcher.

The templates of torch's C++ messages are those of its sources and shipped libraries of each
release: which one a release has, with which prefix, and which numbers it states.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.hangbench.sim.evidence.endings import (
    GRACE_S,
    Endings,
    Expiry,
    Teardown,
    endings,
)
from benchmarks.hangbench.sim.evidence.launchers import Launcher, launcher_lines
from benchmarks.hangbench.sim.evidence.names import names, wall
from benchmarks.hangbench.sim.evidence.nccl import completion_text
from benchmarks.hangbench.sim.evidence.releases import OP_TYPES, RELEASES, Clock, Release
from benchmarks.hangbench.sim.evidence.training import (
    Printing,
    Trainer,
    busy_lines,
    left_lines,
    printing,
    start_lines,
    step_lines,
    traceback_line,
)
from benchmarks.hangbench.sim.outcome import Group, Line, Outcome, Rank, Shows, Work

_NO_NUMEL = 2**64 - 1  # torch prints -1 as an unsigned number for a batch of sends and receives
_ADVICE = (
    "This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across "
    "ranks, the order of collectives is not same for all ranks or the scheduled collective, for "
    "some reason, didn't run. Additionally, this can be caused by GIL deadlock or other reasons "
    "such as network errors or bugs in the communications library (e.g. NCCL), etc. "
)
_CORRUPT = (
    "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA "
    "kernels, subsequent GPU operations might run on corrupted/incomplete data."
)
_DOWN = "To avoid data inconsistency, we are taking the entire process down."
_NO_STACK = (
    "Stack trace of the failed collective not found, potentially because FlightRecorder is "
    "disabled. You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value."
)


@dataclass(frozen=True, slots=True)
class Status:
    """What torch calls the status of a process group: numbers of its last works, -1 for none."""

    enqueued: int
    started: int
    completed: int
    last: Work | None  # the oldest pending one, else the last that was enqueued


def lines(
    outcome: Outcome,
    torch: str,
    rng: random.Random,
    *,
    statuses: bool,
    dump_signals: bool | None = None,
    stack_traces: bool = False,
    trainer: Trainer | None = None,
    every_rank: bool | None = None,
    start: bool = True,
    steps: bool = True,
    busy: bool = True,
    launcher: Launcher = "torchrun",
    teardown: Teardown = "abort",
    grace_s: float = GRACE_S,
    network_errors: bool = False,
) -> list[Line]:
    """All that the job prints, in order of time.

    torch: a release of `RELEASES`. statuses: the watchdog's line of a group's status (2.4 on).
    dump_signals: the signal to dump and its answers (2.4 on); None: as `statuses`. stack_traces:
    the recorder is on, so that the watchdog prints where the program called (2.7 on). trainer,
    every_rank: the style of the program's own lines, drawn where None. start, steps, busy: which
    of these it prints. launcher: whose messages end the job; teardown, grace_s,
    network_errors: see endings.py.
    """
    release = RELEASES[torch]
    signals = statuses if dump_signals is None else dump_signals
    signals = signals and "local" in release.source
    style = printing(rng, trainer, every_rank)
    ends = endings(
        outcome,
        release,
        rng,
        teardown,
        grace_s,
        handling_s=2.5 if signals else 0.2,
        network_errors=network_errors,
    )
    found: list[Line] = []
    if start:
        found += start_lines(outcome, style, release)
    if steps:
        found += step_lines(outcome, style, rng)
    if busy:
        found += busy_lines(outcome, style, rng)
    found += _processes(outcome, release, rng, style, ends, statuses, signals, stack_traces)
    alive = {rank: end.time for rank, end in ends.ends.items()}
    found = [one for one in found if one.rank is None or one.time <= _end_of(alive, one.rank)]
    found += launcher_lines(outcome, release, rng, launcher, ends)
    found.sort(key=lambda one: one.time)
    return found


def _end_of(alive: dict[int, float], rank: int) -> float:
    return alive.get(rank, float("inf"))


def _processes(
    outcome: Outcome,
    release: Release,
    rng: random.Random,
    style: Printing,
    ends: Endings,
    statuses: bool,
    signals: bool,
    stack_traces: bool,
) -> Iterator[Line]:
    """What torch prints in each process."""
    offsets = [rng.randrange(1_000_000_000) for _ in range(outcome.nodes)]
    global_ranks = in_group_is_global(outcome)
    signalled = sorted((one.time, rank) for rank, ones in ends.expiries.items() for one in ones[:1])
    for rank in outcome.ranks:
        clock = Clock(release, rank.rank, offsets[rank.node])
        if rank.end == "raised" and rank.ended is not None:
            yield traceback_line(outcome, rank, release)
        if rank.end == "left" and rank.ended is not None:
            yield from left_lines(outcome, rank, release, style, clock)
        process = _Process(outcome, release, rank, clock, global_ranks)
        tick = rng.random()  # when its monitor thread looks, within each second
        expiries = ends.expiries.get(rank.rank, [])
        own = expiries[0].time if expiries else math.inf
        for number, expiry in enumerate(expiries):
            yield from process.timeout(
                expiry, expiries[0].work, statuses, signals and number == 0, stack_traces
            )
        end = ends.ends.get(rank.rank)
        if expiries and end is not None and end.cause == "abort":
            yield from process.abort(expiries[0], end.time, statuses)
        if signals and signalled:
            seen = _tick(signalled[0][0] + 0.02, tick)
            if seen < own:  # it answers once, whoever signals first
                before = [one for one in signalled if one[0] < seen]
                yield from process.dump(seen, before[-1][1])
            else:
                yield from process.dump(_tick(own, tick), None)


def _tick(time: float, phase: float) -> float:
    """The first look of a thread that looks once a second, after `time`."""
    return time + (phase - time) % 1.0


def in_group_is_global(outcome: Outcome) -> bool:
    """Whether every group in use is the whole job in order, so that `[Rank k]` is global."""
    used = {work.group for rank in outcome.ranks for work in rank.works}
    everyone = tuple(range(outcome.world))
    return all(outcome.groups[name].members == everyone for name in used)


def work_text(work: Work, timeout_ms: int, release: Release) -> str:
    """`WorkNCCL(…)` of a release."""
    op = OP_TYPES.get(work.op, work.op.upper())
    numel_in, numel_out = work.numel_in, work.numel_out
    if work.op == "barrier":
        numel_in = numel_out = 1
    if work.op == "coalesced" and work.p2p:
        numel_in = numel_out = _NO_NUMEL
    sizes = "" if release.torch == "1.13" else f" NumelIn={numel_in}, NumelOut={numel_out},"
    return f"WorkNCCL(SeqNum={work.seq}, OpType={op},{sizes} Timeout(ms)={timeout_ms})"


def group_id(outcome: Outcome, rank: int, group: str) -> int:
    """The `PG ID` of torch: how many groups the rank had created before this one."""
    order = outcome.ids[rank] if outcome.ids else list(outcome.groups)
    return order.index(group)


class _Process:
    """The messages of torch in one process."""

    def __init__(
        self, outcome: Outcome, release: Release, rank: Rank, clock: Clock, global_ranks: bool
    ) -> None:
        """global_ranks: `[Rank k]` is global in this job."""
        self._outcome, self._release, self._rank, self._clock = outcome, release, rank, clock
        self._named = release.rank_prefix or global_ranks
        self._global_ranks = global_ranks
        self._what = ""
        self._status: dict[str, Status] | None = None

    def timeout(
        self, expiry: Expiry, first: Work, statuses: bool, signals: bool, stack_traces: bool
    ) -> Iterator[Line]:
        """What a watchdog prints when it finds `expiry`; `first`: what the process found first."""
        release, work, time = self._release, expiry.work, expiry.time
        # From 2.4 the prefix is one for the process: of the work that was first to log.
        shown = first if release.rank_prefix else work
        name = f"[Rank {self._place(self._outcome.groups[shown.group])}] "
        text = work_text(work, round(self._outcome.timeout_s * 1000), release)
        shows: Shows = "waits"
        if expiry.peer is None:
            ran_ms = int((time - work.created) * 1000)
            what = line = (
                f"{name}Watchdog caught collective operation timeout: {text} ran for {ran_ms} "
                "milliseconds before timing out."
            )
        else:
            what = self._network_error(expiry.peer)
            names_work = release.torch not in ("1.13", "2.1", "2.4")
            line = (
                f"{name}Collective {text} raised the following async exception: {what}"
                if names_work
                else f"{name}found async exception when checking for NCCL errors: {what}"
            )
            if self._outcome.link is not None:
                shows = "link"
            elif not names_work:
                shows = "noise"
        if not self._what:
            self._what = what
        yield self._line(time, "E", "caught", line, shows, None if shows == "noise" else work)
        if statuses and "detected" in release.source:
            prefix, numbers = self._prefix(work.group), self._numbers(work.group)
            text = (
                f"{prefix}Exception (either an error or timeout) detected by watchdog at work: "
                f"{work.seq}, {numbers}."
                if release.torch == "2.4"
                else f"{prefix} failure detected by watchdog at work sequence id: {work.seq} "
                f"PG status: {numbers}"
            )
            yield self._line(time + 0.0004, "E", "detected", text, "status", work, True)
        if "stack" in release.source:
            yield self._line(
                time + 0.0009,
                "E",
                "stack",
                _stack(work) if stack_traces and work.site else _NO_STACK,
                "noise",
            )
        if signals:
            text = self._prefix(work.group) + (
                "First watchdog to set the dump signal."
                if release.torch == "2.4"
                else "First PG on this rank to signal dumping."
            )
            yield self._line(time + 0.001, "E", "first", text, "noise")

    def _network_error(self, peer: int) -> str:
        """What NCCL reports when it has lost a peer."""
        release, known = self._release, names(self._outcome)
        node = self._outcome.ranks[peer].node
        port = 33_000 + (peer * 977 + self._rank.rank * 131) % 27_000
        if self._outcome.link is not None:
            address = f"{known.ips[node]}<{port}>"
            last = completion_text(release, address, self._rank.local_rank)
        else:
            where = "Net :" if release.torch == "1.13" else "socketProgress:"
            last = f"{where} Connection closed by remote peer {known.hosts[node]}<{port}>"
        return (
            "NCCL error: remote process exited or there was a network error, NCCL version "
            f"{release.nccl}\nncclRemoteError: A call failed possibly due to a network error or a "
            f"remote process exiting prematurely.\nLast error:\n{last}"
        )

    def dump(self, time: float, source: int | None) -> Iterator[Line]:
        """Answer a signal to dump, of this process (`source` None) or of another rank."""
        release = self._release
        if "0" not in self._outcome.groups:
            return
        status, prefix = self._statuses()["0"], self._prefix("0")
        numbers = (
            f"Last enqueued NCCL work: {status.enqueued}, "
            f"last completed NCCL work: {status.completed}."
        )
        if release.torch == "2.4":
            text = (
                f"Received a dump signal from this local rank and will start to dump the debug "
                f"info. {numbers}"
                if source is None
                else f"Received a global dump signal from rank {source}, and will start to dump "
                f"the debug info. {numbers}"
            )
        else:
            if source is not None:
                yield self._line(
                    time,
                    "E",
                    "seen",
                    f"{prefix}Observed flight recorder dump signal from another rank via TCPStore.",
                    "noise",
                )
            origin = "this local rank" if source is None else f" rank {source}"
            text = (
                f"Received a dump signal due to a collective timeout from {origin} and we will "
                f"try our best to dump the debug info. {numbers}{_ADVICE}"
            )
        key = "local" if source is None else "remote"
        shows_status = status.last is not None
        yield Line(
            time + 0.0001,
            self._rank.rank,
            self._rank.node,
            self._begin(time, "E", key) + prefix + text,
            shows="status" if shows_status else "noise",
            work=status.last,
            names_rank=self._named,
            names_group=shows_status,
        )
        more = {"2.7": " Include stack trace: 1"}.get(
            release.torch, " Include stack trace: 1, only active collectives: 0"
        )
        yield self._line(
            time + 0.0003,
            "E",
            "prepare",
            f"{prefix}ProcessGroupNCCL preparing to dump debug info."
            + ("" if release.torch == "2.4" else more),
            "noise",
        )

    def abort(self, expiry: Expiry, end: float, statuses: bool) -> Iterator[Line]:
        """The watchdog takes its process down; it has died at `end`."""
        release, work = self._release, expiry.work
        name = f"[Rank {self._place(self._outcome.groups[work.group])}] "
        name = name if release.rank_prefix else ""
        prefix = self._prefix(work.group)
        shows: Shows = "waits" if expiry.peer is None else "noise"
        if statuses and "timeout_at" in release.source:
            text = f"{prefix}Timeout at NCCL work: {work.seq}, {self._numbers(work.group)}."
            yield self._line(end - 0.03, "E", "timeout_at", text, "status", work, True)
        yield self._line(end - 0.0299, "E", "corrupt", name + _CORRUPT, "noise")
        yield self._line(end - 0.0298, "E", "down", name + _DOWN, "noise")
        if release.torch == "1.13":
            text = "terminate called after throwing an instance of 'std::runtime_error'\n"
            text += f"  what():  {self._what}"
            yield self._bare(end - 0.01, text, shows, work, False)
            return
        thread = "NCCL" if release.torch == "2.1" else "Process group"
        prefix = (
            f"[Rank {self._place(self._outcome.groups[work.group])}] "
            if (release.torch == "2.1")
            else prefix
        )
        raised = (
            self._raised("WorkNCCL::checkTimeout", "checkTimeout", "check")
            if expiry.peer is None
            else self._raised("checkForNCCLErrorsInternal", "checkForNCCLErrorsInternal", "check")
        )
        text = f"{prefix}{thread} watchdog thread terminated with exception: {self._what}"
        named_group = release.group_prefix != "none"
        yield self._line(
            end - 0.0297,
            "E",
            "ended",
            f"{text}\n{raised}",
            shows,
            None if shows == "noise" else work,
            named_group,
        )
        error = "std::runtime_error" if release.torch == "2.1" else "c10::DistBackendError"
        again = self._raised("ncclCommWatchdog", "ncclCommWatchdog", "loop")
        text = (
            f"terminate called after throwing an instance of '{error}'\n  what():  {text}\n"
            f"{raised}\n{again}"
        )
        yield self._bare(end - 0.01, text, shows, work, named_group)

    def _raised(self, function: str, short: str, key: str) -> str:
        """A C++ trace of the watchdog's thread."""
        release = self._release
        libraries = f"/usr/local/lib/python{release.python}/dist-packages/torch/lib"
        base = 0x7F0000000000 + (self._rank.rank * 0x3A1C7000) % 0xFF00000000
        return (
            f"Exception raised from {short} at {release.root}torch/csrc/distributed/c10d/"
            f"ProcessGroupNCCL.cpp:{release.source[key]} (most recent call first):\n"
            "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 "
            f"({base + 0xD87:#x} in {libraries}/libc10.so)\n"
            f"frame #1: c10d::ProcessGroupNCCL::{function}() + 0x1e6 "
            f"({base + 0x22F4C6:#x} in {libraries}/libtorch_cuda.so)\n"
            f"frame #2: clone + 0x43 ({base + 0x11F133:#x} in /lib/x86_64-linux-gnu/libc.so.6)\n"
        )

    def _statuses(self) -> dict[str, Status]:
        if self._status is None:
            self._status = statuses_of(self._outcome, self._rank)
        return self._status

    def _numbers(self, group: str) -> str:
        status, torch = self._statuses()[group], self._release.torch
        if torch == "2.4":
            return (
                f"last enqueued NCCL work: {status.enqueued}, "
                f"last completed NCCL work: {status.completed}"
            )
        started = f"last started work: {status.started}, " if torch == "2.13" else ""
        return (
            f"last enqueued work: {status.enqueued}, {started}"
            f"last completed work: {status.completed}"
        )

    def _prefix(self, name: str) -> str:
        """`[PG …] ` of a group in this process."""
        group = self._outcome.groups[name]
        desc = "" if group.desc in ("", "undefined") else f"({group.desc})"
        if self._release.group_prefix == "name":
            shown = f"{name} {desc}" if desc else name
            return f"[PG {shown} Rank {self._place(group)}] "
        number = group_id(self._outcome, self._rank.rank, name)
        return f"[PG ID {number} PG GUID {name}{desc} Rank {self._place(group)}] "

    def _place(self, group: Group) -> int:
        """The number of the rank in a group."""
        members = group.members
        if len(members) == self._outcome.world and members[self._rank.rank] == self._rank.rank:
            return self._rank.rank
        return members.index(self._rank.rank)

    def _begin(self, time: float, severity: str, key: str) -> str:
        return self._clock.prefix(wall(self._outcome, time), severity, key)

    def _line(
        self,
        time: float,
        severity: str,
        key: str,
        text: str,
        shows: Shows,
        work: Work | None = None,
        names_group: bool = False,
    ) -> Line:
        return Line(
            time,
            self._rank.rank,
            self._rank.node,
            self._begin(time, severity, key) + text,
            shows=shows,
            work=work,
            names_rank=self._named,
            names_group=names_group,
        )

    def _bare(self, time: float, text: str, shows: Shows, work: Work, names_group: bool) -> Line:
        """A line of the C++ runtime, which has no prefix."""
        return Line(
            time,
            self._rank.rank,
            self._rank.node,
            text,
            shows=shows,
            work=None if shows == "noise" else work,
            names_rank=self._global_ranks,
            names_group=names_group,
        )


def statuses_of(outcome: Outcome, rank: Rank) -> dict[str, Status]:
    """The status of the default group, and of each that the rank used, at the end."""
    enqueued: dict[str, Work] = {}
    started: dict[str, int] = {}
    completed: dict[str, int] = {}
    pending: dict[str, Work] = {}
    for work in rank.works:
        enqueued[work.group] = work
        if work.started is not None and outcome.timing:
            started[work.group] = work.seq
        if work.finished is not None:
            completed[work.group] = work.seq
        elif work.group not in pending:
            pending[work.group] = work
    found = {}
    for name in {"0": None, **enqueued}:
        last = enqueued.get(name)
        found[name] = Status(
            last.seq if last else -1,
            started.get(name, -1),
            completed.get(name, -1),
            pending.get(name, last),
        )
    return found


def _stack(work: Work) -> str:
    """Where the program called a collective that failed, innermost frame first."""
    shown = [
        f"#{number} {frame.function} from {frame.file}:{frame.line}"
        for number, frame in enumerate(reversed(work.site))
    ]
    return "Stack trace of the failed collective: \n" + "\n".join(shown) + "\n"
