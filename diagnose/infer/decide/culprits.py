"""Whom the verdict names: the one place that sets final culprits.

Pods among them are put on their nodes: a pod has no fault that a node could have.
"""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from diagnose.catalog.schema import CauseClass
from diagnose.diagnosis import Device
from diagnose.infer.judge.device_map import device_map
from diagnose.infer.rules.base import Hypothesis, explains, most
from diagnose.stories.silence import fell_silent_with
from diagnose.stories.story import State, Stories, Story, only_lost_peers
from diagnose.timeline.captures import captured_ranks
from diagnose.timeline.event import Author, Learned, Timeline

_REPEATED = 2  # times that one process prints its exception, as by a logger and the launcher
_ALIVE = ("slow", "stuck_host", "stuck_device")  # kinds of culprits that still run
_FEW = 2  # ranks, which need not be the whole job
WROTE_NOTHING_MORE = "it printed the error, and nothing more"

# How a number was found that no line ties to the culprit.
_LEARNED_BY = {
    Learned.DEVICE: "its number is that of its device, as the log shows no other node",
    Learned.NODE: "its number is its local rank, as the log shows no other node",
    Learned.ALONE: "it is the one rank that the log names, and this its one process",
}


class Naming(NamedTuple):
    """The predicate by which the culprits are named, or nobody is.

    `ranks` and `hosts` are those that were to be named, but are so many that it accuses nobody.
    """

    predicate: str
    ranks: Sequence[int] = ()
    hosts: Sequence[str] = ()


def name_culprits(
    ranked: Sequence[Hypothesis],
    stories: Stories,
    classes: Mapping[str, CauseClass],
    world: int | None = None,
) -> Naming:
    """Settle ranks and hosts of the first of `ranked`, the root cause; `world` ranks are known.

    Gives what decided it.
    """
    winner, timeline = ranked[0], stories.timeline
    if _of_one_of_several(winner, stories):
        winner.ranks, winner.kind, winner.why = [], None, ""
    naming = Naming(borrow_culprits(ranked, stories, classes))
    size = world or _size_shown(timeline)
    if winner.kind == "crashed" and _nobody(winner, timeline, classes, size):
        naming = Naming("too_many", winner.ranks, winner.hosts)
        winner.ranks, winner.hosts, winner.kind, winner.why = [], [], None, ""
    seen = next((c for c in ranked[1:] if c.basis == "stack" and c.ranks == winner.ranks), None)
    if seen is not None and winner.kind == "slow" and winner.basis == "line":
        winner.kind, winner.why = seen.kind, seen.why  # what the class takes for granted is seen
    if winner.kind in _ALIVE and _dead(winner, stories):
        winner.kind = "crashed"
    lines = [timeline.at(row) for row in winner.rows]
    ways = {event.learned for event in lines if event.rank in winner.ranks}
    devices = {event.fields.get("dev") for event in lines}
    if winner.ranks and not ways and devices == {*map(str, winner.ranks)}:
        ways = {Learned.DEVICE}
    if len(ways) == 1:
        how = _LEARNED_BY.get(ways.pop() or Learned.LINE)
        winner.why = "; ".join(part for part in (winner.why, how) if part)
    if winner.ranks and not winner.hosts:
        host_of = timeline.hosts_of_ranks
        winner.hosts = sorted({host_of[rank] for rank in winner.ranks if rank in host_of})
    if not winner.devices:
        winner.devices = _devices(winner, timeline, classes)
        winner.hosts = winner.hosts or sorted({one.host for one in winner.devices})
    return naming


def _devices(
    winner: Hypothesis, timeline: Timeline, classes: Mapping[str, CauseClass]
) -> list[Device]:
    """The devices of the culprits, where lines or a rank table tell them.

    Of a host without ranks that of the process that printed the cause, if it strikes one process.
    """
    known = timeline.once(device_map)
    found = known.of_ranks(winner.ranks)
    if not winner.ranks and winner.hosts and classes[winner.cause].strikes_one_process:
        lines = [event for row in winner.rows if (event := timeline.at(row)).role == "cause"]
        authors = {known.author(event) for event in lines}
        found = [one for one in authors if one is not None] if len(authors) == 1 else []
    return [Device(one.host, one.number or 0) for one in found if one.host]


