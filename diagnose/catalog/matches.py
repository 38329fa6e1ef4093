"""The expressions of an entry: their form in YAML and in the schema."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from typing import Any

from diagnose.catalog.alternatives import groups_of
from diagnose.catalog.runs import FieldError
from diagnose.catalog.schema import Example, Match

_KEYS = ("regex", "any_of", "after", "before", "example", "examples", "variants")
_VARIANTS = re.compile(r"\{([^{}]*\|[^{}]*)\}")
_SPECIAL = re.compile(r"[\\.^$|?*+()\[\]{}]")


def type_matches(item: dict[str, Any]) -> None:
    """Put the expressions of what is written under `match` there, and that under `written`."""
    if "written" in item:
        raise FieldError(["written"], "written: unknown key")
    if not isinstance(item.get("match"), list):
        return  # whoever types the entry says so
    written = [typed_match(one, ["match", index]) for index, one in enumerate(item["match"])]
    item["match"] = [expression_of(one) for one in written]
    item["written"] = written


def type_near_misses(item: dict[str, Any]) -> None:
    """Write `{first_line: …}` of a known issue as its first example with another first line."""
    given, examples = item.get("near_miss"), item.get("examples")
    if not isinstance(given, list) or not isinstance(examples, list) or not examples:
        return  # whoever types the entry says so
    for index, one in enumerate(given):
        if isinstance(one, dict):
            line = one.get("first_line")
            if len(one) != 1 or not isinstance(line, str) or not isinstance(examples[0], str):
                raise FieldError(["near_miss", index], "near_miss: expected a text, or first_line")
            given[index] = line + "".join(examples[0].partition("\n")[1:])


def typed_match(one: object, at: Sequence[str | int]) -> Match:
    """An expression as YAML writes it, which stands at `at`, in the form of the schema."""
    if not isinstance(one, dict):
        raise FieldError(at, "match: expected {regex: …, example: …} or {any_of: […], example: …}")
    for key, value in one.items():
        if key not in _KEYS:
            raise FieldError([*at, key], f"match: {key}: unknown key")
        if key in ("after", "before") and not isinstance(value, str):
            raise FieldError([*at, key], f"match: {key}: expected a text")
    if ("regex" in one) == ("any_of" in one):
        raise FieldError(at, "match: needs exactly one of regex and any_of")
    if "regex" in one and ("after" in one or "before" in one):
        raise FieldError(at, "match: after and before go with any_of")
    if "example" in one and "examples" in one:
        raise FieldError(at, "match: example and examples: one of them is enough")
    parts = one.get("regex", [])
    parts = [parts] if isinstance(parts, str) else parts
    literals, several = one.get("any_of", []), one.get("examples", [])
    for key, texts in (("regex", parts), ("any_of", literals)):
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise FieldError([*at, key], f"match: {key}: expected a list of texts")
        if key in one and ("" in texts or not texts):
            raise FieldError([*at, key], f"match: {key}: a text is missing")
    if not isinstance(several, list):
        raise FieldError([*at, "examples"], "match: examples: expected a list")
    single = [_example(one["example"], [*at, "example"])] if "example" in one else []
    examples = [_example(text, [*at, "examples", number]) for number, text in enumerate(several)]
    examples = [*single, *examples, *map(Example, _variants(one.get("variants"), at))]
    examples += shown(literals, examples)
    return Match(parts, literals, one.get("after", ""), one.get("before", ""), examples)


def _variants(given: object, at: Sequence[str | int]) -> list[str]:
    texts = [] if given is None else [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise FieldError([*at, "variants"], "match: variants: expected a text or a list of texts")
    if any(not _VARIANTS.search(text) for text in texts):
        raise FieldError([*at, "variants"], "match: variants: no {a|b} in it; make it an example")
    return [line for text in texts for line in varied(text)]


def varied(text: str) -> list[str]:
    """`{a|b|c} lost {d|e}` as lines: `a lost d`, `b lost e`, `c lost e`."""
    between = _VARIANTS.split(text)  # every second part is a list of variants
    choices = [part.split("|") if index % 2 else [part] for index, part in enumerate(between)]
    most = max(map(len, choices))
    return [
        "".join(options[min(number, len(options) - 1)] for options in choices)
        for number in range(most)
    ]


def shown(literals: Sequence[str], examples: Sequence[Example]) -> list[Example]:
    """An example for each literal that none has: the first with one, that replaced by it."""
    lines = [example.line for example in examples]
    everything = "\n".join(lines).lower()
    missing = [text for text in literals if text.lower() not in everything]
    for line, literal in product(lines, literals):
        start = line.lower().find(literal.lower())
        if start >= 0:
            end = start + len(literal)
            return [Example(line[:start] + text + line[end:]) for text in missing]
    return []


def _example(one: object, at: Sequence[str | int]) -> Example:
    if isinstance(one, str):
        return Example(one)
    if not isinstance(one, dict) or not isinstance(one.get("line"), str):
        raise FieldError(at, "example: expected a line, or {line: …, captures: …}")
    captures = one.get("captures", {})
    texts = isinstance(captures, dict) and all(isinstance(text, str) for text in captures.values())
    if not texts:
        raise FieldError([*at, "captures"], "example: captures: expected names with texts")
    for key in one.keys() - {"line", "captures"}:
        raise FieldError([*at, key], f"example: {key}: unknown key")
    return Example(one["line"], captures)


def expression_of(match: Match) -> str:
    """The expression that is searched."""
    if not match.any_of:
        return "".join(match.regex)
    literals = "|".join(_SPECIAL.sub(r"\\\g<0>", text) for text in match.any_of)
    return f"{_whole(match.after)}(?:{literals}){_whole(match.before)}"


def _whole(expression: str) -> str:
    several = "|" in expression and len(groups_of(expression)[0].branches) > 1
    return f"(?:{expression})" if several else expression


def parts_of(match: Match) -> list[str]:
    """All that a person reads as one piece."""
    return [text for text in (*match.regex, match.after, match.before, *match.any_of) if text]
