"""What to install for a part that is optional."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires

_PACKAGE = "diagnose-hangs"
_MARKED = re.compile(r"""(?P<what>[^;]+);\s*extra\s*==\s*['"](?P<extra>[^'"]+)['"]""")


def install(extra: str) -> str:
    """The command that installs what an extra needs, in whichever way diagnose was installed."""
    try:
        listed = requires(_PACKAGE) or []
    except PackageNotFoundError:  # it runs from a checkout
        listed = []
    found = (_MARKED.fullmatch(one) for one in listed)
    needed = [one["what"].strip() for one in found if one and one["extra"] == extra]
    return "pip install " + " ".join(f"'{one}'" for one in needed or [f".[{extra}]"])
