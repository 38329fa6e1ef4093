"""What is done to a job. Each mutation is a function of a case and a source of chance.

It gives the changed case, or None where it cannot do anything. Its grade says what must hold:

- SAME: the job is stored or read otherwise; not one field of the verdict may change;
- HARMLESS: lines that say nothing come, go or look otherwise; the cause must stay;
- HARMFUL: evidence is lost, changed or added; only what is true of any input must hold.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from random import Random

import zstandard

from tests import archives
from tests.fuzz import corpus
from tests.fuzz.case import Case, File, with_files


class Grade(Enum):
    """What a mutation may change."""

    SAME = "same"
    HARMLESS = "harmless"
    HARMFUL = "harmful"


Change = Callable[[Case, Random], Case | None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A named change of a case."""

    name: str
    grade: Grade
    change: Change


MUTATIONS: dict[str, Mutation] = {}


def _mutation(grade: Grade) -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        name = change.__name__
        MUTATIONS[name] = Mutation(name, grade, change)
        return change

    return register


def of_grade(*grades: Grade) -> list[Mutation]:
    """The mutations of some grades, in a fixed order."""
    return [mutation for mutation in MUTATIONS.values() if mutation.grade in grades]


# --------------------------------------------------------------------------- stored otherwise


@_mutation(Grade.SAME)
def order(case: Case, rng: Random) -> Case | None:
    if len(case.files) < 2:
        return None
    return with_files(case, rng.sample(case.files, len(case.files)))


@_mutation(Grade.SAME)
def chunks(case: Case, rng: Random) -> Case | None:
    longest = max((len(line) for file in case.files for line in file.data.split(b"\n")), default=0)
    return replace(case, chunk_limit=max(longest + 1, rng.choice([256, 1024, 4096, 16384])))


@_mutation(Grade.SAME)
def folder(case: Case, rng: Random) -> Case | None:
    top = rng.choice(["job", "zz job (copy)", "a/b"])
    return with_files(case, (replace(file, name=f"{top}/{file.name}") for file in case.files))


@_mutation(Grade.SAME)
def trailing_newline(case: Case, rng: Random) -> Case | None:
    return _each_log(case, lambda data: data + b"\n" * rng.randint(1, 3))


@_mutation(Grade.SAME)
def windows_lines(case: Case, rng: Random) -> Case | None:
    return _each_log(case, lambda data: re.sub(rb"(?<!\r)\n", b"\r\n", data))


@_mutation(Grade.SAME)
def byte_order_mark(case: Case, rng: Random) -> Case | None:
    return _stored(case, lambda data: b"\xef\xbb\xbf" + data)


