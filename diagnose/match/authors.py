"""Who wrote a line, as its bytes say it, without parsing them: tags in front, a rank, a device.

It sets the authors of interleaved lines apart, of which the last words are kept. A name that is too
fine costs lines that are kept for nothing, one that is too coarse the last words of somebody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from diagnose.lazy import expression

_REACH = 600  # bytes of a line that are looked at

# Launcher and rank tags, pods, containers, hosts.
# A time of day looks like NCCL's host:pid:tid, but would make every second an author.
# Possessive, and first of all no word that a blank follows: most lines have no tag and fail there.
_TAG = (
    rb"(?:(?![\w.-]++ )(?:\[\d++,\d++\]<\w++>:|\[[A-Za-z_]*+\d++\]:?+(?:<\w++>:)?+| *+\d++: "
    rb"|\([\w ]*pid=[^)]*+\)|(?!\d\d?:)[\w.-]++:\d++:\d++ |[\w-]++: (?=\[)|\[pod/[^\] ]++\] "
    rb"|(?!(?i:step|iter|epoch|batch|update)[a-z]*+[\W_]*+\d)[A-Za-z][\w.-]*\d[\w.-]*+: )"
    rb"|[\w.-]++ *+\| )"
)
_TAGS = expression(rb"(?:%b){0,16}+" % _TAG)
# What a logger says of itself: `[rank 3]`, `"rank": 3`, and host and device between tabs.
_RANK = expression(rb"\b[Rr]ank\W{0,4}\d++|\t[\w.-]++:\d++\t")
# The process or thread in front of glog's place: I0925 21:44:11.393842 139000004532 train.py:214].
_GLOG = expression(rb"[IWEF]\d{4} [\d:.]{8,15}+ ++(\d++) (?=[^ \]:]++:\d++\])")


def author_of(line: bytes, begin: int = 0) -> bytes:
    """The name of the author of a line that begins there; empty where the line says none."""
    return _joined(line, begin, _places(line, begin))


def author_in(line: bytes, begin: int, same: bytes) -> bytes:
    """The same of a line of this shape."""
    return _joined(line, begin, places_in(same))


@lru_cache(maxsize=1024)
def places_in(same: bytes) -> Sequence[tuple[int, int]]:
    """Where lines of a shape name their author: one digit is as good as another there."""
    return _places(same, 0)


def authors_of(lines: Iterable[bytes]) -> set[bytes]:
    """The authors of lines."""
    return {*map(author_of, lines)}


def _places(line: bytes, begin: int) -> Sequence[tuple[int, int]]:
    tags = _TAGS.match(line, begin)
    behind = tags.end() if tags else begin
    found = ((0, behind - begin),) if behind > begin else ()
    if glog := _GLOG.match(line, behind):
        return (*found, (glog.start(1) - begin, glog.end(1) - begin))
    newline = line.find(b"\n", behind)
    end = min(len(line) if newline < 0 else newline, begin + _REACH)
    # Faster than the expression, and most lines have none of these.
    if line.find(b"ank", behind, end) < 0 and line.find(b"\t", behind, end) < 0:
        return found
    rank = _RANK.search(line, behind, end)
    return (*found, (rank.start() - begin, rank.end() - begin)) if rank else found


def _joined(line: bytes, begin: int, places: Sequence[tuple[int, int]]) -> bytes:
    if len(places) == 1:
        ((start, end),) = places
        return line[begin + start : begin + end]
    return b"".join([line[begin + start : begin + end] for start, end in places])
