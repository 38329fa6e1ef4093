"""Message sites of C, C++ and Go: calls and streams with string literals, by a tokenizer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sites.template import Piece, Site, Slot, braces, printf

Form = Literal["printf", "fmt", "concat", "stream"]

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<raw>R"(?P<tag>[^(\s]*)\((?P<inside>.*?)\)(?P=tag)")"""
    r"""|(?P<string>[uUL]?8?"(?:\\.|[^"\\\n])*")|(?P<ticks>`[^`]*`)|(?P<char>'(?:\\.|[^'\\\n])+')"""
    r"""|(?P<define>^[ \t]*\#[ \t]*define[ \t]+\w+)|(?P<directive>^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*)"""
    r"""|(?P<name>[A-Za-z_]\w*)|(?P<number>\d[\w.]*)|(?P<sign><<|::|->|[^\w\s\\])""",
    re.DOTALL | re.MULTILINE,
)
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "", "0": "", "a": "", "e": ""}
_WIDTH = re.compile(r"(?:PRI|SCN)([diouxX])\w*\Z")
_JOINERS = {"str", "StrCat", "string", "to_string_view"}
_FORMATTERS = {"format": "fmt", "StrFormat": "printf", "Sprintf": "printf", "sformat": "fmt"}
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_FARTHEST = 4000  # tokens of a call or stream


@dataclass(frozen=True, slots=True)
class CallForm:
    """Calls that print: their names, how the text is put together, the form of the line.

    A name may be dotted, such as `klog.Errorf`, where another method has the same name.

    `skip`: arguments before the text (conditions). `only`: the call counts where its first
    argument is one of these. `assigned`: only where a variable is given the text.
    """

    calls: tuple[str, ...]
    form: Form
    line: str
    skip: int = 0
    only: frozenset[str] = frozenset()
    assigned: bool = False
    conversions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def c_sites(name: str, text: str, forms: Sequence[CallForm]) -> Iterator[Site]:
    """The sites of one file."""
    tokens = list(_tokens(text))
    by_call = {call: form for form in forms for call in form.calls}
    for index, token in enumerate(tokens[:-1]):
        if token.kind != "name" or tokens[index + 1].text != "(":
            continue
        form = by_call.get(token.text) or by_call.get(_dotted(tokens, index))
        if form is None:
            continue
        pieces = _site(tokens, index + 1, form)
        if pieces and not (form.assigned and not _assigned(tokens, index)):
            number = text.count("\n", 0, token.at) + 1
            yield Site(
                name, number, token.text, form.line, tuple(pieces), conversions=form.conversions
            )


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if match["raw"] is not None:
            yield _Token("string", match["inside"], match.start())
        elif kind == "string":
            inside = match.group().partition('"')[2][:-1]
            yield _Token("string", _ESCAPE.sub(_unescaped, inside), match.start())
        elif kind == "ticks":
            yield _Token("string", match.group()[1:-1], match.start())
        elif kind not in ("comment", "directive", "define"):
            yield _Token(kind, match.group(), match.start())


def _unescaped(match: re.Match[str]) -> str:
    text = match.group()[1:]
    if text[0] in "x01234567" and text != "0":
        return ""  # colours
    return _ESCAPED.get(text, text)


def _dotted(tokens: Sequence[_Token], index: int) -> str:
    """A method with what it is called on: `klog.Errorf`."""
    return "".join(token.text for token in tokens[max(index - 2, 0) : index + 1])


def _assigned(tokens: Sequence[_Token], index: int) -> bool:
    """Whether what stands before a call, but for its namespaces, is an equals sign."""
    while index >= 2 and tokens[index - 1].text == "::":
        index -= 2 if tokens[index - 2].kind == "name" else 1
    return index > 0 and tokens[index - 1].text == "="


def _closing(tokens: Sequence[_Token], start: int) -> int:
    """Where the bracket opened at `start` is closed."""
    depth = 0
    for index in range(start, min(len(tokens), start + _FARTHEST)):
        if tokens[index].kind == "sign":
            depth += (tokens[index].text in _OPEN) - (tokens[index].text in _CLOSE)
            if depth == 0:
                return index
    return start


