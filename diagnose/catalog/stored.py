"""What is compiled of a catalog, in files: with the package, else in a folder of this user.

A file has sections, and a line of JSON above them with the size and the CRC-32 of each. It is
mapped, so that processes share it. A folder that cannot be read or written costs time and nothing
else. The entries of the catalog are JSON, which needs neither YAML nor pydantic: those of which a
job needs few have a line each, which is read when it is asked for; what is known of all of them is
in another section, and so are the example lines, with which few jobs are compared.
"""

from __future__ import annotations

import json
import mmap
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, fields
from functools import cached_property
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, TypeVar, cast

from diagnose.catalog import schema
from diagnose.catalog.schema import (
    Catalog,
    CauseClass,
    Condition,
    KnownIssue,
    Near,
    Place,
    Remedy,
    Run,
    Setting,
    Signature,
    Vocabulary,
    Word,
    WordIndex,
)
from diagnose.lazy import Lazy, Named
from diagnose.runtime import files

PACKAGE = Path(__file__).parents[1] / "compiled"  # what the installation compiled
MOST = 12  # files in a folder of this user
UNUSED_S = 7 * 86400.0  # nobody has asked for a file for so long
_ABANDONED_S = 3600.0  # nobody writes a file for so long


class Kept:
    """A file and its sections. Raises ValueError if it is not as it was written."""

    def __init__(self, data: mmap.mmap) -> None:
        head = data.find(b"\n") + 1
        try:
            about = {name: (size, crc) for name, (size, crc) in json.loads(data[:head]).items()}
            ends = [*accumulate((size for size, _ in about.values()), initial=head)]
        except (AttributeError, TypeError) as error:
            raise ValueError("not a file with sections") from error
        if ends[-1] != len(data):
            raise ValueError("not as long as it was")
        self._data = memoryview(data)
        self._parts = {
            name: (end - size, end, crc)
            for (name, (size, crc)), end in zip(about.items(), ends[1:], strict=True)
        }

    def section(self, name: str) -> memoryview:
        """The bytes of a section. Raises ValueError if there is none, or it is damaged."""
        start, end, checksum = self._parts.get(name, (0, 0, -1))
        found = self._data[start:end]
        if zlib.crc32(found) != checksum:
            raise ValueError(f"{name}: damaged")
        return found


def find(name: str) -> Iterator[Kept]:
    """The files of this name: that of the package, then those that this user keeps."""
    for folder in chain([PACKAGE], _folders()):
        with suppress(OSError, ValueError):
            yield Kept(_mapped(folder / name, own=folder != PACKAGE))


def write(folder: Path, name: str, sections: Mapping[str, bytes]) -> None:
    """Put a file into a folder, as a whole or not at all. Raises OSError."""
    about = {key: (len(data), zlib.crc32(data)) for key, data in sections.items()}
    data = b"".join((json.dumps(about).encode(), b"\n", *sections.values()))
    files.replace(folder / name, data, private=folder != PACKAGE)


def keep(name: str, sections: Mapping[str, bytes]) -> None:
    """Keep something for later runs of this user; failure is not an error."""
    folder = writable()
    if folder is not None:
        with suppress(OSError):
            write(folder, name, sections)
            _tidy(folder)


def writable() -> Path | None:
    """The folder in which something can be kept for later runs; None without one."""
    for folder in _folders(make=True):
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if os.access(folder, os.W_OK | os.X_OK):
                return folder
    return None


def cache() -> Path | None:
    """The user's cache folder (`XDG_CACHE_HOME` is respected); None for one without a home."""
    import platformdirs  # noqa: PLC0415  not where the package has all that is asked for

    try:
        found = Path(platformdirs.user_cache_dir("diagnose"))
    except RuntimeError:
        return None
    return found if found.is_absolute() else None


def _folders(*, make: bool = False) -> Iterator[Path]:
    """Where this user keeps things: in the cache, else in a temporary folder of his own."""
    if found := cache():
        yield found
    import tempfile  # noqa: PLC0415  hardly ever asked for

    with suppress(OSError):  # there is none
        own = Path(tempfile.gettempdir(), f"diagnose-{os.getuid()}")
        if make:
            with suppress(FileExistsError):
                own.mkdir(mode=0o700)
        state = own.lstat()  # anybody may have made it
        if stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid():
            yield own


