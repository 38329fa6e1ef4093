"""A job as the fuzzer holds it: named bytes in an order, and the engine run over them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import diagnose
from diagnose.diagnosis import Diagnosis
from diagnose.errors import InputError
from diagnose.ingest.find import store_sources
from diagnose.ingest.raw import BytesStore
from diagnose.ingest.read import TextChunks
from diagnose.ingest.source import Source
from diagnose.job.load import read
from diagnose.job.model import Job
from diagnose.parse.path import read_path
from tests import archives

_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_QUOTE = re.compile(r"^(?:> ?)+")


@dataclass(frozen=True, slots=True)
class File:
    """One file. `log`: plain text, whose lines may be changed one by one.

    `spare` are its lines that nothing was found in: whether they are there does not matter.
    """

    name: str
    data: bytes
    log: bool = True
    spare: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class Case:
    """A job to diagnose; `files` are read in this order, in chunks of `chunk_limit` bytes.

    `fatal`: lines that tell of a death, `tame`: lines of jobs that ended well, both as `said`
    gives them. `cut`: the end of one of its files cannot be read.
    """

    name: str
    files: tuple[File, ...]
    fatal: frozenset[str] = frozenset()
    tame: frozenset[str] = frozenset()
    cut: bool = False
    chunk_limit: int | None = None

    @property
    def size(self) -> int:
        return sum(len(file.data) for file in self.files)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case: a diagnosis, a refusal of the input, or an exception."""

    case: Case
    diagnosis: Diagnosis | None = None
    refused: str = ""
    error: Exception | None = None


def job(name: str, files: dict[str, bytes]) -> Case:
    """A case of files of which nothing else is known."""
    return Case(name, tuple(File(place, data) for place, data in files.items()))


def said(line: str) -> list[str]:
    """What a line says, without colours, quotation marks and NULs; a bar says many things."""
    pieces = _ESCAPE.sub("", line).replace("\0", "").split("\r")
    return [text for piece in pieces if (text := _QUOTE.sub("", piece).strip())]


def sources(case: Case) -> list[Source]:
    """The sources of a case, as a folder of these files gives them, in the order of the case."""
    alone = len(case.files) == 1
    found = [source for file in case.files for source in _sources(file, alone=alone)]
    return [_in_chunks(source, case.chunk_limit) for source in found]


def load(case: Case) -> Job:
    return read(sources(case))


def run(case: Case) -> Outcome:
    """Diagnose a case; no exception leaves this function."""
    try:
        return Outcome(case, diagnose.diagnose(load(case)))
    except InputError as refusal:
        return Outcome(case, refused=str(refusal))
    except Exception as error:
        return Outcome(case, error=error)


def with_files(case: Case, files: Iterable[File]) -> Case:
    return replace(case, files=tuple(files))


def _sources(file: File, *, alone: bool) -> list[Source]:
    store, hints = BytesStore(file.data), read_path(file.name)
    return store_sources(store, file.name, len(file.data), archives.MTIME, hints, alone=alone)


def _in_chunks(source: Source, limit: int | None) -> Source:
    if limit is None or not isinstance(source.chunks, TextChunks):
        return source
    return replace(source, chunks=replace(source.chunks, chunk_limit=limit))
