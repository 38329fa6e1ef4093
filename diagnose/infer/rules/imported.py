"""An exception raised while an installed package was imported: it does not match its neighbours.

Code of a package that runs at its import calls nothing but what is installed. Where a function is
not there, or takes other arguments, two packages are of versions that do not match. The frames show
it, whatever the message says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from diagnose.diagnosis import CodeFrame, PythonException
from diagnose.infer.events.exceptions import in_words
from diagnose.infer.rules.base import Context, Hypothesis, is_bare, specified
from diagnose.infer.rules.signatures import who
from diagnose.parse.tracebacks import is_generated, package_of

FINDING = "raised_at_import"
_MODULE = "<module>"  # the function of code that runs at an import, and of a script
_RUNPY = "runpy"  # what runs a module as the program: `python -m`
# What code raises that calls what is not there or is otherwise; no file, network or memory lacks.
_OF_CODE = frozenset(
    {"AttributeError", "ImportError", "IndentationError", "ModuleNotFoundError", "NameError",
     "NotImplementedError", "RuntimeError", "SyntaxError", "TypeError", "ValueError"}
)  # fmt: skip
_OF_ENVIRONMENT = ("environ", "getenv")  # a value that somebody set


def with_import(
    ranked: Sequence[Hypothesis],
    context: Context,
    read: Callable[[Hypothesis], PythonException | None],
) -> list[Hypothesis]:
    """The hypotheses, the first one with the class of what was raised while a package loads.

    Only one of which nothing but the form is known; `read` gives its exception with all frames.
    """
    first, *others = ranked
    catalog = context.catalog
    raised = read(first) if is_bare(first, catalog) else None
    package = imported(raised.frames) if raised and _is_of_code(raised) else None
    if raised is None or package is None:
        return [*ranked]
    cause = catalog.class_shown_by(FINDING)
    named = who(first.ranks, first.hosts)
    inner = package_of(raised.frames[-1].file)
    within = f" in {inner}" if inner not in (None, package) else ""
    what = f"{in_words(raised)}{', ' + named if named else ''}."
    found = specified(
        first,
        cause,
        catalog,
        rule="imported",
        summary=f"{what} It was raised{within} while {package} was imported.",
        grounds=[*first.grounds, FINDING],
    )
    return [replace(found, vague=False), *(one for one in others if one.cause != cause)]


def imported(frames: Sequence[CodeFrame]) -> str | None:
    """The package at whose import the innermost frame runs, if all that it called is installed."""
    for index in reversed(range(1, len(frames))):
        frame, caller = frames[index], frames[index - 1]
        if frame.own and not is_generated(frame.file):
            return None
        if frame.function == _MODULE and (package := package_of(frame.file)):
            program = _RUNPY in caller.file or not frame.file.endswith(".py")
            return None if program else package
    return None


def _is_of_code(raised: PythonException) -> bool:
    code = raised.frames[-1].code if raised.frames else ""
    kind = raised.type.rpartition(".")[2]
    return kind in _OF_CODE and not any(word in code for word in _OF_ENVIRONMENT)
