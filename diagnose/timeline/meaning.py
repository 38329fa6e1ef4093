"""What lines mean: which of their matches tell something, and what it says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from diagnose.catalog.schema import Signature
from diagnose.lazy import expression
from diagnose.match.lines import Reading
from diagnose.match.shapes import ShapeMeaning
from diagnose.timeline.captures import integer, milliseconds
from diagnose.timeline.event import NO_WORK, Meaning, Work

_KIND_OF_TELLS = {
    "timeout": "collective", "frontier": "collective", "notified": "collective",
    "missing": "collective", "joined": "collective", "mismatch": "collective",
    "exit": "exit", "exception": "exception", "frame": "frame", "restart": "restart",
}  # fmt: skip
_KIND_OF_ROLE = {"phase": "phase", "progress": "progress"}
_SEVERITY = {"cause": "error", "effect": "error", "aftermath": "warning", "context": "info"}
# Captures that say something of a collective or of progress; most lines have none of them.
_OF_A_CALL = frozenset({"seq", "numel_in", "numel_out", "timeout_ms", "timeout_s"})
_NUMBERED = _OF_A_CALL | {"group", "op", "elapsed_ms", "elapsed_s", "elapsed", "step"}
# A captured rank is the subject of these lines; elsewhere it may be somebody else's.
SUBJECT = frozenset({"exit", "rank_map", "finished", "exception", "teardown", "frontier"})
_NAMES = frozenset({"rank", "dev", "local_rank", "pid", "host", "group_rank"})
# What a process's logger prints; a bar in front of it is another one's.
GLUED = ("cause", "effect", "aftermath")
# A line of a program and not of its log: a call, or a string, with a format yet to be filled in.
_QUOTED = r"(?:\"[^\"]{0,300}?|'[^']{0,300}?)"
_SOURCE = expression(
    r"\b(?:[fs]?n?printf|error|log|logg(?:er|ing)\.\w+|LOG\w*|WARN|warn(?:ing)?|info|debug|fatal"
    r"|panic|print|(?:throw|raise) [\w.:]+)\(\s*"
    rf"(?:[fru]{{0,2}}{_QUOTED}(?:%[-\d.]*l{{0,2}}[sduxfpi]|\{{\w*\}})|r?f{_QUOTED}\{{[^{{])"
    rf"|^[-+ \t]*r?f{_QUOTED}\{{[^{{]"
)


_AT_WORK = ("phase", "progress")
# Who says so goes on without what failed.
_COPES = expression(
    r"^\W*(?:\w+\W+){0,3}?(?:[Ii]gnor(?:e|ed|es|ing)|[Ss]kip(?:ped|ping|s)?)\b"
    r"|\b(?:[Pp]roceed|[Cc]ontinu|[Gg]o)ing (?:on )?(?:without|anyway|regardless)\b"
    r"|\b(?:will be|is|was|are|were) (?:ignored|skipped)\b|\b[Ff]alling back (?:to|on)\b"
)


class Statement(NamedTuple):
    """One thing that a line tells: `match` is which of its matches has the captures, -1 none has.

    `work` is None where each line like this speaks of another. `of_whom`: captures name somebody.
    """

    match: int
    meaning: Meaning
    work: Work | None
    of_whom: bool


def statements_of(line: Reading, signatures: Sequence[Signature]) -> list[Statement]:
    """What a line tells, worked out once for those that differ in numbers only."""
    alike = line.alike
    if alike is None:
        return list(_statements(line, signatures))
    if alike.statements is None:
        alike.statements = [_common(alike, one) for one in _statements(line, signatures)]
    return alike.statements


def _common(alike: ShapeMeaning, one: Statement) -> Statement:
    """The same for all lines like this: without its work, if that is not the same for all."""
    one.meaning.alike = True
    own = one.work is not NO_WORK and not alike.same(one.match)
    return one._replace(work=None) if own else one


def _captures_of(line: Reading, match: int) -> dict[str, str]:
    """What a match of a line captured; -1 is none."""
    return line.matches[match][1] if match >= 0 else {}


def _statements(line: Reading, signatures: Sequence[Signature]) -> Iterator[Statement]:
    """What a line tells by its matches, those left out that others know better."""
    found = [(signatures[number], match) for match, (number, _) in enumerate(line.matches)]
    of_program = _SOURCE.search(line.text) is not None
    if of_program:
        found = [one for one in found if one[0].role not in GLUED and not one[0].signal]
    if any(_passes(signature) for signature, _ in found) and _COPES.search(line.text):
        found = [one for one in found if not _passes(one[0])]
    harmless = any(_harmless(signature) for signature, _ in found)
    if line.word is not None and not of_program:
        # It says better what an exception or a line of error level is about.
        word, match = line.word.entry(), found[0][1] if found else -1
        better = word.signal != "trouble" and not any(_outweighs(s, word) for s, _ in found)
        better = better and not (harmless and word.strength == "weak")
        found = [(word, match)] if better or not found else found
    specific = any(not s.generic and s.role in GLUED for s, _ in found)
    named = any(not s.generic and s.role in _AT_WORK for s, _ in found)
    explained = any(s.signal != "trouble" for s, _ in found)
    for signature, match in found:
        if (signature.generic and specific) or (signature.signal == "trouble" and explained):
            continue
        if harmless and signature.generic and signature.role in GLUED:
            continue
        if named and signature.generic and signature.role in _AT_WORK:
            continue
        captures = _captures_of(line, match)
        meaning = meaning_of(signature, captures)
        yield Statement(match, meaning, work_of(captures), _of_whom(meaning))


def _passes(signature: Signature) -> bool:
    """Whether it is the cause of a failure only where nobody goes on without what failed."""
    return signature.role == "cause" and signature.strength != "decisive"


def _harmless(signature: Signature) -> bool:
    """Whether it knows that the message tells of no failure, in spite of its words."""
    plain = signature.role == "context" and not signature.generic and not signature.facts
    return plain and signature.signal is None and bool(signature.not_evidence_of)


def _outweighs(signature: Signature, word: Signature) -> bool:
    """Whether it names a cause more surely than the word does; an exception's type names none."""
    names = signature.role == "cause" and signature.signal != "exception"
    return names and word.strength == "weak" and signature.strength != "weak"


