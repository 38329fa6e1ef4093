"""Which files or folders beside each other are parts of one job: told by what is in them.

Names only say what may belong together: names that differ in nothing but a number make a series,
and a name may be that of a part as a whole (`rank_3`, `node-1`, `attempt_0`). What the logs state
decides: job ids, communicators, world sizes, and which ranks print. Where they are silent, folders
whose whole names are parts are taken for one job, others for jobs of their own; a note says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations, takewhile

from diagnose.ingest.compress import codec_of, decompress
from diagnose.ingest.names import PACKED
from diagnose.ingest.place import File, Place
from diagnose.ingest.read import as_utf8
from diagnose.ingest.sniff import encoding_of
from diagnose.ingest.source import Budget
from diagnose.parse.path import read_path
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
    return b"".join(as_utf8(iter([head[bom:]]), encoding)).decode(errors="replace")


SAMPLE = 8  # members of a series whose logs are looked at
MOST_UNITS = 32  # beside each other, which are compared
_APART_S = 600.0  # parts of one job begin closer to each other

_DIGITS = re.compile(r"\d+")
_ROTATED = re.compile(r"(?<=[a-z])\.\d{1,3}\Z")
_DATED = re.compile(r"\d{6}|\d{4}-\d\d-\d\d")
_WHOLE = re.compile(
    r"(?P<attempt>(?:attempt|restart)[_.\-]?\d{1,4})"
    r"|(?:(?:global|local|log|node)[_.\-]?)?"
    r"(?:(?P<rank>rank|worker|task|process|proc|pid|replica)|(?P<host>node|machine|host|pod))"
    r"[_.\-]?\d{1,7}"
    r"|(?P<number>\d{1,4})",
    re.IGNORECASE,
)
# Folders that every launcher and collector makes inside a job's folder.
_STRUCTURE = re.compile(
    r"(?:logs?|console|launcher|journal|dmesg|syslog|std(?:out|err)|dumps?|traces?|stacks?"
    r"|nccl\w*|torchelastic\w*|fr_?dumps?|flight_?recorder)\Z",
    re.IGNORECASE,
)
_ASK = "--job-glob says what is a job"
BY_NAME = f"taken for one job by the names of its folders: their logs do not show it; {_ASK}"
UNSTATED = f"taken for one job with all its folders: their logs do not show it; {_ASK}"


class Bond(Enum):
    """Whether things are parts of one job."""

    ONE = "parts of one job"
    MANY = "jobs of their own"
    OPEN = "not known"


@dataclass(frozen=True, slots=True)
class Unit:
    """What is one job, or part of one: paths beside each other; `note` where it was close."""

    paths: tuple[str, ...]
    stated: Identity
    note: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """The units of things beside each other, and whether these are one job in turn.

    `note` is what to say where they are taken for one job, though nothing in them tells.
    """

    units: tuple[Unit, ...]
    bond: Bond
    note: str = ""


def layout(
    names: Sequence[tuple[str, str]], stated: Callable[[str], Identity], *, files: bool = False
) -> Layout:
    """The layout of paths with their names; `stated` reads what a file or folder tells."""
    pieces: dict[str, list[str]] = {}  # of one log that was rotated
    for path, name in names:
        pieces.setdefault(_ROTATED.sub("", unpacked(name)) if files else name, []).append(path)
    series: dict[tuple[str, str], list[str]] = {}
    for name in pieces:
        series.setdefault(_file_series(name) if files else _folder_series(name), []).append(name)
    units: list[Unit] = []
    note, found = "", Bond.OPEN
    for (scheme, _), members in series.items():
        read = _sample(members) if len(members) > 1 or len(series) <= MOST_UNITS else ()
        identities = {name: stated(pieces[name][0]) for name in read}
        of_series, why = bond([*identities.values()], scheme, len(members))
        silent = of_series is Bond.OPEN and len(members) > 1
        if len(members) == 1 or of_series is Bond.ONE or (silent and (scheme or files)):
            by_name = BY_NAME if silent and not files else ""
            units.append(Unit(tuple(members), together(identities.values()), by_name))
        elif len(identities) == len(members) and all(one.ids for one in identities.values()):
            units += _by_id(identities)
        else:
            units += _each(members, scheme, identities, why)
            note = UNSTATED if silent and any(one.read for one in identities.values()) else note
        found = of_series if of_series is Bond.MANY else found
    whole = tuple(
        Unit(tuple(path for name in unit.paths for path in pieces[name]), unit.stated, unit.note)
        for unit in units
    )
    if found is Bond.OPEN and len(units) <= MOST_UNITS:
        found, _ = bond([unit.stated for unit in units], "", len(units), alike=not files)
    return Layout(whole, found, note)


def bond(
    members: Sequence[Identity], scheme: str, count: int, *, alike: bool = True
) -> tuple[Bond, str]:
    """Whether the `count` members of a series, of which these were read, are parts of one job.

    `scheme` is what their whole names number (`rank`, `host`, `attempt` …), "" if nothing that a
    job has. Unless they are `alike`, the same rank may print in several: a console, a file a rank.
    """
    pairs = [
        _of_two(one, other, once=alike and scheme != "attempt")
        for one, other in combinations(members, 2)
    ]
    for found, why in pairs:
        if found is Bond.MANY:
            return found, why
    if any(found is Bond.ONE for found, _ in pairs):
        return Bond.ONE, ""
    worlds = {one.world for one in members if one.world}
    ranks = [one.ranks for one in members if one.ranks]
    every: set[int] = set().union(*ranks)
    complementary = len(ranks) > 1 and len(every) == sum(map(len, ranks))
    if scheme in ("", "attempt"):
        # Of two jobs each may show only the rank that failed.
        sure = worlds == {len(every)} or (not worlds and len(every) >= 2 * count)
        whole = complementary and len(ranks) == count and every == {*range(len(every))} and sure
        return (Bond.ONE if whole else Bond.OPEN), ""
    if len(worlds) == 1 and count > 1:
        world = min(worlds)
        if count > world:
            return Bond.MANY, f"there are {count}, and they state a world size of {world}"
        return Bond.ONE, ""
    if complementary:
        return Bond.ONE, ""
    began = [one.began for one in members if one.began is not None]
    if scheme != "host" and began and max(began) - min(began) > _APART_S:
        return Bond.MANY, "they did not begin together"
    return Bond.OPEN, ""


def note_of_archive(logs: Iterable[tuple[str, int]]) -> str:
    """What is said of an archive in which several folders have a log of one rank.

    `logs`: the paths of logs in it, each with a rank that printed there. Folders that a job has,
    of a rank, a node or an attempt, are no jobs.
    """
    paths = {(tuple(path.split("/")), rank) for path, rank in logs}
    levels = zip(*(path for path, _ in paths), strict=False)
    same = sum(1 for _ in takewhile(lambda names: len(set(names)) == 1, levels))
    folders: dict[tuple[str, int], set[str]] = {}
    for path, rank in paths:
        if len(path) > same + 1 and not is_part(path[same]):
            folders.setdefault((path[-1], rank), set()).add(path[same])
    several = max(sorted(map(sorted, folders.values())), key=len, default=[])
    if len(several) < 2:
        return ""
    first, second, *_ = several
    return (
        f"one rank has a log in each of {len(several)} folders of this archive ({first}, {second}"
        f"{', …' if len(several) > 2 else ''}), which may be jobs of their own: unpack it"
    )


def note_of(found: Layout) -> str:
    """What is said of things that were taken for one job, where nothing in them tells."""
    if found.bond is Bond.ONE:
        return ""
    return found.units[0].note if len(found.units) == 1 else found.note


def is_part(name: str) -> bool:
    """Whether a folder's whole name is that of a part of a job."""
    return bool(_scheme(name)) or is_structure(name)


