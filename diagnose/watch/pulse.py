"""Whether a job lives: how long it may be silent in what it is doing now, and who stopped first.

What a job may do for long is known by its phase. Training has the heartbeat of its counters. Other
phases (an evaluation, a checkpoint, the first step after a start) are episodes: one of a kind that
was seen before may be silent as long as the longest silence in those, with a factor; the first of
its kind gets `grace`, unless a bar shows its own heartbeat. All times are seconds of one clock.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from diagnose.watch.notice import Notice, Says, Who, remember
from diagnose.watch.pace import Pace

MARGIN_S = 0.75  # beyond each limit: looks and machines are a little late
FLOOR_S = 5.0  # what an episode may be silent at least, if the last one took no time at all
TROUBLE_S = 10.0  # more, where an error was printed: its processes may be about to end
QUIET_S = 5.0  # without a byte, after which a job that said so has ended
GIVEN_UP_S = 30.0  # the same after an error, where no line says that a process ended
LATE_S = 1.0  # a look that comes so late says nothing of the job: this machine was busy
_PACES, _AUTHORS, _EPISODES = 4096, 4096, 8
_TRAINING = "training"
_SERVING = "inference"


class State(Enum):
    """What is known of the job."""

    STARTING = "starting"
    RUNNING = "running"
    STALLED = "stalled"
    ENDED = "ended"


@dataclass(slots=True)
class Author:
    """One author: when it progressed last, its step, and what it was doing."""

    at: float
    step: int | None = None
    kind: str = ""
    stalled: bool = False


@dataclass(slots=True)
class Episode:
    """Work beside training steps, from its first line on; `longest` silence in it so far."""

    phase: str
    title: str
    who: Who
    since: float
    last: float
    timed: bool = True
    longest: float = 0.0
    stepped: str = ""  # by which counter training went on once

    def sign(self, at: float) -> None:
        """Something was heard."""
        self.longest = max(self.longest, at - self.last)
        self.last = max(self.last, at)


@dataclass(frozen=True, slots=True)
class Limit:
    """How long the job may be silent now, and since when it is; `heartbeat` where it is known."""

    since: float
    seconds: float
    heartbeat: float | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """Progress stopped. `old`: it had before the watch began. `whole`: of all ranks.

    `first` are the authors who stopped first, as far as counters or times tell; `activity` is the
    last work that has no end yet, of `doing` if one author began it.
    """

    number: int
    at: float
    limit: Limit
    phase: str | None
    activity: str = ""
    doing: Who | None = None
    first: tuple[Who, ...] = ()
    whole: bool = True
    old: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """What became of the job: a stall, that it goes on after one, a start, a heartbeat learned."""

    what: str  # stalled, recovered, attempt, heartbeat
    at: float
    stall: Stall | None = None
    seconds: float = 0.0


@dataclass
class Pulse:
    """The state of one job, made of notices; `check` says what changed."""

    heartbeats: float
    grace: float
    every_rank: bool = False
    min_silence: float = 0.0  # seconds
    attempt: int = 0
    stalls: int = 0
    progress: float | None = None  # the last of any author
    life: float = -1e18
    last_byte: float = -1e18  # when the last byte was read
    episode: Episode | None = None
    stall: Stall | None = None
    trouble: Notice | None = None
    finished: bool = False
    exited: bool = False
    ended: bool = False
    serving: bool = False
    authors: OrderedDict[Who, Author] = field(default_factory=OrderedDict)
    _paces: OrderedDict[tuple[Who, str, str], Pace] = field(default_factory=OrderedDict)
    _learned: dict[str, deque[float]] = field(default_factory=dict)
    _closed: float = -1e18  # when the last episode ended
    _looked: float | None = None
    _changes: list[Change] = field(default_factory=list)
    _paced: bool = False
    _fresh: bool = False  # a new attempt has not progressed yet

    @property
    def state(self) -> State:
        """What is known of the job now."""
        if self.ended:
            return State.ENDED
        if self.stall is not None and self.stall.whole:
            return State.STALLED
        return State.STARTING if self.progress is None else State.RUNNING

    @property
    def phase(self) -> str | None:
        """What the job is doing."""
        if self.episode is not None:
            return self.episode.phase
        return _TRAINING if self.progress is not None else None

    def take(self, notice: Notice, at: float, look: float, *, timed: bool = True) -> None:
        """Take in what a line says; `timed`: it is known when, so that durations are measures."""
        if notice.says is Says.PROGRESS:
            self._progress(notice, at, look, timed=timed)
        elif notice.says in (Says.BEGIN, Says.END):
            self._phase(notice, at, timed=timed)
        elif notice.says is Says.LIFE:
            # Behind an error come its stacks and what others say of it.
            if self.trouble is None and not self.exited:
                self._live(at)
        elif notice.says is Says.RESTART:
            self.restart(at, notice.who)
        elif notice.says is Says.FINISHED:
            self.finished = True
        elif notice.says is Says.EXIT:
            self.exited, self.trouble = True, self.trouble or notice
        elif self.trouble is None:
            self.trouble = notice

    def restart(self, at: float, who: Who | None = None) -> None:
        """A new attempt begins; said by several lines or files it is still one."""
        if self._fresh:
            return
        self.attempt, self._fresh = self.attempt + 1, True
        self._clear()
        for pace in self._paces.values():
            pace.begin()
        self._open("init", "A new attempt started", who or Who(), at, timed=True)
        self.life = max(self.life, at)
        self._changes.append(Change("attempt", at))

    def begin(self, now: float) -> list[Change]:
        """All that was there before has been read: the watch begins."""
        self._looked = now
        if self.progress is None and self.life < -1e17:
            self.life = now
        self._changes.clear()
        limit = self._limit()
        if limit is not None and now - limit.since > limit.seconds + MARGIN_S:
            self.stall = self._stall(now, limit, old=True)
            return [Change("stalled", now, self.stall)]
        return []

    def check(self, now: float, look: float) -> list[Change]:
        """What became of the job since the last look, which was about `look` seconds ago."""
        changes, self._changes = self._changes, []
        late = self._looked is not None and now - self._looked > look + LATE_S
        self._looked = now
        if self.stall is not None and self._came_back(self.stall):
            changes.append(
                Change("recovered", now, self.stall, self._back() - self.stall.limit.since)
            )
            self.stall = None
            for author in self.authors.values():
                author.stalled = False
        limit = self._limit()
        if limit is None or late or self.ended:
            return changes
        if not self._paced and self.episode is None and limit.heartbeat is not None:
            self._paced = True
            changes.append(Change("heartbeat", now, seconds=limit.heartbeat))
        extra = MARGIN_S + (TROUBLE_S if self.trouble or self.finished else 0)
        if now - limit.since > limit.seconds + extra:
            if self.stall is None or not self.stall.whole:
                known = self.stall is not None
                self.stall = self._stall(now, limit, known=known)
                changes.append(Change("stalled", now, self.stall))
        elif self.every_rank and self.stall is None:
            changes += self._lone(now)
        return changes

    def over(self, now: float) -> bool:
        """Whether the job may have ended: it is time to ask for the verdict."""
        quiet = now - self.last_byte
        if self.finished or self.exited:
            return quiet >= QUIET_S
        return self.stall is not None and self.trouble is not None and quiet >= GIVEN_UP_S

    def limit(self) -> Limit | None:
        """How long the job may be silent now; None where nothing may be expected of it."""
        return self._limit()

    # --- what lines do ---------------------------------------------------------------------------

    def _progress(self, notice: Notice, at: float, look: float, *, timed: bool) -> None:
        key = notice.who, notice.kind, notice.source
        pace = self._paces.get(key)
        if pace is None:
            pace = remember(self._paces, key, Pace(), _PACES)
        elif notice.counter == pace.counter and (
            pace.counter is not None or notice.text == pace.text
        ):
            return  # printed again, but nothing moved
        self._paces.move_to_end(key)
        pace.counter, pace.text, pace.done = notice.counter, notice.text, notice.done
        phase = notice.phase or (self.episode.phase if self.episode else _TRAINING)
        pace.phase = phase
        if phase == _SERVING and not notice.done and notice.counter is None:
            self.serving = self.serving or self.progress is None
            self._live(at)
            return
        if phase == _TRAINING:
            spoiled = self.episode is not None or pace.at < self._closed
            self._step_in_episode(f"{notice.kind} {notice.source}", at)
        else:
            self._in_phase(phase, notice, at, timed=timed)
            spoiled = self.episode is not None and pace.at < self.episode.since
        pace.step(at, look, self.grace, spoiled=spoiled or not timed)
        author = self.authors.get(notice.who)
        if author is None:
            author = remember(self.authors, notice.who, Author(at), _AUTHORS)
        author.at, author.kind = max(author.at, at), notice.kind
        author.step = notice.counter if phase == _TRAINING else author.step
        self.progress = at if self.progress is None else max(self.progress, at)
        self._fresh = False
        self._clear()

    def _phase(self, notice: Notice, at: float, *, timed: bool) -> None:
        phase = notice.phase or "init"
        if phase != "shutdown":
            self.trouble = None
        if notice.says is Says.BEGIN:
            self._in_phase(phase, notice, at, timed=timed)
        self._live(at)

    def _in_phase(self, phase: str, notice: Notice, at: float, *, timed: bool) -> None:
        """A line of a phase: the episode goes on, or another begins."""
        if self.episode is None or self.episode.phase != phase:
            self._open(phase, notice.title, notice.who, at, timed=timed)
        elif notice.title:
            self.episode.title, self.episode.who = notice.title, notice.who
        if self.episode is not None:
            self.episode.sign(at)
            self.episode.stepped = ""

    def _step_in_episode(self, kind: str, at: float) -> None:
        """Training goes on: with the second step the episode is over; the first may come late."""
        if self.episode is None:
            return
        if self.episode.stepped == kind:
            self._close()
            return
        self.episode.sign(at)
        self.episode.stepped = self.episode.stepped or kind

    def _open(self, phase: str, title: str, who: Who, at: float, *, timed: bool) -> None:
        self._close()
        self.episode = Episode(phase, title, who, at, at, timed)

    def _close(self) -> None:
        episode, self.episode = self.episode, None
        if episode is not None:
            self._closed = episode.last
            if episode.timed:
                kept = self._learned.setdefault(episode.phase, deque(maxlen=_EPISODES))
                kept.append(min(episode.longest, self.grace))

    def _live(self, at: float) -> None:
        self.life = max(self.life, at)
        if self.episode is not None:
            self.episode.sign(at)

    def _clear(self) -> None:
        self.trouble, self.finished, self.exited, self.ended = None, False, False, False

    # --- how long it may be silent ---------------------------------------------------------------

    def _limit(self) -> Limit | None:
        if self.serving and self.progress is None:
            return None  # a server without requests has nothing to print
        progress = self.life if self.progress is None else self.progress
        training = self._training(progress)
        if self.episode is not None:
            since = max(progress, self.episode.last)
            return self._of_episode(self.episode, since, training)
        if training is not None:
            seconds, heartbeat = training
            return Limit(max(progress, self._closed), seconds, heartbeat)
        return Limit(max(progress, self.life), self.grace)

    def _training(self, progress: float) -> tuple[float, float] | None:
        """Seconds and heartbeat of the fastest counter that was at work until the last progress."""
        return min(self._of_counters(_TRAINING, progress), default=None)

    def _of_counters(self, phase: str, progress: float) -> Iterator[tuple[float, float]]:
        for pace in self._paces.values():
            bound = pace.bound(self.heartbeats, self.min_silence)
            if bound is None or pace.heartbeat is None or pace.done or pace.phase != phase:
                continue
            if pace.at >= progress - bound:
                yield bound, pace.heartbeat

    def _of_episode(
        self, episode: Episode, since: float, training: tuple[float, float] | None
    ) -> Limit:
        known = self._learned.get(episode.phase)
        longest = max(known) if known else None
        least = max(FLOOR_S, training[0] if training else 0.0)
        repeated = self.heartbeats / 2 * longest if longest is not None else 0.0
        if episode.phase != _TRAINING:
            own = min(self._of_counters(episode.phase, since), default=None)
            if own is not None:
                return Limit(since, max(own[0], repeated), own[1])
        if longest is not None:
            return Limit(since, max(repeated, least), longest)
        return Limit(since, max(self.grace, least))

    # --- stalls ----------------------------------------------------------------------------------

    def _stall(self, now: float, limit: Limit, *, old: bool = False, known: bool = False) -> Stall:
        self.stalls += not (old or known)
        doing = self.episode.who if self.episode is not None else None
        title = self.episode.title if self.episode is not None else ""
        return Stall(self.stalls, now, limit, self.phase, title, doing, self._first(limit), old=old)

    def _first(self, limit: Limit) -> tuple[Who, ...]:
        """Who stopped first: those that lag in steps, else those silent for clearly longer."""
        counted = [(who, author) for who, author in self.authors.items() if author.step is not None]
        kinds = {author.kind for _, author in counted}
        if len(counted) > 1 and len(kinds) == 1:
            most = max(author.step or 0 for _, author in counted)
            lagging = tuple(who for who, author in counted if (author.step or 0) < most)
            if lagging:
                return lagging
        times = [author.at for author in self.authors.values()]
        if len(times) < 2:
            return ()
        apart = max(MARGIN_S, 1.5 * (limit.heartbeat or 0.0))
        earlier = tuple(
            who for who, author in self.authors.items() if author.at < max(times) - apart
        )
        return earlier if len(earlier) < len(times) else ()

    def _lone(self, now: float) -> list[Change]:
        """Ranks that stopped while others go on."""
        if self.episode is not None or len(self.authors) < 2:
            return []
        stopped = []
        limits = []
        for who, author in self.authors.items():
            own = [p for (of, _, _), p in self._paces.items() if of == who and p.phase == _TRAINING]
            going = (p.bound(self.heartbeats, self.min_silence) for p in own if not p.done)
            bounds = [bound for bound in going if bound]
            if bounds and not author.stalled and now - author.at > min(bounds) + MARGIN_S:
                author.stalled = True
                stopped.append(who)
                beat = min((p.heartbeat for p in own if p.heartbeat is not None), default=None)
                limits.append(Limit(author.at, min(bounds), beat))
        if not stopped:
            return []
        self.stalls += 1
        first = min(limits, key=lambda limit: limit.since)
        self.stall = Stall(self.stalls, now, first, self.phase, first=tuple(stopped), whole=False)
        return [Change("stalled", now, self.stall)]

    def _came_back(self, stall: Stall) -> bool:
        if not stall.whole:
            return all(
                author.at > stall.at for who, author in self.authors.items() if who in stall.first
            )
        moved = self.progress is not None and self.progress > stall.limit.since
        return moved or (self._back() > stall.limit.since and self.trouble is None)

    def _back(self) -> float:
        """When something was heard last that is a sign of life for what the job is doing."""
        of_episode = self.episode.last if self.episode is not None else self._closed
        words = self.life if self.progress is None or self.episode is not None else -1e18
        return max(self.progress or -1e18, of_episode, words)
