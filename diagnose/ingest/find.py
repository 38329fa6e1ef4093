"""Finding the sources of a job: files, folders, archives, standard input, pasted text."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from diagnose.ingest.chunks import is_zeros
from diagnose.ingest.compress import DEFAULT_LIMITS, Limits
from diagnose.ingest.quota import Meter
from diagnose.ingest.raw import BytesStore, FileStore, SpoolStore, Store, reason
from diagnose.ingest.read import ZEROS_LIMIT, Content, Opened, TextChunks, look, no_chunks
from diagnose.ingest.sniff import is_log_name
from diagnose.ingest.source import TEXT_KINDS, Remarks, Source, is_document

if TYPE_CHECKING:
    from diagnose.parse.path import PathHints

MAX_FILES = 50_000  # of one job
MAX_ENTRIES = 200_000  # of one folder
MAX_DEPTH = 32  # folders inside each other
STDIN_MEMORY = 32 << 20  # bytes of standard input kept in memory
STDIN_LIMIT = 8 << 30  # bytes of standard input kept at all
_BLOCK = 1 << 20

# Suffixes of what lies beside logs in a job's folder: code, settings, documents, pictures, weights,
# data. A folder's other files are read, whatever their suffix: logs are called `job.o123`, `log.1`.
_NO_LOG_SUFFIXES = """
    .py .pyc .pyi .pyx .ipynb .sh .bash .c .cc .cpp .cu .cuh .h .hpp .so .js .css
    .yaml .yml .toml .ini .cfg .conf .env .jinja .j2 .lock .sbatch .slurm
    .md .rst .html .htm .pdf .tex .docx
    .png .jpg .jpeg .gif .svg .webp .mp4 .wav .flac .mp3
    .pt .pth .ckpt .bin .safetensors .gguf .onnx .distcp .npy .npz .h5 .model
    .csv .tsv .parquet .arrow .feather .db .sqlite .idx .tfrecord .lmdb
    .whl .patch .diff
"""
# JSON and text files of models and data sets, which every checkpoint folder repeats.
_NO_LOG_NAMES = """
    config.json generation_config.json tokenizer.json tokenizer_config.json vocab.json vocab.txt
    merges.txt special_tokens_map.json added_tokens.json preprocessor_config.json
    adapter_config.json trainer_state.json model.safetensors.index.json
    pytorch_model.bin.index.json dataset_info.json requirements.txt