def _dead(winner: Hypothesis, stories: Stories) -> bool:
    """Whether each culprit failed, or ended otherwise than well, and did nothing after it."""
    if winner.ranks:
        own = [stories.of_ranks.get(rank) for rank in winner.ranks]
    else:
        own = [stories.all.get(Author("host", (host,))) for host in winner.hosts]
    return bool(own) and all(one is not None and _died(one) for one in own)


def _died(story: Story) -> bool:
    """Whether a process failed or ended badly; one that a launcher stopped had not."""
    if story.exit_code == -signal.SIGTERM and not story.stated:
        return False
    return story.state is State.FAILED or bool(story.exit_code)


def _nobody(
    winner: Hypothesis, timeline: Timeline, classes: Mapping[str, CauseClass], size: int | None
) -> bool:
    """Whether these are so many of the job that naming them accuses nobody."""
    if classes[winner.cause].author == "of_all" and len(winner.ranks) > 1:
        return len(winner.ranks) >= len(timeline.ranks)
    if not size:
        return False
    if _listed(winner, timeline).issuperset(winner.ranks):
        return len(winner.ranks) >= size
    return most(winner.ranks, size)


def _listed(winner: Hypothesis, timeline: Timeline) -> set[int]:
    """The ranks whose ends tell of the cause: a scheduler lists those that it means."""
    ends = [event for event in map(timeline.at, winner.rows) if event.kind == "exit"]
    return {event.rank for event in ends if event.role == "cause" and event.rank is not None}


def _size_shown(timeline: Timeline) -> int | None:
    """How many ranks the job has at least, where it does not say; None of an excerpt of few."""
    return timeline.ranks[-1] + 1 if len(timeline.ranks) > _FEW else None


def _at_work(winner: Hypothesis, stories: Stories, busy: Collection[str]) -> None:
    """Name the one rank whose own story stands in the work that the cause is about."""
    of_ranks = stories.of_ranks if busy else {}
    at_work = ((rank, one) for rank, one in of_ranks.items() if one.phase in busy)
    found = [rank for rank, one in at_work if one.unfinished and one.certain]
    if len(found) == 1:
        winner.ranks, winner.kind = found, "slow"
        winner.why = "its work was not finished"


def _own_author(winner: Hypothesis, timeline: Timeline) -> bool:
    """Name the one rank that printed all lines of the cause that have an author."""
    lines = [timeline.at(row) for row in winner.rows]
    ranks = {event.rank for event in lines if event.role == "cause"}
    return _name_if_one(winner, ranks, "it alone printed the error")


def _name_if_one(winner: Hypothesis, ranks: Iterable[int | None], why: str) -> bool:
    """Name these ranks if they are one, whether or not some are unknown."""
    known = {rank for rank in ranks if rank is not None}
    if len(known) != 1:
        return False
    winner.ranks = sorted(known)
    winner.kind, winner.why = winner.kind or "crashed", why
    return True


def _printed_by_several(winner: Hypothesis, stories: Stories) -> bool:
    """Whether several processes printed the cause: who of them ended first means nothing.

    Of exceptions without a rank a few may be one process's, which says it again; but not where
    another process wrote its traceback at once.
    """
    lines = [event for row in winner.rows if (event := stories.timeline.at(row)).role == "cause"]
    if not stories.deeds.raised.mixed.isdisjoint(winner.rows):
        return True
    unsigned = sum(event.rank is None and event.kind == "exception" for event in lines)
    return unsigned > _REPEATED or len({event.rank for event in lines} - {None}) > 1


