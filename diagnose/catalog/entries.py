"""What the catalog has under a name, what a word stands for, and which versions are meant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne
from typing import NamedTuple

from diagnose.catalog.schema import (
    HARMLESS,
    UNKNOWN,
    Catalog,
    CauseClass,
    KnownIssue,
    Near,
    Setting,
    Signal,
    Signature,
    Strength,
    Vocabulary,
    Word,
    WordRole,
    WordStrength,
)
from diagnose.catalog.stored import word_index
from diagnose.errors import InputError
from diagnose.lazy import expression

_PREFIX = "word."
# Ends of ids: of a word in the last line of a traceback, and of one whose printer goes on.
_RAISED, _HANDLED = ".raised", ".handled"
# The strength of the signature that a word stands for, and whether it is worth a little less.
_AS_SIGNATURE: dict[WordStrength, tuple[Strength, bool]] = {
    "weak": ("weak", True),
    "medium": ("strong", True),
    "strong": ("strong", False),
}


class Meant(NamedTuple):
    """A word as it stands on a line: beside number `near` of its contexts, -1 for none of them.

    `raised`: on the last line of a traceback. `handled`: whoever printed it goes on.
    """

    vocabulary: Vocabulary
    word: Word
    near: int = -1
    raised: bool = False
    handled: bool = False

    @property
    def context(self) -> Near | None:
        """What it stands beside."""
        return self.word.near[self.near] if self.near >= 0 else None

    @property
    def cause(self) -> str:
        """The class that follows."""
        return self.context.cause if self.context else self.word.cause

    @property
    def strength(self) -> WordStrength:
        """How surely it does."""
        stated = (self.context.strength if self.context else None) or self.word.strength
        return "weak" if self.handled else stated

    @property
    def role(self) -> WordRole:
        """Whether it is a cause or what follows one."""
        return (self.context.role if self.context else None) or self.word.role

    @property
    def names_cause(self) -> bool:
        """Whether it tells a class of causes."""
        return self.role == "cause" and self.cause not in (HARMLESS, UNKNOWN)

    @property
    def id(self) -> str:
        """The id of its entry: `word.errno.econnrefused`, `.2` behind it in its second context."""
        near = f".{self.near + 1}" if self.near >= 0 else ""
        ends = (_RAISED if self.raised else "") + (_HANDLED if self.handled else "")
        return f"{_PREFIX}{self.vocabulary.id}.{_slug(self.word)}{near}{ends}"

    def _title(self) -> str:
        """`Xid 79`, `No route to host (EHOSTUNREACH)`: what people know, and the symbol."""
        first, *others = self.word.spellings
        if self.vocabulary.noun:
            return f"{self.vocabulary.noun} {first}"
        words = first if " " in first else next((one for one in others if " " in one), first)
        return words if words == first else f"{words} ({first})"

    def entry(self) -> Signature:
        """The signature that it stands for."""
        strength, generic = _AS_SIGNATURE[self.strength]
        aftermath = self.role == "aftermath"
        signal: Signal | None = None if self.names_cause or aftermath else "trouble"
        if self.raised and self.names_cause and strength != "weak":
            signal = "exception"
        return Signature(
            id=self.id,
            title=self._title(),
            role="cause" if self.names_cause else "aftermath" if aftermath else "context",
            match=[],
            cause=self.cause if self.names_cause else "",
            strength=strength,
            generic=generic,
            signal=signal,
            not_evidence_of=(self.context.why_not if self.context else "") or self.word.why_not,
            culprit="self" if self.raised else "none",
            references=self.vocabulary.references,
        )


def is_word(id_: str | None) -> bool:
    """Whether an id is that of a word, not of a signature."""
    return id_ is not None and id_.startswith(_PREFIX)


# What a line stands for that recurs while a number in it grows (`match.cadence`).
COUNTER = Signature(
    id="progress.counter",
    title="A line that recurs with a growing counter",
    role="progress",
    match=[],
    strength="weak",
    phase="training",
)
# What lines stand for whose values of a training are bad to the end, or the last good ones before
# (`match.values`).
BAD_VALUE = replace(COUNTER, id="values.bad", title="The first bad value", role="context")
GOOD_VALUE = replace(BAD_VALUE, id="values.good", title="The last good value before")
_OF_NO_WORDS = {one.id: one for one in (COUNTER, BAD_VALUE, GOOD_VALUE)}


def _slug(word: Word) -> str:
    first = word.spellings[0].lower()
    return re.sub(r"[^a-z0-9]+", "-", f"minus-{first[1:]}" if first[0] == "-" else first).strip("-")


@lru_cache(maxsize=1024)
def entry_of(catalog: Catalog, id_: str | None) -> Signature | None:
    """The signature of an id, also one that a word stands for; None if the catalog has none."""
    if id_ in _OF_NO_WORDS:
        return _OF_NO_WORDS[id_]
    if id_ is None or id_ in catalog.by_id or not id_.startswith(_PREFIX):
        return catalog.by_id.get(id_ or "")
    handled = id_.endswith(_HANDLED)
    raised = id_.removesuffix(_HANDLED).endswith(_RAISED)
    _, name, slug, *context = id_.removesuffix(_HANDLED).removesuffix(_RAISED).split(".")
    for number, known in enumerate(word_index(catalog.vocabularies).ids):
        if known == name:
            vocabulary = catalog.vocabularies[number]
            for word in vocabulary.words:
                if _slug(word) == slug:
                    near = int(context[0]) - 1 if context else -1
                    return Meant(vocabulary, word, near, raised, handled).entry()
    return None


_ALIKE = 0.5
_FEW, _SEVERAL = 12, 60  # choices that are listed in any case, and where none is alike

Named = CauseClass | Setting | KnownIssue | Signature


def entries(catalog: Catalog) -> dict[str, Signature | KnownIssue]:
    """The signatures and known issues by id."""
    every: list[Signature | KnownIssue] = [*catalog.known_issues, *catalog.signatures]
    return {entry.id: entry for entry in every}


def find(catalog: Catalog, name: str) -> Named:
    """What has this name. Raises InputError, which says what is spelt like it."""
    known: dict[str, Named] = {**entries(catalog), **catalog.settings, **catalog.classes}
    wanted = name.strip()
    if wanted not in known:
        raise InputError(unknown("cause class, setting or signature", name, known))
    return known[wanted]


def unknown(what: str, given: str, choices: Mapping[str, object]) -> str:
    """A message for a name that does not exist: near ones, or where all are."""
    from difflib import get_close_matches  # noqa: PLC0415  seldom needed

    near = get_close_matches(given, choices, n=3, cutoff=_ALIKE)
    if near and len(choices) > _FEW:
        return f"unknown {what} {given!r}; did you mean {' or '.join(near)}?"
    if len(choices) <= _SEVERAL:
        return f"unknown {what} {given!r}; choose from {', '.join(choices)}"
    return (
        f"unknown {what} {given!r}; diagnose catalog list shows all {len(choices)}, with their "
        "cause classes"
    )


# "torch >=2.1,<2.3": a package and what its version must be, all of it.
_CLAUSE = r"(<=|>=|==|!=|<|>)\s*([\w.]+)"
_CONDITION = expression(rf"\s*([\w.-]+?)\s*({_CLAUSE}(?:\s*,\s*{_CLAUSE})*)\s*")
_COMPARE = {"<": lt, "<=": le, "==": eq, "!=": ne, ">=": ge, ">": gt}
_EARLY = expression(r"\d\.?-?(?:dev|alpha|beta|rc|a|b|c|pre)", re.IGNORECASE)
_POST = expression(r"\.?-?post\.?(\d+)", re.IGNORECASE)
_NUMBERS = 4

# How to read the version of what `pip show` does not know.
_ASK = {
    "aws-ofi-nccl": "NCCL_DEBUG=INFO <command> | grep 'Initializing aws-ofi-nccl'",
    "cuda": "nvcc --version",
    "driver": "nvidia-smi --query-gpu=driver_version --format=csv",
    "libfabric": "fi_info --version",
    "mpich": "mpichversion",
    "nccl": 'python -c "import torch; print(torch.cuda.nccl.version())"',
    "openmpi": "ompi_info --version",
    "python": "python --version",
    "rccl": 'python -c "import torch; print(torch.cuda.nccl.version())"',
    "rocm": "cat /opt/rocm/.info/version",
    "slurm": "sinfo --version",
    "ucx": "ucx_info -v",
}


@lru_cache(maxsize=1024)
def parsed(condition: str) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """The package and the clauses of a condition; None where it is not of that form."""
    match = _CONDITION.fullmatch(condition)
    return (match[1], tuple(re.findall(_CLAUSE, match[2]))) if match else None


def meets(versions: Mapping[str, str], condition: str) -> bool | None:
    """Whether one of these versions by package meets the condition; None if it is unknown.

    A pre-release of the version that a clause names may be from before or after the change.
    """
    found = parsed(condition)
    if found is None:
        return False
    package, clauses = found
    have = versions.get(package)
    return None if have is None else _all(have, clauses)


@lru_cache(
    maxsize=4096
)  # jobs of one site run a few versions, and all conditions are asked of each
def _all(have: str, clauses: tuple[tuple[str, str], ...]) -> bool | None:
    answers = [_clause(have, operator, wanted) for operator, wanted in clauses]
    return None if None in answers and False not in answers else all(answers)


def how_to_check(condition: str) -> str:
    """The command that prints the version a condition is about."""
    package = (parsed(condition) or ("", ()))[0]
    return _ASK.get(package, f"pip show {package}")


def _clause(have: str, operator: str, wanted: str) -> bool | None:
    left, right = _key(have), _key(wanted)
    if left == right and _EARLY.search(_public(have)) and not _EARLY.search(wanted):
        return None
    return bool(_COMPARE[operator](left, right))


def _public(version: str) -> str:
    """Without the build: 2.3.0 of 2.3.0+cu121."""
    return version.partition("+")[0]


def _key(version: str) -> tuple[int, ...]:
    """The numbers of a release and which post-release of it this is."""
    release = re.match(r"[vV]?(\d+(?:\.\d+)*)", _public(version))
    numbers = [int(number) for number in (release[1] if release else "0").split(".")]
    post = _POST.search(_public(version))
    numbers = [*numbers[:_NUMBERS], *[0] * (_NUMBERS - len(numbers))]
    return (*numbers, int(post[1]) if post else 0)
