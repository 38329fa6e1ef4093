"""What is found out about checkpoints: flaws, states, and from which one to resume."""

from __future__ import annotations

import json
from dataclasses import field, replace
from enum import Enum, auto
from typing import Any, Literal

from diagnose.checkpoint.tree import Leaf
from diagnose.lazy import dataclass

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
    `parts` are its files by path relative to it. `notes` are for the reader and no flaw.
    """

    path: str
    layout: str
    parts: dict[str, Leaf]
    step: int | None = None
    ranks: int | None = None
    framework: str = ""
    flaws: list[Flaw] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

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
