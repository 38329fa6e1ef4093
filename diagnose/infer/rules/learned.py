"""What is better than nothing: leads, classes of lines that no entry knows, bare exceptions.

The learned reader suggests a class from words. It is asked only where nothing else knows the cause
(`leads_of`, `infer.outcome`), and of an exception or an end of which nothing but its form is known.
A suggestion is a guess of low confidence, or of medium where two lines of a job that failed are
read alike; no job fails by it.

Code of a package that runs at its import calls nothing but what is installed. Where a function is
not there, or takes other arguments, two packages are of versions that do not match. The frames show
it, whatever the message says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from diagnose.catalog import reader
from diagnose.catalog.reader import Reading, tokens
from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import CodeFrame, PythonException
from diagnose.infer.events.exceptions import fullest, in_words
from diagnose.infer.rules.base import Context, Hypothesis, Lost, Tier, inferred, is_bare, specified
from diagnose.infer.rules.signatures import who
from diagnose.lazy import expression
from diagnose.parse.prefix import peel
from diagnose.parse.tracebacks import is_generated, package_of
from diagnose.stories.story import only_lost_peers
from diagnose.timeline.event import Event

_FRAME = expression(  # of Python, C++, a kernel, gdb and py-spy, with its heading
    r"\s*(?:(?:\[\s*\d+\] ?)*#\d+\s|File \"|frame #|raise |0x[0-9a-f]{4,16} \("
    r"|\S{1,80} \(\S+:\d+\)$"
    r"|(?:\[[^\]]{0,40}\] )?(?:\? )?[\w.]{1,80}\+0x[0-9a-f]+/0x)"
    r"|.*Traceback \(most|Process \d{1,7}: /|Call Trace:"
)
# What went well tells no cause, whatever its words are.
_WELL = expression(
    r"(?i)(?<!not )\b(?:success(?:ful(?:ly)?)?|succeeded|completed?|finished|passed)\b"
    r"|\b(?:code|status|rc|returncode)[ :=]+0\b"
)
_ILL = expression(
    r"(?i)fail|error|exception|abort|not? (?:\w+ )?success|\bdied|killed|can(?:no|')t\b"
    r"|could ?n[o']t|unable|invalid|not (?:found|supported|match|exist|allow)|missing|refused"
    r"|denied|exceed|exhaust|no such|unknown|unsupported|does ?n[o']t|mismatch|illegal|fatal"
    r"|corrupt|timed out|unreachable|panic|overflow|conflict|rejected|must be|\blost\b|detected"
    r"|please (?:check|verify)"
)
# What a program says for the case that something happens.
_ADVICE = expression(r"(?i)\b(?:if (?:you|this|it)|in case|consider|recommended|to avoid)\b")
# What Python's `warnings` prints of code that will change, in one line or two.
_OUTDATED = expression(r":\d+: (?:Pending)?(?:Deprecation|Future|Syntax|Resource)Warning: ")
_TYPE = expression(r"^(?:[\w.]{1,80}\.)?[A-Z]\w{1,60}(?:Error|Exception|Warning): ")
_OF_CODE = expression(
    r"(?:Name|Key|Attribute|Index|Type|UnboundLocal|ZeroDivision|Indentation|Syntax)Error\b"
)
_NUMBER = expression(r"\d+")
_KNOWN = ("cause", "effect")  # an entry that knows a line says more than its words
_FEWEST_WORDS = 3
_MOST_LINES = 40  # of different words that are read
# Least probability of the kind of an exception, and of what no failure was seen beside.
SURE = 0.55
# And of a kind that makes the unspecific class no better than a guess.
_DOUBT = 0.37
_SURELY = 0.75  # of each of two lines that make a class likely
_BUSY = "Nothing says what went wrong; the log ends amid this work, which was not finished."
FINDING = "raised_at_import"
_MODULE = "<module>"  # the function of code that runs at an import, and of a script
_RUNPY = "runpy"  # what runs a module as the program: `python -m`
# What code raises that calls what is not there or is otherwise; no file, network or memory lacks.
_CODE_RAISES = frozenset(
    {"AttributeError", "ImportError", "IndentationError", "ModuleNotFoundError", "NameError",
     "NotImplementedError", "RuntimeError", "SyntaxError", "TypeError", "ValueError"}
)  # fmt: skip
_OF_ENVIRONMENT = ("environ", "getenv")  # a value that somebody set


class _Suggestion(NamedTuple):
    """A class with all lines that are read so, the surest first."""

    cause: str
    readings: list[tuple[Reading, Event]]

    @property
    def weight(self) -> float:
        return sum(reading.probability for reading, _ in self.readings)

    @property
    def witnesses(self) -> int:
        """How many lines are read so surely, two that follow each other being one message."""
        sure = {event.place for reading, event in self.readings if reading.probability >= _SURELY}
        return sum((source, line - 1) not in sure for source, line in sure)


def suggested(
    context: Context, lines: Sequence[Event], *, trouble: bool = True
) -> Hypothesis | None:
    """The class that most of these lines suggest, if any line suggests one surely enough.

    Where nothing shows `trouble`, only of lines with a word of failure, and where it is sure. Of a
    job that failed two lines that are surely read alike are witnesses of each other.
    """
    if not trouble:
        lines = [event for event in lines if _ILL.search(event.text)]
    best = _best(_suggestions(context, lines, reader.model().least if trouble else SURE))
    if best is None:
        return None
    reading, event = best.readings[0]
    title = context.catalog.classes[best.cause].title
    likely = bool(context.failing) and best.witnesses > 1
    return Hypothesis(
        cause=best.cause,
        tier=Tier.LIKELY if likely else Tier.GUESS,
        title=title if likely else f"A guess: {title}",
        summary=f"No entry knows this line. {_words(reading)}",
        rows=[event.index],
        inferred=True,
        suggested=True,
        rule="learned",
        basis="line",
        grounds=_grounds(reading),
    )


def unknown_lines(context: Context) -> list[Event]:
    """The lines that no entry knows, those apart that it only knows to tell of trouble."""
    known = {event.place for event in context.timeline if _is_known(event, context.catalog)}
    return [
        event
        for event in context.timeline
        if event.place not in known and (event.signature is None or _vague(event))
    ]


def _is_known(event: Event, catalog: Catalog) -> bool:
    """Whether an entry knows what the line proves, or that it proves nothing."""
    entry = catalog.by_id.get(event.signature or "")
    harmless = entry is not None and entry.role == "context" and bool(entry.not_evidence_of)
    return event.role in _KNOWN or (harmless and not _vague(event))


def _is_calm(event: Event) -> bool:
    """Whether its logger calls it information."""
    return peel(event.text).level in ("INFO", "DEBUG")


def _vague(event: Event) -> bool:
    return event.signal == "trouble" or event.role == "aftermath"


def with_kind(ranked: Sequence[Hypothesis], context: Context) -> list[Hypothesis]:
    """The hypotheses, the first one with the kind that its lines suggest.

    Only one that says no more than that something failed, by an entry that others know better. A
    kind that is not sure is a rival, and the first one no surer than it.
    """
    first, *others = ranked
    if not is_bare(first, context.catalog):
        return [*ranked]
    rows = [context.timeline.at(index) for index in first.rows]
    lines = [one for one in rows if one.signature == first.signature and not _is_of_code(one)]
    if not lines:
        return [*ranked]
    best = _best(
        one
        for one in _suggestions(context, [*lines, *_below(lines, context)], _DOUBT)
        if one.cause != first.cause and not _is_too_late(one, lines[0], context)
    )
    if best is None:
        return [_unplaced(first, lines, context), *others]
    reading, _ = best.readings[0]
    kind = specified(
        first,
        best.cause,
        context.catalog,
        rule="learned",
        summary=f"{first.summary} {_words(reading)}",
        grounds=_grounds(reading),
    )
    kind = replace(kind, tier=Tier.WEAK, suggested=True)
    others = [one for one in others if one.cause != best.cause]
    if reading.probability >= SURE:
        return [kind, *others]
    doubted = replace(first, tier=min(first.tier, Tier.WEAK))
    rival = replace(kind, tier=Tier.GUESS, merged=[], lost=Lost.LESS, lost_to=doubted)
    return [doubted, rival, *others]


def _unplaced(first: Hypothesis, lines: Sequence[Event], context: Context) -> Hypothesis:
    """The same, but a weak one where no line shows the program's own code.

    That something failed is certain; that the program is at fault, and not what it asked for, is
    more than the form of a line tells.
    """
    found = fullest(lines, context.stories.deeds.raised)
    if found is not None and found.where is not None:
        return first
    return replace(first, tier=min(first.tier, Tier.WEAK), grounds=[*first.grounds, "unplaced"])


def _is_of_code(event: Event) -> bool:
    """Whether it is an exception that only a fault of the program raises, whatever it names."""
    return _OF_CODE.match(peel(event.text).message) is not None


def _is_too_late(kind: _Suggestion, event: Event, context: Context) -> bool:
    """Whether the job had made steps by then, which it could not if its settings were wrong."""
    at_start = context.catalog.classes[kind.cause].usual_phase == "init"
    return at_start and any(mark.index < event.index for mark in context.timeline.kind("progress"))


def _best(found: Iterable[_Suggestion]) -> _Suggestion | None:
    return max(found, key=lambda one: (one.weight, one.cause), default=None)


def _suggestions(context: Context, lines: Sequence[Event], least: float) -> list[_Suggestion]:
    found: dict[str, _Suggestion] = {}
    model = reader.model()
    for text, event in _texts(lines):
        reading = model.read(text)
        known = reading.names_cause and reading.cause in context.catalog.classes
        if known and reading.probability >= least:
            of_class = found.setdefault(reading.cause, _Suggestion(reading.cause, []))
            of_class.readings.append((reading, event))
    for one in found.values():
        one.readings.sort(key=lambda pair: (-pair[0].probability, pair[1].index))
    return list(found.values())


def _texts(lines: Sequence[Event]) -> Iterator[tuple[str, Event]]:
    """What these lines say, each once, alone and with the line below, as programs break lines."""
    events = {event.place: event for event in reversed(lines)}
    seen: set[str] = set()
    messages: dict[int, str] = {}
    for event in sorted(events.values(), key=lambda one: -one.index):
        text = messages[event.index] = message_of(event.text)
        if not may_tell(text) or (_ADVICE.search(text) and _is_calm(event)):
            continue
        above = events.get((event.source, event.line - 1), event)
        if any(_OUTDATED.search(one.text) for one in (event, above)):
            continue
        texts = [text]
        below = events.get((event.source, event.line + 1))
        if below is not None:
            more = messages.get(below.index) or message_of(below.text)
            texts += [f"{text} {more}"] if may_tell(more) else []
        for one in texts:
            shape = _NUMBER.sub("0", one)
            if shape not in seen:
                seen.add(shape)
                yield one, event
        if len(seen) >= 2 * _MOST_LINES:
            return


def message_of(text: str) -> str:
    """What of a line is read: not who wrote it, and when."""
    return peel(text).message


def _below(lines: Sequence[Event], context: Context) -> list[Event]:
    """The lines right below that no entry knows, where a program goes on with what it says."""
    wanted = {
        (event.source, event.line + 1): event.rank for event in lines if event.signal != "exception"
    }
    return [
        event
        for event in (unknown_lines(context) if wanted else ())
        if event.place in wanted and event.rank == wanted[event.place]
    ]


def may_tell(text: str) -> bool:
    """Whether a line has words, is no stack frame, and does not say that something went well.

    The type of an exception is no word: alone it does not show of what kind the failure is.
    """
    return (
        len(set(tokens(_TYPE.sub("", text)))) >= _FEWEST_WORDS
        and not _FRAME.match(text)
        and (not _WELL.search(text) or _ILL.search(text) is not None)
    )


def is_ill(text: str) -> bool:
    """Whether a line has a word of failure, and does not say what to do in case of one."""
    return _ILL.search(text) is not None and not _ADVICE.search(text)


def _words(reading: Reading) -> str:
    words = ", ".join(f'"{word}"' for word in reading.words)
    return f"Its words{f' ({words})' if words else ''} suggest {reading.cause}, which is a guess."


def _grounds(reading: Reading) -> list[str]:
    return [f"probability {reading.probability:.2f}", *reading.words]


def leads_of(context: Context) -> list[Hypothesis]:
    """What is better than nothing where nothing is likely: low confidence, and no culprits."""
    phase = context.activity.phase if context.activity.moving else None
    if phase == "inference" and all(event.role == "aftermath" for event in context.failing):
        phase = None  # a server that was stopped kept nobody waiting
    busy = context.catalog.busy_class(phase) if phase else None
    if busy and not only_lost_peers(context.failing):
        return [replace(inferred(busy, Tier.GUESS, context.catalog, _BUSY), rule="busy")]
    lead = suggested(context, unknown_lines(context))
    return [lead] if lead else []


def with_import(
    ranked: Sequence[Hypothesis],
    context: Context,
    read: Callable[[Hypothesis], PythonException | None],
) -> list[Hypothesis]:
    """The hypotheses, the first one with the class of what was raised while a package loads.

    Only one of which nothing but the form is known; `read` gives its exception with all frames.
    """
    first, *others = ranked
    catalog = context.catalog
    raised = read(first) if is_bare(first, catalog) else None
    package = imported(raised.frames) if raised and _raised_by_code(raised) else None
    if raised is None or package is None:
        return [*ranked]
    cause = catalog.class_shown_by(FINDING)
    named = who(first.ranks, first.hosts)
    inner = package_of(raised.frames[-1].file)
    within = f" in {inner}" if inner not in (None, package) else ""
    what = f"{in_words(raised)}{', ' + named if named else ''}."
    found = specified(
        first,
        cause,
        catalog,
        rule="imported",
        summary=f"{what} It was raised{within} while {package} was imported.",
        grounds=[*first.grounds, FINDING],
    )
    return [replace(found, vague=False), *(one for one in others if one.cause != cause)]


def imported(frames: Sequence[CodeFrame]) -> str | None:
    """The package at whose import the innermost frame runs, if all that it called is installed."""
    for index in reversed(range(1, len(frames))):
        frame, caller = frames[index], frames[index - 1]
        if frame.own and not is_generated(frame.file):
            return None
        if frame.function == _MODULE and (package := package_of(frame.file)):
            program = _RUNPY in caller.file or not frame.file.endswith(".py")
            return None if program else package
    return None


def _raised_by_code(raised: PythonException) -> bool:
    code = raised.frames[-1].code if raised.frames else ""
    kind = raised.type.rpartition(".")[2]
    return kind in _CODE_RAISES and not any(word in code for word in _OF_ENVIRONMENT)
