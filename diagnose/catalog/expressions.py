"""Whether a regular expression of an entry can be used at all."""

from __future__ import annotations

import hyperscan as hs
import regex

from diagnose.catalog.schema import Signature
from diagnose.match.compile import compile_database, hyperscan_form, pattern_flags, patterns_of

MAX_LENGTH = 8000  # characters


def unusable(expression: str, *, ignore_case: bool) -> str | None:
    """Why the matcher could not take an expression; None if it can."""
    if len(expression) > MAX_LENGTH:
        return f"does not compile: longer than {MAX_LENGTH} characters: {expression[:80]}…"
    try:
        regex.compile(expression)
    except regex.error as error:
        return f"does not compile: {error}: {expression}"
    except RecursionError:
        return f"does not compile: nested too deeply: {expression[:80]}…"
    (pattern,) = patterns_of([Signature("", "", "context", [expression], ignore_case=ignore_case)])
    try:
        compile_database([hyperscan_form(expression)], [0], [pattern_flags(pattern, first=False)])
    except hs.error as error:
        return f"not linear-time (Hyperscan: {error}): {expression}"
    return None