def is_structure(name: str) -> bool:
    """Whether a folder is one that launchers and collectors make inside a job's folder."""
    return _STRUCTURE.match(name) is not None


def _of_two(one: Identity, other: Identity, *, once: bool) -> tuple[Bond, str]:
    """What two tell of each other; `once`: a rank prints in one of them only."""
    if one.ids and other.ids:
        if one.ids & other.ids:
            return Bond.ONE, ""
        return Bond.MANY, "they state different job ids"
    if one.communicators & other.communicators:
        return Bond.ONE, ""
    shared = one.ranks & other.ranks
    many = 2 * len(shared) >= min(len(one.ranks), len(other.ranks)) > 0
    if not once:
        return (Bond.ONE if many else Bond.OPEN), ""
    if one.world and other.world and one.world != other.world:
        return Bond.MANY, "they state different world sizes"
    if many:
        return Bond.MANY, f"rank {min(shared)} prints in each of them"
    return Bond.OPEN, ""


def _by_id(identities: Mapping[str, Identity]) -> list[Unit]:
    """One unit a job id."""
    units: list[Unit] = []
    for name, one in identities.items():
        for number, unit in enumerate(units):
            if unit.stated.ids & one.ids:
                units[number] = Unit((*unit.paths, name), together((unit.stated, one)))
                break
        else:
            units.append(Unit((name,), one))
    return units


def _each(
    members: Iterable[str], scheme: str, identities: Mapping[str, Identity], why: str
) -> Iterator[Unit]:
    """Each member of a series as a unit of its own, and why, where its name is like a part's."""
    why = why or "nothing in their logs makes them one"
    note = f"a job of its own though named like a part: {why}; {_ASK}"
    for name in members:
        likely = scheme or _named_part(name)
        yield Unit((name,), identities.get(name, Identity()), note if likely else "")


def unpacked(name: str) -> str:
    """A name without the suffixes of compression."""
    for packed in PACKED:
        name = name.removesuffix(packed)
    return name


def _folder_series(name: str) -> tuple[str, str]:
    """What a name numbers as a whole, and its shape: names of one series have both in common."""
    scheme = _scheme(name)
    return (scheme, "") if scheme else ("", _DIGITS.sub("#", name))


def _file_series(name: str) -> tuple[str, str]:
    hints = read_path(name)
    # Pieces of one log, or processes of one rank after each other.
    continued = (
        hints.pid is not None or hints.attempt is not None or _DATED.search(name) is not None
    )
    return "attempt" if continued else _scheme(name.partition(".")[0]), _DIGITS.sub("#", name)


def _scheme(name: str) -> str:
    whole = _WHOLE.fullmatch(name)
    if whole is not None:
        return whole.lastgroup or ""
    return "host" if read_path(f"{name}/x").host is not None and not _named_part(name) else ""


def _named_part(name: str) -> bool:
    """Whether a name holds the number of a part."""
    hints = read_path(f"{name}/x")
    numbers = (hints.rank, hints.local_rank, hints.node, hints.attempt, hints.task)
    return any(number is not None for number in numbers)


def _sample(paths: Sequence[str]) -> Iterable[str]:
    """Some of a series, first and last among them."""
    if len(paths) <= SAMPLE:
        return paths
    return [paths[round(at * (len(paths) - 1) / (SAMPLE - 1))] for at in range(SAMPLE)]
