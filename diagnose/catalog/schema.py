"""What an entry of the catalog is: signatures, known issues, cause classes and settings.

Plain dataclasses without behaviour, so that the compiled catalog can be loaded without YAML or
pydantic. `catalog.load` reads the YAML files into them and rejects unknown keys; `catalog.check`
holds the rules that go beyond types. CONTRIBUTING.md explains the fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

WordStrength = Literal["weak", "medium", "strong"]
WordRole = Literal["cause", "aftermath"]
HARMLESS, UNKNOWN = "none", "unknown"


class Strict:
    """What pydantic makes of YAML with no key that is not a field."""

    __slots__ = ()
    __pydantic_config__: ClassVar = {"extra": "forbid"}


@dataclass(slots=True)
class Near(Strict):
    """What a word means beside something else: `text` is a regular expression for its line."""

    text: str
    cause: str  # `class` in YAML
    strength: WordStrength | None = None
    role: WordRole | None = None
    why_not: str = ""  # `not` in YAML
    healthy: str = ""


@dataclass(slots=True)
class Word(Strict):
    """One word with its spellings, or a code with its numbers.

    `cause`: a class; `none` for what is harmless, `unknown` for what proves trouble but no class.
    `why_not`: what it must not be taken for. `healthy`: where it stands in logs of jobs that did
    not fail.
    """

    spellings: list[str]  # `word` in YAML
    cause: str  # `class` in YAML
    strength: WordStrength
    role: WordRole = "cause"
    near: list[Near] = field(default_factory=list)
    why_not: str = ""  # `not` in YAML
    healthy: str = ""


@dataclass(slots=True)
class Vocabulary(Strict):
    """One closed set.

    With `pattern`, a regular expression with one group `word`, the words are codes, which mean
    something only where it matches; `triggers` are literals of which a line with a match has one,
    `noun` is what such a code is called: `Xid`.
    """

    id: str  # the name of its file
    about: str
    references: list[str]
    words: list[Word]
    pattern: str = ""
    triggers: list[str] = field(default_factory=list)
    noun: str = ""


def literals(vocabulary: Vocabulary) -> Iterator[str]:
    """Every text of which a line with one of its words has one."""
    if vocabulary.pattern:
        yield from vocabulary.triggers
    else:
        for word in vocabulary.words:
            yield from word.spellings


class WordIndex(NamedTuple):
    """What a search needs of all vocabularies: their ids, those of codes, words by a token.

    A word is (spelling, where the token is in it, number of the vocabulary, number of the word).
    """

    ids: Sequence[str]
    coded: Sequence[int]
    by_token: Mapping[str, Sequence[tuple[str, int, int, int]]]


def word_index(vocabularies: Sequence[Vocabulary]) -> WordIndex:
    """The index of these; each word that is no code is under its longest token."""
    by_token: dict[str, list[tuple[str, int, int, int]]] = {}
    for number, vocabulary in enumerate(vocabularies):
        for place, word in enumerate(() if vocabulary.pattern else vocabulary.words):
            for spelling in word.spellings:
                tokens = re.finditer(r"\w+", spelling)
                token = max(tokens, key=lambda token: len(token.group()), default=None)
                if token is not None:
                    row = (spelling, token.start(), number, place)
                    by_token.setdefault(token.group(), []).append(row)
    coded = [number for number, one in enumerate(vocabularies) if one.pattern]
    return WordIndex([one.id for one in vocabularies], coded, by_token)


Role = Literal["cause", "effect", "aftermath", "context", "phase", "progress"]
Strength = Literal["decisive", "strong", "weak"]
Status = Literal["seen", "from_source"]
Confidence = Literal["high", "medium", "low"]
When = Literal["now", "fix", "prevent"]
RunKind = Literal["shell", "python", "setting", "note"]
Risk = Literal["read_only", "changes_state", "destructive"]
# What is there of a job: stacks of its ranks, what `diagnose collect` took; a log that just ends;
# times of steps by which a rank is slow; a culprit that a signal stopped, or that sleeps
# by itself; where ranks were as somebody ended the job; that steps take longer than before.
Held = Literal[
    "stacks", "bundle", "dumps", "unfinished", "pace", "stopped", "asleep", "places", "slower"
]
Needs = Literal["user", "admin"]
Restart = Literal["retry", "retry_elsewhere", "fix_first", "none"]
CulpritOf = Literal["self", "captured", "complement", "none"]
Phase = Literal[
    "init", "preprocessing", "model_load", "training", "evaluation", "checkpoint", "inference",
    "shutdown",
]  # fmt: skip
State = Literal[
    "timeout", "missing_ranks", "all_joined", "mismatch", "behind", "tiny_collective",
    "first_collectives", "no_progress", "step_0", "progress_then_stop", "crashed",
]  # fmt: skip

# What a match tells the engine beyond its role. Inference asks for these, never for ids, so that a
# user's own signature of a new wording joins the same reasoning.
Signal = Literal[
    "timeout",  # this rank waited for a collective: seq, op, numel_in, timeout_ms, elapsed_ms
    "frontier",  # this rank's last enqueued / started / completed collective
    "notified",  # this rank was told that another one (from_rank) timed out or failed
    "missing",  # the captured `missing` ranks never joined
    "joined",  # the captured `ranks` joined a collective and did not finish it
    "mismatch",  # rank / op / seq / shape against other_rank / other_op / other_seq / other_shape
    "host_blocked",  # a host thread is stuck: watchdog stuck, GIL
    "unanswered",  # this device reached no other_dev of its host, no peer, no other_rank or nobody
    "unnotified",  # inside a call this device waited for a signal of other_rank
    "blamed",  # a peer names other_dev of server as lost, stuck or at odds with the others
    "store_wait",  # waited on a key-value store (another rank, usually rank 0, did not come)
    "waiting",  # waits, and says so again and again while it does: only as the last word
    "exit",  # a process ended: exitcode or signal, with rank / local_rank / pid / host
    "exception",  # a Python exception's last line: type, message
    "dies",  # the process that prints it, or of which it speaks, ends by a signal or an abort
    "quits",  # the process that prints it refuses to start, and ends
    "peer_gone",  # a peer closed the connection; only its own log knows why
    "teardown",  # a rank aborts or the launcher stops ranks: everything later is aftermath
    "stopping",  # the launcher kills what is left, as one ended or for the captured `reason`;
    # whatever else it prints later keeps its weight
    "restart",  # a new attempt begins after this line
    "placed",  # the scheduler put pod `name` on node `host`
    "launched",  # a launcher starts a job: in each run once
    "opening",  # what a program states as it starts, such as its version: in each run once
    "rank_map",  # maps pid / local_rank / host to a rank
    "finished",  # this rank reached the end of its script
    "chained",  # the traceback below is of the same exception as the one above
    "closed",  # a server finished shutting down in order, at somebody's word
    "ignored",  # the exception whose traceback follows ended nothing
    "handled",  # a handler copes with the error above and goes on
    "trouble",  # an error in words that no other entry knows; never a cause
    "complaint",  # the user's own words for what is wrong
    "lost_lines",  # a logger left out lines that came before this one
    "silent",  # printed at intervals whatever the job does; no progress for elapsed_s
    "duration",  # says how long the job ran in all
    "stuck",  # the user's own words that the job stands still
    "concluded",  # another detector states the cause, and whom it blames
    "frame",  # a stack frame which shows where a rank stood (with `phase`)
]


@dataclass(slots=True)
class Run(Strict):
    """Something to copy: lines for bash, lines of Python, or a setting that is no program.

    A `note` says in words what no text to copy can. YAML writes the kind as the key:
    `{shell: ibstat}`, `{setting: "ddp_timeout: 7200"}`, or `{shell: [ibstat, perfquery -x]}` for
    several lines. `framework` (a launcher or scheduler too) says for which jobs it is, `file`
    where a setting stands. `<node>` and the like stand for what only the job knows;
    `formats/remedies.yaml` lists them.
    """

    kind: RunKind
    lines: list[str]
    framework: str = ""
    file: str = ""


@dataclass(slots=True)
class Remedy(Strict):
    """One step of the way out.

    `run` is what to copy. Shell commands that name no framework are for every job; a setting or
    Python that names none is for those whose framework has no entry of its own. `setting` names
    a `Setting`, which has the same for every framework. `risk` and `needs` are of the whole step.
    `unnamed` stands for `do` where a placeholder of it is not known; of one that has none, where
    neither a rank nor a host is named as the culprit. What captures evidence is no advice to who
    has it: the step is left out `unless` none of it is there, and where any of `given` is not.
    """

    when: When
    do: str
    why: str = ""
    run: list[Run] = field(default_factory=list)
    risk: Risk = "read_only"
    needs: Needs = "user"
    setting: str = ""
    unnamed: str = ""
    unless: list[Held] = field(default_factory=list)
    given: list[Held] = field(default_factory=list)


@dataclass(slots=True)
class Example(Strict):
    """A log text that must match, with the captures it must give."""

    line: str
    captures: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Match(Strict):
    """One expression as YAML writes it, with texts that it matches.

    Either `regex`, the parts of an expression that follow each other, or `any_of`: literals of
    which a line has one, between the expressions `after` and `before`. YAML has a single one of
    the parts as its text, of `examples` as `example`, and one without captures as its text alone.
    One with a literal stands for all literals: they are put in its place. Of `variants` each
    `{a|b}` in a text is one of these at a time.
    """

    regex: list[str] = field(default_factory=list)
    any_of: list[str] = field(default_factory=list)
    after: str = ""
    before: str = ""
    examples: list[Example] = field(default_factory=list)


@dataclass(slots=True)
class Signature(Strict):
    """One recognisable message.

    `match` holds regular expressions, searched in a line after its known prefixes were peeled off
    and escape codes removed; any one is enough, any of `unless` on the same line cancels. They
    must compile in Hyperscan (linear time: no lookaround, no back-references) and may not cross
    lines. `^` means the start of the message, after the prefixes. `written` has the same with its
    examples, as YAML does; like `near_miss`, it is there only where the catalog is read with them.

    `status`: whether a log has shown the message, or only the program's source or documentation;
    `where` is that log or source, if none of `references` is.

    `generic` marks catch-alls ("some Python exception"): they yield to any other cause or effect
    on the same line, those of progress to any other progress or phase. `per_step` marks what
    matches on every step: only the first match in a block of input and the last ones per rank are
    kept.

    `facts` maps fact names to values; "{name}" in a value stands for a capture. Fact names:
    `framework`, `trainer`, `model`, `version.<package>`, `setting.<name>`, `launcher`, `backend`.
    """

    id: str
    title: str
    role: Role
    match: list[str]
    cause: str = ""  # the cause class, for role cause (written `class` in YAML)
    strength: Strength = "strong"
    unless: list[str] = field(default_factory=list)
    ignore_case: bool = False
    generic: bool = False
    per_step: bool = False
    signal: Signal | None = None
    phase: Phase | None = None
    ends_phase: bool = False
    facts: dict[str, str] = field(default_factory=dict)
    not_evidence_of: str = ""
    culprit: CulpritOf = "none"
    explains: list[str] = field(default_factory=list)
    remedies: list[Remedy] = field(default_factory=list)
    restart: Restart | None = None
    references: list[str] = field(default_factory=list)
    status: Status = "from_source"
    where: str = ""
    written: list[Match] = field(default_factory=list)
    near_miss: list[str] = field(default_factory=list)

    @property
    def examples(self) -> list[Example]:
        """The texts that must match, of all expressions."""
        return [example for one in self.written for example in one.examples]


@dataclass(slots=True)
class Condition(Strict):
    """One condition of a known issue; all fields that are set must hold. Lists mean any of them.

    `signature`: id or glob of a signature seen. `wording`: what a line of failure or trouble says,
    with `*` for any text in between. `framework` / `trainer`: fact values. `fact`: "name=value"
    glob. `version`: "package >=x.y,<x.z", with <, <=, ==, !=, >= and >; where the log does not say
    the version, the issue becomes an alternative to be checked. `phase`: phase at the onset. `op`:
    op type of the collective waited for. `state`: what inference found. `cause`: class or glob of
    a cause already found with at least medium confidence.
    """

    signature: list[str] = field(default_factory=list)
    wording: list[str] = field(default_factory=list)
    framework: list[str] = field(default_factory=list)
    trainer: list[str] = field(default_factory=list)
    fact: list[str] = field(default_factory=list)
    version: list[str] = field(default_factory=list)
    phase: list[str] = field(default_factory=list)
    op: list[str] = field(default_factory=list)
    state: list[State] = field(default_factory=list)
    cause: list[str] = field(default_factory=list)


@dataclass(slots=True)
class KnownIssue(Strict):
    """A cause that no single line names: conditions over facts, signatures and inferred state.

    Every condition of `all` must hold, at least one of `any` (if given), none of `none`.
    `examples` are logs in which it is the cause, `near_miss` those in which it is not. Where YAML
    has a `first_line` of these, the rest is that of the first example.
    """

    id: str
    title: str
    cause: str  # `class` in YAML
    summary: str
    confidence: Confidence
    all: list[Condition]
    any: list[Condition] = field(default_factory=list)
    none: list[Condition] = field(default_factory=list)
    kind: str | None = None
    remedies: list[Remedy] = field(default_factory=list)
    restart: Restart | None = None
    references: list[str] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    near_miss: list[str] = field(default_factory=list)


ANY_JOB = ""  # the key of issues that any job may have
# Words apart, all digits alike: lines that differ in their numbers have the same words.
WORDS_APART = {code: " " for code in range(128) if not (chr(code).isalnum() or chr(code) in "_\n")}
WORDS_APART |= dict.fromkeys(map(ord, "0123456789"), "0")
# What an issue asks for, the rarest first; words are those of any log.
_ASKED = ("signature", "trainer", "fact", "framework", "wording")


def issue_index(issues: Sequence[KnownIssue]) -> dict[str, list[int]]:
    """Key → the numbers of the issues that need a job with it, or with another one of a few."""
    index: dict[str, list[int]] = {}
    for number, issue in enumerate(issues):
        for key in _needed(issue):
            index.setdefault(key, []).append(number)
    return index


def _needed(issue: KnownIssue) -> set[str]:
    """The keys of which a job must have one."""
    for name in _ASKED:
        for condition in issue.all:
            keys = {_key(name, asked) for asked in getattr(condition, name)}
            if keys and ANY_JOB not in keys:
                return keys
    return {ANY_JOB}


def _key(name: str, asked: str) -> str:
    """The key of what has this: a word, or with a blank a fact or a signature."""
    if name == "wording":  # its words at both ends may be parts of longer ones
        parts = (part.translate(WORDS_APART).split(" ")[1:-1] for part in asked.split("*"))
        return max((word for words in parts for word in words), key=len, default=ANY_JOB)
    if name == "fact":
        name, _, asked = asked.partition("=")
    return f"{name} {asked.lower()}" if asked and not re.search(r"[*?\[]", asked) else ANY_JOB


@dataclass(slots=True)
class CauseClass(Strict):
    """A class of root causes: what it is, what to do, what the engine may assume.

    `longer_timeout`: would a longer timeout help against this class; with `moving`, a `yes` holds
    only where the late rank is seen at work. `capture`: what to switch on when the evidence does
    not suffice.

    `explains`: ids, classes and globs of what a cause of this class accounts for. `phase`: the part
    of the job it always belongs to; `usual_phase`: the one to assume where the log shows none.
    `hang`: whether ranks wait for nothing (`hangs`), nobody does (`fails`), or the job's last lines
    decide (`either`). `culprit_kind`: what is said of the rank to blame. `strikes_one_process`: the
    process that ended tells which rank it was. `ends_process`: a process of which it is stated does
    not go on. `busy`: phases in which one rank works while the others wait, and this class is
    why; `held`: places (`infer.stacks`) of a rank of which that is so; `ahead`: phases of one whose
    work has ended while the others still train; `shown_by`: what shows this class where no line
    states it: predicates of `infer.rules.unstated`, and what other rules find. `outside`: who ended
    the job is no part of it; of one that hung this is only the end. `stays_with_node`: where it
    comes again on a node, the node is why; crashes, memory and sockets follow the job, as a user's
    bad code sits on his usual nodes.

    `author`: what whoever prints its lines is: the process that it `struck`; as likely the `victim`
    of another; one `of_all`, whose settings these are; one that `waits` for those that lines list.
    `vague`: it says that a process is missing or stuck, and not of what; `unspecific`: no more than
    that something failed. `while_ending`: interpreters that end after an exception often die of it.

    When its lines come: `retrospective`, often only after the waits it led to, so lateness does not
    speak against it; `ending`, after the launcher has begun to stop ranks, but before any wait;
    `final`, what is printed later comes from processes about to end and is no recovery. `ends_as`:
    the class that the end of such a process reads as; after it nothing was survived.
    """

    id: str
    title: str
    explanation: str
    remedies: list[Remedy]
    restart: Restart
    restart_why: str
    longer_timeout: Literal["yes", "no", "unknown"] = "unknown"
    capture: list[str] = field(default_factory=list)
    capture_stacks: list[str] = field(default_factory=list)
    explains: list[str] = field(default_factory=list)
    phase: Phase | None = None
    usual_phase: Phase | None = None
    hang: Literal["hangs", "fails", "either"] = "either"
    culprit_kind: Literal["crashed", "slow", "stuck_host"] | None = None
    strikes_one_process: bool = False
    ends_process: bool = False
    busy: list[Phase] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    ahead: list[Phase] = field(default_factory=list)
    shown_by: list[str] = field(default_factory=list)
    outside: bool = False
    stays_with_node: bool = False
    moving: bool = False
    retrospective: bool = False
    ending: bool = False
    final: bool = False
    ends_as: str = ""
    author: Literal["struck", "victim", "of_all", "waits"] | None = None
    vague: bool = False
    unspecific: bool = False
    while_ending: bool = False

    @property
    def is_crash(self) -> bool:
        """Whether a process of which it is stated died of itself."""
        return self.author == "struck" and self.hang == "fails"

    @property
    def is_death(self) -> bool:
        """Whether a line of this class says that one process died."""
        return self.strikes_one_process and self.hang == "fails"


@dataclass(slots=True)
class Place(Strict):
    """Where a framework has the setting, and the page that says so.

    One of framework `torch` is for what is built on it and has no place of its own, one of no
    framework for all others. Beside the framework `unless`, it is not the place: what FSDP saves is
    nothing to a job that runs on DeepSpeed. YAML writes all parts as one mapping.
    """

    run: Run
    reference: str
    unless: str = ""


@dataclass(slots=True)
class Setting(Strict):
    """One thing that jobs are told, and where each framework has it; `about` holds for all.

    `lengthens`: it lets ranks wait longer for each other. A step that sets it is left out where a
    longer timeout does not help.
    """

    id: str
    title: str
    about: str
    places: list[Place]
    lengthens: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Catalog:
    """Everything the YAML files say, and a revision that changes when any of it does.

    Compared by identity, so that what is worked out of one can be kept with it.
    `notes` tell of packs of other packages that were left out.
    """

    signatures: Sequence[Signature]
    known_issues: Sequence[KnownIssue]
    classes: dict[str, CauseClass]
    revision: str
    notes: list[str] = field(default_factory=list)
    vocabularies: Sequence[Vocabulary] = field(default_factory=list)
    settings: dict[str, Setting] = field(default_factory=dict)
    by_id: Mapping[str, Signature] = field(default_factory=dict, repr=False)  # the signatures

    def __post_init__(self) -> None:
        if not self.by_id:
            object.__setattr__(self, "by_id", {entry.id: entry for entry in self.signatures})

    @property
    def endings(self) -> frozenset[str]:
        """The classes of those who end a job from outside."""
        return frozenset(one.id for one in self.classes.values() if one.ending)

    @property
    def external_ends(self) -> frozenset[str]:
        """Those of them who are no part of the job: schedulers and people."""
        return frozenset(one.id for one in self.classes.values() if one.outside)

    @property
    def node_causes(self) -> frozenset[str]:
        """The classes that stay with a node."""
        return frozenset(one.id for one in self.classes.values() if one.stays_with_node)

    def busy_class(self, phase: str | None) -> str | None:
        """The class of a wait for a rank that is at this work while the others wait."""
        return next((one.id for one in self.classes.values() if phase in one.busy), None)

    def class_shown_by(self, finding: str) -> str:
        """The class that a finding shows where no line states one; `unknown` where none is."""
        shown = (one.id for one in self.classes.values() if finding in one.shown_by)
        return next(shown, UNKNOWN)