def _of_one_of_several(winner: Hypothesis, stories: Stories) -> bool:
    """Whether only an exit names who raised, and several raised at once: it may be the other's."""
    if stories.deeds.raised.mixed.isdisjoint(winner.rows):
        return False
    lines = map(stories.timeline.at, winner.rows)
    return {event.kind for event in lines if event.rank is not None} == {"exit"}


def _named_missing(winner: Hypothesis, timeline: Timeline) -> None:
    """Name who did not come, as lines list them."""
    events = timeline.signalling("missing")
    ranks = {rank for event in events for rank in captured_ranks(event.fields.get("missing"))}
    if ranks:
        winner.ranks, winner.kind = sorted(ranks), "missing"
        winner.why = "listed as not having come"


def _seen_there(one: Hypothesis, winner: Hypothesis) -> bool:
    """Whether stacks show ranks on a host that the winner names: that one failed there does not."""
    return one.basis == "stack" and bool({*one.hosts} & {*winner.hosts})


def borrow_culprits(
    ranked: Sequence[Hypothesis], stories: Stories, classes: Mapping[str, CauseClass]
) -> str:
    """Name the rank of a cause whose own line carries none, where only one can be meant.

    What the root cause accounts for (a killed rank, an exception) names the rank it struck; else
    the only rank with an exception or a telling exit of its own does. Gives the predicate by which
    it is named, or by which nobody is.
    """
    winner, timeline = ranked[0], stories.timeline
    if winner.ranks:
        return "by_its_rule"
    if winner.inferred:
        busy = classes[winner.cause].busy
        _at_work(winner, stories, busy)
        if winner.ranks:
            return "unfinished_work"
        victims = only_lost_peers([timeline.at(row) for row in winner.rows])
        only_inferred = winner.basis == "inference" and not (busy or victims)
        if only_inferred and _only_traceback(winner, timeline):
            return "only_traceback"
        last = only_inferred and _wrote_nothing_more(winner, timeline)
        return "wrote_nothing_more" if last else _by_hosts(winner)
    listed = _listed(winner, timeline)
    if listed:
        winner.ranks, winner.kind = sorted(listed), "crashed"
        winner.why = "its end is listed with this reason"
        return "listed_end"
    of_class = classes[winner.cause]
    if of_class.culprit_kind == "slow":
        of_ranks = [one for one in ranked[1:] if one.ranks]
        waited_for = next((o for o in of_ranks if o.kind == "slow" or _seen_there(o, winner)), None)
        if waited_for is not None:
            winner.ranks, winner.kind = waited_for.ranks, waited_for.kind
            winner.why = waited_for.why
            return "waited_for"
        return _by_hosts(winner)
    if of_class.author == "waits":
        _named_missing(winner, timeline)
    found = "listed_missing" if winner.ranks else ""
    if not of_class.strikes_one_process:
        return found or _by_hosts(winner, "strikes_whole_job")
    if _printed_by_several(winner, stories):
        return found or _by_hosts(winner, "several_authors")
    return _struck(ranked, timeline, classes) or found or _by_hosts(winner)


def _by_hosts(winner: Hypothesis, otherwise: str = "nobody_shown") -> str:
    """What names the hosts of a cause without ranks, `otherwise` where it has none."""
    return "by_its_rule" if winner.hosts else otherwise


def _struck(
    ranked: Sequence[Hypothesis], timeline: Timeline, classes: Mapping[str, CauseClass]
) -> str | None:
    """Name the one process that the cause struck; gives the predicate, None where none shows it."""
    winner, of_class = ranked[0], classes[ranked[0].cause]
    author = of_class.author
    if author == "struck" and _own_author(winner, timeline):
        return "only_author"
    for other in ranked[1:]:
        if of_class.ends_process and _raised(other, timeline):
            continue
        of_one = classes[other.cause].is_crash and len(other.ranks) <= _FEW
        missing = other.kind == "missing" and (other.basis in ("wait", "dump") or other.hung)
        if other.ranks and (of_one or missing) and explains(winner, other):
            winner.ranks, winner.kind, winner.why = other.ranks, "crashed", other.why
            winner.hosts = winner.hosts or other.hosts
            return "struck_by_it"
    if author == "victim":
        return None  # who raised first about a broken connection is as likely its victim
    if author == "of_all" and len(timeline.ranks) == 1:
        # All have these settings: the lines of one rank were kept, and only its launcher compares.
        return _only_with(winner, timeline, "exit")
    return _only_rank(winner, timeline, raised=not of_class.ends_process)


