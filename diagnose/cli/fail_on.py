"""When a command that diagnosed a job ends with status 1: what `--fail-on` asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from diagnose.errors import InputError

if TYPE_CHECKING:
    from diagnose.catalog.schema import Catalog
    from diagnose.diagnosis import Confidence, Diagnosis, Verdict

ANY = "any"  # hung or failed, which is what --exit-code asks for
_BAD: tuple[Verdict, ...] = ("hung", "failed")
_VERDICTS = (*_BAD, "unknown")
_LEVELS: tuple[Confidence, ...] = ("low", "medium", "high")

FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="WHAT[:CONFIDENCE]",
        help="Exit with status 1 if the verdict is this: any, hung, failed, unknown, a cause "
        "class (net.fabric) or its first part (net); with :medium or :high only if as sure "
        "(repeatable, or separated by commas).",
    ),
]


@dataclass(frozen=True, slots=True)
class Condition:
    """One of the conditions: a verdict, `any`, or a class or its first part; how sure at least."""

    what: str
    least: Confidence = "low"

    def holds(self, diagnosis: Diagnosis) -> bool:
        """Whether a diagnosis is what it asks for."""
        verdict, cause = diagnosis.verdict, diagnosis.root_cause
        if self.what == "unknown":
            return verdict == "unknown"
        if verdict not in _BAD or _LEVELS.index(cause.confidence) < _LEVELS.index(self.least):
            return False
        return self.what in (ANY, verdict, cause.cause, cause.cause.partition(".")[0])


def conditions(given: Sequence[str], catalog: Catalog) -> list[Condition]:
    """What the options ask for. Raises InputError for what no diagnosis can be."""
    classes = [name for name in catalog.classes if name not in ("none", "unknown")]
    families = list(dict.fromkeys(name.partition(".")[0] for name in classes if "." in name))
    known = [ANY, *_VERDICTS, *families, *classes]
    found = []
    for text in (part.strip() for option in given for part in option.split(",")):
        what, colon, least = text.partition(":")
        if what in _LEVELS and not colon:  # high: any failure that is so sure
            what, colon, least = ANY, ":", what
        if what not in known:
            raise InputError(f"--fail-on {text}: {_hint(what, known)}")
        if colon and (least not in _LEVELS or what == "unknown"):
            raise InputError(f"--fail-on {text}: behind the colon goes low, medium or high")
        found.append(Condition(what, least or "low"))  # type: ignore[arg-type]
    return found


def _hint(given: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(given, known, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"choose {', '.join((ANY, *_VERDICTS))}, a confidence, or a cause class"