def _mapped(path: Path, *, own: bool) -> mmap.mmap:
    """The bytes of a file, where `own` of this user. Raises OSError, ValueError if it is empty."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or (own and found.st_uid != os.getuid()):
            raise ValueError(f"{path}: not a file of this user")
        if own:
            with suppress(OSError):  # a file system that is full or read-only
                os.utime(fd)  # what is in use stays, however much else is kept
        return mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(fd)


def _tidy(folder: Path) -> None:
    now = time.time()
    used: dict[Path, float] = {}  # when each file was
    for path in folder.iterdir():
        last = path.stat().st_mtime
        if not path.match(f".*{files.PARTIAL}"):
            used[path] = last
        elif now - last > _ABANDONED_S:  # of a process that was killed
            path.unlink(missing_ok=True)
    latest = sorted(used, key=used.__getitem__)[-MOST:]
    for path, last in used.items():
        if path not in latest or now - last > UNUSED_S:
            path.unlink(missing_ok=True)


_EXAMPLES = ("written", "examples", "near_miss")  # fields that are not kept
_WHOLE = ("classes", "settings")  # which are read at once
_LINES: dict[str, Callable[..., Any]] = {  # of which each entry has a line
    "known_issues": KnownIssue, "vocabularies": Vocabulary, "signatures": Signature,
}  # fmt: skip
Entry = TypeVar("Entry")


class Rows(Lazy[Entry]):
    """Entries of which each is a line of JSON."""

    def __init__(
        self,
        data: memoryview,
        lengths: Sequence[int],
        kind: Callable[..., Entry],
        index: memoryview,
    ) -> None:
        super().__init__(len(lengths))
        self._data = data
        self._starts = [*accumulate(lengths, initial=0)]
        self._kind = kind
        self._index = index

    @cached_property
    def index(self) -> Any:
        """What is known of all of them."""
        return json.loads(self._index.tobytes())

    def make(self, index: int) -> Entry:
        """The entry of a line."""
        line = self._data[self._starts[index] : self._starts[index + 1]]
        return _made(self._kind, json.loads(line.tobytes()))


def sizes(signatures: Sequence[Signature]) -> Sequence[int]:
    """How many expressions each has."""
    if isinstance(signatures, Rows):
        return cast("Sequence[int]", signatures.index)
    return [len(signature.match) for signature in signatures]


def word_index(vocabularies: Sequence[Vocabulary]) -> WordIndex:
    """The index of the words of all of them."""
    if isinstance(vocabularies, Rows):
        return WordIndex(*vocabularies.index)
    return schema.word_index(vocabularies)


def issue_index(issues: Sequence[KnownIssue]) -> Mapping[str, Sequence[int]]:
    """See `schema.issue_index`."""
    if isinstance(issues, Rows):
        return cast("Mapping[str, Sequence[int]]", issues.index)
    return schema.issue_index(issues)


def name_of(revision: str) -> str:
    """The name of the file of a catalog."""
    return f"{revision}.catalog"


def sections(catalog: Catalog) -> dict[str, bytes]:
    """What is kept of a catalog that was read with its examples."""
    about = {name: getattr(catalog, name) for name in _WHOLE}
    about["ids"] = [*catalog.by_id]
    lines = {
        name: [json.dumps(entry, default=_fields).encode() for entry in getattr(catalog, name)]
        for name in _LINES
    }
    about["lengths"] = {name: [*map(len, rows)] for name, rows in lines.items()}
    return {
        "about": json.dumps(about, default=_fields).encode(),
        "examples": json.dumps(example_lines(catalog.signatures)).encode(),
        "index of vocabularies": json.dumps(word_index(catalog.vocabularies)).encode(),
        "index of known_issues": json.dumps(issue_index(catalog.known_issues)).encode(),
        "index of signatures": json.dumps(sizes(catalog.signatures)).encode(),
        **{name: b"".join(rows) for name, rows in lines.items()},
    }


def _fields(entry: Any) -> dict[str, Any]:
    """The fields of an entry that are not as they would be anyway, without its examples."""
    return {
        field.name: value
        for field in fields(entry)
        if field.name not in _EXAMPLES and (value := getattr(entry, field.name)) != _default(field)
    }


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def read(revision: str) -> Catalog | None:
    """The catalog of a revision, without examples; None if it is not kept."""
    for found in find(name_of(revision)):
        with suppress(ValueError, KeyError, TypeError):
            return _catalog(found, revision)
    return None


def _catalog(found: Kept, revision: str) -> Catalog:
    about = json.loads(found.section("about").tobytes())
    issues, vocabularies, signatures = (
        Rows(found.section(name), about["lengths"][name], kind, found.section(f"index of {name}"))
        for name, kind in _LINES.items()
    )
    return Catalog(
        signatures=signatures,
        known_issues=issues,
        classes={id_: _made(CauseClass, entry) for id_, entry in about["classes"].items()},
        revision=revision,
        vocabularies=vocabularies,
        settings={id_: _made(Setting, entry) for id_, entry in about["settings"].items()},
        by_id=Named(about["ids"], signatures),
    )


_PARTS: dict[str, Callable[..., Any]] = {  # what fields hold that hold more than texts
    "remedies": Remedy, "run": Run, "all": Condition, "any": Condition, "none": Condition,
    "words": Word, "near": Near, "places": Place,
}  # fmt: skip


def _made(kind: Callable[..., Entry], entry: dict[str, Any]) -> Entry:
    """An entry of its fields."""
    for name in _PARTS.keys() & entry.keys():
        part, value = _PARTS[name], entry[name]
        several = isinstance(value, list)
        entry[name] = [_made(part, one) for one in value] if several else _made(part, value)
    return kind(**entry)


def read_examples(catalog: Catalog) -> list[tuple[str, str]]:
    """What was kept of this catalog; [] if nothing was."""
    for found in find(name_of(catalog.revision)):
        with suppress(ValueError, TypeError):
            return [(id_, line) for id_, line in json.loads(found.section("examples").tobytes())]
    return []


def example_lines(signatures: Sequence[Signature]) -> list[tuple[str, str]]:
    """(Id, line) of every example of these entries that must match."""
    return [
        (entry.id, line)
        for entry in signatures
        for example in entry.examples
        for line in example.line.splitlines()
        if line.strip()
    ]
