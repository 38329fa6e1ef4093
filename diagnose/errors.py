"""Errors that a person can act on, and what to install for a part that is optional."""

from __future__ import annotations

import re

_PACKAGE = "diagnose-hangs"


class DiagnoseError(Exception):
    """What the user gave cannot be used.

    The message is one line, says what is wrong with what, and is shown as it is. The command line
    ends with exit status 2.
    """


class InputError(DiagnoseError):
    """The input cannot be used at all (absent, unreadable, empty)."""


class CatalogError(DiagnoseError):
    """A catalog file cannot be used; the message says file, line, field and problem."""


def install(extra: str) -> str:
    """The command that installs what an extra needs, in whichever way diagnose was installed."""
    from importlib.metadata import PackageNotFoundError, requires  # noqa: PLC0415  slow to import

    marked = re.compile(r"""(?P<what>[^;]+);\s*extra\s*==\s*['"](?P<extra>[^'"]+)['"]""")
    try:
        listed = requires(_PACKAGE) or []
    except PackageNotFoundError:  # it runs from a checkout
        listed = []
    found = map(marked.fullmatch, listed)
    needed = [one["what"].strip() for one in found if one and one["extra"] == extra]
    return "pip install " + " ".join(f"'{one}'" for one in needed or [f".[{extra}]"])
