"""What one file of a checkpoint is, and whether its structure is complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from diagnose.checkpoint.model import Flaw, Found
from diagnose.checkpoint.tree import Leaf

Kind = Literal["torch", "legacy", "safetensors", "pickle", "json", "text", "other"]


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at the ends of one file tells.

    `flaw` is the first thing wrong with it, without a file name. `tensors` are the bytes of each
    tensor by name (safetensors), `data` the parsed content (JSON), `text` that of short text files,
    `step` the step its content claims (a key such as `global_step`, `iteration`), `digest` is the
    same for the same content and empty where only reading all of it would tell.
    """

    kind: Kind
    flaw: Flaw | None = None
    tensors: Mapping[str, int] | None = None
    data: Any = None
    text: str = ""
    step: int | None = None
    digest: str = ""


@dataclass(slots=True)
class Looker:
    """Looks at files, each once. `verify`: read all bytes and check the checksums they carry."""

    verify: bool = False
    seen: dict[str, Look] = field(default_factory=dict)

    def __call__(self, leaf: Leaf) -> Look:
        """What the file is; an error of reading is a flaw of state `unknown`."""
        raise NotImplementedError

    def check(self, found: Found, names: Iterable[str] | None = None) -> dict[str, Look]:
        """Look at the parts of a checkpoint (default: all) and add their flaws to it."""
        raise NotImplementedError
