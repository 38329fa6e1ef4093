"""Of which job a log is, as its first lines tell: job id, world size, ranks that print, when."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from diagnose.ingest.budget import Budget
from diagnose.ingest.compress import codec_of, decompress
from diagnose.ingest.place import File, Place
from diagnose.ingest.sniff import encoding_of
from diagnose.parse.prefix import peel

HEAD = 16 << 10  # bytes looked at of a log
_LINES = 12  # whose prefixes are peeled: those of a log are mostly alike
_LINE = 400  # characters
_NS = 1_000_000_000

# Each expression opens with a set of characters: that makes the search several times faster.
#
# The id by which a scheduler or launcher calls the job. torchrun's own default is "none".
_ID = re.compile(
    r"[SPLJrs](?<!\w.)(?:"
    r"(?:(?<=S)LURM_JOB_?ID|(?<=P)BS_JOBID|(?<=L)SB_JOBID|(?<=J)OB_ID|(?<=J)obId)"
    r"[\"']?\s{0,2}[=:]\s{0,2}"
    r"|(?<=[Ss])lurm [Jj]ob(?: ?[Ii][Dd])?\s?[:=#]?\s?(?=\d)"
    r"|(?:(?<=J)OB|(?<=S)TEP) (?=[\d.]{2,20} ON )"
    r"|(?<=r)dzv_id[\"']?\s{0,2}[:=]\s{0,2}|(?<=r)un_id\s{2,20}:\s"
    r")[\"']?(?!none\b)(\w[\w\-]{1,63})"
)
# One communicator has one id on all its ranks; a job has many.
_COMMUNICATOR = re.compile(r"commId (0x[0-9a-f]{4,32})")
# Not the size of a parallel group, nor of a node: `local_world_size`, `tensor parallel world size`.
_WORLD = re.compile(
    r"[wWnSG](?<![\w-].)(?<!parallel .)(?:"
    r"(?:(?<=[wW])orld|(?<=W)ORLD)[ _-]?(?:size|Size|SIZE)"
    r"[\"']?\s{0,2}(?:[=:]|is|of)?\s{0,2}(\d{1,6})\b"
    r"|(?<=n)um_processes[\"']?\s{0,2}[=:]\s{0,2}(\d{1,6})\b"
    r"|(?<=S)tarting with (\d{1,6}) processes|(?<=G)LOBAL_RANK: \d+, MEMBER: \d+/(\d{1,6}))"
)
# The rank of a line's author, as its tag or in words: torch, DeepSpeed, records, Lightning.
_RANK = re.compile(
    r"[\[\"Gr](?:(?<=\[)(?:rank|RANK) ?(\d{1,6})\]|(?<=\")rank\": ?(\d{1,6})"
    r"|(?<=G)LOBAL_RANK: (\d{1,6})"
    r"|(?:(?<=global_r)|(?<![\w-]r))ank\s?[=:]\s?(\d{1,6})\b(?=.{0,20}world))"
)
# The same of watchdogs, where no other tag tells: behind one it is the rank in a group.
_WATCHDOG = re.compile(r"\[Rank (\d{1,6})\]")


@dataclass(frozen=True, slots=True)
class Identity:
    """What logs tell of their job; what they do not tell is empty or None.

    `world` is the largest world size they state, `began` their first dated time, in seconds;
    `read` whether there are any.
    """

    ids: frozenset[str] = frozenset()
    communicators: frozenset[str] = frozenset()
    world: int | None = None
    ranks: frozenset[int] = frozenset()
    began: float | None = None
    read: bool = False


def together(found: Iterable[Identity]) -> Identity:
    """What several logs tell."""
    all_ = list(found)
    return Identity(
        frozenset().union(*(one.ids for one in all_)),
        frozenset().union(*(one.communicators for one in all_)),
        max((one.world for one in all_ if one.world is not None), default=None),
        frozenset().union(*(one.ranks for one in all_)),
        min((one.began for one in all_ if one.began is not None), default=None),
        any(one.read for one in all_),
    )


def identity_of(place: Place, file: File) -> Identity:
    """What the first lines of a log tell; nothing where it cannot be read."""
    try:
        return identity(_head(place, file))
    except (OSError, ValueError):
        return Identity()


def identity(text: str) -> Identity:
    """What these lines tell."""
    ranks = set(_numbers(_RANK, text))
    began: float | None = None
    for line in text.splitlines()[:_LINES]:
        prefix = peel(line[:_LINE])
        if prefix.rank is not None:
            ranks.add(prefix.rank)
        stamp = prefix.stamp
        if began is None and stamp is not None and stamp.has_date and not stamp.boot:
            began = stamp.ns / _NS
        if ranks and began is not None:
            break
    return Identity(
        frozenset(_ID.findall(text)),
        frozenset(_COMMUNICATOR.findall(text)),
        max(_numbers(_WORLD, text), default=None),
        frozenset(ranks or _numbers(_WATCHDOG, text)),
        began,
        bool(text),
    )


def _numbers(pattern: re.Pattern[str], text: str) -> Iterator[int]:
    """What the groups of an expression hold, of which each match fills one."""
    return (int(found[found.lastindex or 0]) for found in pattern.finditer(text))


def _head(place: Place, file: File) -> str:
    with place.ranges(file).open() as reader:
        head = reader.read_at(0, HEAD)
        codec = codec_of(head)
        if codec is not None:
            blocks = decompress(reader, codec, Budget(), step=HEAD)
            head = next(iter(blocks), b"")[:HEAD]
    encoding, bom = encoding_of(head)
    return head[bom:].decode(encoding, errors="replace")
