"""The result: what inference says about one job, and its versioned JSON.

Everything a report prints comes from here; reports never look at the timeline. The JSON form is
schema `diagnose/2`: every key is always present, missing values are null or empty lists, times are
ISO 8601 strings in the job's own clock. `schemas/diagnosis-2.json` is made from these classes.
"""

from __future__ import annotations

import json
import types
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from diagnose.catalog.schema import Needs, Risk, Run
from diagnose.text.ranks import ranks_phrase

if TYPE_CHECKING:
    from diagnose.infer.stacks.groups import PlaceClass

SCHEMA = "diagnose/2"
RENAMED = {"cause": "class"}  # fields whose name is a word of Python as a key of the JSON
LEFT_OUT = {"places": "PlaceClass"}  # fields of a diagnosis that its JSON lacks, and their types

Verdict = Literal["hung", "failed", "healthy", "running", "unknown"]
WELL: tuple[Verdict, ...] = ("healthy", "running")  # no sign of a failure
Confidence = Literal["high", "medium", "low"]
Likeness = Literal["job", "fingerprint", "similar"]
CulpritKind = Literal["missing", "mismatched", "crashed", "slow", "stuck_host", "stuck_device"]
Answer = Literal["yes", "no", "unknown"]
# How far evidence reaches; none: too little for a verdict. See `infer.rules.base`.
EvidenceTier = Literal[
    "none", "guess", "weak", "circumstantial", "likely", "strong", "observed", "proven"
]

