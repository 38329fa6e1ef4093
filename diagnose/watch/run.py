"""The watch itself: look at the logs, ask the pulse, say what changed; until the job has ended."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from diagnose.catalog.load import load_catalog
from diagnose.match.lines import text_of
from diagnose.parse.prefix import peel
from diagnose.text.ranks import plural
from diagnose.text.times import duration
from diagnose.watch import alert as alerts
from diagnose.watch.alert import Alert, Kind, Standing
from diagnose.watch.follow import Follow, Stream, logs
from diagnose.watch.hook import LIMIT_S, Hook
from diagnose.watch.metrics import MAX_RANKS, Metrics, View
from diagnose.watch.notice import Reader, Who, name, ranks, who_of
from diagnose.watch.past import Past, merged
from diagnose.watch.pulse import GIVEN_UP_S, Change, Pulse, Stall, State
from diagnose.watch.stdin import Stdin
from diagnose.watch.verdict import FINAL_S, LIVE_BYTES, LIVE_S, Question, Verdict
from diagnose.watch.wake import Stop, Wake
from diagnose.watch.webhook import Webhook

# Seconds from one look to the next, by how many files are followed.
PERIODS = ((16, 0.25), (64, 0.5))
SLOWEST = 1.0
WINDOW = 128 << 10  # bytes of new lines a second, of all files, that are looked at one by one
LEAST_WINDOW, MOST_WINDOW = 1 << 10, 64 << 10
PAST = 500  # lines of one pattern and author in a file, from before the watch
MOST_SHOWN = 64  # ranks in an alert
END_S = 60.0  # for messages that are still to be sent
STOP_S = 5.0  # the same, and for the hook, when the watch is stopped
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for."""

    heartbeats: float = 6.0
    grace: float = 600.0
    every_rank: bool = False
    on_stall: str | None = None
    webhook: str | None = None
    metrics: str | None = None
    patterns: Sequence[Path] = ()
    min_silence: float = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a watch ended: with the job, whose verdict is known then, or because it was stopped."""

    verdict: Verdict | None = None
    interrupted: bool = False


class Watch:
    """One job. `tell` takes what is said of it, `note` what stands beside that."""

    def __init__(
        self,
        paths: Sequence[str],
        options: Options,
        tell: Callable[[str], None],
        note: Callable[[str], None],
        stdin: int | None = None,
    ) -> None:
        self._paths, self._options, self._tell, self._note = paths, options, tell, note
        self._stop = Stop()
        self._reader = Reader(load_catalog(list(options.patterns)))
        self._pulse = Pulse(
            options.heartbeats, options.grace, options.every_rank, options.min_silence
        )
        # As events of the file system name them.
        self._places = [os.path.abspath(path) for path in paths]  # noqa: PTH100
        self._follow = Follow(self._places)
        self._stdin = None if stdin is None else Stdin(stdin)
        self._attempt: int | None = None
        self._live = False  # something came since the watch began
        self._question: Question | None = None
        self._final = False  # whether that is about the end
        self._asked = -1e18  # up to which byte, by the time it came
        self._done: Verdict | None = None  # of a job that says it is done, and shows no failure
        self._noted = 0
        self._hooked = 0  # the number of the stall for which the hook ran last
        self._outcome: Outcome | None = None
        self._hook = Hook(options.on_stall, self._of_hook) if options.on_stall else None
        self._webhook = Webhook(options.webhook, note) if options.webhook else None
        self._metrics = Metrics(options.metrics) if options.metrics else None

    def run(self) -> Outcome:
        """Watch until the job has ended, or a signal ends the watch."""
        try:
            with self._signals():
                try:
                    return self._watched()
                finally:
                    self._close()
        finally:
            self._stop.close()

    def _watched(self) -> Outcome:
        for path in self._paths:
            if not os.path.exists(path):  # noqa: PTH110
                self._note(f"{path}: does not exist; waiting until it appears")
        now = time.monotonic()
        self._past(now)
        wake = Wake(self._places, self._stop)
        before = now = time.monotonic()
        for change in self._pulse.begin(now):
            self._changed(change, now)
        while self._outcome is None:
            period = _period(len(self._follow))
            changed = wake.wait(period)
            if self._stop.is_set():
                return Outcome(interrupted=True)
            before, now = now, time.monotonic()
            self._look(now, changed, now - before)
            for change in self._pulse.check(now, period):
                self._changed(change, now)
            self._verdicts(now)
            self._show(now)
        return self._outcome

    # --- reading ---------------------------------------------------------------------------------

    def _past(self, now: float) -> None:
        """Learn from what was there before."""
        clock = now - time.time()
        files: dict[Stream, Past] = {}
        for stream, block in self._follow.history(now):
            end = min(now, clock + (stream.mtime or time.time()))
            past = files.setdefault(stream, Past(end))
            found = self._reader.read(stream.memory, block, len(block), end, PAST)
            past.notices.extend(found)
            self._attempts(stream, now)
        for at, timed, notice in merged(files.values()):
            self._pulse.take(notice, at, 0.0, timed=timed)
        self._pulse.last_byte = max((past.end for past in files.values()), default=now)
        silent = now - self._pulse.last_byte
        ago = f", written last {duration(silent)} ago" if files and silent > 60 else ""
        count = len(self._follow)
        what = "standard input" if self._stdin else f"{count} {plural(count, 'file')}{ago}"
        self._tell(f"{_clock()}  Watching {what}\n")

    def _look(self, now: float, changed: set[str], look: float) -> None:
        period = max(look, _period(len(self._follow)))
        window = int(WINDOW * period) // max(1, len(self._follow))
        window = max(LEAST_WINDOW, min(MOST_WINDOW, window))
        for stream, block in self._blocks(now, changed):
            self._attempts(stream, now)
            for notice in self._reader.read(stream.memory, block, window, now):
                self._pulse.take(notice, now, period)
            self._pulse.last_byte = now
            self._live, self._done = True, None
        for text in self._follow.notes[self._noted :]:
            self._note(text)
        self._noted = len(self._follow.notes)

    def _blocks(self, now: float, changed: set[str]) -> Iterator[tuple[Stream, bytes]]:
        if self._stdin is not None and not self._stdin.ended:
            block = self._stdin.look(now)
            if block:
                yield self._stdin.stream, block
        yield from self._follow.look(now, changed)

    def _attempts(self, stream: Stream, now: float) -> None:
        """A file of a later attempt: the job was started again."""
        attempt = stream.memory.hints.attempt
        if attempt is None or (self._attempt is not None and attempt <= self._attempt):
            return
        if self._attempt is not None:
            self._pulse.restart(now)
        self._attempt = attempt

    # --- what is said ----------------------------------------------------------------------------

    def _changed(self, change: Change, now: float) -> None:
        if change.what == "heartbeat":
            self._tell(f"{_clock()}  Progress every {change.seconds:.2f} s in training\n")
            return
        alert = self._alert(change, now)
        self._say(alert)
        stall = change.stall
        if change.what != "stalled" or stall is None or stall.old:
            return
        if self._hook is not None and stall.number > self._hooked:
            self._hooked = stall.number
            self._hook.run(alerts.variables(alert))
        if self._question is None and self._size() <= LIVE_BYTES:
            self._ask(LIVE_S, final=False)

    def _say(self, alert: Alert) -> None:
        self._tell(alerts.words(alert))
        existed = alert.existed or not self._live
        if self._webhook is not None and not existed:
            shown = alerts.masked(alert, people=True)
            text = "\n".join(f"{label}: {text}" for label, text in alerts.details(shown))
            self._webhook.post(alerts.title(shown), text)

    def _alert(self, change: Change, now: float) -> Alert:
        kind: Kind = (
            "stalled" if change.what == "stalled"
            else "attempt" if change.what == "attempt"
            else "recovered"
        )  # fmt: skip
        base = self._base(kind)
        if change.stall is None:
            return base
        stall = change.stall
        if kind == "recovered":
            return replace(base, number=stall.number, whole=stall.whole, silent_s=change.seconds)
        return alerts.masked(self._stalled(base, stall, now), people=False)

    def _base(self, kind: Kind) -> Alert:
        return Alert(kind, alerts.iso(time.time()), list(self._paths))

    def _stalled(self, base: Alert, stall: Stall, now: float) -> Alert:
        silent = now - stall.limit.since
        lines = self._last_lines()
        known = ranks([*lines, *self._pulse.authors])
        first = [name(who, known) for who in stall.first]
        standings = alerts.first_of(self._standings(lines, known, now), first)[:MOST_SHOWN]
        doing = f" ({name(stall.doing, known)})" if stall.doing in known else ""
        steps = [author.step for author in self._pulse.authors.values() if author.step is not None]
        trouble = self._pulse.trouble
        return replace(
            base,
            number=stall.number,
            whole=stall.whole,
            existed=stall.old,
            since=alerts.iso(time.time() - silent),
            silent_s=round(silent, 3),
            limit_s=round(stall.limit.seconds, 3),
            heartbeat_s=stall.limit.heartbeat and round(stall.limit.heartbeat, 3),
            phase=stall.phase,
            activity=f"{stall.activity}{doing}" if stall.activity else "",
            step=max(steps, default=None),
            first=first[:MOST_SHOWN],
            first_ranks=sorted({known[who] for who in stall.first if who in known}),
            ranks=standings,
            trouble=alerts.line(trouble.text) if trouble is not None else "",
        )

    def _standings(
        self, lines: dict[Who, tuple[bytes, float]], known: dict[Who, int], now: float
    ) -> Iterator[Standing]:
        for who in dict.fromkeys([*self._pulse.authors, *lines]):
            author, last = self._pulse.authors.get(who), lines.get(who)
            at = author.at if author is not None else last[1] if last is not None else None
            yield Standing(
                name(who, known),
                known.get(who),
                author.step if author is not None else None,
                None if at is None else round(now - at, 3),
                alerts.line(text_of(last[0])) if last is not None else "",
                None if last is None else round(now - last[1], 3),
            )

    def _last_lines(self) -> dict[Who, tuple[bytes, float]]:
        """The last line of every author, and when it came."""
        found: dict[Who, tuple[bytes, float]] = {}
        streams = [*self._follow.streams(), *([self._stdin.stream] if self._stdin else [])]
        for stream in streams:
            memory = stream.memory
            for line, at in memory.last.values():
                who = who_of(peel(text_of(line)), memory.hints, memory.name)
                if who not in found or at >= found[who][1]:
                    found[who] = line, at
        return found

    def _of_hook(self, text: str) -> None:
        self._note(f"on-stall: {text}")

    # --- verdicts --------------------------------------------------------------------------------

    def _verdicts(self, now: float) -> None:
        """Ask for the verdict where the job may have ended, and say what came of a question."""
        if self._stdin is not None and self._stdin.ended and not self._paths:
            self._end(self._asked_now())
            return
        question = self._question
        if question is not None and question.answer is not None:
            self._question = None
            self._answered(question.answer)
        if self._outcome is None and self._pulse.over(now) and self._pulse.last_byte > self._asked:
            if self._question is not None:
                if self._final:
                    return
                self._question.cancel()
            self._asked = self._pulse.last_byte
            self._ask(FINAL_S, final=True)
        if self._done is not None and self._outcome is None and now - self._asked >= GIVEN_UP_S:
            self._end(self._done)

    def _answered(self, verdict: Verdict) -> None:
        if not self._final:
            if verdict.names_cause:
                self._say(replace(self._base("verdict"), verdict=verdict))
            return
        pulse = self._pulse
        if pulse.last_byte > self._asked or not (pulse.finished or pulse.exited or pulse.stall):
            return  # it goes on
        if verdict.verdict in ("healthy", "failed", "hung"):
            self._end(verdict)
        elif pulse.finished or (pulse.exited and verdict.verdict != "running"):
            self._done = verdict  # or a part of it is; it has a little more time to go on

    def _end(self, verdict: Verdict) -> None:
        self._pulse.ended = True
        self._say(alerts.masked(replace(self._base("ended"), verdict=verdict), people=False))
        self._outcome = Outcome(verdict)

    def _ask(self, limit_s: float, *, final: bool) -> None:
        self._final = final
        self._question = Question(self._sources(), limit_s, self._options.patterns)

    def _asked_now(self) -> Verdict:
        if self._question is not None:
            self._question.cancel()
        self._ask(FINAL_S, final=True)
        answer = None
        while self._question is not None and answer is None and not self._stop.is_set():
            answer = self._question.wait(0.2)
        return answer or Verdict(problem="no verdict: the watch was stopped")

    def _sources(self) -> list[str]:
        return [*self._paths, *([self._stdin.spool.file()] if self._stdin else [])]

    def _size(self) -> int:
        return sum(found.status.st_size for found in logs(self._places))

    # --- the rest --------------------------------------------------------------------------------

    def _show(self, now: float) -> None:
        """Put the state where Prometheus finds it."""
        if self._metrics is None:
            return
        pulse = self._pulse
        known, limit = ranks(pulse.authors), pulse.limit()
        ages = sorted(
            ((now - author.at, name(who, known)) for who, author in pulse.authors.items()),
            reverse=True,
        )[:MAX_RANKS]
        steps = [author.step for author in pulse.authors.values() if author.step is not None]
        self._metrics.view = View(
            State.STALLED if pulse.stall is not None else pulse.state,
            pulse.stalls,
            pulse.attempt,
            pulse.phase or "",
            limit.heartbeat if limit else None,
            limit.seconds if limit else None,
            None if pulse.progress is None else max(0.0, now - pulse.progress),
            max(steps, default=None),
            len(self._follow),
            self._follow.missed(),
            {who: max(0.0, age) for age, who in ages},
        )

    def _close(self) -> None:
        wait = STOP_S if self._stop.is_set() else END_S
        if self._question is not None:
            self._question.cancel()
        if self._hook is not None:
            self._hook.close(STOP_S if self._stop.is_set() else LIMIT_S)
        if self._webhook is not None:
            self._webhook.close(wait)
        if self._metrics is not None:
            self._metrics.close()
        if self._stdin is not None:
            self._stdin.spool.close()
        self._follow.close()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and what ends a service stop the watch; a second one ends it at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._interrupt) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._stop.is_set():
            os._exit(128 + signal.SIGINT)
        self._stop.set()

    def stop(self) -> None:
        """End the watch from another thread."""
        self._stop.set()


def _period(files: int) -> float:
    return next((period for most, period in PERIODS if files <= most), SLOWEST)


def _clock() -> str:
    return time.strftime("%H:%M:%S")
