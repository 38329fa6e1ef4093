"""The expressions of an entry: their form in YAML, what they capture, their alternatives."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import regex

from diagnose.catalog.remedies import FieldError
from diagnose.catalog.schema import Example, Match
from diagnose.lazy import expression as lazily
from diagnose.parse.prefix import peel

# Named groups a pattern may use. Anything else is refused, so that the same fact has the same name
# in every entry. Of these a part is another value: they name somebody or are compared between
# ranks. `group_rank` counts inside its group; `ranks` and `missing` are lists ("0-3,7", "{1}"),
# `peer` is a host, address or endpoint of the other side.
EXACT = frozenset({
    "rank", "group_rank", "local_rank", "other_rank", "from_rank", "ranks", "missing",
    "world_size", "host", "peer", "group", "group_desc", "seq", "other_seq", "op", "other_op",
    "shape", "other_shape", "numel_in", "numel_out", "timeout_ms", "elapsed_ms", "enqueued",
    "started", "completed",
})  # fmt: skip
# `dev` is the index of a device, `address` its own, `server` that of its host, `adapters` all of a
# host, `segment` is an NVLink domain; `tls` is 1 where a port uses TLS. `closes`: who closes a
# communicator or proxy at an end of whatever kind. `elapsed` is tqdm's [H:]MM:SS, `what` what a
# bar or phase is about.
CAPTURES = EXACT | {
    "joined", "nodes", "pid", "dev", "other_dev", "address", "server", "tls", "busid", "nic",
    "adapters", "segment", "group_id", "timeout_s", "elapsed_s", "exitcode", "signal", "xid",
    "status", "errno", "reason", "closes", "attempts_left", "step", "total", "percent",
    "elapsed", "what", "version", "name", "value", "type", "message", "path", "port", "file",
    "line", "func", "size", "key", "time",
}  # fmt: skip

_FLAGS = lazily(r"\(\?[a-zA-Z]+\)")  # of the whole expression, at its start
_OPENING = lazily(r"\((?:\?(?:P?<\w+>|[a-zA-Z-]*:|P?<?[=!]|>))?")
_ATOM = lazily(r"\\.|\[\^?]?(?:\[:\^?\w+:]|\\.|[^]\\])*]|[^()|]")
_QUANTIFIER = lazily(r"(?:[*+?]|\{\d+(?:,\d*)?\}|\{,\d+\})[?+]?")
_NO_CHARACTER = lazily(r"(?:\^|\$|\\[bBAZ])*\Z")
_ONE_CHARACTER = lazily(r"(?:\\[^bBAZ]|\[\^?]?(?:\[:\^?\w+:]|\\.|[^]\\])*]|[^\\^$()|[])\Z")

Span = tuple[int, int]


@dataclass(slots=True, eq=False)
class Group:
    """A group of an expression, or all of it: where its text, its branches and its repeat are."""

    start: int
    inner: int
    outer: Group | None
    outer_branch: int = 0
    close: int = 0  # where its bracket closes
    end: int = 0  # behind its quantifier
    branches: list[Span] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A branch of an alternation in which there is no other one that counts."""

    group: Group
    branch: int

    @property
    def span(self) -> Span:
        """Where its text is."""
        return self.group.branches[self.branch]


def uncovered(expression: str, lines: Sequence[str], *, ignore_case: bool = False) -> list[str]:
    """The alternatives that no line matches, each as the expression with that branch alone.

    The expression itself where it has none and no line matches it. Texts of several lines are
    searched line by line, as a log is.
    """
    found = alternatives(expression)
    flags = regex.VERSION0 | regex.MULTILINE | (regex.IGNORECASE if ignore_case else 0)
    texts = [*_texts(lines, anchored=expression.startswith("^"))]
    marked = regex.compile(_marked(expression, found), flags)
    seen: set[int] = set()
    matched = False
    for text in texts:
        if match := marked.search(text):
            matched = True
            seen.update(n for n in range(len(found)) if match[f"_{n}"] is not None)
    if not found:
        return [] if matched else [expression]
    missing = []
    for number, one in enumerate(found):
        if number not in seen and matched:
            # A line that one alternative matches may be matched by another one, too.
            wanted = regex.compile(_narrowed(expression, one, exact=True), flags)
            if any(map(wanted.search, texts)):
                continue
        if number not in seen:
            missing.append(alone(expression, one))
    return missing