def _of_whom(meaning: Meaning) -> bool:
    """Whether captures say of whom a line speaks, or who printed it."""
    if meaning.signal in SUBJECT or meaning.role in _AT_WORK:
        return not _NAMES.isdisjoint(meaning.captures)
    return "group_rank" in meaning.captures


def meaning_of(signature: Signature, captures: Iterable[str]) -> Meaning:
    """What lines of a signature say that have captures of these names."""
    kind = _KIND_OF_TELLS.get(signature.signal or "") or _KIND_OF_ROLE.get(signature.role)
    return Meaning(
        kind or ("fact" if signature.facts else "signature"), signature.id, signature.role,
        _SEVERITY.get(signature.role, "info"), signature.cause or None, signature.strength,
        signature.signal, signature.phase, signature.ends_phase, tuple(captures),
    )  # fmt: skip


def work_of(captures: Mapping[str, str]) -> Work:
    """The call, or the progress, of which a line with these captures speaks."""
    if _NUMBERED.isdisjoint(captures):
        return NO_WORK
    get = captures.get
    group, op, step = get("group"), get("op"), integer(get("step"))
    elapsed = milliseconds(captures, "elapsed")
    if _OF_A_CALL.isdisjoint(captures):
        return Work(group, op, step=step, elapsed_ms=elapsed)
    return Work(
        group, op, integer(get("seq")), integer(get("numel_in")), integer(get("numel_out")),
        milliseconds(captures, "timeout"), elapsed, step,
    )  # fmt: skip
