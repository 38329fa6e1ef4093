"""Causes that a line of the log states itself: one hypothesis per signature of role cause.

Whom the lines blame, ranks and hosts, follows from the signature's `culprit` rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter

from diagnose.catalog.entries import entry_of
from diagnose.catalog.schema import Catalog, CauseClass, CulpritOf, Signature
from diagnose.infer.events.exceptions import fullest, in_words
from diagnose.infer.events.failures import unexplained
from diagnose.infer.judge.verdict import DIFFER
from diagnose.infer.rules.base import Context, Hypothesis, Tier, most, stated
from diagnose.lazy import expression
from diagnose.stories.deeds import after
from diagnose.stories.passing import CONCLUDED, WAITED
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.captures import captured_ranks, integer, rank_of
from diagnose.timeline.ends import Raised, killed_by_launcher
from diagnose.timeline.event import Event, Fields, Learned, Timeline

_Process = tuple[str, str | None, int | None, int | None]
# Clocks of two hosts are not trusted to agree better than this.
_CLOCK_SLACK = 2_000_000_000
_ROWS = 8
# What is wrong with a program or its data and not with a peer: all ranks may raise it.
_OF_THE_PROGRAM = frozenset(
    {"AssertionError", "AttributeError", "FileNotFoundError", "ImportError", "IndentationError",
     "IndexError", "JSONDecodeError", "KeyError", "ModuleNotFoundError", "NameError",
     "NotImplementedError", "RecursionError", "SyntaxError", "TypeError", "UnboundLocalError",
     "UnicodeDecodeError", "ValueError", "ZeroDivisionError"}
)  # fmt: skip
# What makes a rank or host the culprit, by whom the signature blames.
_WHY: Mapping[CulpritOf, str] = {
    "self": "it printed the error",
    "captured": "the error names it",
    "complement": "its peers printed the error, it did not",
    "none": "",
}
_NODE = 8  # devices of one
# What only a rank prints of which a wait, or that of another one, ran out.
_OUTWAITED = ("timeout", "notified", "frontier")
# Not "of" or "from", which are said of peers.
_ON_RANK = expression(r"(?i)\b(?:on|in|at) (?:the )?(?:global[ _])?rank[ _=:#]?(\d{1,6})\b")


def propose(context: Context) -> Iterator[Hypothesis]:
    """One hypothesis per cause signature that matched."""
    timeline, catalog = context.timeline, context.catalog
    first_wait = next(
        (one for one in timeline.signalling(*_OUTWAITED) if one.role == "effect"), None
    )
    first_effect = next(iter(timeline.signalling("timeout", "teardown")), None)
    trouble = cache(lambda: unexplained(context.stories).counted)  # few jobs need it
    causes: dict[str | None, list[Event]] = defaultdict(list)
    stopped = killed_by_launcher(timeline)
    for event in timeline.role("cause"):
        waited = event.signal == "waiting" and context.stories.passed(event)
        shown = event.index in context.stories.deeds.raised.code
        if not (waited or shown or (event.signal == "exit" and stopped(event))):
            causes[event.signature].append(event)
    if nameless := [timeline.at(index) for index in sorted(context.stories.deeds.raised.nameless)]:
        bare = _bare_exception(catalog)
        causes[bare] = sorted([*causes[bare], *nameless], key=attrgetter("index"))
    first_stated = _first_stated(causes)
    for id_, group in causes.items():
        signature = entry_of(catalog, id_)
        if signature is None:
            continue
        # Launchers stop processes before they print why; only a wait comes before an ending.
        of_class = catalog.classes[signature.cause]
        limit = first_wait if of_class.ending else first_effect
        late = limit is not None and _after(group[0], limit)
        ranks, hosts = culprits_of(
            signature, group, context.facts.world_size, timeline, of_class.author
        )
        grounds = _grounds(signature, of_class, group, late, context)
        if of_class.outside and _in_trouble(group[0], trouble(), timeline):
            grounds.append("in_trouble")
        tier = stated(signature.strength, grounds)
        own = signature.signal == "exception" and (len(ranks) <= 1 or _of_the_program(group))
        if own and not late and not context.stories.survived(group):
            grounds.append("own_exception")
            tier = max(tier, Tier.LIKELY)
        yield Hypothesis(
            cause=signature.cause,
            tier=tier,
            title=signature.title if _is_telling(signature) else of_class.title,
            summary=_summary(signature, group, ranks, hosts, context.stories.deeds.raised),
            rows=[event.index for event in group[:_ROWS]],
            signature=signature.id,
            ranks=ranks,
            hosts=hosts,
            kind=of_class.culprit_kind if ranks or hosts else None,
            why=_WHY[signature.culprit] if ranks or hosts else "",
            sure=signature.strength == "decisive",
            late=late,
            explains=list(signature.explains),
            remedies=list(signature.remedies),
            restart=signature.restart,
            preceded_by=_preceded_by(group, first_stated)
            | _stated_before(group[0], of_class, causes, context),
            basis="line",
            grounds=[signature.strength, *grounds],
            vague=signature.generic,
        )


def _is_own(raised: Event) -> bool:
    """Whether an exception is the program's own: of what is wrong with it, or of no known name."""
    return raised.signal != "exception" or _of_the_program([raised])


