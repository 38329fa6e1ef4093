"""The fleet report in its forms; input is a `diagnose.fleet.Fleet`.

terminal, json and csv are for one person and programs; html is one page for colleagues;
slurm_exclude is a list of suspect nodes that Slurm's commands take.
"""

from __future__ import annotations

from diagnose.fleet.nodes import fold
from diagnose.fleet.summary import Fleet

__all__ = ["slurm_exclude"]


def slurm_exclude(fleet: Fleet) -> str:
    """`gpu[047,112]` and a newline for `sbatch --exclude`; empty when no node is suspect."""
    hosts = fold(suspect.host for suspect in fleet.nodes.suspects)
    return f"{hosts}\n" if hosts else ""
