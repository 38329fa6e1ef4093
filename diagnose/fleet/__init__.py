"""What many diagnosed jobs have in common: causes, repeats, suspect nodes, gaps of the catalog.

    jobs = fleet.read(Path("results"))      # Jobs, by column
    found = fleet.summarise(jobs)           # Fleet: plain data for every report

It reads what `diagnose scan` wrote; only `reports`, which makes post-mortems, looks at logs.
"""

from __future__ import annotations

from diagnose.fleet.jobs import read
from diagnose.fleet.summary import Fleet, summarise

__all__ = ["Fleet", "read", "summarise"]