def _of_the_program(exceptions: Sequence[Event]) -> bool:
    types = {event.fields.get("type", "").rpartition(".")[2] for event in exceptions}
    return types <= _OF_THE_PROGRAM


@cache
def _bare_exception(catalog: Catalog) -> str:
    """The entry of an exception of which nothing but its form is known."""
    generic = (one for one in catalog.signatures if one.generic and one.signal == "exception")
    return next(one.id for one in generic if catalog.classes[one.cause].unspecific)


def _first_stated(causes: Mapping[str | None, Sequence[Event]]) -> Mapping[_Process, Event]:
    """The first surely stated cause of each process that names itself."""
    found: dict[_Process, Event] = {}
    for event in (event for group in causes.values() for event in group):
        process = _process(event)
        if process is not None and event.strength != "weak":
            known = found.setdefault(process, event)
            found[process] = min(known, event, key=attrgetter("line"))
    return found


def _process(event: Event) -> _Process | None:
    """Who printed a line, where that is told by the line and not by where it is."""
    author = event.source, event.host, event.pid, event.rank
    return author if event.pid is not None and event.host is not None else None


def _preceded_by(group: Sequence[Event], first_stated: Mapping[_Process, Event]) -> frozenset[str]:
    """The classes that those processes which state this cause had stated before, each of them."""
    firsts = [first_stated.get(process) if (process := _process(e)) else None for e in group]
    before = {
        first.cause
        for first, event in zip(firsts, group, strict=True)
        if first is not None and first.line < event.line and first.cause
    }
    known = all(first is not None and first.cause in before for first in firsts)
    return frozenset(before) if known else frozenset()


def _stated_before(
    end: Event, of_class: CauseClass, causes: Mapping[str | None, Sequence[Event]], context: Context
) -> frozenset[str]:
    """The classes of trouble that was there before somebody ended the job, and stayed.

    Surely before, or of what is wrong with the program, which no end from outside brings about.
    """
    if not of_class.outside:
        return frozenset()
    classes, stories = context.catalog.classes, context.stories
    found = set()
    for id_, group in causes.items():
        signature = entry_of(context.catalog, id_)
        if signature is None or classes[signature.cause].outside:
            continue
        own = [one for one in group if _after(end, one) or (_is_own(one) and not _after(one, end))]
        if not classes[signature.cause].is_death:
            weak = signature.strength == "weak"
            own = [] if weak else [one for one in own if not _went_on(one, end, context.timeline)]
        if any(not stories.survived([one]) and not stories.doubtful([one]) for one in own):
            found.add(signature.cause)
    return frozenset(found)


def _grounds(
    signature: Signature, of_class: CauseClass, group: Sequence[Event], late: bool, context: Context
) -> list[str]:
    """What lowers the tier of a line, by the names in `stated`."""
    grounds = ["generic"] if signature.generic else []
    if late and not of_class.retrospective:
        # An exception after the first wait is most often that wait's own.
        ending = of_class.ending or of_class.unspecific
        grounds.append("late_ending" if ending else "late")
    if signature.signal == CONCLUDED:
        from diagnose.infer.events.claims import beside_work  # noqa: PLC0415  few jobs have any

        beside = {beside_work(context.stories, one) for one in group}
        if beside == {"outlasted"}:
            return [*grounds, "recovered"]
        if None not in beside and not context.timeline.signalling(*WAITED):
            grounds.append("undated")
        if context.by_dumps is not None and context.by_dumps.kind in DIFFER:
            grounds.append("other_calls")
    if not _came_true(of_class, group[-1], context):
        if context.stories.survived(group):
            grounds.append("recovered")
        if context.stories.doubtful(group):
            grounds.append("doubted")
    return grounds


