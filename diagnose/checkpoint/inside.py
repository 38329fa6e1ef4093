"""What a pickle shows without being unpickled: the step it claims, and imports that run code."""

from __future__ import annotations

import re

from diagnose.checkpoint.damaged import DamagedError
from diagnose.lazy import compiled
from diagnose.parse.pickles import PickleError, walk

MAX_BYTES = 2 << 20  # of a pickle that are looked at
MAX_STEP = 1 << 53
_CLEAR = frozenset({"global_step", "global_steps"})  # whatever it stands in
_KEYS = _CLEAR | {"iteration"}  # Megatron-LM's args have one, too: only the outermost counts
_SCHEDULER = _KEYS | {"last_epoch"}  # counts calls of step(), which trainers do once per step
_MANY = 8  # pairs; a file that has more of them wants to be slow
# A key, its place in the memo, and the small integer behind it, if there is one.
_PAIR = compiled(
    rb"(?:X[\x09-\x0c]\0\0\0|[\x8cU][\x09-\x0c])(?P<key>global_steps?|iteration|last_epoch)"
    rb"(?:q(?P<near>.)|r(?P<far>....)|\x94)?+(?:K(?P<one>.)|M(?P<two>..)|J(?P<four>....))?+",
    re.DOTALL,
)
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


def step_in(data: bytes, name: str) -> int | None:
    """The step that the beginning of a pickle claims; None where it claims none, or several.

    `name` is that of its file: in those of schedulers `last_epoch` is a step, too. Never raises.
    """
    keys = _SCHEDULER if name.startswith("scheduler") else _KEYS
    data = data[:MAX_BYTES]
    pairs = [pair for pair in _PAIR.finditer(data) if pair["key"].decode() in keys]
    if not pairs:
        return None
    # Walking takes a hundred times as long: it is for what is not clear at once.
    steps = {_clear_step(data, pair) for pair in pairs} if len(pairs) < _MANY else {None}
    step = steps.pop()
    return _walked(data, keys) if steps or step is None else _plausible(step)


def _clear_step(data: bytes, pair: re.Match[bytes]) -> int | None:
    """The step behind a key that means one wherever it stands, and does not stand there twice."""
    number = pair["one"] or pair["two"] or pair["four"]
    if pair["key"].decode() not in _CLEAR or number is None:
        return None
    if pair["near"] is not None:
        repeated = b"h" + pair["near"]
    elif pair["far"] is not None:
        repeated = b"j" + pair["far"]
    else:
        return None
    if repeated in data:
        return None
    return int.from_bytes(number, "little", signed=pair["four"] is not None)


def _walked(data: bytes, keys: frozenset[str]) -> int | None:
    """The step among the items of the outermost dict; if there is none, that in all dicts."""
    try:
        found = walk(data, 0, keys)
    except PickleError:
        return None
    outer = found.value.items() if isinstance(found.value, dict) else ()
    inner = [(key, number) for key, number in found.items if key in _CLEAR]
    for items in (outer, inner):
        steps = {number for _, number in items if type(number) is int}
        if steps:
            return _plausible(steps.pop()) if len(steps) == 1 else None
    return None


def _plausible(step: int) -> int | None:
    return step if 0 <= step < MAX_STEP else None


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
