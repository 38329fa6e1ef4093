"""What maintainers ask for, found in what a job left: `formats/issues/` says what and how.

Of each log the beginning is read, where programs say what they are and how they were started; what
is behind that is in the events. Documents of a bundle are read as a whole.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from diagnose.ingest.source import TEXT_KINDS, Source
from diagnose.parse.prefix import peel
from diagnose.text.ranks import counted, ranks_phrase

if TYPE_CHECKING:
    from diagnose.diagnosis import Diagnosis
    from diagnose.job.model import Job
    from diagnose.parse.tracebacks import Frame
    from diagnose.timeline.event import Event

FOLDER = Path(__file__).parents[1] / "formats" / "issues"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MOST = 20  # lines of an item
OF_A_LOG, OF_ALL = 4 << 20, 64 << 20  # bytes of text that are looked at
_SOURCES = 2048
_LINE = 2000  # characters
_DOCUMENT = 1 << 20  # bytes
_FRAMES, _CLASSES = 60, 24
_ALIKE = 2  # lines of evidence that mean the same
# What differs from rank to rank as it should, or says nothing to others.
_OWN = re.compile(
    r"(?:LOCAL_|GROUP_|ROLE_|NODE_|PMI_|PMIX_|OMPI_COMM_WORLD_\w*)?RANK|OMPI_\w+|PMIX?_\w+|HOSTNAME"
    r"|TORCHELASTIC_\w+|SLURM_(?:PROCID|LOCALID|NODEID|TASK_PID|GTIDS|STEP_\w+|LAUNCH_\w+|SRUN_\w+)"
    r"|SLURMD_NODENAME|RAY_(?:TMPDIR|AUTH\w*|USAGE\w*|RAYLET_PID|JOB_ID)"
)


@dataclass(frozen=True, slots=True)
class Item:
    """A row of `items.yaml`; its head says what the fields mean."""

    item: str
    title: str
    get: list[str]
    holds: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    block: str = ""
    inside: str = ""
    files: list[str] = field(default_factory=list)
    made: str = ""
    most: int = MOST
    samples: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    only: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)

    def says(self, line: str) -> bool:
        """Whether a line is one of those that answer it."""
        return any(one.search(line) for one in _compiled(tuple(self.lines)))

    def begins(self, line: str) -> bool:
        """Whether a line is the first of its block."""
        return bool(self.block) and _compiled((self.block,))[0].match(line) is not None

    def goes_on(self, line: str) -> bool:
        """Whether a line belongs to the block that began above."""
        return _compiled((self.inside,))[0].fullmatch(line) is not None

    def is_file(self, name: str) -> bool:
        """Whether a file answers it, by its name."""
        base = name.rpartition("/")[2].lower()
        return any(fnmatchcase(base, pattern) for pattern in self.files)


@cache
def _compiled(patterns: tuple[str, ...]) -> list[re.Pattern[str]]:
    return [re.compile(pattern) for pattern in patterns]


@dataclass(frozen=True, slots=True)
class Ask:
    """An item as a project asks for it: under a heading of its form, `get` where it is missing."""

    item: Item
    heading: str
    get: list[str]


@dataclass(frozen=True, slots=True)
class Question:
    """A row of `questions.yaml`: what no log can answer, and how to find out."""

    question: str
    ask: str
    how: str = ""
    only: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Project:
    """A project that takes issues; `open` is where, `versions` have to be known.

    `asks` and `questions` are what it asks first, `later_asks` and `later_questions` the others
    that it may ask.
    """

    project: str
    name: str
    open: str
    asks: list[Ask]
    later_asks: list[Ask]
    questions: list[Question]
    later_questions: list[Question]
    versions: dict[str, str]


def fit(row: Item | Question, cause: str) -> int:
    """How closely it is about failures with this cause; 0 where it is about any."""
    return max((len(one) for one in row.causes if fnmatchcase(cause, one)), default=0)


def items() -> dict[str, Item]:
    """All items by their name."""
    return {row["item"]: Item(**row) for row in _rows("items.yaml")}


def questions() -> dict[str, Question]:
    """All questions by their name."""
    return {row["question"]: Question(**row) for row in _rows("questions.yaml")}


def projects() -> dict[str, Project]:
    """All projects by their name."""
    return {row["project"]: _project(row) for row in _rows("projects.yaml")}


@cache
def _rows(name: str) -> Any:
    return yaml.load((FOLDER / name).read_bytes(), _LOADER)


def _project(row: Mapping[str, Any]) -> Project:
    known, open_ones, how = items(), questions(), _rows("versions.yaml")
    asks = []
    for one in row["asks"]:
        given: dict[str, Any] = {"item": one} if isinstance(one, str) else one
        item = known.pop(given["item"])
        asks.append(Ask(item, given.get("as", item.title), given.get("get", item.get)))
    first = []
    for one in row["questions"]:
        changed = {"question": one} if isinstance(one, str) else one
        first.append(replace(open_ones.pop(changed["question"]), **changed))
    name = row["project"]
    return Project(
        name, row["name"], row["open"], asks,
        [Ask(one, one.title, one.get) for one in known.values() if name in (one.only or [name])],
        first, [one for one in open_ones.values() if name in (one.only or [name])],
        {version: how[version] for version in row["versions"]},
    )  # fmt: skip


@dataclass(slots=True)
class Found:
    """What a job has of an item: lines with the place of the first, and how many were left out.

    `files` are names of files that answer it by themselves, to be attached.
    """

    lines: list[str] = field(default_factory=list)
    place: str = ""
    more: int = 0
    files: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(self.lines or self.files)


def find(job: Job, diagnosis: Diagnosis, asked: Sequence[Item]) -> dict[str, Found]:
    """What the job has of each item."""
    found = {item.item: Found() for item in asked}
    for item in asked:
        if item.made:
            _keep(found[item.item], item, _MADE[item.made](job, diagnosis))
        found[item.item].files += [s.name for s in job.sources if item.is_file(s.name)]
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    left = OF_ALL
    for source in islice((s for s in job.sources if s.kind in TEXT_KINDS), _SOURCES):
        if left <= 0:
            break
        left -= _search(source, asked, found, seen)
    return found


def _keep(found: Found, item: Item, lines: Iterable[str]) -> None:
    for line in lines:
        if len(found.lines) < item.most:
            found.lines.append(line[:_LINE])
        else:
            found.more += 1


def _search(
    source: Source,
    asked: Sequence[Item],
    found: Mapping[str, Found],
    seen: Mapping[str, Counter[str]],
) -> int:
    """Take from a log what answers an item; gives the bytes that were looked at."""
    read = 0
    for chunk in source.chunks():
        data = chunk.data[: OF_A_LOG - read]
        read += len(data)
        for item in asked:
            for at in _places(data, item.holds):
                _line(source.name, data, at, item, found[item.item], seen[item.item])
        if read >= OF_A_LOG:
            break
    return read


def _places(data: bytes, literals: Sequence[str]) -> list[int]:
    """Where the lines begin that hold one of these, each once and in order."""
    starts = set()
    for literal in literals:
        mark, at = literal.encode(), -1
        while (at := data.find(mark, at + 1)) >= 0:
            starts.add(data.rfind(b"\n", 0, at) + 1)
            at = data.find(b"\n", at)
            if at < 0:
                break
    return sorted(starts)


def _line(source: str, data: bytes, at: int, item: Item, found: Found, seen: Counter[str]) -> None:
    line = _text(data, at)
    if item.begins(line) and not seen["\n"]:
        seen["\n"] += 1  # one block is enough: those of other ranks are alike
        found.place = found.place if found.lines else source
        _keep(found, item, _block(data, at, item))
    elif item.says(line):
        message = peel(line).message.strip()
        seen[message] += 1
        if seen[message] == 1 and not any(one in message for one in found.lines):
            found.place = found.place if found.lines else source
            _keep(found, item, [line.strip()])


def _text(data: bytes, at: int) -> str:
    end = data.find(b"\n", at, at + _LINE)
    return data[at : end if end >= 0 else at + _LINE].decode(errors="replace")


def _block(data: bytes, at: int, item: Item) -> list[str]:
    lines = [_text(data, at)]
    while len(lines) < item.most and (at := data.find(b"\n", at) + 1) > 0 and at < len(data):
        line = _text(data, at)
        if not item.goes_on(line):
            break
        lines.append(line)
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


# --- what the diagnosis, the dumps and the bundle know --------------------------------------------


def _documents(job: Job, name: str) -> Iterator[dict[str, Any]]:
    """The JSON documents of a bundle with this name."""
    named = (s for s in job.sources if s.kind == "probe" and s.name.endswith(f"/{name}"))
    for source in islice(named, _SOURCES):
        try:
            found = json.loads(source.content()[:_DOCUMENT])
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def _folded(pairs: Iterable[tuple[str, int]]) -> list[tuple[str, str]]:
    """Texts with whose they are, in the order in which each came first."""
    of: dict[str, list[int]] = {}
    for text, rank in pairs:
        of.setdefault(text, []).append(rank)
    return [(text, ranks_phrase(ranks)) for text, ranks in of.items()]


def _evidence(_: Job, diagnosis: Diagnosis) -> list[str]:
    alike: dict[str, dict[str, None]] = {}  # lines of many ranks mean the same
    for one in diagnosis.evidence:
        if one.quoted and len(alike.setdefault(one.why, {})) < _ALIKE:
            alike[one.why][one.text] = None
    return [text for texts in alike.values() for text in texts]


def _versions(_: Job, diagnosis: Diagnosis) -> list[str]:
    return [f"{name} {version}" for name, version in diagnosis.job.versions.items()]


def _commands(job: Job, _: Diagnosis) -> list[str]:
    looks = [look for look in job.documents.looks if look.command]
    ranks = [(look.command, look.rank) for look in looks if look.rank is not None]
    others = dict.fromkeys(look.command for look in looks if look.rank is None)
    return [*islice(others, 4), *(f"{text}   # {who}" for text, who in _folded(ranks))]


def _environment(job: Job, _: Diagnosis) -> list[str]:
    values: dict[str, Counter[str]] = defaultdict(Counter)
    count = 0
    for document in _documents(job, "process.json"):
        given = document.get("environment")
        count += document.get("rank") is not None
        for name, value in (given if isinstance(given, dict) else {}).items():
            if isinstance(value, str) and not _OWN.fullmatch(name):
                values[name][value] += 1
    lines = []
    for name, seen in sorted(values.items()):
        for value, times in seen.most_common(4):
            of = "" if times >= count else f"   # {times} of {counted(count, 'rank')}"
            lines.append(f"{name}={value}{of}")
    return lines


def _nodes(_: Job, diagnosis: Diagnosis) -> list[str]:
    facts = diagnosis.job
    hosts = f"{counted(len(facts.hosts), 'node')}: {', '.join(facts.hosts[:64])}"
    axes = diagnosis.topology.axes if diagnosis.topology else ()
    return [
        *([f"{facts.world_size} ranks"] if facts.world_size else []),
        *([hosts] if facts.hosts else []),
        *(
            f"{axis.name}: {counted(len(axis.groups), 'group')} of {axis.size} ranks"
            for axis in axes
        ),
    ]


def _gpus(job: Job, _: Diagnosis) -> list[str]:
    lines: dict[str, None] = {}
    for document in _documents(job, "gpus.json"):
        outputs = document.get("said")
        table = outputs.get("gpus") if isinstance(outputs, dict) else None
        lines |= dict.fromkeys(str(row) for row in (table if isinstance(table, list) else []))
    return list(lines)


def _calls(job: Job, diagnosis: Diagnosis) -> list[str]:
    best: dict[int, tuple[int, Event]] = {}
    for event in job.events:
        if event.rank is None or event.op is None or event.kind == "place":
            continue
        weight = _weight(event)
        # of a dump the first call that is open, of lines the last that says most
        if event.rank not in best or weight > best[event.rank][0] - (not event.document):
            best[event.rank] = weight, event
    lines = [
        f"{who}: {text}"
        for text, who in _folded((_call(best[rank][1]), rank) for rank in sorted(best))
    ]
    states = diagnosis.graph.state if diagnosis.graph else {}
    silent = sorted({*states, *diagnosis.culprits.ranks} - best.keys())
    lines += [f"{who}: {text}" for text, who in _folded((_state(states, r), r) for r in silent)]
    return lines if best else []


def _state(states: Mapping[int, str], rank: int) -> str:
    state = states.get(rank, "")
    return f"no call known ({state})" if state else "no call known"


def _weight(event: Event) -> int:
    if event.document:
        return 6 if event.signal == "pending" else 5
    return 2 * (event.signal == "timeout") + (event.group is not None)


def _call(event: Event) -> str:
    if event.document:
        return event.text
    parts = [event.op or "", "" if event.seq is None else f"seq {event.seq}"]
    parts += [f"of {event.size_in:,} elements"] if event.size_in else []
    parts += [f"in group {event.group}"] if event.group else []
    if event.signal == "timeout":
        limit = f" of {event.timeout_ms / 1000:g} s" if event.timeout_ms else ""
        parts.append(f"exceeded its timeout{limit}")
    return " ".join(filter(None, parts))


def _stacks(job: Job, _: Diagnosis) -> list[str]:
    lines = []
    for group in job.places[:_CLASSES]:
        stack = group.places[0].stack
        where = f" at {group.site}" if group.site else ""
        lines += [f"{ranks_phrase(group.ranks)}: {group.state.replace('_', ' ')}{where}"]
        lines += _frames(stack.frames)
    for place in job.lone_stacks[:_CLASSES]:
        lines += [f"a process without a rank: {place.state.replace('_', ' ')}"]
        lines += _frames(place.stack.frames)
    return lines


def _frames(frames: Sequence[Frame]) -> list[str]:
    shown = [
        f"    {one.func} ({one.file}{'' if one.line is None else f':{one.line}'})"
        for one in frames[:_FRAMES]
    ]
    return [*shown, *([f"    … {len(frames) - _FRAMES} more"] if len(frames) > _FRAMES else [])]


def _native(job: Job, _: Diagnosis) -> list[str]:
    native = [one for one in job.documents.stacks if any(frame.native for frame in one.frames)]
    names = dict.fromkeys(one.source for one in native)
    whose = {one.rank for one in native if one.rank is not None}
    who = f" of {ranks_phrase(whose)}" if whose else ""
    return [f"native stacks{who}: {', '.join(islice(names, 8))}"] if native else []


def _recorder(job: Job, _: Diagnosis) -> list[str]:
    dumps = job.documents.dumps
    ranks = {dump.rank for dump in dumps if dump.rank is not None}
    return [f"dumps of {ranks_phrase(ranks)}: {dumps[0].name}, …"] if ranks else []


def _ras(job: Job, _: Diagnosis) -> list[str]:
    names = [source.name for source in job.sources if source.kind == "ras"]
    return [f"reports: {', '.join(names[:8])}"] if names else []


def _exception(_: Job, diagnosis: Diagnosis) -> list[str]:
    raised = diagnosis.exception
    if raised is None:
        return []
    frames = [
        line
        for frame in raised.frames
        for line in (f'  File "{frame.file}", line {frame.line}, in {frame.function}', frame.code)
    ]
    lines = [line if line.startswith("  ") else f"    {line}" for line in frames if line]
    return [*lines, f"{raised.type}: {raised.message}"]


def _logs(job: Job, diagnosis: Diagnosis) -> list[str]:
    names = [s.name for s in job.sources if s.kind != "skipped"]
    facts = diagnosis.job
    seen = {*facts.ranks_seen}
    lacking = {*range(facts.world_size or 0)} - seen if seen else set()
    return [
        *names[:12],
        *([f"… and {len(names) - 12} more"] if len(names) > 12 else []),
        *([f"no line of {ranks_phrase(lacking)}"] if lacking else []),
    ]


_MADE: Mapping[str, Callable[[Job, Diagnosis], list[str]]] = {
    "evidence": _evidence, "versions": _versions, "commands": _commands,
    "environment": _environment, "nodes": _nodes, "gpus": _gpus, "calls": _calls,
    "stacks": _stacks, "native": _native, "recorder": _recorder, "ras": _ras,
    "exception": _exception, "logs": _logs,
}  # fmt: skip
