"""The file of `--topology`: where the nodes are."""

from __future__ import annotations

from pathlib import Path

from diagnose.errors import InputError
from diagnose.ingest.raw import reason
from diagnose.ingest.sniff import without_mark
from diagnose.parse.topology import Topology, topology_of

MAX_BYTES = 64 << 20


def read_topology(path: Path) -> Topology:
    """The topology in a file. Raises InputError where it cannot be read or says nothing."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: {reason(error)}") from error
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
    found = topology_of(without_mark(data).decode("utf-8", "replace"))
    if found is None:
        raise InputError(
            f"{path}: no topology: give a CSV with the columns host and rack, leaf …, Slurm's "
            "topology.conf or topology.yaml, Topograph's JSON, or the output of "
            "`kubectl get nodes -o json` or ibnetdiscover"
        )
    return found
