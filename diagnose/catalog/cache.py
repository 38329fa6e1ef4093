"""What is slow to make is kept in the user's cache folder, where there is one.

A cache that cannot be read or written costs time and nothing else.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from diagnose import files

KEPT = 6
UNUSED_S = 7 * 86400.0  # an older catalog's: nobody has asked for it for so long
_ABANDONED_S = 3600.0  # nobody writes a file for so long


def folder() -> Path | None:
    """Where things are kept (`XDG_CACHE_HOME` is respected); None for a user without a home."""
    import platformdirs  # noqa: PLC0415  (only when a cache path is asked for)

    try:
        found = Path(platformdirs.user_cache_dir("diagnose"))
    except RuntimeError:
        return None
    return found if found.is_absolute() else None


def read(name: str) -> bytes | None:
    """What was kept under this name, unless it is not this user's."""
    inside = folder()
    if inside is None:
        return None
    try:
        fd = os.open(inside / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:  # noqa: PTH123
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
                return None
            with suppress(OSError):  # a file system that is full or read-only
                os.utime(fd)  # what is in use stays, however much else is kept
            return file.read()
    except OSError:
        return None


def keep(name: str, data: bytes) -> None:
    """Keep something for later runs of this user; failure is not an error.

    Of the files with the same first word in their name those used last are kept, and of all only
    those used lately.
    """
    inside = folder()
    if inside is None:
        return
    with suppress(OSError):
        inside.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.replace(inside / name, data, private=True)
        _tidy(inside, name.partition("-")[0])


def _tidy(inside: Path, kind: str) -> None:
    used = {path: path.stat().st_mtime for path in inside.iterdir()}
    alike = sorted((path for path in used if path.match(f"{kind}-*")), key=used.__getitem__)
    stale = set(alike[:-KEPT])
    for path, last in used.items():
        partial = path.match(f".*{files.PARTIAL}")  # of a process that was killed
        if time.time() - last > (_ABANDONED_S if partial else UNUSED_S):
            stale.add(path)
    for path in stale:
        path.unlink(missing_ok=True)