"""
NO_LOGS = frozenset(f"{_NO_LOG_SUFFIXES} {_NO_LOG_NAMES}".split())
PACKED = (".gz", ".xz", ".bz2", ".zst")
ARCHIVE_NAME = re.compile(
    r"\.(?:(?:tar|cpio)(?:\.\w{1,4})?|tgz|taz|tbz2?|tb2|txz|tlz|tzst|zip|7z|rar)\Z", re.IGNORECASE
)
# What `look` says of what may be an archive, or packed twice.
ARCHIVE_NOTE = re.compile(r"(?:zip|tar) archive|(?:gzip|bzip2|xz|zstd) data inside")
_ATTEMPT = re.compile(r"attempt_\d+")
_SPECIAL = [
    (stat.S_ISFIFO, "named pipe: not read; give it as standard input"),
    (stat.S_ISSOCK, "socket: not read"),
    (stat.S_ISCHR, "device: not read"),
    (stat.S_ISBLK, "device: not read"),
]


def find_sources(paths: Sequence[Path], limits: Limits = DEFAULT_LIMITS) -> list[Source]:
    """The sources of one job, sorted by name; files and folders given, folders with all inside.

    Names are relative to the given folder, or to the folder which all given paths have in common.
    Archives are read where they lie (see `diagnose.ingest.archive`): members of the only path
    given are named as in their folder, those of one among others `archive.tar!path`.
    Inside a given folder hidden files and folders are left out, and so are files that by their name
    are no logs, and what a symbolic link leads to outside of it. Whatever cannot be read or is left
    out (pipes, devices, bounds reached) is in the list too, with its kind and a note. Never raises
    OSError.
    """
    given = list(dict.fromkeys(Path(os.path.abspath(path)) for path in paths))  # noqa: PTH100
    if not given:
        return []
    base = _base(given)
    walk = _Walk(base)
    for path in sorted(given, key=os.path.isdir):  # a file that is named is read in any case
        walk.add(path)
    alone = len(walk.files) == 1 and not os.path.isdir(given[0])  # noqa: PTH112
    sources = [
        source
        for name, path in sorted(walk.files)
        for source in _file_sources(path, name, limits, alone=alone)
    ]
    sources += walk.others
    return sorted(sources, key=lambda source: source.name)


def stdin_source(stream: BinaryIO, limits: Limits = DEFAULT_LIMITS) -> Source:
    """Read a stream to its end, into memory or beyond STDIN_MEMORY into a temporary file.

    What an error or a bound cuts off is named in the note. The temporary file goes with the source.
    """
    spool = tempfile.SpooledTemporaryFile(max_size=STDIN_MEMORY)  # noqa: SIM115
    try:
        cut = _spool(stream, spool)
    except (OSError, ValueError) as error:
        cut = f"reading stopped: {reason(error)}"
    size = spool.tell()
    store: Store
    if size <= STDIN_MEMORY:
        spool.seek(0)
        store = BytesStore(spool.read())
        spool.close()
    else:
        spool.flush()
        store = SpoolStore(spool, size)
    return source_of(store, "<stdin>", size, limits, cut)


def _spool(stream: BinaryIO, spool: IO[bytes]) -> str:
    """Copy a stream into a file; says why not all of it.

    What is no log is left where that is seen, and long runs of NULs are not kept. A temporary file
    takes half of the room that there is at most.
    """
    size = zeros = 0
    most, spilled, packed = STDIN_LIMIT, False, False
    while block := stream.read(_BLOCK):
        if not packed and len(block) == _BLOCK and block[:1] == b"\0" and is_zeros(block):
            zeros += len(block)
            if not size and zeros >= ZEROS_LIMIT:
                return f"reading stopped: nothing but NUL bytes in the first {zeros} bytes"
            continue
        if not size:
            opened = look(BytesStore(block), "<stdin>")
            packed = opened.codec is not None
            if opened.kind == "binary":
                spool.write(block)
                return ""
        if not spilled and size + len(block) > STDIN_MEMORY:
            spilled = True
            most = min(most, size + shutil.disk_usage(tempfile.gettempdir()).free // 2)
        kept = block[: most - size]
        size += spool.write(kept)
        if len(kept) < len(block):
            return f"only the first {size} bytes were read: give the file itself"
    return ""


def text_source(text: str, name: str = "<paste>") -> Source:
    """A source of text in memory, such as a paste; lone surrogates become question marks."""
    data = text.encode(errors="replace")
    return source_of(BytesStore(data), name, len(data), DEFAULT_LIMITS)


def _base(given: list[Path]) -> Path:
    """The folder to which names are relative."""
    folders = [path if os.path.isdir(path) else path.parent for path in given]  # noqa: PTH112
    return Path(os.path.commonpath(folders))


@dataclass(slots=True)
class _Walk:
    """Collects the regular files below the given paths by name, and what else is there."""

    base: Path
    files: list[tuple[str, Path]] = field(default_factory=list)
    others: list[Source] = field(default_factory=list)
    met: int = 0  # entries that are neither folders nor hidden
    full: bool = False
    links: deque[Path] = field(default_factory=deque)
    seen: set[str] = field(default_factory=set)  # real paths of files and folders
    hidden: list[str] = field(default_factory=list)
    no_logs: list[str] = field(default_factory=list)

    def add(self, path: Path) -> None:
        """Add a given path and all below it."""
        try:
            mode = path.stat().st_mode
        except OSError as error:
            self._other(path, "unreadable", reason(error))
            return
        if not stat.S_ISDIR(mode):
            self._file(path, mode, asked=True)
            return
        self.hidden, self.no_logs = [], []
        before = self.met + len(self.others)
        self._folder(path, 0)
        root = os.path.realpath(path)
        # Links last: what they lead to inside the folder mostly has been seen under its own name.
        while self.links:
            self._link(self.links.popleft(), root)
        self._left_out(path, self.no_logs, "file that is not a log", "files that are not logs")
        self._left_out(path, self.hidden, "hidden entry", "hidden entries")
        if self.met + len(self.others) == before:
            self._other(path, "empty", "no files in this folder")

    def _left_out(self, path: Path, names: list[str], one: str, several: str) -> None:
        if names:
            shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
            what = one if len(names) == 1 else several
            self._other(path, "skipped", f"{len(names)} {what} left out: {shown}", left_out=True)

    def _folder(self, path: Path, depth: int) -> None:
        real = os.path.realpath(path)
        if real in self.seen:
            return
        self.seen.add(real)
        if depth > MAX_DEPTH:
            self._other(path, "skipped", f"more than {MAX_DEPTH} folders deep", unread=True)
            return
        try:
            with os.scandir(path) as entries:
                inside = list(islice(entries, MAX_ENTRIES))
                if next(entries, None) is not None:
                    note = f"only {MAX_ENTRIES} of its entries were looked at"
                    self._other(path, "skipped", note, unread=True)
        except OSError as error:
            self._other(path, "unreadable", reason(error))
            return
        for entry in sorted(inside, key=lambda entry: entry.name):
            if self.full:
                return
            place = path / entry.name
            if entry.name.startswith("."):
                self.hidden.append(self._name(place))
                continue
            try:
                if entry.is_symlink():
                    self.links.append(place)
                elif entry.is_dir():
                    self._folder(place, depth + 1)
                elif not self._no_log(place):
                    self._file(place, entry.stat().st_mode)
            except OSError as error:
                self._other(place, "unreadable", reason(error))

    def _link(self, link: Path, root: str) -> None:
        self.met += 1
        try:
            real = os.path.realpath(link, strict=True)
            mode = link.stat().st_mode
        except OSError as error:
            note = f"symbolic link: {reason(error)}"
            self._other(link, "unreadable", note, unread=is_log_name(link.name))
            return
        if os.path.commonpath([real, root]) != root:
            note = "symbolic link that leaves the folder"
            self._other(link, "skipped", note, unread=is_log_name(link.name))
        elif stat.S_ISDIR(mode):
            self._folder(link, len(link.parts) - len(self.base.parts))
        elif not self._no_log(link):
            self._file(link, mode)

    def _no_log(self, path: Path) -> bool:
        """Whether a file inside a given folder is no log by its name; counted then."""
        name = path.name.lower()
        for packed in PACKED:
            name = name.removesuffix(packed)
        if not {name, os.path.splitext(name)[1]} & NO_LOGS:  # noqa: PTH122
            return False
        if os.path.realpath(path) not in self.seen:
            self.no_logs.append(self._name(path))
        return True

    def _file(self, path: Path, mode: int, *, asked: bool = False) -> None:
        """Take in a file; one that was asked for is missed where it cannot be read."""
        self.met += 1
        for is_special, note in _SPECIAL:
            if is_special(mode):
                self._other(path, "skipped", note, unread=asked)
                return
        real = os.path.realpath(path)
        if real in self.seen or self.full:
            return
        if len(self.files) >= MAX_FILES:
            self.full = True
            note = f"only the first {MAX_FILES} files were looked at"
            self._other(self.base, "skipped", note, unread=True)
            return
        self.seen.add(real)
        self.files.append((self._name(path), path))

    def _other(
        self,
        path: Path,
        kind: str,
        note: str,
        *,
        unread: bool | None = None,
        left_out: bool = False,
    ) -> None:
        source = nothing(self._name(path), kind, note, unread=unread)
        self.others.append(replace(source, left_out=[note] * left_out))

    def _name(self, path: Path) -> str:
        name = path.relative_to(self.base).as_posix()
        return printable((path.name or "/") if name == "." else name)


def may_be_archive(source: Source) -> bool:
    """Whether a look at its start leaves open that a source is an archive."""
    return source.kind == "binary" and ARCHIVE_NOTE.match(source.note) is not None


def _file_sources(path: Path, name: str, limits: Limits, *, alone: bool) -> list[Source]:
    """The source of a file, or those of an archive."""
    try:
        status = path.stat()
    except OSError as error:
        return [nothing(name, "unreadable", reason(error))]
    hints = _hints(path, name)
    return store_sources(
        FileStore(path), name, status.st_size, status.st_mtime, hints, limits, alone=alone
    )


def store_sources(
    store: Store,
    name: str,
    size: int,
    mtime: float | None,
    hints: PathHints,
    limits: Limits = DEFAULT_LIMITS,
    *,
    alone: bool = False,
) -> list[Source]:
    """The source of one stored file with what its path tells, or the sources of an archive.

    `alone`: the archive is all there is, so that its members need no `archive!` in their names.
    """
    source = None if ARCHIVE_NAME.search(name) else source_of(store, name, size, limits)
    if source is None or may_be_archive(source):
        # Imported late: archives are seldom, and their reader builds on this module.
        from diagnose.ingest.archive import archive_sources  # noqa: PLC0415

        members = archive_sources(store, name, inside="" if alone else f"{name}!")
        return [replace(m, mtime=mtime) if m.mtime is None else m for m in members]
    return [
        replace(
            source,
            mtime=mtime,
            rank=hints.rank,
            local_rank=hints.local_rank,
            task=hints.task,
            node=hints.node,
            host=hints.host,
            attempt=hints.attempt,
            pid=hints.pid,
        )
    ]


def source_of(
    store: Store,
    name: str,
    size: int,
    limits: Limits,
    cut: str = "",
    meter: Meter | None = None,
) -> Source:
    """A source of stored bytes, told by their start; what cannot be read is `unreadable`.

    `cut` says why these are not all bytes that there should be, `meter` counts those read.
    """
    try:
        opened = look(store, name, limits)
    except OSError as error:
        opened = Opened("unreadable", reason(error), None, "utf-8", 0)
    missed = opened.kind == "unreadable" or opened.packed
    remarks = Remarks(unread=[part for part in (opened.note if missed else "", cut) if part])
    as_text, whole = opened.kind in TEXT_KINDS, is_document(opened.kind)
    return Source(
        name=name,
        kind=opened.kind,
        size=size,
        chunks=TextChunks(store, opened, remarks, limits, meter=meter) if as_text else no_chunks,
        content=Content(store, opened, remarks, limits, meter) if whole else bytes,
        note="; ".join(part for part in (opened.note, cut) if part),
        notes=remarks.notes,
        unread=remarks.unread,
        meter=meter,
    )


def nothing(name: str, kind: str, note: str, *, unread: bool | None = None) -> Source:
    """A source with nothing to read; `kind` and `note` say why.

    `unread`: whether there may be a log in it nevertheless; by default if it is `unreadable`.
    """
    missed = kind == "unreadable" if unread is None else unread
    return Source(name, kind, 0, no_chunks, note=note, unread=[note] if missed else [])


def _hints(path: Path, name: str) -> PathHints:
    # Imported late: parse builds on ingest.
    from diagnose.parse.path import read_path  # noqa: PLC0415

    parts = path.parts
    # A given folder may lie inside torchrun's attempt_<n>: the name alone would lose it.
    above = len(parts) - len(Path(name).parts)
    attempts = [index for index in range(above) if _ATTEMPT.fullmatch(parts[index])]
    return read_path("/".join(parts[attempts[-1] :]) if attempts else name)


def printable(name: str) -> str:
    """A file name which can be printed: undecodable bytes and control characters replaced."""
    name = name.encode(errors="replace").decode()
    return "".join(character if character.isprintable() else "?" for character in name)
