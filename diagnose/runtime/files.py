"""Writing files: as a whole or not at all, devices as they are, and some for their owner only."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from diagnose.errors import InputError
from diagnose.runtime.command import unfinished

PARTIAL = ".tmp"  # ends the name of a file that is being written, which begins with a dot


def write(target: Path, data: bytes) -> None:
    """Write what a user wants at a path: a file as a whole, a device or a pipe as it is.

    Links are followed, as a shell does; /dev/stdout is what is open there. Raises OSError, but not
    where the reader of a pipe has seen enough.
    """
    number = _open_already(target)
    if number is not None:
        _to_stream(number, data)
        return
    try:
        # The kernel says whether this file may be written, also where its folder may be.
        fd = os.open(target, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        replace(Path(os.path.realpath(target)), data)
        return
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            replace(Path(os.path.realpath(target)), data)
        else:
            _to_stream(fd, data)
    finally:
        os.close(fd)


def write_text(target: Path, text: str) -> None:
    """The same for a text. Raises InputError, which says why it cannot be written."""
    try:
        write(target, text.encode("utf-8", "replace"))
    except OSError as error:
        raise unwritable(target, error) from error


def unwritable(target: Path, error: OSError) -> InputError:
    """What to raise where something cannot be written."""
    return InputError(f"cannot write {target}: {(error.strerror or str(error)).lower()}")


def replace(path: Path, data: bytes, *, private: bool = False) -> None:
    """Put a file with this content at `path`, as a whole or not at all. Raises OSError."""
    with replacing(path, private=private) as file:
        file.write(data)


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """A file that is put at `path` once all is written, as a whole or not at all. Raises OSError.

    It has the mode and the owner of the file that was there. A `private` one is for its owner only.
    """
    partial = path.with_name(f".{os.urandom(8).hex()}{PARTIAL}")
    unfinished.add(str(partial))
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC  # EXCL: and no link
        with os.fdopen(os.open(partial, flags, 0o600 if private else 0o666), "wb") as file:
            if not private:
                _liken(file.fileno(), path)
            yield file
        partial.replace(path)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk names none
        raise
    finally:
        unfinished.discard(str(partial))


def private_folder(path: Path) -> None:
    """Make a folder for its owner only, with those above it that are missing. Raises OSError."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(0o700, exist_ok=True)


def private_file(path: Path, more: int) -> IO[bytes]:
    """Open a file for writing, for its owner only; `more` are flags of open(2). Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags | more, 0o600), "wb")


def _open_already(target: Path) -> int | None:
    """The number of the open file that a path such as /dev/stdout stands for."""
    if not os.path.lexists(target):
        return None
    numbers = os.path.realpath("/dev/fd")  # on Linux /proc/PID/fd
    path = str(target)
    for _ in range(40):  # links that the kernel follows
        folder, name = os.path.split(path)
        if name.isdecimal() and os.path.realpath(folder) == numbers:
            return int(name)
        if not os.path.islink(path):  # noqa: PTH114
            return None
        path = os.path.join(folder, os.readlink(path))  # noqa: PTH115, PTH118
    return None


def _to_stream(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    with suppress(BrokenPipeError):
        while rest:
            rest = rest[os.write(fd, rest) :]


def _liken(fd: int, path: Path) -> None:
    """Give a new file the mode, group and owner of the regular file at `path`, if there is one."""
    try:
        old = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(old.st_mode):
        return
    mode = stat.S_IMODE(old.st_mode) & 0o777
    with suppress(OSError):
        os.fchown(fd, old.st_uid, -1)
    try:
        os.fchown(fd, -1, old.st_gid)
    except OSError:
        mode &= ~0o070  # what one group may do is not for another
    os.fchmod(fd, mode)
