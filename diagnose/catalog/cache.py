"""What is slow to make is kept in the user's cache folder, where there is one.

A cache that cannot be read or written costs time and nothing else.
"""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import suppress
from pathlib import Path

from diagnose import files

KEPT = 6  # catalogs
UNUSED_S = 7 * 86400.0  # nobody has asked for anything of a catalog for so long
_REVISION = re.compile(r"[0-9a-f]{16}")
_ABANDONED_S = 3600.0  # nobody writes a file for so long


def folder() -> Path | None:
    """Where things are kept (`XDG_CACHE_HOME` is respected); None for a user without a home."""
    import platformdirs  # noqa: PLC0415  (only when a cache path is asked for)

    try:
        found = Path(platformdirs.user_cache_dir("diagnose"))
    except RuntimeError:
        return None
    return found if found.is_absolute() else None


def writable() -> bool:
    """Whether something can be kept for later runs."""
    inside = folder()
    if inside is None:
        return False
    try:
        inside.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return False
    return os.access(inside, os.W_OK | os.X_OK)


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


def has(name: str) -> bool:
    """Whether something was kept under this name."""
    inside = folder()
    return inside is not None and (inside / name).exists()


def keep(name: str, data: bytes) -> None:
    """Keep something for later runs of this user; failure is not an error.

    What is of the same catalog (its revision is in the name) stays or goes together: the catalogs
    used last are kept, and of these only those used lately.
    """
    inside = folder()
    if inside is None:
        return
    with suppress(OSError):
        inside.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.replace(inside / name, data, private=True)
        _tidy(inside)


def _tidy(inside: Path) -> None:
    now = time.time()
    used: dict[str, float] = {}  # when each catalog was
    catalogs: dict[Path, str] = {}
    stale: list[Path] = []
    for path in inside.iterdir():
        last = path.stat().st_mtime
        if path.match(f".*{files.PARTIAL}"):  # of a process that was killed
            stale += [path] if now - last > _ABANDONED_S else []
            continue
        revision = _REVISION.search(path.name)
        catalogs[path] = revision.group() if revision else path.name
        used[catalogs[path]] = max(last, used.get(catalogs[path], last))
    kept = sorted(used, key=used.__getitem__)[-KEPT:]
    stale += [
        path
        for path, catalog in catalogs.items()
        if catalog not in kept or now - used[catalog] > UNUSED_S
    ]
    for path in stale:
        path.unlink(missing_ok=True)