def _site(tokens: Sequence[_Token], opened: int, form: CallForm) -> list[Piece]:
    closed = _closing(tokens, opened)
    if closed == opened:
        return []
    arguments = _split(tokens[opened + 1 : closed], ",")
    if form.only and not (arguments and arguments[0] and arguments[0][0].text in form.only):
        return []
    if form.form == "stream":
        return _streamed(tokens, closed + 1)
    if form.form == "concat":
        return [piece for one in arguments[form.skip :] for piece in _expression(one)]
    return _formatted(tokens[opened + 1 : closed], form.form, tuple(form.conversions))


def _streamed(tokens: Sequence[_Token], start: int) -> list[Piece]:
    """The pieces of `<< a << b` up to the end of the statement."""
    if start >= len(tokens) or tokens[start].text != "<<":
        return []
    end, depth = start, 0
    for end in range(start, min(len(tokens), start + _FARTHEST)):
        text = tokens[end].text if tokens[end].kind == "sign" else ""
        depth += (text in _OPEN and bool(text)) - (text in _CLOSE and bool(text))
        if (text == ";" and depth == 0) or depth < 0:
            break
    parts = _split(tokens[start + 1 : end], "<<")
    return [piece for part in parts for piece in _expression(part)]


def _split(tokens: Sequence[_Token], sign: str) -> list[list[_Token]]:
    parts: list[list[_Token]] = [[]]
    depth = 0
    for token in tokens:
        if token.kind == "sign":
            depth += (token.text in _OPEN) - (token.text in _CLOSE)
            if token.text == sign and depth == 0:
                parts.append([])
                continue
        parts[-1].append(token)
    return parts


def _formatted(tokens: Sequence[_Token], form: str, own: Sequence[str] = ()) -> list[Piece]:
    """The pieces of the first literal, the format, with the arguments behind it."""
    first = next((i for i, token in enumerate(tokens) if token.kind == "string"), None)
    if first is None:
        return []
    end = first
    text = ""
    while end < len(tokens) and (tokens[end].kind in ("string", "name")):
        width = _WIDTH.match(tokens[end].text) if tokens[end].kind == "name" else None
        if tokens[end].kind == "string":
            text += tokens[end].text
        else:
            text += width[1] if width else "%s"
        end += 1
    rest = [" ".join(token.text for token in part) for part in _split(tokens[end:], ",")][1:]
    return printf(text, rest, own) if form == "printf" else braces(text, rest)


def _expression(tokens: Sequence[_Token]) -> list[Piece]:
    """Literals, what known functions join or format, and slots for anything else."""
    pieces: list[Piece] = []
    other: list[str] = []
    index = 0

    def slot() -> None:
        if other:
            pieces.append(Slot("?", " ".join(other)))
            other.clear()

    while index < len(tokens):
        token = tokens[index]
        called = index + 1 < len(tokens) and tokens[index + 1].text == "("
        if token.kind == "string":
            slot()
            pieces.append(token.text)
        elif token.kind == "name" and called:
            closed = _closing(tokens, index + 1)
            inside = tokens[index + 2 : closed]
            known = _known_call(token.text, inside)
            if known is None:
                other += [one.text for one in tokens[index : closed + 1]]
            else:
                other.clear()
                pieces += known
            index = max(closed, index + 1)
        elif token.text in ("+", "<<", ","):
            slot()
        elif token.text not in ("::", "(", ")", "std", "c10", "fmt", "absl"):
            other.append(token.text)
        index += 1
    slot()
    return pieces


def _known_call(name: str, inside: Sequence[_Token]) -> list[Piece] | None:
    if name in _JOINERS:
        return [piece for part in _split(inside, ",") for piece in _expression(part)]
    if name in _FORMATTERS:
        return _formatted(inside, _FORMATTERS[name])
    return None
