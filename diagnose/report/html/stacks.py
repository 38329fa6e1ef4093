"""Where each rank stands by its stacks, ranks that stand alike told once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diagnose.report.html.scrub import Scrub
from diagnose.text.ranks import ranks_phrase

if TYPE_CHECKING:
    from diagnose.infer.stacks.groups import PlaceClass

MAX_PLACES = 100
MAX_FRAMES = 60


@dataclass(frozen=True, slots=True)
class Stand:
    """Ranks at one place; `site` is the line of their own code, `frames` the innermost first."""

    ranks: str
    state: str
    detail: str
    site: str
    frames: list[str]


def places(classes: Sequence[PlaceClass], scrub: Scrub) -> list[Stand]:
    """The classes in their order: the odd ones come first."""
    found = []
    for group in classes[:MAX_PLACES]:
        frames = group.places[0].stack.frames if group.places else ()
        found.append(
            Stand(
                ranks_phrase(group.ranks),
                scrub.text(group.state.replace("_", " ")),
                scrub.text(group.detail),
                scrub.text(group.site or ""),
                [
                    scrub.text(
                        f"{frame.func}  {frame.file}"
                        + ("" if frame.line is None else f":{frame.line}"),
                        300,
                    )
                    for frame in frames[:MAX_FRAMES]
                ],
            )
        )
    return found
