"""What the catalog knows of one line: what matches, what is kept from it, what nearly matches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnose.catalog import reader
from diagnose.catalog.entries import Meant
from diagnose.catalog.load import examples_of
from diagnose.catalog.reader import Reading
from diagnose.catalog.schema import Catalog, Signature
from diagnose.infer.rules.learned import may_tell, message_of
from diagnose.job.load import load_text
from diagnose.job.model import Job
from diagnose.match.compile import compile_matcher
from diagnose.parse.prefix import peel

_NEAREST = 3
_LEAST_ALIKE = 0.4  # of the words of both


@dataclass(frozen=True, slots=True)
class Cancelled:
    """An entry one of whose expressions is in the line, as is `by`, one of its `unless`."""

    signature: Signature
    by: str


@dataclass(frozen=True, slots=True)
class KnownLine:
    """A line: `matches` with their captures, and what else there is where none is a cause.

    `suggested`: what the learned reader makes of it, where it is sure enough; `alike`: entries the
    examples of which share most words with it, and the share.
    """

    matches: Sequence[tuple[Signature, dict[str, str]]]
    word: Meant | None
    cancelled: Sequence[Cancelled] = ()
    suggested: Reading | None = None
    alike: Sequence[tuple[float, Signature]] = ()


def known_line(text: str, patterns: Sequence[Path | str] = ()) -> KnownLine:
    """What the shipped catalog, with the entries of these folders, knows of a line."""
    job = load_text(text, patterns=patterns)
    matches = [*_matches(job)]
    words = [line.word for scan in job.scans for line in scan.lines if line.word]
    suggested, alike = None, list[tuple[float, Signature]]()
    if all(one.role != "cause" or one.generic for one, _ in matches):
        suggested = _suggested(text)
        alike = _alike(job.catalog, text)
    known = {signature.id for signature, _ in matches}
    cancelled = [one for one in _cancelled(job.catalog, text) if one.signature.id not in known]
    return KnownLine(matches, words[0] if words else None, cancelled, suggested, alike)


def _suggested(text: str) -> Reading | None:
    model, message = reader.model(), message_of(text)
    reading = model.read(message)
    sure = reading.names_cause and reading.probability >= model.least
    return reading if sure and may_tell(message) else None


def _alike(catalog: Catalog, text: str) -> list[tuple[float, Signature]]:
    """The entries with the examples that share most words with a line, the most alike first."""
    words = {*reader.tokens(text)}
    best: dict[str, float] = {}
    for id_, line in examples_of(catalog):
        other = {*reader.tokens(line)}
        share = len(words & other) / len(words | other) if words | other else 0.0
        best[id_] = max(share, best.get(id_, 0.0))
    ordered = sorted(best.items(), key=lambda item: (-item[1], item[0]))[:_NEAREST]
    return [(share, catalog.by_id[id_]) for id_, share in ordered if share >= _LEAST_ALIKE]


def _matches(job: Job) -> Iterator[tuple[Signature, dict[str, str]]]:
    for scan in job.scans:
        for line in scan.lines:
            for number, captures in line.matches:
                yield job.catalog.signatures[number], captures


def _cancelled(catalog: Catalog, text: str) -> Iterator[Cancelled]:
    """Entries that only what they exclude keeps from matching."""
    matcher = compile_matcher(catalog)
    for number in dict.fromkeys(number for number, _ in matcher.scan(text.encode()).patterns):
        by = matcher.excluded_by(number, text, peel(text).message)
        if by is not None:
            yield Cancelled(matcher.signatures[matcher.patterns[number].signature], by)


def wording(known: KnownLine) -> Iterator[str]:
    """What is known of a line, a row each; captures are what the line says."""
    for signature, captures in known.matches:
        yield f"matches {named(signature)}"
        if captures:
            yield f"captures {', '.join(f'{key}={value}' for key, value in captures.items())}"
    if known.word:
        word = known.word
        yield f"has the word {word.id}: {word.cause}, {word.strength}"
    if not known.matches and not known.word:
        yield "no signature and no word of the catalog matches this line"
    for one in known.cancelled:
        yield f"would match {named(one.signature)}"
        yield f"unless the line had {one.by}"
    if known.suggested:
        yield suggestion(known.suggested)
    for share, signature in known.alike:
        yield f"shares {share:.0%} of the words with {named(signature)}"


def suggestion(reading: Reading) -> str:
    """What the learned reader makes of a line, in a sentence."""
    words = f" ({', '.join(reading.words)})" if reading.words else ""
    return f"its words{words} suggest {reading.cause}, {reading.probability:.2f}: a guess"


def named(signature: Signature) -> str:
    """`nccl.ib.flush: Title (effect, strong)`."""
    kind = ", ".join(filter(None, (signature.role, signature.cause, signature.strength)))
    return f"{signature.id}: {signature.title} ({kind})"
