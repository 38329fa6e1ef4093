"""The answer of `checkpoint`: which are intact, what is wrong, and which one to resume from."""

from __future__ import annotations

from typing import Any

from diagnose.checkpoint.find import inspect
from diagnose.checkpoint.model import Checkpoint, Inspection
from diagnose.errors import InputError
from diagnose.mcp.answer import Answer
from diagnose.mcp.root import Root
from diagnose.mcp.triage import drawn
from diagnose.report import checkpoint as report
from diagnose.report.safe import Scrub, each

MAX_CHECKPOINTS, MAX_REASONS = 30, 4
_LIMITS = (
    "`unknown` (not verified) is no sign of damage. A checkpoint that is intact by its files can "
    "still hold wrong numbers."
)


def checkpoint(root: Root, path: str, scrub: Scrub, *, verify: bool) -> Answer:
    """The checkpoints in and below a folder. Raises InputError."""
    found = root.find(path)
    leaving = root.leaving(found) if found.is_dir() else None
    if leaving is not None:
        raise InputError(
            f"{root.name(leaving)}: is outside the root folder; restart the server with a "
            "--root that holds both"
        )
    whole = inspect([str(found)], verify=verify)
    inspection = each(whole, lambda text, _: scrub.text(text))
    lines = drawn(lambda console: report.render(inspection, console))
    lines += [f"note: {note}" for note in inspection.notes[:MAX_REASONS]]
    more = f"`diagnose checkpoint {root.name(found)} --format json` prints all of it"
    return Answer([*lines, "", _LIMITS], _data(inspection), more)


def _data(inspection: Inspection) -> dict[str, Any]:
    shown = inspection.checkpoints
    if len(shown) > MAX_CHECKPOINTS:  # what is wrong, and the newest
        wrong = [one for one in shown if one.state != "whole"][-MAX_CHECKPOINTS // 2 :]
        rest = [one for one in shown if one.state == "whole"][-(MAX_CHECKPOINTS - len(wrong)) :]
        kept = {one.path for one in (*wrong, *rest)}
        shown = [one for one in shown if one.path in kept]
    back = inspection.resume
    return {
        "checkpoints": [_one(one) for one in shown],
        "checkpoints_in_all": len(inspection.checkpoints),
        "resume": {"path": back.path, "step": back.step, "how": back.how} if back else None,
    }


def _one(found: Checkpoint) -> dict[str, Any]:
    reasons = found.reasons
    return found.to_dict() | {
        "reasons": reasons[:MAX_REASONS],
        "more_reasons": max(0, len(reasons) - MAX_REASONS),
    }
