"""What a rule is, what it may look at, and what it proposes; how far each kind of evidence reaches.

Rules give a hypothesis its tier, `decide.ranking` compares tiers: a higher one weighs more, however
many there are of a lower one.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Literal, get_args

from diagnose.catalog.schema import Catalog, Remedy, Strength
from diagnose.diagnosis import Answer, CulpritKind, Device, EvidenceTier
from diagnose.infer.events.facts import Facts
from diagnose.infer.events.onset import Activity
from diagnose.infer.judge.values import BadValues
from diagnose.infer.judge.verdict import Verdict
from diagnose.stories.silence import Silence
from diagnose.stories.story import Stories
from diagnose.timeline.event import Event, Timeline

if TYPE_CHECKING:
    from diagnose.checkpoint.model import Inspection
    from diagnose.infer.stacks.classify import Place
    from diagnose.infer.stacks.groups import PlaceClass
    from diagnose.parse.probes import Sign


_WORDS: tuple[EvidenceTier, ...] = get_args(EvidenceTier)
_ROWS = 8  # events that one hypothesis takes as its evidence
# What kind of evidence a hypothesis rests on; kinds are weighed against each other.
Basis = Literal[
    "line",  # a line of the log states it
    "exit",  # how a process ended
    "wait",  # ranks that wait in a collective
    "dump",  # dumps, counters or call lines of collectives
    "stack",  # a stack that was taken of a process
    "traceback",  # frames that a process printed itself
    "monitor",  # a process reports that one of its own threads is blocked
    "silence",  # regular lines that stopped
    "node",  # what a node reports of itself
    "checkpoint",  # files of a checkpoint
    "values",  # a loss, a norm of gradients or a loss scale that is bad to the end
    "issue",  # the conditions of a known issue
    "inference",  # anything else that follows from who was where
]


class Tier(IntEnum):
    """How much a hypothesis is worth by itself; the higher one weighs more."""

    NONE = 0  # taken back by what came after it, or seen only as others ended: no verdict
    GUESS = 1  # an exit status, a likeness, a wait for nobody in particular; explains nothing else
    WEAK = 2  # a line that more than one cause leaves
    CIRCUMSTANTIAL = 3  # who was where, with gaps
    LIKELY = 4  # the least that is told with medium confidence, and that explains stronger ones
    STRONG = 5  # a line says so, or ranks surely did not come; other causes may leave the same
    OBSERVED = 6  # what the ranks did shows it; the least that is told with high confidence
    PROVEN = 7  # a line says so that nothing else leaves

    @property
    def word(self) -> EvidenceTier:
        """Its name as people and JSON have it."""
        return _WORDS[self]


# What a decisive, a strong and a weak entry state of a line, by what holds of it.
_STATED: Mapping[str, tuple[Tier, Tier, Tier]] = {
    "timely": (Tier.PROVEN, Tier.STRONG, Tier.WEAK),
    # An entry that others know better.
    "generic": (Tier.PROVEN, Tier.LIKELY, Tier.GUESS),
    # The line breaks off in the message.
    "cut": (Tier.PROVEN, Tier.STRONG, Tier.GUESS),
    # Seen only after the first wait or teardown.
    "late": (Tier.OBSERVED, Tier.CIRCUMSTANTIAL, Tier.GUESS),
    # Who ended a job that had printed errors that no entry knows.
    "in_trouble": (Tier.LIKELY, Tier.CIRCUMSTANTIAL, Tier.GUESS),
    # Other ranks went on for long.
    "doubted": (Tier.STRONG, Tier.WEAK, Tier.NONE),
    # Its rank went on afterwards.
    "recovered": (Tier.CIRCUMSTANTIAL, Tier.GUESS, Tier.NONE),
    # A detector states it, nobody knows when, of a job that did not wait in vain.
    "undated": (Tier.CIRCUMSTANTIAL, Tier.CIRCUMSTANTIAL, Tier.GUESS),
    # A detector states it of a job whose ranks made different calls, which no device brings about.
    "other_calls": (Tier.CIRCUMSTANTIAL, Tier.CIRCUMSTANTIAL, Tier.GUESS),
    # What launchers do to victims, after the first wait.
    "late_ending": (Tier.CIRCUMSTANTIAL, Tier.NONE, Tier.NONE),
}


def stated(strength: Strength, grounds: Iterable[str]) -> Tier:
    """The tier of what a line of an entry states, under all that holds of the line."""
    column = get_args(Strength).index(strength)
    return min(_STATED[ground][column] for ground in ("timely", *grounds))


class Lost(Enum):
    """Why a hypothesis is not the root cause: the name of the predicate."""

    FOLLOWS = "explained"  # from the root cause
    LATE = "seen_late"  # its first sign comes after the first failure
    WEAK = "weak_evidence"
    CIRCUMSTANTIAL = "circumstantial"  # where the root cause is proven
    AFTER = "seen_after"  # it shows only after the root cause
    LESS = "less_evidence"


@dataclass(slots=True)
class Hypothesis:
    """One possible root cause.

    `tier` says how far its evidence reaches (see `Tier`), `grounds` what was weighed to give
    it. Within a tier `vague` evidence is that which others know better, and `support` counts the
    hypotheses of its class that say the same. `rows` are indices of the events that are its
    evidence, the first one its own first sign. `sure` marks evidence that proves the class by
    itself; `late` one seen only after the first failure. `explains` are ids, classes and globs
    of what it accounts for. `rule` is the name of who proposed it, for people; `basis` is the kind
    of its evidence, by which it is weighed. `lost` says why it is not the root cause, once that is
    known, and `lost_to` what it lost to. `merged` are the others of its class that were merged.
    `preceded_by` are classes that the very processes of its lines had stated before; of an end
    from outside, those of trouble that was there by then.
    `hung`: a job was seen to hang; `outside`: somebody else ended it, as such a job only ends.
    `pods` are the culprits that are pods; one is among `hosts` only where no line names its node.
    `hint` tells of a known issue of some versions, where it is not the verdict.
    `suggested`: the learned reader guesses the class from words.
    `longer_timeout`: whether one would help, where that does not follow from the class.
    """

    cause: str
    tier: Tier
    title: str
    summary: str
    rows: list[int] = field(default_factory=list)
    signature: str | None = None
    ranks: list[int] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    pods: list[str] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    kind: CulpritKind | None = None
    why: str = ""
    sure: bool = False
    late: bool = False
    inferred: bool = False
    explains: list[str] = field(default_factory=list)
    remedies: list[Remedy] = field(default_factory=list)
    restart: str | None = None
    rule: str = ""
    basis: Basis = "inference"
    grounds: list[str] = field(default_factory=list)
    vague: bool = False
    support: int = 0
    lost: Lost | None = None
    lost_to: Hypothesis | None = None
    merged: list[Hypothesis] = field(default_factory=list)
    hung: bool = False
    outside: bool = False
    hint: str = ""
    preceded_by: frozenset[str] = frozenset()
    suggested: bool = False
    longer_timeout: Answer | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """What rules may look at; the later fields are filled as the pipeline gets to them.

    `timeline` is the last attempt's. `failing` are the events that show a failure, `stalls` the
    verdicts on ranks that stand still (the one by dumps and lines together, where there are dumps),
    `alive` whether whom dumps tell of was alive. `stacks` are ranks by their stack dumps, `lone`
    those of processes of unknown rank, `signs` what nodes say of themselves, `halted` whether no
    counter of NCCL moved between two looks. `silence` is that of the job, or of one of its
    processes, until it was ended. `values` are those of a training that are bad to its end.
    `proposed` are the hypotheses of the stages before.
    """

    timeline: Timeline
    catalog: Catalog
    facts: Facts
    stories: Stories
    failing: Sequence[Event] = ()
    stalls: Sequence[Verdict] = ()
    activity: Activity = field(default_factory=Activity)
    alive: bool = False
    stacks: Sequence[PlaceClass] = ()
    lone: Sequence[Place] = ()
    signs: Sequence[Sign] = ()
    halted: bool = False
    checkpoints: Inspection | None = None
    silence: Silence | None = None
    values: BadValues | None = None
    proposed: Sequence[Hypothesis] = ()

    @property
    def by_dumps(self) -> Verdict | None:
        """The verdict on ranks that stand still, where dumps or counters show it."""
        return next((one for one in self.stalls if one.by_dumps), None)

    @property
    def world(self) -> int | None:
        """How many ranks the job has at least, by what it says or by those that it names."""
        named = self.timeline.ranks
        return max([self.facts.world_size or 0, *(rank + 1 for rank in named[-1:])]) or None


Rule = Callable[[Context], Iterable[Hypothesis]]
"""Proposes root causes from what it sees; it never raises and changes nothing."""


def inferred(
    cause: str, tier: Tier, catalog: Catalog, summary: str, rows: Sequence[int] = ()
) -> Hypothesis:
    """A hypothesis that follows from who was where; `rows` are the events of its evidence."""
    title = catalog.classes[cause].title
    return Hypothesis(cause, tier, title, summary, list(rows[:_ROWS]), inferred=True)


def is_bare(one: Hypothesis, catalog: Catalog) -> bool:
    """Whether its lines say by their form that something failed, and no more."""
    return catalog.classes[one.cause].unspecific and one.vague and one.basis == "line"


def specified(
    one: Hypothesis, cause: str, catalog: Catalog, *, rule: str, summary: str, grounds: list[str]
) -> Hypothesis:
    """The same with the class that a rule sees in it, without the advice for its own class."""
    return replace(
        one,
        cause=cause,
        title=catalog.classes[cause].title,
        summary=summary,
        remedies=[],
        restart=None,
        rule=rule,
        grounds=grounds,
        merged=[one, *one.merged],
    )


def most(ranks: Collection[int], world: int) -> bool:
    """Whether these are so many of a job that naming them accuses nobody."""
    return len(ranks) > max(world // 2, 1)


def explains(cause: Hypothesis, other: Hypothesis) -> bool:
    """Whether `cause` accounts for what speaks for `other`."""
    if cause.cause == other.cause:
        return False
    names = (other.cause, other.signature or "")
    return any(fnmatch.fnmatchcase(name, p) for p in cause.explains for name in names if name)
