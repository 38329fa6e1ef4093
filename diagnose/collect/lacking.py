"""What the verdict on a node will lack, and how to get it: a line for each kind of evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from diagnose.collect.model import Probe
from diagnose.text.ranks import counted

_OUTPUTS = ("stdout", "stderr", "output")


def lines(probes: Iterable[Probe]) -> list[str]:
    """One line where processes have no stacks, and one where there is no log at all."""
    known = {probe.name: PurePosixPath(probe.name).name.partition("-")[0] for probe in probes}
    stacks = [probe for probe in probes if probe.name.endswith("/stack-1")]
    logs = [probe for probe in probes if known[probe.name] in _OUTPUTS]
    without = [probe for probe in stacks if probe.status != "ok"]
    found = []
    if without:
        what = counted(len(without), "process", "processes")
        found.append(f"no stacks of {what}: {_most(without)}")
    if logs and not any(probe.status == "ok" for probe in logs):
        found.append(f"no log of the job: {_most(logs)}; give its log beside this bundle")
    return found


def _most(probes: Sequence[Probe]) -> str:
    return Counter(probe.problem for probe in probes).most_common(1)[0][0]
