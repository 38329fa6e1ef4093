"""What the catalog knows of a sample line: a signature, a word, a family, or nothing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from diagnose.catalog.document import read_catalog
from diagnose.catalog.load import catalog_files, load_catalog
from diagnose.catalog.schema import Catalog, Signature
from diagnose.match.compile import Matcher, compile_matcher
from diagnose.parse.prefix import peel
from sites.template import Site

Kind = Literal["named", "word", "family", "none"]
_FAILURE_ROLES = ("cause", "effect", "aftermath")


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a site is covered, and by which entry."""

    kind: Kind
    id: str = ""


def catalog_of(folder: Path | None) -> Catalog:
    """The shipped catalog, or that of a folder alone."""
    if folder is None:
        return load_catalog()
    files = list(catalog_files([folder]))
    data = b"".join(content for _, content in files)
    return read_catalog(files, hashlib.sha256(data).hexdigest()[:16])


class Judge:
    """Judges message sites by one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._neutral: dict[str, frozenset[str]] = {}

    @cached_property
    def _matcher(self) -> Matcher:
        return compile_matcher(self._catalog)

    def judge(self, site: Site) -> Judgement:
        """The best that any sample line of a site gives."""
        neutral = site.neutral()
        if neutral not in self._neutral:
            known = self._signatures(neutral)[0]
            self._neutral[neutral] = frozenset(signature.id for signature in known)
        judged = [self._line(line, self._neutral[neutral]) for line in site.samples()]
        order: dict[Kind, int] = {"named": 0, "word": 1, "family": 2, "none": 3}
        return min(judged, key=lambda one: order[one.kind])

    def _line(self, line: str, of_form: frozenset[str]) -> Judgement:
        signatures, has_word = self._signatures(line)
        special = [one for one in signatures if one.id not in of_form and not _vague(one)]
        if special:
            return Judgement("named", min(special, key=_worth).id)
        if all(one.generic for one in signatures) and (signatures or has_word):
            raised = any(one.signal == "exception" for one in signatures)
            word = self._matcher.words.find(line, raised=raised)
            if word is not None:
                return Judgement("word", word.id)
        if signatures:
            return Judgement("family", min(signatures, key=_worth).id)
        return Judgement("none")

    def _signatures(self, line: str) -> tuple[list[Signature], bool]:
        """The signatures that match a line, and whether a word may be in it."""
        data = line.encode() + b"\n"
        matcher = self._matcher
        message = peel(line).message
        found = {}
        hits, words, _ = matcher.scan(data)
        for number, _ in hits:
            signature = matcher.signatures[matcher.patterns[number].signature]
            if signature.id not in found and matcher.confirm(number, line, message) is not None:
                found[signature.id] = signature
        return list(found.values()), bool(words)


def _vague(signature: Signature) -> bool:
    """Whether it says no more than that there is trouble, or states facts of the job only."""
    if signature.signal == "trouble":
        return signature.generic
    return signature.role == "context" and bool(signature.facts)


def _worth(signature: Signature) -> tuple[bool, bool, str]:
    return signature.role not in _FAILURE_ROLES, signature.generic, signature.id
