"""How a scan goes: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from diagnose.batch.jobs import JobRef
from diagnose.batch.work import Result
from diagnose.runtime.command import width
from diagnose.text.ranks import counted

if TYPE_CHECKING:
    from diagnose.batch.run import Summary

LINE_SECONDS = 15.0
_VERDICTS = ("hung", "failed", "unknown", "healthy", "running")


class Tally:
    """What a scan tells of itself, counted; on its own it prints nothing."""

    def __init__(self) -> None:
        self.total = self.jobs = self.bytes = self.total_bytes = self.errors = self.unchanged = 0
        self.partly = 0  # diagnosed from what could be read
        self.verdicts: Counter[str] = Counter()
        self.began = time.monotonic()

    def start(self, todo: Collection[JobRef], unchanged: int) -> None:
        """The jobs that will be read, and how many need not."""
        self.total, self.unchanged = len(todo), unchanged
        self.total_bytes = sum(ref.size for ref in todo)
        self.began = time.monotonic()

    def done(self, result: Result) -> None:
        """One job has its row."""
        self.jobs += 1
        self.bytes += result.row.get("size") or 0
        verdict, wrong = result.row.get("verdict"), result.row.get("error") is not None
        self.errors += wrong and not verdict
        self.partly += wrong and bool(verdict)
        self.verdicts[verdict or ""] += 1

    def end(self, summary: Summary) -> None:
        """The scan is over, also by an error or an interrupt."""

    @property
    def seconds(self) -> float:
        """Since the start."""
        return max(time.monotonic() - self.began, 1e-6)

    @property
    def left(self) -> float | None:
        """Seconds until the end, by the bytes read so far; None before anything is."""
        if not self.jobs:
            return None
        share = self.bytes / self.total_bytes if self.total_bytes else self.jobs / self.total
        return self.seconds * (1 - share) / share if share else None

    def text(self) -> str:
        """Rate, bytes, verdicts, errors and the time left, in words; each job is counted once."""
        parts = [f"{self.jobs / self.seconds:.1f} jobs/s", f"{self.bytes / 2**20:.1f} MiB"]
        parts += [f"{self.verdicts[v]} {v}" for v in _VERDICTS if self.verdicts[v]]
        parts.append(counted(self.errors, "error"))
        if self.partly:
            parts[-1] += f" ({counted(self.partly, 'other job')} not fully readable)"
        if self.left is not None and self.jobs < self.total:
            parts.append(f"ETA {_clock(self.left)}")
        return " · ".join(parts)


class Lines(Tally):
    """For a pipe or a log: a plain line every LINE_SECONDS, and one at the end."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.stream = stream
        self.printed_at = time.monotonic()

    def start(self, todo: Collection[JobRef], unchanged: int) -> None:
        """See Tally."""
        super().start(todo, unchanged)
        before = f", {unchanged} unchanged" if unchanged else ""
        self._say(f"scan: {counted(self.total, 'job')}, {self.total_bytes / 2**20:.1f} MiB{before}")

    def done(self, result: Result) -> None:
        """See Tally."""
        super().done(result)
        if time.monotonic() - self.printed_at >= LINE_SECONDS:
            self._say(f"scan: {self.jobs}/{counted(self.total, 'job')} · {self.text()}")

    def end(self, summary: Summary) -> None:
        """See Tally."""
        self._say(_last(self, summary))

    def _say(self, line: str) -> None:
        self.printed_at = time.monotonic()
        print(line, file=self.stream, flush=True)


class Live(Tally):
    """For a terminal: a bar that is redrawn."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console
        self.bar = Bar(
            BarColumn(bar_width=30),
            TextColumn("{task.completed:.0f}/{task.total:.0f} jobs · {task.description}"),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self.task = self.bar.add_task("", total=None)
        self.drawn = 0.0

    def start(self, todo: Collection[JobRef], unchanged: int) -> None:
        """See Tally."""
        super().start(todo, unchanged)
        self.bar.start()
        self._draw()

    def done(self, result: Result) -> None:
        """See Tally."""
        super().done(result)
        if time.monotonic() - self.drawn > 0.2:
            self._draw()

    def end(self, summary: Summary) -> None:
        """See Tally."""
        self.bar.stop()
        self.console.print(_last(self, summary), markup=False, highlight=False)

    def _draw(self) -> None:
        self.drawn = time.monotonic()
        self.bar.update(self.task, total=self.total, completed=self.jobs, description=self.text())
        self.bar.refresh()


def progress(stream: TextIO) -> Tally:
    """What fits the stream: a bar on a terminal, lines elsewhere."""
    return (
        Live(Console(file=stream, width=width(), height=25)) if stream.isatty() else Lines(stream)
    )


def _last(tally: Tally, summary: Summary) -> str:
    before = f", {summary.unchanged} unchanged" if summary.unchanged else ""
    text = f"{summary.read} of {counted(tally.total, 'job')} in {_clock(tally.seconds)}{before}"
    text += f" · {tally.text()}"
    return f"interrupted: {text}; --resume continues" if summary.interrupted else f"done: {text}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
