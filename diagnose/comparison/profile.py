"""What a run is compared by: its kinds of lines, what these state, and its calls.

The logs are read once more, each line by its shape: what lines of a shape have in common is worked
out once. All that is kept is bounded: of large logs the beginning and the end are read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from diagnose.comparison.model import Kind
from diagnose.comparison.statements import hosts_in, may_state, statements
from diagnose.diagnosis import SourceLine
from diagnose.ingest.source import TEXT_KINDS, Chunk, Source
from diagnose.job.pace import author_keys, ranks_of_authors
from diagnose.lazy import expression
from diagnose.match.rows import shape
from diagnose.parse.nccl_calls import Called, called
from diagnose.parse.prefix import Prefix, peel
from diagnose.text.alike import alike
from diagnose.timeline.captures import stated_facts

if TYPE_CHECKING:
    from diagnose.diagnosis import Diagnosis
    from diagnose.job.model import Job

MAX_BYTES = 64 << 20  # of all logs of a run
_LEAST = 64 << 10  # of one log
MAX_SHAPES, MAX_TEMPLATES, MAX_NAMES, MAX_HOSTS = 30_000, 20_000, 20_000, 10_000
MAX_LOOKED = 60_000  # lines of a run that are looked at closely, but for calls
_LINE = 2000  # characters of a line that make its template
_READ = 32 << 10  # bytes of a line
_SPOTS = 8  # places that are kept of a template
_STATING = 64  # lines of a shape that are asked what they state, in a log
_AUTHORS = 4096  # of what is stated
_CALLS, _COMMS = 200_000, 4096

Author = tuple[str, object]  # a kind of name, and the name
_RUN = "run"  # the author of what the catalog knows
VARIES = "\0"  # stands for the values of an author who states several

# What makes lines of one kind look different: units, bars, names that are drawn at random, counts.
_SAME = [
    (expression(r"<n> ?(?:ns|us|µs|ms|s|secs?|seconds?|min|minutes?|h|hours?)\b"), "<n> s"),
    (expression(r"<n> ?[KMGT]?i?B\b"), "<n> B"),
    (expression(r"\b[A-Za-z]*(?:<n>[A-Za-z]+){2,}(?:<n>)?"), "<id>"),
    (expression(r"[█▏▎▍▌▋▊▉#=>.\-_*]{4,}"), "…"),
    (expression(r"<n>(?:[ ,;:/|x]{1,3}<n>)+"), "<n>"),
]


class Spot(NamedTuple):
    """A line: its log, its number, its text and what its prefixes say."""

    source: Source
    line: int
    text: str
    prefix: Prefix

    @property
    def place(self) -> SourceLine:
        """Source and line."""
        return SourceLine(self.source.name, self.line)


@dataclass(slots=True)
class Template:
    """Lines of one kind, the `last` as it is read.

    `order`: how many kinds there were before it; `sources` are its logs.
    """

    key: str
    order: int
    count: int = 0
    spots: list[Spot] = field(default_factory=list)
    sources: set[str] = field(default_factory=set)
    last: bytes = b""


@dataclass(slots=True)
class Stating:
    """What is stated under one name: the value and the first line of each author."""

    values: dict[Author, str] = field(default_factory=dict)
    spots: dict[str, SourceLine] = field(default_factory=dict)

    def add(self, author: Author, value: str, place: SourceLine) -> None:
        """Take a statement."""
        known = self.values.get(author)
        if known is None and len(self.values) >= _AUTHORS:
            return
        self.values[author] = value if known in (None, value) else VARIES
        if len(self.spots) < _AUTHORS:
            self.spots.setdefault(value, place)

    def by_lines(self) -> None:
        """Leave out what the catalog took from lines that state it themselves, in another form."""
        lines = {author: value for author, value in self.values.items() if author[0] != _RUN}
        self.values = lines or self.values


@dataclass
class Profile:
    """What is known of a run.

    `hosts`: with the first line of each. `ends`: the last line of each log. `calls`: by process and
    number of the communicator in it, the collectives in their order, with their places. `cut`: what
    was not read, in words.
    """

    name: str
    job: Job
    diagnosis: Diagnosis
    templates: dict[str, Template] = field(default_factory=dict)
    stated: dict[tuple[Kind, str], Stating] = field(default_factory=dict)
    calls: dict[tuple[Author, int], list[tuple[str, SourceLine]]] = field(default_factory=dict)
    hosts: dict[str, SourceLine] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    lines: int = 0
    cut: list[str] = field(default_factory=list)

    def author(self, source: Source, prefix: Prefix) -> Author:
        """Who wrote a line, by what another run of the job has as well."""
        rank = prefix.rank if prefix.rank is not None else source.rank
        task = prefix.task if prefix.task is not None else source.task
        local = prefix.local_rank if prefix.local_rank is not None else source.local_rank
        if rank is None:
            known = author_keys(source.name, prefix.host, local, task, prefix.pid)
            rank = next((self.ranks[key] for key in known if key in self.ranks), None)
        if rank is not None:
            return "rank", rank
        if task is not None:
            return "task", task
        if local is not None or prefix.dev is not None:
            return "local rank", (source.node, local if local is not None else prefix.dev)
        return "log", source.name.rpartition("/")[2]

    @cached_property
    def ranks(self) -> Mapping[object, int]:
        """By what an author is known in a log, its rank."""
        return ranks_of_authors(self.job.events)

    @cached_property
    def names_at(self) -> Mapping[tuple[str, int], list[tuple[Kind, str]]]:
        """What lines are the first to state."""
        found: dict[tuple[str, int], list[tuple[Kind, str]]] = {}
        for key, one in self.stated.items():
            for place in [*one.spots.values()][:1]:
                found.setdefault((place.source, place.line), []).append(key)
        return found


@dataclass(slots=True)
class _Shape:
    template: Template | None
    states: bool
    asked: int = 0


def profile(name: str, job: Job, diagnosis: Diagnosis) -> Profile:
    """Read what a run is compared by."""
    found = Profile(name, job, diagnosis)
    _facts(found)
    for event in job.events:
        if event.host is not None:
            found.hosts.setdefault(event.host, SourceLine(event.source, event.line))
    logs = [source for source in job.sources if source.kind in TEXT_KINDS]
    share = max(_LEAST, MAX_BYTES // max(1, len(logs)))
    reader = _Reader(found)
    for source in logs:
        reader.read(source, share)
    for one in found.stated.values():
        one.by_lines()
    return found


def _facts(found: Profile) -> None:
    """Take what the catalog knows that lines state."""
    job = found.job
    for name, value, events in stated_facts(job.events, job.catalog.by_id):
        group, _, last = name.rpartition(".")
        kind: Kind = "version" if group == "version" else "argument"
        if group != "setting" and name not in ("world_size", "framework"):
            own = found.stated.setdefault((kind, last), Stating())
            if (_RUN, name) not in own.values:
                own.add((_RUN, name), value, SourceLine(*events[0].place))


class _Reader:
    """Reads the logs of a run."""

    def __init__(self, found: Profile) -> None:
        self.found = found
        self.shapes: dict[bytes, _Shape] = {}
        self.hosts = frozenset(found.diagnosis.job.hosts)
        self.comms: dict[tuple[Author, str], tuple[Author, int]] = {}
        self.numbers: dict[Author, int] = {}
        self.calls = self.looked = 0

    def read(self, source: Source, share: int) -> None:
        """Read a log, of a large one the beginning and the end."""
        for one in self.shapes.values():
            one.asked = 0
        for chunk in self._chunks(source, share):
            pieces = chunk.data.split(b"\n")
            same = shape(chunk.data).split(b"\n")
            for number, (data, kind) in enumerate(zip(pieces, same, strict=True)):
                if kind:
                    known = self.shapes.get(kind)
                    if known is None or known.states or known.template is None:
                        self._look(source, _number(chunk, number), data, kind)
                    else:
                        self._count(known.template, source, chunk, number, data)
                    self.found.lines += 1
            self.found.ends[source.name] = _number(chunk, len(pieces) - 1)

    def _chunks(self, source: Source, share: int) -> Iterator[Chunk]:
        half, read, held = share // 2, 0, 0
        tail: deque[Chunk] = deque()
        skipped = False
        for chunk in source.chunks():
            read += len(chunk.data)
            if read <= half:
                yield chunk
                continue
            tail.append(chunk)
            held += len(chunk.data)
            while len(tail) > 1 and held - len(tail[0].data) >= half:
                held -= len(tail.popleft().data)
                skipped = True
        if skipped:
            self._cut(f"{source.name} is large: only its beginning and its end were compared")
        yield from tail

    def _cut(self, why: str) -> None:
        if why not in self.found.cut:
            self.found.cut.append(why)

    def _count(
        self, template: Template, source: Source, chunk: Chunk, number: int, data: bytes
    ) -> None:
        template.count += 1
        template.last = data
        if len(template.spots) < _SPOTS and source.name not in template.sources:
            text = _text(data)
            template.spots.append(Spot(source, _number(chunk, number), text, peel(text)))
            template.sources.add(source.name)

    def _look(self, source: Source, number: int, data: bytes, kind: bytes) -> None:
        """Look at a line that may be the first of its kind, or that may state something."""
        known = self.shapes.get(kind)
        if known is None and len(self.shapes) >= MAX_SHAPES:
            self._cut("it has too many kinds of lines: not all of them were compared")
            return
        if known is not None and (known.asked >= _STATING or self.looked >= MAX_LOOKED):
            if known.template is not None:
                known.template.count += 1
                known.template.last = data
            return
        text = _text(data)
        prefix = peel(text)
        message = (prefix.message or text).strip()
        author, place = self.found.author(source, prefix), SourceLine(source.name, number)
        call = called(data) if b"opCount" in data else None
        if call is not None:
            self._call(call, author, place)
            return
        if known is None:
            known = self._first(message, kind)
        known.asked += 1
        self.looked += 1
        template = known.template
        if template is not None:
            template.count += 1
            template.last = data
            if len(template.spots) < _SPOTS:
                template.spots.append(Spot(source, number, text[:_LINE], prefix))
                template.sources.add(source.name)
        if known.states:
            self._states(message, author, place, known)

    def _first(self, message: str, kind: bytes) -> _Shape:
        known = self.shapes[kind] = _Shape(self._template(message[:_LINE]), may_state(message))
        return known

    def _states(self, message: str, author: Author, place: SourceLine, known: _Shape) -> None:
        for one in statements(message):
            key = one.kind, one.name
            if key in self.found.stated or len(self.found.stated) < MAX_NAMES:
                self.found.stated.setdefault(key, Stating()).add(author, one.value, place)
        for host in hosts_in(message):
            if host in self.found.hosts or len(self.found.hosts) < MAX_HOSTS:
                self.found.hosts.setdefault(host, place)
                known.asked = 0  # each line may name another one

    def _template(self, message: str) -> Template | None:
        key = alike(message, self.hosts)
        for form, instead in _SAME:
            key = form.sub(instead, key)
        if not any(map(str.isalpha, key.replace("<n>", ""))):
            return None
        templates = self.found.templates
        found = templates.get(key)
        if found is None and len(templates) < MAX_TEMPLATES:
            found = templates[key] = Template(key, len(templates))
        return found

    def _call(self, call: Called, author: Author, place: SourceLine) -> None:
        key = author, call.comm
        if key not in self.comms:
            if len(self.comms) >= _COMMS:
                return
            self.numbers[author] = self.numbers.get(author, -1) + 1
            self.comms[key] = author, self.numbers[author]
        made = self.found.calls.setdefault(self.comms[key], [])
        if self.calls < _CALLS:
            self.calls += 1
            made.append((call.what, place))


def _number(chunk: Chunk, number: int) -> int:
    if chunk.lines is None:
        return chunk.first_line + number
    return chunk.lines[number] if number < len(chunk.lines) else 0


def _text(data: bytes) -> str:
    """A line as a terminal shows it at last."""
    return data[:_READ].rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")