# The steps of inference that leave reasons, in the order in which a person asks about them.
Step = Literal["verdict", "culprits", "confidence", "rival", "proposal", "event", "attempt"]
STEPS: tuple[Step, ...] = get_args(Step)
Outcome = Literal[
    "decided", "won",  # verdict
    "named", "not_named",  # culprits
    "reached", "met", "not_met",  # confidence
    "lost", "resisted",  # rival
    "proposed", "merged", "dropped",  # proposal
    "counted", "absolved", "ignored",  # event
    "diagnosed", "begun", "earlier",  # attempt
    "left_out",  # of any step: what there was no room for
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class RootCause:
    """The one cause the verdict names. `cause` is the cause class (`class` in the JSON).

    `suggested`: no entry or rule names the class; the learned reader guesses it from words.
    """

    cause: str
    title: str
    summary: str
    confidence: Confidence
    signature: str | None = None
    suggested: bool = False


@dataclass(frozen=True, slots=True)
class Device:
    """A device (an NPU, a GPU) of a host, by the number that the host's driver gives it."""

    host: str
    number: int


@dataclass(frozen=True, slots=True)
class Shared:
    """A unit of the fabric that all `suspects` are in, which chance does not explain.

    These are the culprit hosts, or where none is named those of the ranks that are missing in the
    collective. `level` is that of the topology (`rack`, `leaf`, `nvlink` …), or `rail` for the same
    adapter of each host; `unit` is its name, `hosts` how many hosts of the job it has, of
    `of_hosts` whose unit is known. `p` is the chance that as many hosts drawn at random share one
    unit, adjusted for the number of levels.
    """

    level: str
    unit: str
    suspects: list[str]
    hosts: int
    of_hosts: int
    p: float


@dataclass(frozen=True, slots=True)
class Culprits:
    """Global ranks and hosts to blame; empty lists when the evidence does not name any.

    `devices` are named where lines or a rank table say which the culprits have.
    """

    ranks: list[int] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    kind: CulpritKind | None = None
    why: str = ""
    devices: list[Device] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Onset:
    """When the trouble began (not when its message was printed); `time` is ISO 8601 or None."""

    time: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Collective:
    """The collective the job stopped at. Ranks are global; `group` is a printable name.

    `site` is where the user's code calls it (`file:line`), where a dump or a stack tells.
    """

    group: str | None
    op: str | None
    seq: int | None
    joined: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    site: str | None = None


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One event of the causal chain, in time order.

    `rank` is the first that logged it; `ranks` are all that did, empty where it is at most one.
    """

    event: str
    time: str | None = None
    rank: int | None = None
    source: str | None = None
    line: int | None = None
    ranks: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One line of a source that carries the verdict, and why it matters.

    `line` is 1-based, and 0 where the source has no lines (a dump). `quoted`: `text` is the line
    itself; without it, what a dump, a stack or a state of a node means, which begins there.
    """

    source: str
    line: int
    text: str
    why: str
    quoted: bool = True


@dataclass(frozen=True, slots=True)
class CodeFrame:
    """One frame of a traceback. `own`: of the user's program, not of an installed package.

    `file` is as printed, `code` the line of the program there, "" where the log lacks it.
    """

    file: str
    line: int
    function: str
    own: bool
    code: str = ""


@dataclass(frozen=True, slots=True)
class PythonException:
    """The exception that the root cause rests on, with its traceback as far as the log has it.

    `type` is as qualified as printed, "" where the log breaks off before it; `message` its first
    line. `rank` is whose it is, None where nothing tells. `where` is the innermost frame of the
    user's own program, None where the log shows none; `frames` are outermost first. It stands in
    `source` from `first_line` to `line`.
    """

    type: str
    message: str
    rank: int | None
    where: CodeFrame | None
    frames: list[CodeFrame]
    source: str
    first_line: int
    line: int


@dataclass(frozen=True, slots=True)
class Alternative:
    """A cause that was considered, and the reason why it lost."""

    cause: str
    confidence: Confidence
    why_not: str


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a source; `line` is 1-based, and 0 where the source has no lines (a dump)."""

    source: str
    line: int


@dataclass(frozen=True, slots=True)
class Reason:
    """One step that shaped the verdict: what became of whom, and which predicate decided it.

    `subject` is a cause class (verdict, rival, proposal), a signature or kind of events (event),
    ranks or hosts (culprits), a level (confidence) or the number of an attempt. `predicate` is the
    stable name of what decided the outcome, `rule` that of the rule which proposed the class, and
    `signature` the entry of the catalog it rests on. `beaten_by` is the class that a hypothesis
    lost to. `tier` is how far the evidence of a hypothesis reaches, None where the reason is of no
    hypothesis. `places` are its first lines, `count` is of how many lines it speaks. `text` is a
    sentence for people, which may quote the log.
    """

    step: Step
    outcome: Outcome
    subject: str
    predicate: str
    text: str
    rule: str | None = None
    signature: str | None = None
    beaten_by: str | None = None
    tier: EvidenceTier | None = None
    places: list[SourceLine] = field(default_factory=list)
    count: int = 0


@dataclass(frozen=True, slots=True)
class RemedyStep:
    """One step of the remedy, what to run already chosen for the job's own framework.

    `run` keeps apart what bash can execute, what is Python and what is a setting. `risk` and
    `needs` hold for the whole step.
    """

    when: Literal["now", "fix", "prevent"]
    do: str
    why: str = ""
    run: list[Run] = field(default_factory=list)
    risk: Risk = "read_only"
    needs: Needs = "user"


@dataclass(frozen=True, slots=True)
class RestartAdvice:
    """Whether and how to restart: `retry`, `retry_elsewhere`, `fix_first` or `none`."""

    advice: Literal["retry", "retry_elsewhere", "fix_first", "none"]
    exclude_hosts: list[str] = field(default_factory=list)
    why: str = ""


@dataclass(frozen=True, slots=True)
class MissingEvidence:
    """What would settle the question, and how to capture it with the job's own versions."""

    what: str
    how: str


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known of the job itself. `attempts` counts starts (1 = never restarted)."""

    world_size: int | None = None
    hosts: list[str] = field(default_factory=list)
    attempts: int = 1
    frameworks: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    ranks_seen: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the job came, as far as lines tell steps.

    `seconds_a_step` is what a step takes, `seconds_a_line` what usually passes between two lines
    with a step, `silent_s` the time from the last one to the end of the log; None without times.
    `earlier_seconds_a_step` is what a step took before, where steps take much longer since, else
    None. `last_step_time` is ISO 8601. `lagging`: ranks whose last step is behind that
    of others.
    """

    last_step: int | None
    seconds_a_step: float | None = None
    seconds_a_line: float | None = None
    silent_s: float | None = None
    lagging: list[int] = field(default_factory=list)
    last_step_time: str | None = None
    earlier_seconds_a_step: float | None = None


@dataclass(frozen=True, slots=True)
class WaitGraph:
    """Who waits for whom at the end.

    `state` has every rank of the job: `culprit`, `waiting`, `idle` (nothing pending though others
    wait for it), `done` or `no dump`. `edges` are (rank, rank it waits for, operation), bounded.
    """

    state: dict[int, str]
    edges: list[tuple[int, int, str]]


@dataclass(frozen=True, slots=True)
class Axis:
    """One way the world is divided: `groups` are disjoint, of `size` ranks each, and cover it.

    `name` is TP, PP, DP, EP or CP where the description says so; else `stride 8` (members are 8
    ranks apart) or `?` (no constant stride), with ` of 4` behind where sizes must tell them apart.
    """

    name: str
    size: int
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """The grid of the job's groups. `coordinates`: rank → axis → its place in the group, from 0."""

    axes: tuple[Axis, ...] = ()
    coordinates: dict[int, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier incident like this one, and what a person confirmed of it (`diagnose confirm`).

    `likeness`: it is this very job, it has the same fingerprint, or it shares most of what is rare;
    `similarity` says how much, from 0 to 1. `cause` is "" where nobody knows it, `confirmed` the
    time (ISO 8601, UTC), `fix` what helped. `incidents` counts those with this cause and fix that
    are alike; it is the closest of them that is shown.
    """

    job: str
    confirmed: str
    cause: str
    ranks: list[int]
    hosts: list[str]
    fix: str
    likeness: Likeness
    similarity: float
    incidents: int


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """How often such verdicts were right at this site.

    `stated` is the confidence of the evidence alone; of as many `confirmed` verdicts with it, of
    this class where `of_class`, `correct` were right. `share` is what that makes of the claim of
    this confidence: the share of such verdicts that is expected to be right, from 0 to 1.
    """

    confirmed: int
    correct: int
    of_class: bool
    share: float
    stated: Confidence


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis:
    """The whole verdict on one job.

    `notes` (bad sources, cut input, conflicts, what earlier attempts died of) are for the reader
    of a report and go to stderr-like places, too. `reasons` say how the verdict came about: what
    won first, then its rivals, then the events. `earlier` and `site_record` are from the memory of
    a site, where there is one; the confidence takes the record into account. `places` (ranks that
    stand alike by their stacks, the odd ones first) are for pictures, and not in the JSON.
    """

    verdict: Verdict
    root_cause: RootCause
    culprits: Culprits = field(default_factory=Culprits)
    shared: Shared | None = None
    phase: str | None = None
    onset: Onset = field(default_factory=Onset)
    collective: Collective | None = None
    longer_timeout_helps: Answer = "unknown"
    causal_chain: list[ChainLink] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    exception: PythonException | None = None
    alternatives: list[Alternative] = field(default_factory=list)
    remedies: list[RemedyStep] = field(default_factory=list)
    restart: RestartAdvice = field(default_factory=lambda: RestartAdvice("none"))
    missing_evidence: list[MissingEvidence] = field(default_factory=list)
    job: JobFacts = field(default_factory=JobFacts)
    progress: Progress | None = None
    notes: list[str] = field(default_factory=list)
    graph: WaitGraph | None = None
    topology: Topology | None = None
    earlier: list[Earlier] = field(default_factory=list)
    site_record: SiteRecord | None = None
    reasons: list[Reason] = field(default_factory=list)
    places: list[PlaceClass] = field(default_factory=list)

    def __repr__(self) -> str:
        """Short: what a cell of a notebook ends in, and a debugger shows."""
        cause = self.root_cause
        who = self._who()
        return (
            f"<Diagnosis {self.verdict}: {cause.title} ({cause.cause}, {cause.confidence} "
            f"confidence){'; ' if who else ''}{who}>"
        )

    def _repr_html_(self) -> str:
        """The verdict for a notebook, in words of the catalog: none of the log's, which may hold
        secrets. `diagnose.render(job, result, "html")` is the whole page.
        """
        from html import escape  # noqa: PLC0415  only a notebook needs it

        cause = self.root_cause
        head = (
            f"<b>{self.verdict.upper()}</b> {escape(cause.title)} ({cause.confidence} confidence)"
        )
        rows = {"cause": cause.cause, "culprits": self._who(), "onset": self.onset.time or ""}
        cells = "".join(
            f"<tr><th>{name}</th><td>{escape(value)}</td></tr>"
            for name, value in rows.items()
            if value
        )
        steps = "".join(f"<li>{escape(step.do)}</li>" for step in self.remedies if step.do)
        return f"<p>{head}</p><table>{cells}</table><ol>{steps}</ol>"

    def _who(self) -> str:
        ranks = ranks_phrase(self.culprits.ranks) if self.culprits.ranks else ""
        if self.culprits.devices:
            return ", ".join(f"{one.host} device {one.number}" for one in self.culprits.devices[:8])
        return " on ".join(filter(None, (ranks, ", ".join(self.culprits.hosts[:8]))))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form as a dict."""
        data: dict[str, Any] = plain(replace(self, places=[]))
        for name in LEFT_OUT:
            del data[name]
        return {"schema": SCHEMA, **data}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Diagnosis:
        """The diagnosis of a JSON form, also of an earlier version's. Raises ValueError."""
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError(f"no diagnosis of schema {SCHEMA}")
        kept = {key: value for key, value in data.items() if key not in LEFT_OUT}
        found: Diagnosis = made_of(cls, kept)
        return found

    def to_json(self) -> str:
        """Schema `diagnose/2` as text, ending without a newline."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2)


def plain(value: Any) -> Any:
    """A value as it comes back from JSON: objects, lists, and keys that are texts."""
    if isinstance(value, _SCALAR):
        return value
    if isinstance(value, list | tuple):
        numbers = {*map(type, value)} == {int}  # as thousands of ranks are
        return [*value] if numbers else [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if is_dataclass(value):
        return {key: plain(getattr(value, name)) for name, key in _keys(value.__class__)}
    return value


_SCALAR = (str, int, type(None))


@cache
def _keys(kind: Any) -> list[tuple[str, str]]:
    """The fields of a class and their keys."""
    return [(field.name, RENAMED.get(field.name, field.name)) for field in fields(kind)]


def made_of(kind: Any, value: Any) -> Any:
    """A value of a type from what `plain` made of it. Raises ValueError where it does not match."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else made_of(inner[0], value)
    if origin is list:
        return [made_of(inner[0], item) for item in _as(list, value)]
    if origin is tuple:
        several = inner[1:] == (...,)
        return tuple(
            made_of(inner[0] if several else part, item)
            for part, item in zip(inner[:1] * len(value) if several else inner, value, strict=True)
        )
    if origin is dict:
        key = int if inner[0] is int else str
        return {key(name): made_of(inner[1], item) for name, item in _as(dict, value).items()}
    if origin is Literal:
        if value not in inner:
            raise ValueError(f"{value!r} is none of {inner}")
        return value
    return _object(kind, value) if is_dataclass(kind) else _simple(kind, value)


def _object(kind: Any, value: Any) -> Any:
    hints, given = _hints(kind), _as(dict, value)
    names = [(name, key) for name, key in _keys(kind) if key in given]
    try:
        return kind(**{name: made_of(hints[name], given[key]) for name, key in names})
    except TypeError as error:  # a key is missing
        raise ValueError(str(error)) from error


def _simple(kind: Any, value: Any) -> Any:
    return float(_as(int | float, value)) if kind is float else _as(kind, value)


def _as(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r} is no {getattr(kind, '__name__', kind)}")
    return value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, localns=dict.fromkeys(LEFT_OUT.values(), Any))
