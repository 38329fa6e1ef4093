"""Pickles that would run a command when they are loaded, told by the names they import."""

from __future__ import annotations

import re

from diagnose.checkpoint.damaged import DamagedError

# What starts a process or runs code; no state of a training needs one. Others (getattr, open) stand
# in honest pickles, too.
_HARMFUL = (
    rb"(?P<module%d>(?:posix|nt|os)(?=[\n\x8c\x94].{0,2}(?:system|popen|exec|spawn|startfile))"
    rb"|subprocess|_posixsubprocess|runpy|pty|commands|platform(?=[\n\x8c\x94].{0,2}popen)"
    rb"|(?:__builtin__|builtins)(?=[\n\x8c\x94].{0,2}(?:eval|exec|compile|__import__|breakpoint)\b))"
)
_IMPORT = re.compile(
    rb"c" + _HARMFUL % 1 + rb"\n(?P<name1>\w{1,64})\n"
    rb"|\x8c." + _HARMFUL % 2 + rb"\x94?\x8c.(?P<name2>\w{1,64}?)\x94?\x93",
    re.DOTALL,
)


def check_imports(data: bytes) -> None:
    """Raises DamagedError where a pickle imports what runs code."""
    found = _IMPORT.search(data)
    if found is None:
        return
    module, name = (found["module1"], found["name1"]) if found["module1"] else (
        found["module2"], found["name2"]
    )  # fmt: skip
    full = f"{module.decode()}.{name.decode()}"
    raise DamagedError(
        "corrupt", f"names {full}, which no checkpoint needs: loading it may run code"
    )
