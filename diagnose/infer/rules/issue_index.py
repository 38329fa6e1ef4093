"""Which known issues a job may have at all: most ask for a word or a fact that it does not have."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache

from diagnose.catalog.schema import Catalog, KnownIssue
from diagnose.infer.events.facts import Facts

# What an issue asks for, the rarest first; words are those of any log.
_FIELDS = ("signature", "trainer", "fact", "framework", "wording")
_GLOB = re.compile(r"[*?\[]")
# Words apart, all digits alike: lines that differ in their numbers have the same words.
_WORDS = {code: " " for code in range(128) if not re.match(r"[\w\n]", chr(code))}
_WORDS |= dict.fromkeys(range(ord("0"), ord("9") + 1), "0")
_ANY = ""  # the key of issues that any job may have


def possible(
    catalog: Catalog, facts: Facts, signatures: Iterable[str], text: str
) -> list[KnownIssue]:
    """The issues that may hold, in the order of the catalog; wordings are looked for in `text`."""
    index = _index(catalog)
    lines = {*text.translate(_WORDS).split("\n")}
    told = {_ANY, *" ".join(lines).split()}
    told.update(f"signature {id_.lower()}" for id_ in signatures)
    told.update(f"{fact} {value.lower()}" for fact, has in facts.values.items() for value in has)
    found = {number for key in index.keys() & told for number in index[key]}
    return [catalog.known_issues[number] for number in sorted(found)]


@lru_cache(maxsize=2)
def _index(catalog: Catalog) -> Mapping[str, list[int]]:
    """Key → the numbers of the issues that need a job with it, or with another one of a few."""
    index: dict[str, list[int]] = defaultdict(list)
    for number, issue in enumerate(catalog.known_issues):
        for key in _needed(issue):
            index[key].append(number)
    return index


def _needed(issue: KnownIssue) -> set[str]:
    """The keys of which a job must have one."""
    for name in _FIELDS:
        for condition in issue.all:
            keys = {_key(name, asked) for asked in getattr(condition, name)}
            if keys and _ANY not in keys:
                return keys
    return {_ANY}


def _key(name: str, asked: str) -> str:
    """The key of what has this: a word, or with a blank a fact or a signature."""
    if name == "wording":  # its words at both ends may be parts of longer ones
        parts = (part.translate(_WORDS).split(" ")[1:-1] for part in asked.split("*"))
        return max((word for words in parts for word in words), key=len, default=_ANY)
    if name == "fact":
        name, _, asked = asked.partition("=")
    return f"{name} {asked.lower()}" if asked and not _GLOB.search(asked) else _ANY
