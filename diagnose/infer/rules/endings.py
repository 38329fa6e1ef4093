"""Causes from how processes ended, by exit codes and signals, and from where their log breaks off.

Whoever pastes a log, and a process that is killed while it writes, leave half a line. Its beginning
says as much as the whole, if it is long and rare enough.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from diagnose.catalog.load import examples_of
from diagnose.catalog.schema import Catalog
from diagnose.infer.judge.by_lines import authors
from diagnose.infer.rules.base import Context, Hypothesis, Tier, inferred, stated
from diagnose.infer.rules.signatures import who
from diagnose.lazy import expression
from diagnose.parse.prefix import peel
from diagnose.stories.story import lost_peer
from diagnose.timeline.ends import exit_code, exits_named, killed_by_launcher
from diagnose.timeline.event import Event, Learned, Timeline

# How far a signal reaches as evidence of the class that it shows, and what it did to the process.
SIGNALS: Mapping[str, tuple[Tier, str]] = {
    "SIGKILL": (Tier.STRONG, "was killed by SIGKILL"),
    "SIGSEGV": (Tier.STRONG, "crashed in native code (SIGSEGV)"),
    "SIGBUS": (
        Tier.CIRCUMSTANTIAL,
        "died from a bus error (SIGBUS), most often because /dev/shm is full",
    ),
    "SIGFPE": (Tier.STRONG, "died from an arithmetic error (SIGFPE)"),
    "SIGILL": (Tier.STRONG, "ran an illegal instruction (SIGILL)"),
    "SIGABRT": (Tier.GUESS, "aborted (SIGABRT)"),
    "SIGINT": (Tier.CIRCUMSTANTIAL, "was interrupted (SIGINT)"),
    "SIGHUP": (Tier.CIRCUMSTANTIAL, "lost its terminal (SIGHUP)"),
    "SIGTERM": (Tier.GUESS, "received SIGTERM"),
    "SIGXCPU": (Tier.STRONG, "exceeded its CPU time limit (SIGXCPU)"),
}
_NAMES = {number.value: number.name for number in signal.Signals}
# What launchers send to victims, and what the watchdog ends with.
_OF_VICTIMS = (-signal.SIGTERM, -signal.SIGABRT)
# Of whose jobs a watchdog aborts every process that waits in a collective for too long.
_WATCHED = frozenset({"torch", "nccl"})
_WAITS = ("timeout", "store_wait")
_ROWS = 4
_LEAST = 18  # characters that the line shares with an example, up to the cut
_ANCHOR = 8  # of them are looked up first
_WORDS = 3  # among them, the last of which may be cut
_WORDS_AMID = 5  # where they are no beginning: any message may go on like the middle of another one
_WORD = expression(r"[A-Za-z_]{2,}")
# Frames and code say where, and not what.
_CODE = expression(r"File \"|\braise \w|^\s*(?:frame #|at |in )|\S/\S+/\S")
# What an exception is called says nothing of the message that follows.
_TYPE = expression(r"[\w.]*(?:Error|Exception|Failure|Interrupt|Exit): ?")


def propose_exits(context: Context) -> Iterator[Hypothesis]:
    """What killed the first process that was not a victim.

    SIGTERM and SIGABRT count only where no process ended otherwise and nothing in the log before
    them sent them, that of tasks whose launcher stopped them where it is all that happened to a job
    at work; SIGKILL not where the launcher had begun to stop the others of one that had
    ended, and not of processes that the launcher says it killed, or that had outlived a wait.
    """
    by_code: dict[int, list[Event]] = {}
    timeline = context.timeline
    stopped = killed_by_launcher(timeline)
    for event in [*exits_named(timeline.kind("exit")), *_own_words(timeline)]:
        code = exit_code(event.fields)
        if code and event.role != "aftermath" and not stopped(event):
            by_code.setdefault(code, []).append(event)
    by_code = by_code or _stopped_at_work(context)
    gave_up = _gave_up(timeline)
    by_code = {code: _not_waiting(code, group, gave_up) for code, group in by_code.items()}
    waits, stops = timeline.signalling("timeout"), timeline.signalling("teardown")
    others = any(code not in _OF_VICTIMS for code in by_code)
    for code in _OF_VICTIMS:
        group = by_code.get(code, [])
        if waits or others or (stops and all(e.index > stops[0].index for e in group)):
            by_code.pop(code, None)
    if _outlived_a_wait(by_code.get(-signal.SIGKILL, ()), timeline):
        by_code.pop(-signal.SIGKILL)
    if by_code.get(-signal.SIGABRT):
        by_code.pop(-signal.SIGTERM, None)  # what a launcher sends to the others of who aborted
    for code, group in by_code.items():
        watched = code == -signal.SIGABRT and _by_a_watchdog(group, context)
        yield _watchdog(group, context) if watched else _hypothesis(code, group, context)
    if not (by_code or waits or stops) and (unreported := _unreported(timeline)):
        yield _of_unreported(unreported, context)


def _outlived_a_wait(killed: Sequence[Event], timeline: Timeline) -> bool:
    """Whether processes that were killed had answered when others had waited for them in vain."""
    answered = {event.rank: event for event in timeline.signalling("notified")}
    return any(
        end.rank is not None and end.rank in answered and answered[end.rank].index < end.index
        for end in killed
    )


def _stopped_at_work(context: Context) -> dict[int, list[Event]]:
    """The ends of tasks that were stopped by SIGTERM, if the job worked and nothing else failed."""
    trained = any(step.phase in ("training", None) for step in context.timeline.kind("progress"))
    if not trained or any(event.role != "aftermath" for event in context.failing):
        return {}
    code = -signal.SIGTERM
    ends = [one for one in context.timeline.kind("exit") if exit_code(one.fields) == code]
    return {code: ends} if ends else {}


def _not_waiting(code: int, group: list[Event], gave_up: set[int]) -> list[Event]:
    """The ends without those of ranks whose wait ran out, where others ended by a status too.

    Who waited in vain raises as well, and ends with the same status as the one it waited for.
    """
    if code < 0:
        return group
    left = [event for event in group if event.rank not in gave_up]
    return left if any(event.rank is not None for event in left) else group


def _gave_up(timeline: Timeline) -> set[int]:
    """The ranks that raised as a wait ran out, by their number in the group where it is told once.

    In a job with several groups those numbers repeat, and name nobody.
    """
    waits = timeline.signalling(*_WAITS)
    ranks = {event.rank for event in waits if event.rank is not None}
    placed = {(e.signature, e.place): e.group_rank for e in waits if e.group_rank is not None}
    several = Counter((signature, rank) for (signature, _), rank in placed.items())
    if max(several.values(), default=0) <= 1:
        ranks |= {*placed.values()}
    return ranks


def _own_words(timeline: Timeline) -> list[Event]:
    """What processes say of the signal that ends them, before anybody sees how they end."""
    return [event for event in timeline.signalling("dies") if exit_code(event.fields) is not None]


def _unreported(timeline: Timeline) -> list[Event]:
    """The ends of ranks of which nobody says how they ended, if no end says more."""
    ends = [event for event in timeline.kind("exit") if event.role != "aftermath"]
    if any(exit_code(event.fields) is not None for event in ends):
        return []
    return [event for event in ends if event.rank is not None and event.learned is Learned.LINE]


def _of_unreported(group: Sequence[Event], context: Context) -> Hypothesis:
    """Who raises says so; who ends without a word was killed, or crashed in native code."""
    return replace(
        _hypothesis(-signal.SIGKILL, [*group], context),
        tier=Tier.GUESS,
        summary=f"{_named(group)} ended without a word; nothing says what ended it.",
        why="ended without a word",
    )


def _repeat(group: Sequence[Event]) -> bool:
    """Whether local ranks repeat, as those of different nodes do."""
    known = {(one.rank, one.local_rank) for one in group if None not in (one.rank, one.local_rank)}
    return len({local for _, local in known}) < len(known)


def _by_a_watchdog(group: Sequence[Event], context: Context) -> bool:
    """Whether processes aborted that a watchdog may have aborted, as their collective timed out.

    What it prints as it does so is in no log of these: they are of several nodes, whose processes
    do not crash at one time by themselves, or nothing that any of them printed is there. One that
    aborted alone, and whose peers lost it, crashed.
    """
    known = {*context.facts.versions, *context.facts.get("framework")}
    ranks = {event.rank for event in group} - {None}
    silent = bool(ranks) and ranks.isdisjoint(authors(context.timeline))
    printed = any(event.signal == "dies" for event in group)
    if printed or (len(ranks) == 1 and any(map(lost_peer, context.timeline.role("effect")))):
        return False
    return not known.isdisjoint(_WATCHED) and (silent or _of_several_nodes(group))


def _of_several_nodes(group: Sequence[Event]) -> bool:
    return len({event.host for event in group} - {None}) > 1 or _repeat(group)


def _watchdog(group: list[Event], context: Context) -> Hypothesis:
    """Processes of a job whose collective timed out, as it seems: they waited for somebody else.

    That is the one that had finished, where one alone had.
    """
    summary = (
        f"{_named(group)} aborted (SIGABRT), as a watchdog ends what waits in a collective for too "
        "long; what they printed is not in the log."
    )
    cause = context.catalog.class_shown_by("exit.watchdog")
    rows = [event.index for event in group[:_ROWS]]
    found = inferred(cause, Tier.GUESS, context.catalog, summary, rows)
    stories = context.stories.of_ranks.items()
    left = [rank for rank, one in stories if one.finished and one.finished.index < rows[0]]
    if len(left) == 1:
        found.ranks, found.kind, found.why = left, "missing", "had finished when its peers aborted"
    return replace(found, basis="exit", vague=True, hung=True)


def _named(group: Sequence[Event]) -> str:
    ranks = sorted({event.rank for event in group if event.rank is not None})
    named = who(ranks, sorted({event.host for event in group if event.host is not None}))
    return f"{named[:1].upper()}{named[1:]}" if named else "A process"


def _hypothesis(code: int, group: list[Event], context: Context) -> Hypothesis:
    ranks = sorted({event.rank for event in group if event.rank is not None})
    hosts = sorted({event.host for event in group if event.host is not None})
    name = _NAMES.get(-code, "")
    tier, did = SIGNALS.get(name, (Tier.GUESS, f"exited with status {code}"))
    cause = context.catalog.class_shown_by(f"exit.{name if name in SIGNALS else 'status'}")
    thrown = next((event.fields["type"] for event in group if "type" in event.fields), None)
    if thrown is not None:
        did = f"ended with an uncaught C++ exception: {thrown}"
    if len(ranks or hosts) > 1 and did.startswith("was "):
        did = f"were {did.removeprefix('was ')}"
    named = _named(group)
    together = code == -signal.SIGABRT and (len(ranks) > 1 or _of_several_nodes(group))
    if together or not context.catalog.classes[cause].strikes_one_process:
        # Whom somebody ended is not to blame, nor who aborts along with others: a crash stays in
        # its process, a watchdog aborts all that waited for the one to blame.
        ranks, hosts = [], []
    return Hypothesis(
        cause=cause,
        tier=tier,
        title=context.catalog.classes[cause].title,
        summary=f"{named} {did}.",
        rows=[event.index for event in group[:_ROWS]],
        ranks=ranks,
        hosts=hosts,
        kind="crashed" if ranks or hosts else None,
        why=f"{did}; other processes ended later" if ranks else "",
        inferred=True,
        basis="exit",
        vague=tier == Tier.GUESS,
    )


def propose_cut_line(context: Context) -> Iterator[Hypothesis]:
    """The cause of the example that goes on where a source breaks off, if nothing else is known."""
    classes = context.catalog.classes
    if any(h.tier >= Tier.WEAK and not classes[h.cause].unspecific for h in context.proposed):
        return
    for event in _last_lines(context):
        text = event.text.rstrip()
        part, id_ = _continued(text, context.catalog)
        if not part or _ambiguous(part, context.catalog):
            continue
        entry = context.catalog.by_id[id_]
        yield Hypothesis(
            cause=entry.cause,
            tier=stated(entry.strength, ["cut"]),
            title=context.catalog.classes[entry.cause].title,
            summary=f"The log breaks off in the middle of a message: {entry.title}.",
            rows=[event.index],
            signature=id_,
            inferred=True,
            explains=list(entry.explains),
            remedies=list(entry.remedies),
            restart=entry.restart,
            basis="line",
            grounds=[entry.strength, "cut"],
            vague=True,
        )


def _last_lines(context: Context) -> Iterator[Event]:
    """Last lines of which nothing but their form is known, and whose end some example has."""
    last = {event.source: event for event in context.timeline.kind("edge")}.values()
    numbers = {event.line for event in last}
    known = {
        event.place
        for id_, events in context.timeline.by_signature.items()
        if _known(id_, context.catalog)
        for event in events
        if event.line in numbers
    }
    # Of a large job hardly any last line ends as a known message goes on, and many end alike.
    ends = [(event.text.rstrip()[-_ANCHOR:], event) for event in last if event.place not in known]
    examples = _all_examples(context.catalog) if ends else ""
    going_on = {end for end in {end for end, _ in ends} if end in examples}
    for end, event in ends:
        if end in going_on and not _CODE.search(event.text):
            yield event


def _known(id_: str, catalog: Catalog) -> bool:
    entry = catalog.by_id.get(id_)
    if entry is None or entry.generic or entry.signal == "exception":
        return False
    return entry.role in ("cause", "effect", "context")


def _continued(text: str, catalog: Catalog) -> tuple[str, str]:
    """What the example of a cause that shares most with the end of this text has of it, its entry.

    Empty where no example goes on behind it, or not enough is shared.
    """
    anchor = text[-_ANCHOR:]
    best: tuple[int, str, str] | None = None
    for id_, beginning in _beginnings(anchor, catalog) if len(text) >= _LEAST else ():
        shared = _shared(text, beginning)
        if best is None or shared > best[0]:
            best = shared, id_, beginning
    if best is None:
        return "", ""
    shared, id_, beginning = best
    part = _TYPE.sub("", text[-shared:])
    begins = shared >= len(peel(beginning).message)
    words = _WORDS if begins else _WORDS_AMID
    enough = len(part) >= _LEAST and len(_WORD.findall(part)) >= words
    return (part, id_) if enough else ("", "")


@lru_cache(maxsize=16)
def _beginnings(anchor: str, catalog: Catalog) -> list[tuple[str, str]]:
    """Entries of causes and their examples, up to the anchor and with it, behind which they go on.

    Many logs of one job end in the same words, so that the examples are searched once for all.
    """
    return [
        (id_, begins + anchor)
        for id_, example in examples_of(catalog)
        for begins, _, rest in [example.partition(anchor)]
        if rest and _is_cause(id_, catalog)
    ]


def _ambiguous(part: str, catalog: Catalog) -> bool:
    """Whether messages of several classes, or of none, begin so."""
    text, examples = _all_examples(catalog), examples_of(catalog)
    causes: set[str | None] = set()
    at = text.find(part)
    while at >= 0 and len(causes) < 2:
        id_, _ = examples[text.count("\n", 0, at)]
        causes.add(catalog.by_id[id_].cause)
        at = text.find(part, at + 1)
    return len(causes) > 1


def _shared(text: str, example: str) -> int:
    """How many characters the ends of both have in common."""
    most = min(len(text), len(example))
    return next((n for n in range(most) if text[-n - 1] != example[-n - 1]), most)


def _is_cause(id_: str, catalog: Catalog) -> bool:
    """Whether it is an entry of a cause that says what it is about."""
    return catalog.by_id[id_].role == "cause" and not catalog.by_id[id_].generic


@lru_cache(maxsize=2)
def _all_examples(catalog: Catalog) -> str:
    """The lines of all examples in one text, in which a look-up is quick."""
    return "\n".join(line.replace("\n", " ") for _, line in examples_of(catalog))
