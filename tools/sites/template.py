"""What a message site prints: fixed text and slots, and sample lines made of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_FIXED = re.compile(r"[^\W\d_]")
_NAMES_FEW = 4  # letters of fixed text below which a template says nothing
_CONVERSION = re.compile(
    r"%(?:\((?P<name>\w+)\))?[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|j|z|t|L|q)?"
    r"(?P<type>[diouxXeEfFgGaAcspmrvtqwTM%])"
)
_BRACES = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}:!]*)(?:![rsa])?(?::(?P<spec>[^{}]*))?\}")
_BY_TYPE = {
    **dict.fromkeys("diouXx", "3"),
    **dict.fromkeys("eEfFgGaA", "1.5"),
    "p": "0x7f0000000010",
    "m": "Input/output error",
    "t": "true",
}
# What the name of an argument says of its value; the first that matches counts.
_HINTS = [
    (re.compile(pattern, re.IGNORECASE), value)
    for pattern, value in (
        (r"strerror|errno_str|err_?str\(errno", "Input/output error"),
        (r"cuda\w*GetErrorString|hipGetErrorString", "unspecified launch failure"),
        (r"ncclGetErrorString|ncclGetErrorWithVersion", "unhandled system error"),
        (r"ibv?_wc_status_str|ibvWcStatusStr", "transport retry counter exceeded"),
        (r"gai_strerror", "Name or service not known"),
        (r"ucs_status_string", "Input/output error"),
        (r"fi_strerror", "Input/output error"),
        (r"repr \( \)", "SocketImpl(fd=3, addr=[gpu1]:50000, remote=[gpu0]:29500)"),
        (r"addr|socketToString|endpoint\b|peername", "10.0.0.7<4242>"),
        (r"host|node_?name|hostname", "gpu1"),
        (r"path|file|dir\b|fname", "/tmp/abc"),
        (r"signal|sig\b|signum", "SIGTERM"),
        (
            r"rank|size|count|num|port|pid|timeout|seconds|\bsec|\bms\b|len\(|code|\bid\b|_id\b"
            r"|index|idx|step|bytes|length|version|elapsed|attempt|retr|duration|time\b|status\b|rc\b",
            "3",
        ),
    )
]


@dataclass(frozen=True, slots=True)
class Slot:
    """A place that a value fills: its printf conversion (`?` if none is known), its expression."""

    conversion: str = "?"
    expression: str = ""

    def values(self, own: Mapping[str, str]) -> tuple[str, str, str]:
        """Plausible values: a number, by its name, a text; `own`: conversions of the source."""
        known = own.get(self.conversion) or _BY_TYPE.get(self.conversion)
        if known:
            return known, known, known
        hinted = next((text for hint, text in _HINTS if hint.search(self.expression)), None)
        number = hinted == "3" or hinted is None
        if self.conversion == "?":
            return hinted or "3", hinted or "abc", "abc" if number else str(hinted)
        text = "abc" if number else str(hinted)
        return hinted or "abc", hinted or "abc", text


Piece = str | Slot


@dataclass(frozen=True, slots=True)
class Site:
    """One message in a source: who prints it, in what form, and the template of its text.

    `line` is the form of a printed line, in which `{}` stands for the message.
    """

    file: str
    number: int
    kind: str
    line: str
    pieces: tuple[Piece, ...]
    kind_of_error: str = ""
    function: str = ""
    conversions: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def text(self) -> str:
        """The template, with `{}` for each slot."""
        text = "".join(piece if isinstance(piece, str) else "{}" for piece in self.pieces)
        return " ".join(text.split())

    @property
    def says_something(self) -> bool:
        """Whether its fixed text (or the type of its exception) can be told from others."""
        fixed = "".join(piece for piece in self.pieces if isinstance(piece, str))
        own_type = "." in self.kind_of_error and self.kind_of_error.rpartition(".")[2][:1].isupper()
        return len(_FIXED.findall(fixed)) >= _NAMES_FEW or own_type

    def samples(self) -> list[str]:
        """Lines as the program would print them."""
        rendered = []
        for which in range(3):
            filled = "".join(
                piece if isinstance(piece, str) else piece.values(self.conversions)[which]
                for piece in self.pieces
            )
            first, *more = filled.strip("\r\n").splitlines() or [""]
            rendered += [self._printed(first), *(row for row in more if row.strip())]
        return list(dict.fromkeys(rendered))

    def neutral(self) -> str:
        """A line of the same form that says nothing: what matches it knows only the form."""
        return self._printed("abc", "RuntimeError", "abc.cc")

    def _printed(self, text: str, error: str = "", file: str = "") -> str:
        named = {
            "{file}": file or self.file.rpartition("/")[2],
            "{path}": file or self.file,
            "{line}": str(self.number),
            "{function}": self.function or "run",
            "{type}": error or self.kind_of_error,
        }
        line = self.line
        for name, value in named.items():
            line = line.replace(name, value)
        return line.replace("{}", text)


def printf(format_: str, arguments: Sequence[str] = (), own: Sequence[str] = ()) -> list[Piece]:
    """The pieces of a printf format; `own` are conversions that only its source knows."""
    pieces: list[Piece] = []
    rest = iter(arguments)
    at = 0
    for match in _CONVERSION.finditer(format_):
        if match.start() < at:
            continue
        pieces.append(format_[at : match.start()])
        at = match.end()
        special = next((name for name in own if format_.startswith(name, match.end() - 1)), "")
        at += len(special) - 1 if special else 0
        if match["type"] == "%":
            pieces.append("%")
        elif match["type"] == "m":
            pieces.append(Slot("m"))
        else:
            argument = match["name"] or next(rest, "")
            pieces.append(Slot(special or match["type"], argument))
    return [*pieces, format_[at:]]


def braces(format_: str, arguments: Sequence[str] = ()) -> list[Piece]:
    """The pieces of a format with braces, as in Python and fmt."""
    pieces: list[Piece] = []
    rest = iter(arguments)
    at = 0
    for match in _BRACES.finditer(format_):
        pieces.append(format_[at : match.start()])
        at = match.end()
        if match.group() in ("{{", "}}"):
            pieces.append(match.group()[0])
        else:
            name = match["name"] or ""
            pieces.append(Slot("?", name if name.strip("0123456789") else next(rest, "")))
    return [*pieces, format_[at:]]


def distinct(sites: Sequence[Site]) -> Iterator[Site]:
    """Each message once, that says something."""
    seen = set()
    for site in sites:
        key = (site.kind, site.kind_of_error, site.text)
        if site.says_something and key not in seen:
            seen.add(key)
            yield site
