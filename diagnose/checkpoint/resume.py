"""From which checkpoint to resume, how each framework is told to, and what is lost by it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Literal

from diagnose.checkpoint.model import Checkpoint, Resume
from diagnose.cost import gpu_hours, span
from diagnose.lazy import dataclass
from diagnose.text.times import moment
from diagnose.timeline.event import Timeline

_FILE = "torch.load({quoted}, map_location='cpu', mmap=True, weights_only=True)"
_NO_OPTIMIZER = "  # weights only: the optimizer starts from scratch"
_SAFETENSORS = "safetensors.torch.load_file({quoted})" + _NO_OPTIMIZER
_WEIGHTS = "from_pretrained({quoted})" + _NO_OPTIMIZER
_NUMBER = re.compile(r"\d{1,18}")


def resume(checkpoints: Sequence[Checkpoint]) -> Resume | None:
    """The checkpoint to go on from: the last whole one of the run that was written to last.

    One with optimizer and counters is preferred to mere weights. None when no checkpoint is whole.
    """
    whole = [one for one in checkpoints if one.state == "whole"]
    if not whole:
        return None
    written = _written(checkpoints)

    patterns: dict[str, set[str]] = {}
    for one in checkpoints:
        patterns.setdefault(_parent(one.path), set()).add(_NUMBER.sub("#", _name(one.path)))

    def worth(one: Checkpoint) -> tuple[bool, float, int, list[int], float, str]:
        run = _parent(one.path)
        step = -1 if one.step is None else one.step
        alike = len(patterns[run]) == 1  # then the numbers in the names tell their order
        numbers = [int(n) for n in _NUMBER.findall(_name(one.path))] if alike else []
        return _trained(one), written[run], step, numbers, one.written, one.path

    best = max(whole, key=worth)
    return Resume(best.path, best.step, *how(best))


def newest(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """The last checkpoint of the run that was written to last, in whatever state it is.

    A whole model without optimizer is none where there are others: it is what training ends with.
    """
    written = _written(checkpoints)

    def place(one: Checkpoint) -> tuple[float, int, float, str]:
        return written[_parent(one.path)], one.step or -1, one.written, one.path

    last = max(checkpoints, key=place, default=None)
    if last is None or last.state != "whole" or _trained(last):
        return last
    return max(filter(_trained, checkpoints), key=place, default=last)


def _trained(one: Checkpoint) -> bool:
    """Whether there is more in it than weights, as far as its layout tells."""
    return one.framework not in ("", "peft")


def _written(checkpoints: Sequence[Checkpoint]) -> dict[str, float]:
    """When each run, the folder of its checkpoints, was last written to."""
    written: dict[str, float] = {}
    for one in checkpoints:
        run = _parent(one.path)
        written[run] = max(written.get(run, 0.0), one.written)
    return written


def how(checkpoint: Checkpoint) -> tuple[str, Literal["python", "setting"]]:
    """The call or the setting that resumes from a checkpoint, and which of the two it is."""
    path, name = checkpoint.path, _name(checkpoint.path)
    parent = _parent(path)
    from diagnose.checkpoint.layouts.rows import layouts  # noqa: PLC0415  seldom needed

    rows = (one.row for one in layouts() if one.row.get("framework") == checkpoint.framework)
    ways: dict[str, str] = next((row["resume"] for row in rows if "resume" in row), {})
    pattern = ways.get("setting") or ways.get("python")
    if pattern is None:
        pattern = _FILE if checkpoint.files == 1 else _WEIGHTS
        if checkpoint.layout == "safetensors file":
            pattern = _SAFETENSORS
    text = pattern.format(
        path=_shell(path), parent=_shell(parent), quoted=repr(path), parent_quoted=repr(parent),
        name_quoted=repr(name), step="" if checkpoint.step is None else checkpoint.step,
    )  # fmt: skip
    return text, "setting" if "setting" in ways else "python"


def _shell(path: str) -> str:
    """A path as a word of a shell's command; ANSI-C quoted where it has a line break in it."""
    if path.isprintable():
        return shlex.quote(path)
    escaped = path.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + "'"


def _name(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]


def _parent(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Lost:
    """`last` is the last step the logs show; `steps` and `gpu_hours` are what comes again.

    `gpu_hours` is None where the logs do not tell when the step of the checkpoint was, or how many
    ranks there were.
    """

    last: int
    steps: int
    gpu_hours: float | None


def lost(timeline: Timeline, step: int | None, world_size: int | None) -> Lost | None:
    """What a restart at `step` loses; None where the logs show no step behind it.

    Time counts from the first line at or beyond the step to the last line of the job's own logs.
    """
    steps = [(e.step, e.time) for e in timeline.kind("progress") if e.step is not None]
    if step is None or not steps:
        return None
    last = max(count for count, _ in steps)
    if last < step:
        return None
    began = [time for count, time in steps if count >= step and time is not None]
    end = span(timeline)[1]
    seconds = None
    if began and end is not None:
        seconds = max(0.0, (end - moment(min(began))).total_seconds())
    return Lost(last, last - step, gpu_hours(seconds, world_size))
