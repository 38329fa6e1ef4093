"""What many diagnosed jobs have in common: causes, repeats, suspect nodes, gaps of the catalog.

    jobs = fleet.read(Path("results"))      # Jobs, by column
    found = fleet.summarise(jobs)           # Fleet: plain data for every report

It reads what `diagnose scan` wrote and looks at no log.
"""

from __future__ import annotations

from diagnose.fleet.read import read
from diagnose.fleet.summary import Fleet, summarise

__all__ = ["Fleet", "read", "summarise"]
