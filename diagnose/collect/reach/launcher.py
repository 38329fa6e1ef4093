"""Nodes by any launcher: one command that starts a process on each node.

What those processes write comes out of the launcher mixed, so they answer in `frames`.
"""

from __future__ import annotations

import shlex

from diagnose.collect.reach.model import Call, Plan
from diagnose.collect.reach.program import Start
from diagnose.collect.reach.tools import absent
from diagnose.errors import InputError

# What a launcher told the rank in which we may be; what its user set for it stays.
CLEAN = ("OMPI_COMM_", "OMPI_MCA_ess_", "OMPI_MCA_orte_", "PMIX_", "PMI_")


def plan(launcher: str, start: Start) -> Plan:
    """The one call of a launcher such as `mpirun -npernode 1`. Raises InputError."""
    try:
        words = shlex.split(launcher)
    except ValueError as error:
        raise InputError(f"--via: {error}") from error
    if not words:
        raise InputError("--via is empty")
    missing = absent(words[0])
    found = Plan(launcher, problems=missing, clean=CLEAN)
    if not missing:
        found.calls = [Call(words[0].rpartition("/")[2], (*words, *start.words), lines=True)]
    return found
