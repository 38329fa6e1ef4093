"""Runs the commands of a form, one after another, without a shell."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from diagnose.errors import InputError
from diagnose.runtime.children import TimedOut, Unavailable, found, output

_SECONDS = 60
_IN_SCRIPT = "SLURM_SCRIPT_CONTEXT"  # set by Slurm in prologs and epilogs


def carry_out(commands: Iterable[Sequence[str]]) -> None:
    """Run all commands. Raises InputError with what the first that fails says.

    Not in a prolog or epilog of Slurm, which must not talk to the controller.
    """
    where = os.environ.get(_IN_SCRIPT, "")
    if where.startswith(("prolog", "epilog")):
        raise InputError(
            f"this is the {where} of Slurm, which must not change nodes: write the record there "
            "(--form json) and apply it from a service or by hand"
        )
    for program, *words in commands:
        try:
            output([found(program), *words], _SECONDS)
        except (OSError, TimedOut, Unavailable) as error:
            raise InputError(f"{program} {' '.join(words[:3])}: {error}") from error
