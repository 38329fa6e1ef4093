"""The bundle as a whole: its manifest, and one folder or one archive of it.

`manifest.json` is at the top, `nodes/HOST/node.json` and the files of a node's probes below.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from diagnose.collect import private
from diagnose.collect.model import MANIFEST, Manifest
from diagnose.errors import InputError
from diagnose.process import unfinished

ARCHIVES = (".tar.zst", ".tar.gz", ".tgz", ".tar")
_RESERVED = 64 << 10  # bytes kept free for a document that is only known at the end


def is_archive(target: Path) -> bool:
    """Whether a bundle at this path is one file."""
    return target.name.endswith(ARCHIVES)


def name_of(target: Path) -> str:
    """The one folder at the top of an archive."""
    suffix = next((suffix for suffix in ARCHIVES if target.name.endswith(suffix)), "")
    return target.name.removesuffix(suffix) or "bundle"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `manifest.json`, which is over what `reserve` kept free. Raises OSError."""
    overwrite(folder / MANIFEST, manifest.to_dict())


def reserve(path: Path, document: dict[str, Any] | None = None) -> None:
    """Keep room on the disk for a small document, so that a full one still says what happened.

    What is known of it already stands there, for whoever ends before it is whole. Raises OSError.
    """
    private.folder(path.parent)
    data = b"" if document is None else _encoded(document)
    fd = private.opened(path, os.O_TRUNC)
    try:
        private.pour(fd, data + b" " * _RESERVED)
    finally:
        os.close(fd)


def overwrite(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON document into the room of its file first. Raises OSError."""
    data = _encoded(document)
    fd = private.opened(path, 0)
    try:
        private.pour(fd, data)
        os.ftruncate(fd, len(data))
    finally:
        os.close(fd)


def _encoded(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def pack(folder: Path, target: Path) -> None:
    """An archive of a bundle's folder, by the target's suffix: whole or not at all.

    Raises InputError.
    """
    partial = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    unfinished.add(str(partial))
    try:
        fd = private.opened(partial, os.O_EXCL)
        with os.fdopen(fd, "wb") as out, compressed(out, target.name) as stream:
            add_folder(stream, folder, name_of(target))
        partial.replace(target)
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise InputError(f"cannot write {target}: {what}") from error
    finally:
        partial.unlink(missing_ok=True)
        unfinished.discard(str(partial))


def add_folder(stream: IO[bytes], folder: Path, name: str) -> None:
    """Write the regular files of a folder as a tar stream below `name`, without their owners."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            if not path.is_file() or path.is_symlink():
                continue
            info = tarfile.TarInfo(f"{name}/{path.relative_to(folder).as_posix()}")
            data = path.read_bytes()
            info.size, info.mtime, info.mode = len(data), int(path.stat().st_mtime), 0o600
            archive.addfile(info, io.BytesIO(data))


@contextmanager
def compressed(out: IO[bytes], name: str) -> Iterator[Any]:
    """A stream into `out`, compressed as the suffix of a name says."""
    if name.endswith(".zst"):
        import zstandard  # noqa: PLC0415  not on a compute node

        with zstandard.ZstdCompressor(level=9).stream_writer(out, closefd=False) as stream:
            yield stream
    elif name.endswith("gz"):
        import gzip  # noqa: PLC0415

        with gzip.GzipFile("", "wb", 6, out, 0) as stream:
            yield stream
    else:
        yield out
