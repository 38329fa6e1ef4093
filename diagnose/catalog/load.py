"""The catalog of a run: compiled, or read from YAML (`document`).

The shipped catalog is compiled when the package is built; that of a
checkout is by a hash of its files and of the code, as are the entries of a user.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from threading import RLock

import diagnose
from diagnose import plugins
from diagnose.catalog import stored
from diagnose.catalog.schema import Catalog
from diagnose.errors import CatalogError

# Rows of other detectors, of which each is an entry too.
DETECTORS = Path(__file__).parents[1] / "formats" / "detectors"
_MAX_FILE = 1 << 20  # the largest shipped one has 80 KB
_MAX_FILES = 1000
_MAX_BYTES = 16 << 20  # of all files
_MAX_MET = 100_000  # files and folders passed on the way


def default_dir() -> Path:
    """The catalog that ships with the package (or lies beside it in a checkout)."""
    installed = Path(__file__).parents[1] / "patterns"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "patterns"


def load_catalog(extra_dirs: Sequence[Path] = (), *, examples: bool = False) -> Catalog:
    """The shipped catalog, the packs of plug-ins and the entries of `extra_dirs`.

    An entry of a later directory replaces an earlier one of the same id. With their examples if
    asked for. The same files give the same object again, in all threads, which is compiled once.
    Raises CatalogError; a pack that is wrong is left out with a note.
    """
    own = tuple(catalog_files(extra_dirs))
    with _loading:
        base = _base(default_dir(), examples)
        return _extended(base, own, examples) if own else base


_loading = RLock()  # of threads that ask at once, one reads; a plug-in may ask for it, too


@lru_cache(maxsize=2)
def _base(directory: Path, examples: bool) -> Catalog:
    """The shipped catalog with the packs of plug-ins."""
    revision = _compiled_with(directory) or _revision(catalog_files([directory, DETECTORS]))
    catalog = _kept(revision, examples, lambda: read_shipped(directory, revision))
    packs, notes = _packs()
    for name, own in packs.items():
        try:
            catalog = _extended(catalog, own, examples)
        except CatalogError as error:
            notes.append(f"plug-in {name}: left out: {error}")
    return replace(catalog, notes=notes)


def _compiled_with(directory: Path) -> str | None:
    """The revision that was compiled with an installed catalog, whose files nobody changes."""
    if directory.parent != stored.PACKAGE.parent:
        return None
    found = [path.stem for path in stored.PACKAGE.glob(stored.name_of("*"))]
    return found[0] if len(found) == 1 else None


def read_shipped(directory: Path, revision: str = "") -> Catalog:
    """The shipped catalog from its YAML, with its examples."""
    from diagnose.catalog.document import (  # noqa: PLC0415  not for what is compiled
        read_catalog,
        with_entries,
    )
    from diagnose.formats.detector_rows import entries  # noqa: PLC0415

    shipped, detectors = ([*catalog_files([one])] for one in (directory, DETECTORS))
    found = read_catalog(shipped, revision or _revision([*shipped, *detectors]))
    return with_entries(found, entries())


def _kept(revision: str, examples: bool, read: Callable[[], Catalog]) -> Catalog:
    """A catalog as it was compiled, else read and compiled; with examples always read."""
    if examples:
        return read()
    found = stored.read(revision)
    if found is None:
        found = read()
        stored.keep(stored.name_of(revision), stored.sections(found))
    return found


@lru_cache(maxsize=8)
def _extended(catalog: Catalog, files: tuple[tuple[Path, bytes], ...], examples: bool) -> Catalog:
    """A catalog and the entries of a user's files, by their own revision."""
    revision = _revision(files, catalog.revision)

    def read() -> Catalog:
        from diagnose.catalog.document import joined  # noqa: PLC0415  as above

        return joined(catalog, files, revision)

    return replace(_kept(revision, examples, read), notes=catalog.notes)


