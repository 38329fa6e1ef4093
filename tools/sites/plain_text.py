"""Message sites that are no code: topics of OpenMPI's help files, and what an expression finds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sites.template import Piece, Site, Slot, printf

_TOPIC = re.compile(
    r"^\[(?P<topic>[^\]\n]+)\]\s*\n(?P<text>.*?)(?=^\[[^\]\n]+\]\s*$|\Z)", re.S | re.M
)
_COMMENT = re.compile(r"^#.*\n?", re.M)
_VARIABLE = re.compile(r"\$\{[^}]*\}|\$\([^)]*\)|\$\w+")


def topics(name: str, text: str) -> Iterator[Site]:
    """The topics of a help file (a name in brackets, then the text that is shown)."""
    bare = _COMMENT.sub("", text)
    for match in _TOPIC.finditer(bare):
        pieces = tuple(printf(match["text"]))
        number = text.count("\n", 0, max(text.find(f"[{match['topic']}]"), 0)) + 1
        yield Site(name, number, "topic", "{}", pieces, function=match["topic"])


def found(
    name: str, text: str, expression: str, line: str, conversions: Mapping[str, str]
) -> Iterator[Site]:
    """What a regular expression finds: its group `text`, in which `$x` and printf are slots."""
    for match in re.finditer(expression, text, re.M):
        pieces: list[Piece] = []
        at = 0
        for variable in _VARIABLE.finditer(match["text"]):
            pieces += printf(match["text"][at : variable.start()], (), tuple(conversions))
            pieces.append(Slot("?", variable.group()))
            at = variable.end()
        pieces += printf(match["text"][at:], (), tuple(conversions))
        number = text.count("\n", 0, match.start()) + 1
        yield Site(name, number, "found", line, tuple(pieces), conversions=conversions)