@_mutation(Grade.SAME)
def wide(case: Case, rng: Random) -> Case | None:
    """As UTF-16, which PowerShell writes."""
    mark, codec = rng.choice([(b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")])
    if any(b"\0" in file.data or not _is_utf8(file.data) for file in case.files if file.log):
        return None
    return _stored(case, lambda data: mark + data.decode().encode(codec))


@_mutation(Grade.SAME)
def packed(case: Case, rng: Random) -> Case | None:
    """Each file compressed."""
    suffix, pack = rng.choice(PACKERS)
    if any(not file.log for file in case.files):
        return None
    return with_files(
        case,
        (
            replace(file, name=file.name + suffix, data=pack(file.data), log=False)
            for file in case.files
        ),
    )


@_mutation(Grade.SAME)
def archive(case: Case, rng: Random) -> Case | None:
    """All files in one archive."""
    # An archive in an archive is read, one in that is not.
    if case.chunk_limit is not None or case.files[0].name in archives.PACK:
        return None
    name = rng.choice(["job.tar", "job.tar.gz", "job.tar.zst", "job.zip"])
    inside = {file.name: file.data for file in case.files}
    return with_files(case, [File(name, archives.PACK[name](inside), log=False)])


# --------------------------------------------------------------------------- lines without news


@_mutation(Grade.HARMLESS)
def drop_spare(case: Case, rng: Random) -> Case | None:
    """Lines that nothing was found in are lost."""
    share = rng.choice([0.05, 0.3, 1.0])
    return _each_line(case, lambda line, own: [] if own and rng.random() < share else [line])


@_mutation(Grade.HARMLESS)
def double_spare(case: Case, rng: Random) -> Case | None:
    """Lines that nothing was found in stand there several times."""
    share, times = rng.choice([0.05, 0.5]), rng.randint(2, 4)
    return _each_line(
        case, lambda line, own: [line] * (times if own and rng.random() < share else 1)
    )


@_mutation(Grade.HARMLESS)
def blank_lines(case: Case, rng: Random) -> Case | None:
    share = rng.choice([0.05, 0.5])
    return _each_line(
        case, lambda line, own: [line, b""] if own and rng.random() < share else [line]
    )


@_mutation(Grade.HARMLESS)
def colours(case: Case, rng: Random) -> Case | None:
    """Some lines in colour, as launchers and loggers print them to a terminal."""
    share = rng.choice([0.1, 1.0])
    begin = rng.choice([b"\x1b[31m", b"\x1b[38;5;12m", b"\x1b[1;33m"])

    def paint(line: bytes, own: bool) -> list[bytes]:
        # Codes around a carriage return would be inside the bar's pieces.
        plain = b"\r" in line or not line or rng.random() >= share
        return [line] if plain else [begin + line + b"\x1b[0m"]

    return _each_line(case, paint)


@_mutation(Grade.HARMLESS)
def quoted(case: Case, rng: Random) -> Case | None:
    """A paste of one log or of stacks, quoted as in a mail or an issue."""
    if len(case.files) != 1:
        return None
    file = case.files[0]
    if b"\0" in file.data or not _is_utf8(file.data):
        return None
    text = b"".join(b"> " + row + b"\n" for row in _rows(file.data))
    return with_files(case, [replace(file, data=text)])


# --------------------------------------------------------------------------- damage


@_mutation(Grade.HARMFUL)
def truncate(case: Case, rng: Random) -> Case | None:
    """A file ends anywhere, also inside a line."""
    return _one(case, rng, lambda data: data[: rng.randrange(len(data) + 1)])


@_mutation(Grade.HARMFUL)
def truncate_line(case: Case, rng: Random) -> Case | None:
    """A log ends behind one of its lines."""
    return _one_log(case, rng, lambda rows: rows[: rng.randint(1, len(rows))])


@_mutation(Grade.HARMFUL)
def truncate_all(case: Case, rng: Random) -> Case | None:
    """All logs end early, as copies of a running job do."""
    share = rng.random()
    return _each_log(case, lambda data: data[: int(len(data) * share)])


@_mutation(Grade.HARMFUL)
def behead(case: Case, rng: Random) -> Case | None:
    """The start of a log is lost, as `tail` does."""
    return _one_log(case, rng, lambda rows: rows[rng.randrange(len(rows)) :])


@_mutation(Grade.HARMFUL)
def drop_lines(case: Case, rng: Random) -> Case | None:
    share = rng.choice([0.02, 0.2, 0.6])
    return _each_rows(case, lambda rows: [row for row in rows if rng.random() >= share])


@_mutation(Grade.HARMFUL)
def drop_block(case: Case, rng: Random) -> Case | None:
    def drop(rows: list[bytes]) -> list[bytes]:
        at = rng.randrange(len(rows))
        return rows[:at] + rows[at + rng.randint(1, 30) :]

    return _one_log(case, rng, drop)


@_mutation(Grade.HARMFUL)
def drop_files(case: Case, rng: Random) -> Case | None:
    if len(case.files) < 2:
        return None
    return with_files(case, _some(case.files, rng, rng.randint(1, len(case.files) - 1)))


@_mutation(Grade.HARMFUL)
def double_lines(case: Case, rng: Random) -> Case | None:
    share = rng.choice([0.05, 0.5])
    return _each_rows(
        case, lambda rows: [row for line in rows for row in [line] * (1 + (rng.random() < share))]
    )


@_mutation(Grade.HARMFUL)
def flood(case: Case, rng: Random) -> Case | None:
    """One line stands there hundreds of times."""

    def repeat(rows: list[bytes]) -> list[bytes]:
        at = rng.randrange(len(rows))
        return rows[:at] + [rows[at]] * rng.choice([100, 1000, 3000]) + rows[at:]

    return _one_log(case, rng, repeat)


@_mutation(Grade.HARMFUL)
def shuffle(case: Case, rng: Random) -> Case | None:
    """Lines change places with near ones, or with any."""
    reach = rng.choice([3, 30, 100_000])

    def mix(rows: list[bytes]) -> list[bytes]:
        keys = [number + rng.random() * reach for number in range(len(rows))]
        return [rows[number] for number in sorted(range(len(rows)), key=keys.__getitem__)]

    return _one_log(case, rng, mix)


@_mutation(Grade.HARMFUL)
def flip(case: Case, rng: Random) -> Case | None:
    """Some bytes become others."""

    def damage(data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(rng.choice([1, 10, 200])):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        return bytes(changed)

    return _one(case, rng, damage)


@_mutation(Grade.HARMFUL)
def other_numbers(case: Case, rng: Random) -> Case | None:
    """Some digits become others: ranks, times, sequence numbers and codes contradict each other."""
    share = rng.choice([0.01, 0.3])

    def change(data: bytes) -> bytes:
        return bytes(
            rng.choice(b"0123456789") if 48 <= byte < 58 and rng.random() < share else byte
            for byte in data
        )

    return _one(case, rng, change)


@_mutation(Grade.HARMFUL)
def huge_numbers(case: Case, rng: Random) -> Case | None:
    """A number becomes one that no program prints."""
    value = rng.choice(
        [b"9223372036854775807", b"99999999999999999999999999", b"-1", b"1e999", b"0"]
    )

    def change(data: bytes) -> bytes:
        found = list(re.finditer(rb"\d+", data))
        if not found:
            return data
        number = rng.choice(found)
        return data[: number.start()] + value + data[number.end() :]

    return _one(case, rng, change)


@_mutation(Grade.HARMFUL)
def wrap(case: Case, rng: Random) -> Case | None:
    """Lines are broken at a column, with or without an indent."""
    column, indent = rng.randint(20, 200), b" " * rng.choice([0, 0, 2, 8])

    def broken(line: bytes) -> list[bytes]:
        pieces = [line[at : at + column] for at in range(0, len(line), column)] or [b""]
        return [pieces[0], *(indent + piece for piece in pieces[1:])]

    return _each_rows(case, lambda rows: [piece for row in rows for piece in broken(row)])


@_mutation(Grade.HARMFUL)
def join_lines(case: Case, rng: Random) -> Case | None:
    """Line ends are lost, as where several processes write into one pipe."""
    share = rng.choice([0.05, 0.5, 1.0])

    def join(data: bytes) -> bytes:
        return re.sub(rb"\n", lambda _: b"" if rng.random() < share else b"\n", data)

    return _one(case, rng, join)


@_mutation(Grade.HARMFUL)
def nuls(case: Case, rng: Random) -> Case | None:
    """A hole in a file, as after a crash of its host."""

    def hole(data: bytes) -> bytes:
        at = rng.randrange(len(data) + 1)
        return data[:at] + bytes(rng.choice([1, 100, 20_000])) + data[at:]

    return _one(case, rng, hole)


@_mutation(Grade.HARMFUL)
def interleave(case: Case, rng: Random) -> Case | None:
    """Two jobs wrote into one file."""
    other = corpus.case(rng.choice(corpus.names()))
    mine = [number for number, file in enumerate(case.files) if file.log]
    theirs = [file for file in other.files if file.log]
    if not mine or not theirs:
        return None
    number, second = rng.choice(mine), rng.choice(theirs)
    first = case.files[number]
    merged = _merge(_rows(first.data), _rows(second.data), rng)
    files = list(case.files)
    files[number] = replace(first, data=b"\n".join(merged), spare=first.spare & second.spare)
    return _both(with_files(case, files), other)


@_mutation(Grade.HARMFUL)
def two_jobs(case: Case, rng: Random) -> Case | None:
    """The files of two jobs lie in one folder."""
    other = corpus.case(rng.choice(corpus.names()))
    apart = rng.random() < 0.5
    mine = [replace(file, name=f"a/{file.name}") if apart else file for file in case.files]
    taken = {file.name for file in mine}
    theirs = [
        replace(file, name=f"b/{file.name}") if apart or file.name in taken else file
        for file in other.files
    ]
    return _both(with_files(case, rng.sample(mine + theirs, len(mine) + len(theirs))), other)


@_mutation(Grade.HARMFUL)
def cut_packed(case: Case, rng: Random) -> Case | None:
    """A compressed log ends early: what is behind the cut is not known."""
    places = [n for n, file in enumerate(case.files) if file.log and len(file.data) > 500]
    if not places:
        return None
    number = rng.choice(places)
    file = case.files[number]
    suffix, pack = rng.choice(PACKERS)
    whole = pack(file.data)
    part = whole[: int(len(whole) * rng.uniform(0.3, 0.9))]
    files = list(case.files)
    files[number] = replace(file, name=file.name + suffix, data=part, log=False)
    return replace(case, files=tuple(files), cut=True)


PACKERS: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    (".gz", lambda data: gzip.compress(data, mtime=0)),
    (".xz", lzma.compress),
    (".bz2", bz2.compress),
    (".zst", lambda data: zstandard.ZstdCompressor().compress(data)),
)


# --------------------------------------------------------------------------- helpers


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _rows(data: bytes) -> list[bytes]:
    return data.removesuffix(b"\n").split(b"\n")


def _some(files: tuple[File, ...], rng: Random, count: int) -> list[File]:
    kept = set(rng.sample(range(len(files)), count))
    return [file for number, file in enumerate(files) if number in kept]


def _each_log(case: Case, change: Callable[[bytes], bytes]) -> Case | None:
    if not any(file.log for file in case.files):
        return None
    return with_files(case, (replace(f, data=change(f.data)) if f.log else f for f in case.files))


def _stored(case: Case, change: Callable[[bytes], bytes]) -> Case | None:
    """The logs with other bytes for the same text: no further change of their lines is possible."""
    if not any(file.log for file in case.files):
        return None
    return with_files(
        case, (replace(f, data=change(f.data), log=False) if f.log else f for f in case.files)
    )


def _each_rows(case: Case, change: Callable[[list[bytes]], list[bytes]]) -> Case | None:
    return _each_log(case, lambda data: b"".join(row + b"\n" for row in change(_rows(data))))


def _each_line(case: Case, change: Callable[[bytes, bool], list[bytes]]) -> Case | None:
    """Each line of each log with whether it is spare becomes some lines."""
    if not any(file.log for file in case.files):
        return None

    def changed(file: File) -> File:
        lines = [
            line
            for row in _rows(file.data)
            for line in change(row, row.rstrip(b"\r") in file.spare)
        ]
        return replace(file, data=b"".join(line + b"\n" for line in lines))

    return with_files(case, (changed(file) if file.log else file for file in case.files))


def _one(case: Case, rng: Random, change: Callable[[bytes], bytes]) -> Case | None:
    """One file that is not empty, whatever it is, becomes another."""
    places = [number for number, file in enumerate(case.files) if file.data]
    return _at(case, rng, places, change)


def _one_log(case: Case, rng: Random, change: Callable[[list[bytes]], list[bytes]]) -> Case | None:
    places = [number for number, file in enumerate(case.files) if file.log and file.data]
    return _at(case, rng, places, lambda data: b"".join(r + b"\n" for r in change(_rows(data))))


def _at(
    case: Case, rng: Random, places: list[int], change: Callable[[bytes], bytes]
) -> Case | None:
    if not places:
        return None
    number = rng.choice(places)
    files = list(case.files)
    files[number] = replace(files[number], data=change(files[number].data))
    return with_files(case, files)


def _merge(first: list[bytes], second: list[bytes], rng: Random) -> list[bytes]:
    """Two lists of lines as one, each in its order."""
    picks = [0] * len(first) + [1] * len(second)
    rng.shuffle(picks)
    lines = (iter(first), iter(second))
    return [next(lines[pick]) for pick in picks]


def _both(case: Case, other: Case) -> Case:
    """The case, with the lines known of the other too.

    A line that one of the jobs survived may be the death of the other.
    """
    return replace(case, fatal=case.fatal | other.fatal, tame=case.tame | other.tame)
