"""The rules for the rules: what `diagnose catalog check` and the tests hold every entry to."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import hyperscan as hs
import regex

from diagnose.catalog.authoring import BAD_ID, ID, TODO
from diagnose.catalog.document import FileEntry, catalog_of, read_files
from diagnose.catalog.entries import parsed
from diagnose.catalog.expressions import (
    automaton_of,
    costly,
    example_problems,
    malformed,
    none_linear,
)
from diagnose.catalog.load import catalog_files, default_dir, examples_of, load_catalog
from diagnose.catalog.matches import CAPTURES
from diagnose.catalog.remedies import remedy_problems
from diagnose.catalog.schema import Catalog, Condition, KnownIssue, Signature, Vocabulary, Word
from diagnose.catalog.stored import example_lines
from diagnose.errors import CatalogError
from diagnose.match.words import Words


def class_problems(catalog: Catalog, ids: Collection[str]) -> Iterator[str]:
    """What is wrong with the cause classes; `ids` are those of the other entries."""
    names = {*ids, *catalog.classes}
    owned: dict[str, dict[str, str]] = {"busy": {}, "held": {}, "shown_by": {}}
    for cause in catalog.classes.values():
        if not cause.remedies and cause.id not in ("none", "unknown"):
            yield f"{cause.id}: a cause class needs remedies"
        for pattern in cause.explains:
            if not fnmatch.filter(names, pattern):
                yield f"{cause.id}: explains: {pattern} names no entry and no class"
        if len(set(cause.explains)) < len(cause.explains):
            yield f"{cause.id}: explains: something is there twice"
        if cause.phase and cause.usual_phase:
            yield f"{cause.id}: usual_phase: never used, as the class has a phase"
        if cause.moving and cause.longer_timeout != "yes":
            yield f"{cause.id}: moving: only says when longer_timeout: yes holds"
        for name, owners in owned.items():
            for one in getattr(cause, name):
                if one in owners:
                    yield f"{cause.id}: {name}: {one} is already that of {owners[one]}"
                owners.setdefault(one, cause.id)


_SHORTEST = 3  # characters of a word that means something without a pattern


def word_problems(catalog: Catalog, classes: set[str]) -> Iterator[str]:
    """Problems of all vocabularies: unknown classes, words never found, and words given twice."""
    owners: dict[str, tuple[str, Word]] = {}
    words = Words(catalog.vocabularies)
    for vocabulary in catalog.vocabularies:
        if not vocabulary.references:
            yield f"{vocabulary.id}: references: needed, the primary source"
        broken = list(_broken(vocabulary))
        yield from broken
        for word in vocabulary.words:
            at = f"{vocabulary.id}: {word.spellings[0]}"
            for cause in {word.cause, *(near.cause for near in word.near)} - classes:
                yield f"{at}: unknown class {cause}"
            if vocabulary.pattern or broken:
                continue
            for spelling in word.spellings:
                if len(spelling) < _SHORTEST or not words.knows(spelling, word):
                    yield f"{at}: {spelling!r} is never found: it needs a token and length"
                other, same = owners.setdefault(spelling, (vocabulary.id, word))
                if same is not word:
                    yield f"{at}: {spelling!r} is in {other} too"


def _broken(vocabulary: Vocabulary) -> Iterator[str]:
    texts = [near.text for word in vocabulary.words for near in word.near]
    for text in [*texts, *filter(None, [vocabulary.pattern])]:
        try:
            regex.compile(text)
        except regex.error as error:
            yield f"{vocabulary.id}: {text}: {error}"
    if vocabulary.pattern and "(?P<word>" not in vocabulary.pattern:
        yield f"{vocabulary.id}: pattern: needs a group named word"
    needed = {bool(vocabulary.pattern), bool(vocabulary.triggers), bool(vocabulary.noun)}
    if len(needed) > 1:
        yield f"{vocabulary.id}: a pattern needs triggers and a noun, and only a pattern does"


_LITERAL = 8  # characters of a wording before its first star
_REFERENCE = re.compile(r"https?://\S+\Z")
_WHERE = re.compile(r"https?://\S+\Z|[\w./-]+\Z")


def check(own: Sequence[Path] = ()) -> list[str]:
    """Every problem of the entries in `own`, one line each; empty when clean.

    Without any, the shipped catalog is checked. Own entries may name the shipped ones, which are
    not checked again.
    """
    problems_, found = [], []
    try:
        for directory in own or [default_dir()]:
            here = read_files([*catalog_files([directory])])
            problems_ += [*_repeated(here), *_misplaced(directory, here)]
            found += here
        catalog = catalog_of(found, "check")
        shipped = load_catalog() if own else catalog
    except CatalogError as error:
        return [str(error)]
    return [*problems_, *problems(catalog, shipped)]


def check_entry(found: FileEntry) -> list[str]:
    """Every problem of one entry, which may name those of the shipped catalog."""
    is_signature = isinstance(found.entry, Signature)
    signatures, issues = ([found.entry], []) if is_signature else ([], [found.entry])
    return [*problems(Catalog(signatures, issues, {}, "check"), load_catalog())]


def _repeated(found: Sequence[FileEntry]) -> Iterator[str]:
    """Ids that one directory gives to two entries: the later file would win in silence."""
    seen: dict[str, Path] = {}
    for one in found:
        if one.entry.id in seen:
            yield f"{one.path}: {one.entry.id}: the id is taken in {seen[one.entry.id]}"
        seen[one.entry.id] = one.path


def _misplaced(directory: Path, found: Sequence[FileEntry]) -> Iterator[str]:
    """Entries that are not in PRODUCT/FAMILY.yaml of their id; loose files may hold any."""
    if directory.is_file():
        return
    for one in found:
        place = one.path.relative_to(directory).with_suffix("").parts
        named = one.kind in ("signatures", "known_issues")
        if named and len(place) > 1 and tuple(one.entry.id.split(".")[:-1]) != place:
            there = "/".join(one.entry.id.split(".")[:-1])
            yield f"{one.path}: {one.entry.id}: the id is not the path; move it to {there}.yaml"


def _duplicates(signatures: Sequence[Signature]) -> Iterator[str]:
    """Expressions that are there twice: the second one finds nothing new."""
    seen: dict[tuple[str, bool], str] = {}
    for signature in signatures:
        for expression in signature.match:
            owner = seen.setdefault((expression, signature.ignore_case), signature.id)
            if owner is not signature.id or signature.match.count(expression) > 1:
                yield f"{signature.id}: match: is that of {owner} too: {expression[:120]}"


def problems(catalog: Catalog, shipped: Catalog | None = None) -> Iterator[str]:
    """What is wrong with the entries of a catalog (with their examples).

    They may name each other and the entries and classes of `shipped`.
    """
    known = [catalog, shipped] if shipped else [catalog]
    ids = {entry.id for one in known for entry in one.signatures}
    ids |= {entry.id for one in known for entry in one.known_issues}
    classes = {id_ for one in known for id_ in one.classes}
    ordinary = _progress_lines(catalog, shipped)
    usable = []
    for signature in catalog.signatures:
        broken = [*filter(None, map(malformed, (*signature.match, *signature.unless)))]
        yield from (f"{signature.id}: {problem}" for problem in broken)
        if not broken:
            usable.append(signature)
            for expression in (*signature.match, *signature.unless):
                yield from _expression_problems(signature.id, expression)
            yield from _cost_problems(signature, ordinary)
        yield from _signature_problems(signature, classes, ids)
    for issue in catalog.known_issues:
        yield from _known_issue_problems(issue, classes, ids)
    yield from class_problems(catalog, {*ids, *classes})
    elsewhere = set(shipped.settings) if shipped and shipped is not catalog else set()
    yield from remedy_problems(catalog, elsewhere)
    yield from word_problems(catalog, classes)
    yield from _duplicates(catalog.signatures)
    if usable:
        yield from _exceptions_problems(usable)
        yield from example_problems(usable)


def _exceptions_problems(signatures: Sequence[Signature]) -> Iterator[str]:
    """The expressions under `unless` that no automaton can search for; nearly always none."""
    exceptions = [replace(entry, match=entry.unless) for entry in signatures if entry.unless]
    try:
        automaton_of(exceptions)
    except hs.error:
        yield from none_linear(exceptions)


def _signature_problems(signature: Signature, classes: set[str], ids: set[str]) -> Iterator[str]:
    name, is_cause = signature.id, signature.role == "cause"
    texts = (signature.title, signature.not_evidence_of, *signature.near_miss)
    wrong = {
        BAD_ID: not ID.match(name),
        f"{TODO}: something is still to be filled in": TODO
        in (*texts, *(step.do for step in signature.remedies)),
        "match: at least one pattern": not signature.match,
        "class: needed for role cause, and only there": is_cause != bool(signature.cause),
        f"class: unknown class {signature.cause}": signature.cause not in ("", *classes),
        "phase: needed for role phase": signature.role == "phase" and not signature.phase,
        "remedies: a cause needs remedies": is_cause and not signature.remedies,
        "references: a cause needs a reference": is_cause and not signature.references,
        "restart: a cause needs restart advice": is_cause and signature.restart is None,
    }
    yield from (f"{name}: {what}" for what, is_so in wrong.items() if is_so)
    yield from _common_problems(signature, classes, ids)
    for value in signature.facts.values():
        for capture in re.findall(r"\{(\w+)\}", value):
            if not any(f"(?P<{capture}>" in e for e in signature.match):
                yield f"{name}: facts: no pattern captures {capture}"
    if signature.where and not _WHERE.match(signature.where):
        yield f"{name}: where: {signature.where} is neither a URL nor a file"


def _known_issue_problems(issue: KnownIssue, classes: set[str], ids: set[str]) -> Iterator[str]:
    conditions = (*issue.all, *issue.any)
    own = any(c.wording or c.signature or c.trainer or c.fact or c.state for c in conditions)
    versions = any(c.version for c in conditions)
    wrong = {
        f"class: unknown class {issue.cause}": issue.cause not in classes,
        "a known issue needs remedies and a reference": not (issue.remedies and issue.references),
        "all/any: at least one condition": not conditions,
        "version: needs the bug's own wording, signature, fact or state too": versions and not own,
    }
    yield from (f"{issue.id}: {what}" for what, is_so in wrong.items() if is_so)
    for condition in (*conditions, *issue.none):
        for problem in _condition_problems(condition, classes, ids):
            yield f"{issue.id}: {problem}"
    yield from _common_problems(issue, classes, ids)


def _condition_problems(condition: Condition, classes: set[str], ids: set[str]) -> Iterator[str]:
    for text in condition.version:
        if parsed(text) is None:
            yield f"version: {text} is not of the form: torch >=2.1,<2.3"
    for text in condition.wording:
        if len(text.partition("*")[0]) < _LITERAL:
            yield f"wording: {text} begins with less than {_LITERAL} characters"
    for pattern in condition.signature:
        if not fnmatch.filter(ids, pattern):
            yield f"signature: {pattern} names no entry"
    for pattern in condition.cause:
        if not fnmatch.filter(classes, pattern):
            yield f"cause: {pattern} names no class"


def _common_problems(
    entry: Signature | KnownIssue, classes: set[str], ids: set[str]
) -> Iterator[str]:
    for reference in entry.references:
        if not _REFERENCE.match(reference):
            yield f"{entry.id}: references: {reference} is not a URL"
    if isinstance(entry, Signature):
        for pattern in entry.explains:
            if not fnmatch.filter(ids | classes, pattern):
                yield f"{entry.id}: explains: {pattern} names no entry and no class"


def _progress_lines(catalog: Catalog, shipped: Catalog | None) -> list[str]:
    """Lines such as a job logs each step."""
    known = shipped or catalog
    found = examples_of(shipped) if shipped else example_lines(catalog.signatures)
    return [line for id_, line in found if known.by_id[id_].role == "progress"]


def _cost_problems(signature: Signature, ordinary: Sequence[str]) -> Iterator[str]:
    if signature.per_step:  # has automata of its own, which search samples
        return
    for expression in signature.match:
        problem = costly(expression, ignore_case=signature.ignore_case, ordinary=ordinary)
        if problem:
            yield f"{signature.id}: {problem}"


def _expression_problems(name: str, expression: str) -> Iterator[str]:
    """What is wrong with an expression that compiles."""
    for capture in re.findall(r"\(\?P<(\w+)>", expression):
        if capture not in CAPTURES:
            yield f"{name}: unknown capture {capture}; see CAPTURES in catalog/matches.py"
    inner = re.sub(r"\\.|\[\^[^]]*]", "", expression.removeprefix("^"))
    if "^" in inner:
        yield f"{name}: ^ only at the start of a pattern: {expression}"
