"""What a stack frame says, by the one table of Python and native frames (`frame_table`).

A stack is read from its innermost frame outwards; the first frame that a rule of the first level
knows decides. Only when no frame does, the next level is asked: the system call at the bottom of a
stack means little while a frame further out says what it is for.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache

from diagnose.infer.stacks.frame_table import (
    BARE,
    COMPUTE,
    HELPERS,
    OWN_PHASES,
    PHASES,
    RULES,
    Rule,
)
from diagnose.lazy import expression
from diagnose.parse.stacks import Frame
from diagnose.parse.tracebacks import is_generated, library_path

_PREFIXES = expression(r"_+(?:GI_+)?(?:libc_+)?")


@lru_cache(maxsize=65_536)
def names(frame: Frame) -> tuple[str, str]:
    """Function and file of a frame as the rules see them (`Rule`)."""
    if frame.native:
        prefix = _PREFIXES.match(frame.func)
        return frame.func[prefix.end() if prefix else 0 :], frame.file.rpartition("/")[2]
    return frame.func.rpartition(".")[2], library_path(frame.file) or frame.file.replace("\\", "/")


def is_library(frame: Frame) -> bool:
    """Is the frame outside of the user's own code?"""
    return frame.native or frame.line is None or library_path(frame.file) is not None


def is_torch_or_python(frame: Frame) -> bool:
    """A library frame of torch or Python itself, which says nothing about who called it."""
    if frame.native or frame.line is None or is_generated(frame.file):
        return True
    top = names(frame)[1].partition("/")[0].removesuffix(".py")
    return top == "torch" or top in sys.stdlib_module_names


def read(frames: Sequence[Frame]) -> tuple[Rule, int] | None:
    """The rule that decides where a stack (innermost frame first) stands, and the frame's index."""
    ruled = [(_rules(frame), index) for index, frame in enumerate(frames)]
    for level in range(BARE + 1):
        for rules, index in ruled:
            rule = rules[level]
            if rule is not None and not (is_backward(rule) and _computes(ruled[:index])):
                return rule, index
    return None


def is_backward(rule: Rule) -> bool:
    """The caller's side of the backward pass, which waits while autograd's threads work."""
    return rule.backward


def is_helper(frames: Sequence[Frame]) -> bool:
    """Is it the stack of a process that is no rank?"""
    return any(_helps(frame) for frame in frames)


def phase(frames: Sequence[Frame]) -> str | None:
    """The phase a stack shows, in the catalog's words."""
    found = min((_phase(frame) for frame in frames), default=len(PHASES))
    if found < len(PHASES) and PHASES[found][0] not in ("init", "training"):
        return PHASES[found][0]
    own = next((own for frame in frames if (own := _own_phase(frame))), None)
    return own or (PHASES[found][0] if found < len(PHASES) else None)


_COMPILED = {
    native: tuple(
        (rule, expression(rule.func), expression(rf"(?:.*/)?(?:{rule.file})"))
        for rule in RULES
        if rule.native == native
    )
    for native in (False, True)
}
_COMPILED_HELPERS = tuple((expression(func), expression(file)) for func, file in HELPERS)
_COMPILED_OWN_PHASES = tuple((name, expression(func)) for name, func in OWN_PHASES)
_COMPILED_PHASES = tuple((expression(func), expression(file)) for _, func, file in PHASES)


@lru_cache(maxsize=65_536)
def _rules(frame: Frame) -> tuple[Rule | None, ...]:
    """The first rule of each level that knows the frame."""
    func, file = names(frame)
    found: list[Rule | None] = [None] * (BARE + 1)
    for rule, in_func, in_file in _COMPILED[frame.native]:
        if found[rule.level] is None and in_func.fullmatch(func) and in_file.fullmatch(file):
            found[rule.level] = rule
    return tuple(found)


def _computes(inner: Sequence[tuple[tuple[Rule | None, ...], int]]) -> bool:
    return any((rule := rules[COMPUTE]) is not None and rule.native for rules, _ in inner)


@lru_cache(maxsize=65_536)
def _helps(frame: Frame) -> bool:
    func, file = names(frame)
    return not frame.native and any(
        in_func.fullmatch(func) and in_file.fullmatch(file)
        for in_func, in_file in _COMPILED_HELPERS
    )


@lru_cache(maxsize=65_536)
def _phase(frame: Frame) -> int:
    func, file = names(frame)
    if frame.native:
        return len(PHASES)
    return next(
        (
            row
            for row, (in_func, in_file) in enumerate(_COMPILED_PHASES)
            if in_func.fullmatch(func) and in_file.fullmatch(file)
        ),
        len(PHASES),
    )


@lru_cache(maxsize=65_536)
def _own_phase(frame: Frame) -> str | None:
    if is_library(frame):
        return None
    func, _ = names(frame)
    return next((name for name, pattern in _COMPILED_OWN_PHASES if pattern.fullmatch(func)), None)
