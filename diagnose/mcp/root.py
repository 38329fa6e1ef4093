"""The folder that an agent may look into: every path it names is resolved and must lie below."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

from diagnose.errors import InputError
from diagnose.ingest.names import is_url
from diagnose.ingest.raw import reason

MAX_LINKS = 200_000  # entries of a folder that are looked through for links
_MAX_NAMES = 8  # that an error names


class Root:
    """A folder, resolved."""

    def __init__(self, folder: Path) -> None:
        try:
            self.folder = folder.resolve(strict=True)
        except OSError as error:
            raise InputError(f"{folder}: {reason(error)}") from error
        if not self.folder.is_dir():
            raise InputError(f"{folder}: the root must be a folder")

    def find(self, given: str) -> Path:
        """The file or folder that `given` names, relative to the root or absolute.

        Symbolic links are followed first. Raises InputError, which says what there is instead.
        """
        if not given.strip() or "\0" in given:
            raise InputError("the path is empty; '.' is the root folder itself")
        if is_url(given):
            raise InputError("only files and folders below the root are read, no URLs")
        try:
            path = (self.folder / given).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise InputError(f"{given}: cannot be resolved") from error
        if not path.is_relative_to(self.folder):
            raise InputError(
                f"{given}: is outside this server's root folder; copy it there, or "
                "restart the server with another --root"
            )
        if not os.path.exists(path):  # noqa: PTH110  Path's raises on long names
            raise InputError(f"{given}: no such file or folder below the root{self._nearby(path)}")
        return path

    def name(self, path: Path) -> str:
        """A path as it is named to the agent."""
        return path.relative_to(self.folder).as_posix()

    def leaving(self, folder: Path) -> Path | None:
        """A symbolic link in or below `folder` that leads outside of the root; None without any.

        Raises InputError where there is too much to look through.
        """
        met = 0
        for base, folders, files in os.walk(folder):
            for name in (*folders, *files):
                met += 1
                path = Path(base, name)
                if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(
                    self.folder
                ):
                    return path
            if met > MAX_LINKS:
                raise InputError(f"{self.name(folder)}: more than {MAX_LINKS:,} entries")
        return None

    def _nearby(self, path: Path) -> str:
        """What there is in the nearest folder that exists: like names first."""
        folder = path.parent
        while not folder.is_dir():
            folder = folder.parent
        try:
            names = sorted(one.name for one in folder.iterdir() if not one.name.startswith("."))
        except OSError:
            return ""
        missing = path.relative_to(folder).parts[0]
        near = get_close_matches(missing, names, n=3, cutoff=0.6)
        shown = [f'"{name}"' for name in (near or names)[:_MAX_NAMES]]  # words of whoever named it
        more = "" if near or len(names) <= _MAX_NAMES else f" and {len(names) - _MAX_NAMES} more"
        where = "the root" if folder == self.folder else self.name(folder)
        return f"; {where} has {', '.join(shown)}{more}" if shown else f"; {where} is empty"