def _packs() -> tuple[dict[str, tuple[tuple[Path, bytes], ...]], list[str]]:
    """The files of each pack of a plug-in, and what is wrong with others."""
    packs, notes = {}, []
    for name, pack in plugins.loaded(plugins.PATTERNS).found.items():
        try:
            # A function that gives a folder, or a package.
            folder = Path(pack() if callable(pack) else next(iter(pack.__path__)))
            packs[name] = tuple(catalog_files([folder]))
        except Exception as error:  # of its function
            notes.append(f"plug-in {name}: left out: {error}")
    return packs, notes


@lru_cache(maxsize=2)
def examples_of(catalog: Catalog) -> list[tuple[str, str]]:
    """(Id, line) of every example that a signature of this catalog matches.

    Read anew, which takes a second or two, where they are not kept.
    """
    found = stored.read_examples(catalog) or stored.example_lines(catalog.signatures)
    found = found or stored.example_lines(load_catalog(examples=True).signatures)
    return [(id_, line) for id_, line in found if id_ in catalog.by_id]


def catalog_files(dirs: Iterable[Path]) -> Iterator[tuple[Path, bytes]]:
    """Every YAML file of the directories (or the files themselves) with its bytes."""
    size = count = 0
    for given in dirs:
        paths = _yaml_files(given)
        if not paths:
            raise CatalogError(f"{given}: holds no .yaml file")
        for path in paths:
            data = _bytes_of(path)
            size, count = size + len(data), count + 1
            if size > _MAX_BYTES or count > _MAX_FILES:
                raise CatalogError(
                    f"{given}: more than {_MAX_FILES} files or {_MAX_BYTES >> 20} MiB of signatures"
                )
            yield path, data


def _yaml_files(given: Path) -> list[Path]:
    def fail(error: OSError) -> None:
        raise error

    found = []
    try:
        if not stat.S_ISDIR(given.stat().st_mode):
            return [given]
        met = 0
        for folder, folders, names in os.walk(given, onerror=fail):
            met += len(folders) + len(names)
            if met > _MAX_MET:
                raise CatalogError(f"{given}: too many files for a folder of signatures")
            found += [Path(folder, name) for name in names if name.endswith((".yaml", ".yml"))]
    except FileNotFoundError as error:
        raise CatalogError(f"{given}: no such file or directory") from error
    except OSError as error:
        raise CatalogError(f"{given}: cannot be read: {error.strerror}") from error
    return sorted(found, key=lambda path: path.parts)


def _bytes_of(path: Path) -> bytes:
    """The bytes of a regular file; pipes and devices have no end and are not read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb", buffering=0) as opened:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise CatalogError(f"{path}: not a regular file")
            data = opened.read(min(found.st_size, _MAX_FILE) + 1)
    except OSError as error:
        raise CatalogError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > _MAX_FILE:
        raise CatalogError(f"{path}: larger than {_MAX_FILE >> 20} MiB")
    return data


# Modules on which it depends what is compiled of a catalog.
COMPILERS = {
    "catalog": (
        "document", "expressions", "load", "matches", "remedies", "schema", "stored",
    ),
    "formats": ("detector_rows",),
    "match": ("build", "literals", "rows"),
}  # fmt: skip


@lru_cache(maxsize=1)
def _code() -> bytes:
    import hashlib  # noqa: PLC0415  not for what is compiled with the package

    package = Path(__file__).parents[1]
    digest = hashlib.sha256(diagnose.__version__.encode())
    for folder, names in COMPILERS.items():
        for name in names:
            digest.update((package / folder / f"{name}.py").read_bytes())
    return digest.digest()


def _revision(files: Iterable[tuple[Path, bytes]], before: str = "") -> str:
    """What tells a catalog from others: its files, and the code that compiles them."""
    import hashlib  # noqa: PLC0415  as above

    digest = hashlib.sha256(_code() + before.encode())
    for path, data in files:
        digest.update(b"\0%b\0%d\0" % (os.fsencode(path.name), len(data)))
        digest.update(data)
    return digest.hexdigest()[:16]
