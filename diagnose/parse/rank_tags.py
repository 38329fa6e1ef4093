"""Tags with which programs say who prints: `Rank 3: `, `(rank 3) `, `rank3 | `, `[rank 3/8] `.

Function contract as in torch_prefixes. `[Rank 3]` is left alone: torch prints it of a group's rank.
"""

from __future__ import annotations

from diagnose.lazy import expression
from diagnose.parse.who import Prefix

_RANK = r"(?i:(?:global[ _]?|local[ _]?)?rank)"
_NUMBER = r"(\d{1,7})(?:/\d{1,7})?"
_IN_BRACKETS = expression(rf"[\[(<]({_RANK})[ _=:#\-]?{_NUMBER}[\])>]:?(?: |(?=\[)|\Z)")
# With what nobody puts behind a number amid a sentence.
_BARE = expression(rf"({_RANK})[ _#]?{_NUMBER}(?::| \|| -)(?: |\Z)")
_OF_A_GROUP = expression(r"\[Rank \d{1,7}\]")
FIRST = frozenset("gGlLrR")  # letters with which a name begins


def rank_tag(line: str, at: int, prefix: Prefix) -> int:
    """Such a tag: a rank is global unless it calls itself local."""
    if _OF_A_GROUP.match(line, at):
        return -1
    form = _BARE if line[at].isalpha() else _IN_BRACKETS
    found = form.match(line, at)
    if found is None:
        return -1
    name, number = found[1].lower(), int(found[2])
    if name.startswith("local"):
        prefix.local_rank = number
    else:
        prefix.rank = number
    prefix.names.append("rank-tag")
    return found.end()