def alternatives(expression: str) -> list[Alternative]:
    """The alternatives of an expression that count, in the order of the text."""
    groups = groups_of(expression)
    counting, holding = set(), set()
    for group in reversed(groups):  # the inner ones first
        texts = [expression[start:end] for start, end in group.branches]
        if len(texts) > 1 and not all(map(_is_short, texts)):
            counting.add(group)
        holds = any((group, number) in holding for number in range(len(texts)))
        if group.outer is not None and (group in counting or holds):
            holding.add((group.outer, group.outer_branch))
    found = [
        Alternative(group, number)
        for group in counting
        for number, (start, end) in enumerate(group.branches)
        if (group, number) not in holding and not _NO_CHARACTER.match(expression[start:end])
    ]
    return sorted(found, key=lambda one: one.span)


def _is_short(text: str) -> bool:
    return bool(_NO_CHARACTER.match(text) or _ONE_CHARACTER.match(text))


def groups_of(expression: str) -> list[Group]:
    """All groups, each before those in it; the first is the whole expression."""
    flags = _FLAGS.match(expression)
    at = begin = flags.end() if flags else 0
    current = Group(at, at, None)
    groups, open_, bars = [current], [current], [begin]
    while at < len(expression):
        char = expression[at]
        if char == "(":
            opening = _OPENING.match(expression, at)
            inner = opening.end() if opening else at + 1
            current = Group(at, inner, open_[-1], len(open_[-1].branches))
            groups.append(current)
            open_.append(current)
            bars.append(inner)
            at = inner
        elif char == ")" and len(open_) > 1:
            current = open_.pop()
            current.branches.append((bars.pop(), at))
            current.close = at
            quantifier = _QUANTIFIER.match(expression, at + 1)
            at = current.end = quantifier.end() if quantifier else at + 1
        elif char == "|":
            open_[-1].branches.append((bars[-1], at))
            at += 1
            bars[-1] = at
        else:
            atom = _ATOM.match(expression, at)
            at = atom.end() if atom else at + 1
    root = open_[0]
    root.branches.append((bars[0], at))
    root.close = root.end = at
    return groups


def alone(expression: str, one: Alternative) -> str:
    """The expression with that branch alone, and where it is optional, with it."""
    return _narrowed(expression, one, exact=False)


def _narrowed(expression: str, one: Alternative, *, exact: bool) -> str:
    """The expression with that branch alone; if exact, other branches may repeat beside it."""
    group, branch = one.group, one.branch
    start, end = group.branches[branch]
    body = expression[start:end]
    while group.outer is not None:
        opening = expression[group.start : group.inner]
        quantifier = expression[group.close + 1 : group.end]
        body = body if opening == "(?:" and not quantifier.strip("?") else f"{opening}{body})"
        if quantifier and not quantifier.startswith("?"):
            whole = expression[group.start : group.close + 1]
            body = f"{whole}*{body}{whole}*" if exact else f"{body}{quantifier}"
        start, end = group.outer.branches[group.outer_branch]
        body = expression[start : group.start] + body + expression[group.end : end]
        group = group.outer
    return expression[: group.start] + body


def _marked(expression: str, found: Sequence[Alternative]) -> str:
    """The expression with a group around each of these alternatives."""
    parts, at = [], 0
    for number, one in enumerate(found):
        start, end = one.span
        parts += [expression[at:start], f"(?P<_{number}>{expression[start:end]})"]
        at = end
    return "".join([*parts, expression[at:]])


def _texts(lines: Sequence[str], *, anchored: bool) -> Iterator[str]:
    """What the engine searches: where an expression begins with `^`, the message of a line."""
    for text in lines:
        for line in regex.split(r"[\r\n]+", text.strip("\n")):
            yield peel(line).message.strip() if anchored else line


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
