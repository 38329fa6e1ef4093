"""What is found out about checkpoints: flaws, states, from which one to resume, and how."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Literal

from diagnose.checkpoint.tree import Leaf
from diagnose.cost import gpu_hours, span
from diagnose.text.times import moment
from diagnose.timeline.event import Timeline

if TYPE_CHECKING:
    from diagnose.checkpoint.layouts.rows import Layout

SCHEMA = "diagnose-checkpoint/1"
# What of these the JSON tells.
JSON_KEYS = {
    "Checkpoint": ("path", "layout", "step", "state", "reasons", "files", "bytes"),
    "Resume": ("path", "step", "how"),
}

State = Literal["whole", "partial", "corrupt", "unknown"]
# What reports call the states.
STATE_WORDS: dict[State, str] = {
    "whole": "intact",
    "partial": "incomplete",
    "corrupt": "corrupt",
    "unknown": "not verified",
}
_WORST: tuple[State, ...] = ("corrupt", "partial", "unknown")


class FlawKind(Enum):
    """What a flaw rests on, where the checkpoints beside it may take it back."""

    OTHER = auto()
    STEP = auto()  # the content claims another step than the name
    OLDER = auto()  # the file was written long before the others
    TIME = auto()  # another difference in modification times


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that keeps a checkpoint from being whole.

    `state`: `partial` for what a save that was cut off leaves (missing, empty, shorter than it
    says, a left-over of writing), `corrupt` for content that contradicts itself or its neighbours,
    `unknown` where it may be innocent. `file` is relative to the checkpoint, empty for the
    checkpoint as a whole; `why` is a sentence without it.
    """

    state: State
    why: str
    file: str = ""
    kind: FlawKind = field(default=FlawKind.OTHER, compare=False)

    def __str__(self) -> str:
        """The reason as reports print it, naming the file."""
        return f"{self.file}: {self.why}" if self.file else self.why


@dataclass(slots=True)
class Found:
    """A checkpoint as its layout sees it, while it is being judged.

    `path` is the whole path of the folder or file; `layout` what kind it is, as printed; `step` the
    step it claims; `ranks` how many ranks its files say they come from; `framework` the id that
    settings of remedies use (transformers, deepspeed, megatron …), which tells how to resume.
    `parts` are its files by path relative to it. `notes` are for the reader and no flaw. `by` is
    the layout that recognised a folder.
    """

    path: str
    layout: str
    parts: dict[str, Leaf]
    step: int | None = None
    ranks: int | None = None
    framework: str = ""
    flaws: list[Flaw] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    by: Layout | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rsplit("/", 1)[-1]

    def flaw(self, state: State, why: str, file: str = "", kind: FlawKind = FlawKind.OTHER) -> None:
        """Add a flaw."""
        self.flaws.append(Flaw(state, why, file, kind))

    def absorb(self, folder: str, inner: Found) -> None:
        """Take over what another layout found in the folder of this name inside this one."""
        self.parts |= {f"{folder}/{path}": leaf for path, leaf in inner.parts.items()}
        self.flaws += [
            replace(flaw, file=f"{folder}/{flaw.file}" if flaw.file else folder)
            for flaw in inner.flaws
        ]
        self.notes += [f"{folder}: {note}" for note in inner.notes]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint, judged. `written` is when its youngest file was changed (seconds since 1970).

    `reasons` are one sentence per flaw, the worst first; `missing` the files that flaws name and
    that are not there; `notes` what is no flaw but worth knowing.
    """

    path: str
    layout: str
    step: int | None
    ranks: int | None
    state: State
    reasons: list[str]
    files: int
    bytes: int
    written: float = 0.0
    framework: str = ""
    notes: list[str] = field(default_factory=list)
    missing: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Its form in JSON."""
        return {key: getattr(self, key) for key in JSON_KEYS["Checkpoint"]}


@dataclass(frozen=True, slots=True)
class Resume:
    """The checkpoint to resume from, and the call or setting that does."""

    path: str
    step: int | None
    how: str
    kind: Literal["python", "setting"] = "setting"


@dataclass(frozen=True, slots=True)
class Inspection:
    """All checkpoints below the given paths, in order of path and step."""

    checkpoints: list[Checkpoint]
    resume: Resume | None = None
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        """Schema `diagnose-checkpoint/1` as text, ending without a newline."""
        resume = self.resume and {key: getattr(self.resume, key) for key in JSON_KEYS["Resume"]}
        data = {
            "schema": SCHEMA,
            "checkpoints": [checkpoint.to_dict() for checkpoint in self.checkpoints],
            "resume": resume,
        }
        return json.dumps(data, ensure_ascii=False, indent=2)


def judged(found: Found) -> Checkpoint:
    """What the flaws of a checkpoint add up to."""
    flaws = sorted(dict.fromkeys(found.flaws), key=lambda flaw: _WORST.index(flaw.state))
    return Checkpoint(
        path=found.path,
        layout=found.layout,
        step=found.step,
        ranks=found.ranks,
        state=flaws[0].state if flaws else "whole",
        reasons=[str(flaw) for flaw in flaws],
        files=len(found.parts),
        bytes=sum(max(0, leaf.size) for leaf in found.parts.values()),
        written=max((leaf.mtime for leaf in found.parts.values()), default=0.0),
        framework=found.framework,
        notes=list(dict.fromkeys(found.notes)),
        missing=tuple(flaw.file for flaw in flaws if flaw.file and flaw.file not in found.parts),
    )


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