def _raised(other: Hypothesis, timeline: Timeline) -> bool:
    """Whether all that speaks for it is raised: by a process that no signal has ended then."""
    return bool(other.rows) and all(timeline.at(row).kind == "exception" for row in other.rows)


def _only_rank(winner: Hypothesis, timeline: Timeline, *, raised: bool) -> str | None:
    """Name the one rank with an exception or exit of its own, or that last lines are about.

    `raised`: whether the cause ends a process by an exception; what others raise is no sign else.
    """
    if found := _only_with(winner, timeline, *(("exception",) if raised else ()), "exit"):
        return found
    if raised and _only_traceback(winner, timeline):
        return "only_traceback"
    if _wrote_nothing_more(winner, timeline):
        return "wrote_nothing_more"
    effects = timeline.role("effect")
    captured = [event.fields for event in effects if event.signal in (None, "peer_gone")]
    named = {rank for fields in captured for rank in captured_ranks(fields.get("rank"))}
    last = _name_if_one(winner, named, "the only rank that its last lines name")
    return "only_rank_in_last_lines" if last else None


def _only_with(winner: Hypothesis, timeline: Timeline, *kinds: str) -> str | None:
    """Name the one rank that has an event of its own of one of these kinds."""
    for kind in kinds:
        events = [event for event in timeline.kind(kind) if event.role != "aftermath"]
        ranks = {event.rank for event in events}
        if _name_if_one(winner, ranks, f"the only rank with its own {kind}"):
            return f"only_{kind}"
    return None


def _wrote_nothing_more(winner: Hypothesis, timeline: Timeline) -> bool:
    """Name the one rank that printed the lines of the cause, and nothing more.

    One that reached nobody is the victim of whom it waited for.
    """
    rank = fell_silent_with(map(timeline.at, winner.rows), timeline)
    waited = {event.rank for event in timeline.signalling("unanswered", "unnotified")}
    return rank not in waited and _name_if_one(winner, {rank}, WROTE_NOTHING_MORE)


def _only_traceback(winner: Hypothesis, timeline: Timeline) -> bool:
    """Name the one rank that printed tracebacks, whatever it raised: that may be cut off."""
    raised = {event.rank for event in timeline.signalling("trouble") if event.role == "aftermath"}
    return _name_if_one(winner, raised, "the only rank with a traceback")


def put_on_nodes(winner: Hypothesis, timeline: Timeline) -> None:
    """Name the nodes of a cause's pods, as far as lines state them; the pods stay in `pods`."""
    placed = timeline.once(_nodes_of_pods)
    pods = timeline.pods | placed.keys()
    winner.pods = [host for host in winner.hosts if host in pods]
    found = {pod: node for pod in winner.pods if (node := placed.get(pod))}
    winner.hosts = sorted({found.get(host, host) for host in winner.hosts})
    named = [f"pod {pod} was assigned to {node}" for pod, node in found.items()]
    winner.why = "; ".join(part for part in (winner.why, *named) if part)


def _nodes_of_pods(timeline: Timeline) -> Mapping[str, str | None]:
    """Pod to node; None where lines name several, as of one that was moved."""
    nodes: dict[str, set[str]] = defaultdict(set)
    for event in timeline.signalling("placed"):
        if event.fields.get("name") and event.fields.get("host"):
            nodes[event.fields["name"]].add(event.fields["host"])
    return {pod: next(iter(of)) if len(of) == 1 else None for pod, of in nodes.items()}
