"""The truth of a run: what was done to it, and what of that its files can show.

What went wrong is known. Whom an engineer can name depends on the evidence: a rank that stands
still prints nothing, so it is found only by what the others print, by its stacks or its dump.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from benchmarks.hangbench.case import Determines, Files, Truth
from benchmarks.hangbench.real.jobs import Recorded
from benchmarks.hangbench.real.scenario import Job

ONSET_TOLERANCE_S = 5.0

_FAILURE = re.compile(r"Traceback \(most recent|Error\b|Exception\b|Fatal Python error|Aborted")
# What shows the rank of a line: `[rank1]: ` of torch's excepthook, `[default1]:` of torchrun's
# tee, `[1,2]<stderr>` of mpirun, and `[rank1] INFO` of the training scripts; or a file of its own.
_PREFIX = re.compile(r"^\[(?:rank|default)(\d+)\]:|^\[\d+,(\d+)\]<std|\[rank(\d+)\] \w+ ")
_STEP = re.compile(r"\bstep (\d+)/\d+")
_RANK_FILE = re.compile(
    r"(?:/|^)(?:(\d+)/std(?:err|out)\.log|process-(\d+)\.log|rank\.0*(\d+)/std(?:err|out))$"
)
# What launchers say of a rank that ended: torchrun's table, mpirun, torch.multiprocessing.
_ENDED = re.compile(
    r"rank\s*: (?P<a>\d+) \(local_rank: \d+\)\s+exitcode\s*: (?P<status>-?\d+)"
    r"|process rank (?P<b>\d+) with PID|Process name: \[\[\d+,\d+\],(?P<c>\d+)\]"
    r"|[Tt]ask (?P<i>\d+) heartbeat timeout|MPI_ABORT was invoked on rank (?P<d>\d+)"
    r"|[Pp]rocess (?P<e>\d+) terminated with|\(local_rank: (?P<f>\d+)\) of binary"
    r"|^Process Worker-(?P<h>\d+):$|local_rank: (?P<g>\d+) \(pid: \d+\) of binary",
    re.M,
)
_END = re.compile(r"SIGTERM|[Ss]ignal 15|KeyboardInterrupt|SignalException|Terminated|Traceback")
_TIME_OF_DAY = re.compile(rb"\b(\d\d):(\d\d):(\d\d)\b")
_CLOCK = re.compile(r"\b\d\d:\d\d:\d\d\b")

_OUTSIDE = ("user.interrupt", "scheduler.preempted", "scheduler.limit", "crash.killed", "unknown")
_CRASHES = ("killed", "native", "exception")

# A gloo job in which ranks disagree ends by itself: by a time limit or by closed connections.
_VERDICTS: dict[str, tuple[str, ...]] = {
    "none": ("healthy",),
    "stall": ("hung",),
    "killed": ("failed",),
    "native": ("failed",),
    "exception": ("failed",),
    "exit": ("hung", "failed"),
    "uneven": ("hung", "failed"),
    "mismatch": ("hung", "failed"),
    "conditional": ("hung", "failed"),
    "never_joins": ("failed", "hung"),
    "port": ("failed",),
    "stopped_from_outside": ("failed",),
}


class Shown:
    """What the files of a run show of its ranks.

    has_end: something tells that the job was ended. failed: ranks with an error in a line that is
    theirs; ended: those a launcher says ended, other than by its own SIGTERM; steps: the last step
    that each rank prints.
    """

    def __init__(self, job: Job, files: Files) -> None:
        self.world = job.world
        texts = {
            name: content.decode("utf-8", "replace")
            for name, content in files.items()
            if not name.startswith(("dumps/", "bundle/", "stacks/"))
        }
        self.has_clock = "bundle" in job.kept or any(map(_CLOCK.search, texts.values()))
        self.has_stacks = bool({"stacks", "faulthandler", "bundle"} & set(job.kept))
        self.has_dumps = any(name.startswith("dumps/") for name in files)
        self.has_end = any(map(_END.search, texts.values()))
        self.failed: set[int] = set()
        self.ended: set[int] = set()
        self.stacks: set[int] = set()  # ranks with a stack by faulthandler in lines of theirs
        self.steps: dict[int, int] = {}
        for name, text in texts.items():
            for rank, line in _lines_of_ranks(name, text):
                if _FAILURE.search(line):
                    self.failed.add(rank)
                if "(most recent call first)" in line:
                    self.stacks.add(rank)
                if step := _STEP.search(line):
                    self.steps[rank] = max(self.steps.get(rank, 0), int(step.group(1)))
            for found in _ENDED.finditer(text):
                groups = found.groupdict()
                if groups.pop("status") != "-15":
                    self.ended.add(next(int(one) for one in groups.values() if one is not None))

    def names(self, job: Job) -> bool:
        """Whether the files name the ranks that went wrong outright."""
        wrong = set(job.wrong.ranks)
        if job.wrong.kind in _CRASHES:
            return wrong <= self.failed | self.ended or job.launcher == "forks"
        if job.wrong.kind in ("mismatch", "conditional") and wrong < self.failed:
            return True  # their tracebacks show another call than the others'
        if job.kept == ("bundle",) and job.launcher not in ("torchrun", "accelerate"):
            return False  # it has processes, whose environments have no rank
        files = {"stacks", "bundle"} & set(job.kept)
        return bool(files) or wrong <= self.stacks or self.has_dumps

    def without_error(self, job: Job) -> set[int]:
        """Ranks that show no error, as one that stands still or is killed shows none."""
        left = set(range(self.world))
        if job.wrong.kind in ("stall", "exit", "uneven", *_CRASHES):
            left -= self.failed
        return left | set(job.wrong.ranks)

    def slowest(self) -> set[int]:
        """Ranks whose last step is the least, where each prints its steps; else all ranks."""
        if len(self.steps) < self.world:
            return set(range(self.world))
        least = min(self.steps.values())
        return {rank for rank, step in self.steps.items() if step == least}


def shows_time(files: Files, onset: datetime) -> bool:
    """Whether a line has a time within the tolerance of an onset, so that a reader can find it."""
    begin = onset.replace(hour=0, minute=0, second=0, microsecond=0)
    second = (onset - begin).total_seconds()
    return any(
        abs(int(hour) * 3600 + int(minute) * 60 + int(seconds) - second) <= ONSET_TOLERANCE_S
        for content in files.values()
        for hour, minute, seconds in _TIME_OF_DAY.findall(content)
    )


def truth_of(job: Job, run: Recorded) -> Truth:
    """What is true of a run, and what its files determine of it."""
    shown = Shown(job, run.files)
    verdicts, classes = _verdicts(job, shown), _classes(job, shown)
    onset = None
    if run.onset is not None and shows_time(run.files, run.onset):
        onset = run.onset.isoformat(timespec="milliseconds")
    tolerance = ONSET_TOLERANCE_S if onset is not None else 0.0
    ranks = job.wrong.ranks
    if not ranks:
        if job.wrong.kind == "none":
            onset, tolerance = None, 0.0
        return Truth(verdicts, classes, determines="none", onset=onset, onset_tolerance_s=tolerance)
    suspects, determines, accepted = _blame(job, shown)
    return Truth(
        verdicts, classes, ranks, accepted, suspects, determines,
        onset=onset, onset_tolerance_s=tolerance,
    )  # fmt: skip


def _verdicts(job: Job, shown: Shown) -> tuple[str, ...]:
    verdicts = list(_VERDICTS[job.wrong.kind])
    if job.wrong.kind == "none" and job.end == "alive":
        verdicts = ["running", "healthy"]
        if "console" not in job.kept:
            verdicts.append("unknown")  # one look at its stacks shows no progress
    if job.wrong.kind in _CRASHES and job.end != "itself":
        verdicts.append("hung")  # the others waited for the process that had ended
    if job.wrong.kind == "stopped_from_outside" and not shown.has_end:
        verdicts += ["running", "unknown"]
    if job.launcher == "forks" and job.wrong.kind == "killed":
        verdicts.append("hung")  # dumps of the others look the same
    seen = shown.has_stacks and "bundle" not in job.kept
    if job.wrong.kind == "stall" and seen and not (shown.has_end or shown.has_clock):
        verdicts.append("unknown")  # one look does not tell how long it lasts
    if job.wrong.kind == "stall" and _only_ended(job, shown):
        if not shown.has_end:
            verdicts += ["running", "unknown"]  # the console of a job that works ends like that
        elif not shown.has_clock:
            verdicts += ["failed", "unknown"]
    return tuple(verdicts)


def _classes(job: Job, shown: Shown) -> tuple[str, ...]:
    classes = list(job.wrong.classes)
    if job.wrong.kind == "stall":
        if not shown.has_stacks:
            classes.append("desync.missing_rank")
        if _only_ended(job, shown):
            classes += _OUTSIDE if shown.has_end else ("none", "unknown")
    unseen = job.wrong.kind == "killed" or "console" not in job.kept
    if job.wrong.kind in _CRASHES and unseen and not shown.names(job):
        classes += ["desync.missing_rank", "net.socket", "unknown"]
    if job.wrong.kind == "stopped_from_outside" and not shown.has_end:
        classes += ["none", "unknown"]
    if job.program == "pool" and job.wrong.kind in ("exit", "uneven", "killed", "native"):
        classes.append("crash.exception")  # the parent's EOFError is all that it prints
    return tuple(dict.fromkeys(classes))


def _only_ended(job: Job, shown: Shown) -> bool:
    """Whether the files show nothing of what went wrong, only that the job was ended."""
    return job.end in ("term", "int", "limit") and not shown.has_stacks and not shown.failed


def _blame(
    job: Job, shown: Shown
) -> tuple[tuple[int, ...], Determines, tuple[tuple[int, ...], ...]]:
    """Suspects, what is determined, and other sets of ranks that are as right."""
    wrong = set(job.wrong.ranks)
    if job.wrong.kind in ("mismatch", "conditional") and job.world == 2:
        # of two that disagree either may be the odd one
        return (0, 1), "group", ((0, 1), tuple({0, 1} - wrong))
    if job.program == "pool" and shown.names(job) and not shown.has_stacks:
        # nothing ties names of processes to ranks; "Worker-2" may be the second or the third
        return tuple(sorted(wrong | {max(0, min(wrong) - 1)})), "nothing", ()
    suspects = shown.without_error(job)
    certain = shown.has_end or not _only_ended(job, shown)
    if shown.names(job) or (suspects == wrong and certain):
        return job.wrong.ranks, "rank", ()
    if job.wrong.kind in ("stall", "killed") and wrong <= shown.slowest():
        suspects &= shown.slowest()
        if suspects == wrong and certain and job.wrong.kind == "stall":
            return job.wrong.ranks, "rank", ()
    some = certain and len(wrong) < len(suspects) < job.world
    return tuple(sorted(suspects)), "group" if some else "nothing", ()


def _lines_of_ranks(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Lines of which the rank is shown, by their file or by a prefix."""
    by_file = _RANK_FILE.search(name)
    for line in text.splitlines():
        found = by_file or _PREFIX.search(line)
        if found is not None:
            yield next(int(one) for one in found.groups() if one is not None), line
