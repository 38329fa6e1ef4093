"""What somebody names on a command line or in a call, before it is looked for."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from diagnose.errors import InputError
from diagnose.ingest.place import is_url
from diagnose.ingest.raw import reason

_MAX_NAMES = 2000  # of a folder, among which a typo is looked for
_ALIKE = 0.75  # a.log is not like gone.log


def expanded(texts: Iterable[str]) -> list[str]:
    """Paths and URLs; a pattern that the shell left as it is stands for what it matches.

    Raises InputError for an empty path, which as a path would be the current folder.
    """
    found: list[str] = []
    for text in texts:
        if not text:  # an unset variable of a script
            raise InputError("one of the paths is empty")
        if is_url(text) or os.path.lexists(text) or not glob.has_magic(text):
            found.append(text)
        else:
            found += sorted(glob.glob(text, recursive=True)) or [text]  # noqa: PTH207
    return found


def local(texts: Iterable[str]) -> list[Path]:
    """The same as paths of this machine. Raises InputError for a URL, too."""
    found = expanded(texts)
    for text in filter(is_url, found):
        raise InputError(
            f"{text}: URLs are not read here; fetch it first, or give it to diagnose scan"
        )
    return [Path(text) for text in found]


def why_unreadable(given: str | Path, error: OSError) -> str:
    """What an error says of a path that somebody named, and of one that is not there what is."""
    text = str(given)
    if not isinstance(error, FileNotFoundError) or is_url(text):
        return reason(error)
    if glob.has_magic(text):
        return "nothing matches this pattern"
    near = _nearest(Path(text))
    return reason(error) + (f"; did you mean {near}?" if near else "")


def _nearest(path: Path) -> Path | None:
    """The path with its first wrong part as it is spelt on the disk, if the rest is there then."""
    parents = [parent for parent in path.parents if parent.is_dir()]
    if not parents:
        return None
    wrong, *rest = path.relative_to(parents[0]).parts
    try:
        names = sorted(os.listdir(parents[0]))[:_MAX_NAMES]  # noqa: PTH208
    except OSError:
        return None
    for name in get_close_matches(wrong, names, n=3, cutoff=_ALIKE):
        there = parents[0] / name
        if not rest or (there.is_dir() and os.path.lexists(there.joinpath(*rest))):
            return there.joinpath(*rest)
    return None