def _in_trouble(ending: Event, trouble: Sequence[Event], timeline: Timeline) -> bool:
    """Whether errors that nobody knows stand above, and no step was made after them."""
    last = next((event for event in reversed(trouble) if _after(ending, event)), None)
    return last is not None and not _went_on(last, ending, timeline)


def _went_on(event: Event, ending: Event, timeline: Timeline) -> bool:
    """Whether steps were made between an event and an end."""
    steps = timeline.kind("progress")
    return any(_after(step, event) and _after(ending, step) for step in steps)


def _came_true(of_class: CauseClass, failure: Event, context: Context) -> bool:
    """Whether a process ended afterwards as processes end of this class, for good."""
    return any(
        event.cause == of_class.ends_as
        and _after(event, failure)
        and not context.stories.survived([event])
        for event in context.timeline.signalling("exit")
    )


def _after(event: Event, other: Event) -> bool:
    return after(event, other, _CLOCK_SLACK)


def who(ranks: Sequence[int], hosts: Sequence[str]) -> str:
    """Ranks in words, else hosts."""
    return ranks_phrase(ranks) if ranks else ", ".join(hosts[:4])


def _is_telling(signature: Signature) -> bool:
    """Whether what an entry is about says more than its class."""
    return signature.strength != "weak" and not signature.generic


def _summary(
    signature: Signature,
    group: Sequence[Event],
    ranks: list[int],
    hosts: list[str],
    raised: Raised,
) -> str:
    named = who(ranks, hosts)
    exception = fullest(group[:_ROWS], raised)
    # Of two calls that differ the line says more than the exception.
    if exception is not None and group[0].signal != "mismatch":
        text = in_words(exception)
        text = text if signature.generic or _is_telling(signature) else f"{signature.title}: {text}"
        return f"{text}{', ' + named if named else ''}."
    event = group[0]
    where = f" ({named})" if named else ""
    what = _two_calls(event.fields) if event.signal == "mismatch" else _detail(event.fields)
    detail = " ".join(what.split())[:160]
    return f"{signature.title}{where}{': ' + detail if detail else ''}."


def _two_calls(fields: Fields) -> str:
    """What the two ranks of a line that compares them called, as far as it goes."""
    if "rank" not in fields or "op" not in fields:
        return ""
    mine = _call(fields, "")
    if "other_rank" not in fields or "other_op" not in fields:
        return f"{mine}, and the line does not show what the other one called"
    return f"{mine}, and {_call(fields, 'other_')}"


def _call(fields: Fields, whose: str) -> str:
    op, same = fields[f"{whose}op"], fields["op"] == fields.get("other_op")
    shape, seq = fields.get(f"{whose}shape"), fields.get(f"{whose}seq")
    more = f" of shape [{shape}]" * (same and shape is not None)
    more += f" as number {seq}" * (same and seq != fields.get("other_seq" if not whose else "seq"))
    return f"rank {fields[f'{whose}rank']} called {op}{more}"


def _detail(fields: Fields) -> str:
    return fields.get("message") or fields.get("reason") or ""


def culprits_of(
    signature: Signature,
    group: Sequence[Event],
    world: int | None,
    timeline: Timeline,
    author: str | None = None,
) -> tuple[list[int], list[str]]:
    """Ranks and hosts a signature's matches name, by its `culprit` rule.

    `author` is what its class says of who prints it. A PCI address in a match names the rank that
    NCCL said uses this GPU.
    """
    ranks: set[int] = set()
    hosts: set[str] = set()
    if signature.culprit == "self":
        # Settings and addresses are those of a host: the device that met them first means nothing.
        shared = author in ("victim", "of_all", "waits")
        ranks = {
            event.rank
            for event in group
            if event.rank is not None and not (shared and event.learned is Learned.DEVICE)
        }
        hosts = {event.host for event in group if event.host is not None}
        ranks |= _captured(group, "rank")
    elif signature.culprit == "captured":
        links = _links(group)
        ranks = _at_fault(links) if links else _captured(group, "rank", "other_rank")
        hosts = {one for event in group for one in event.fields.get("host", "").split(", ") if one}
    if not ranks and signature.culprit != "none":
        ranks = _by_bus(group, timeline) or _by_pid(group, timeline)
    if not ranks and signature.culprit == "self" and author == "struck":
        ranks = {rank for event in group if (rank := _in_words(event)) is not None}
    if not ranks and signature.culprit == "self" and _is_one_node(timeline, world):
        ranks = _by_device(group, timeline)
    if world and most(ranks, world) and signature.culprit == "self":
        return [], []
    return sorted(ranks), sorted(hosts)


