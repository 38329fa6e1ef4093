"""Which alternatives of an expression no example shows.

`(?:lost|closed) by (?:peer|host)` has four, and two lines can show them all. Each is given as the
expression with that branch alone, so one inside another asks for the outer one as well. Of what
may be left out, such as `(?: by (?:peer|host))?`, each way to be there counts, and being left out
does not. Single characters do not count, no more than those of a class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

import regex

from diagnose.lazy import dataclass
from diagnose.lazy import expression as lazily
from diagnose.parse.prefix import peel

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
        # A line that one alternative matches may be matched by another one, too.
        if number not in seen and not (matched and _shown(expression, one, texts, flags)):
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


def _shown(expression: str, one: Alternative, texts: Sequence[str], flags: int) -> bool:
    wanted = regex.compile(_narrowed(expression, one, exact=True), flags)
    return any(wanted.search(text) for text in texts)


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