def _is_one_node(timeline: Timeline, world: int | None) -> bool:
    """Whether all that is seen of the job fits on one node, whose devices number its ranks."""
    hosts = {*timeline.column("host")} - {None}
    sources = {*timeline.column("source")}
    most = max(world or 0, len(sources), *(rank + 1 for rank in timeline.ranks[-1:]), 1)
    return len(hosts) <= 1 and most <= _NODE


def _by_device(group: Sequence[Event], timeline: Timeline) -> set[int]:
    """On one node the device a rank uses has the rank's number, if it sees more than its own.

    A process that sees one device only calls it number 0, whichever it is.
    """
    numbers = {event.fields["dev"] for event in timeline.capturing("dev")}
    if not any(number.isdigit() and int(number) > 0 for number in numbers):
        return set()
    devices = [event.fields.get("dev", "") for event in group]
    return {int(device) for device in devices if device.isdigit()}


def _captured(group: Sequence[Event], *names: str) -> set[int]:
    """Ranks under these names; what stands for "none of them" (HCCL's 4294967295) is no rank."""
    texts = [event.fields[name] for event in group for name in names if name in event.fields]
    numbers = (rank_of(one) for text in texts for one in text.split(", "))
    return {rank for rank in numbers if rank is not None}


def _links(group: Sequence[Event]) -> set[frozenset[int]]:
    """The pairs of ranks without a connection, of lines where one lists its peers."""
    return {
        frozenset((rank, peer))
        for event in group
        if "ranks" in event.fields
        if (rank := rank_of(event.fields.get("rank"))) is not None
        for peer in captured_ranks(event.fields["ranks"])
        if peer != rank
    }


def _at_fault(links: set[frozenset[int]]) -> set[int]:
    """The rank at which all of them end, both ends of a single one; nobody where there are more."""
    if len(links) == 1:
        return set(*links)
    common = frozenset.intersection(*links)
    return {*common}


def _by_bus(group: Sequence[Event], timeline: Timeline) -> set[int]:
    ranks: set[int] = set()
    named = {(event.host, pci_bus(event.fields.get("busid"))) for event in group}
    gpus = gpu_ranks(timeline) if any(bus is not None for _, bus in named) else {}
    for host, bus in named:
        here = [r for (at, known), r in gpus.items() if known == bus and host in (at, None)]
        ranks.update(here if len(here) == 1 else [])
    return ranks


def _by_pid(group: Sequence[Event], timeline: Timeline) -> set[int]:
    """The ranks of the processes that lines are about, where these named themselves elsewhere."""
    pairs = [(integer(event.fields.get("pid")), event.fields.get("host")) for event in group]
    hosts = {pid: host for pid, host in pairs if pid is not None}
    ranks: dict[int, set[int]] = {pid: set() for pid in hosts}
    for event in timeline if ranks else ():
        if event.rank is None or event.pid not in ranks:
            continue
        if None in (hosts[event.pid], event.host) or hosts[event.pid] == event.host:
            ranks[event.pid].add(event.rank)
    return {rank for own in ranks.values() if len(own) == 1 for rank in own}


def _in_words(event: Event) -> int | None:
    """The rank on which an error was, as a line says that names no author: `Error on rank 3: …`."""
    numbers = {*_ON_RANK.findall(event.text)} if event.rank is None else set()
    return rank_of(numbers.pop()) if len(numbers) == 1 else None


def gpu_ranks(timeline: Timeline) -> dict[tuple[str | None, int], int]:
    """(host, PCI bus number) → rank, from lines that map both (NCCL's init lines)."""
    found = {}
    for event in timeline.signalling("rank_map"):
        bus = pci_bus(event.fields.get("busid"))
        if event.rank is not None and bus is not None:
            found[event.host, bus] = event.rank
    return found


def pci_bus(text: str | None) -> int | None:
    """The bus number of a PCI address, as the kernel (0000:9b:00.0) or NCCL (9b000) prints it."""
    if not text:
        return None
    parts = text.split(":")
    try:
        return int(parts[-2], 16) if len(parts) > 1 else int(text, 16) >> 12
    except ValueError:
        return None
