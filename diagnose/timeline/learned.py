"""How the rank of an event became known, the surest first."""

from __future__ import annotations

from enum import StrEnum


class Learned(StrEnum):
    """By what the author of a line, or its subject, was told from the others."""

    LINE = "line"  # its own prefix, or what it says
    TABLE = "table"  # a failure table names the rank a line above
    PROCESS = "process"  # its process named its rank elsewhere
    COMMUNICATOR = "communicator"  # its rank in the communicator of all ranks
    PEERS = "peers"  # NCCL's lines about channels and rings name who printed them
    FILE = "file"  # the name of its file or folder
    HOST = "host"  # the number of its pod or host, which others of these name as their rank
    LOCAL_RANK = "local_rank"  # a local rank seen with one rank in its source
    SOURCE = "source"  # the only rank that its source names
    TASK = "task"  # a launcher that starts one task a rank
    NODE = "node"  # its local rank, as the whole job is on one node
    DEVICE = "device"  # its CUDA device, as the whole job is on one node
    ALONE = "alone"  # the log shows one process and names one rank
    GROUP = "group"  # the rank in its process group, as nothing else names ranks


# Told by circumstances: nothing in the log ties this rank to this process itself.
CIRCUMSTANTIAL = frozenset({Learned.NODE, Learned.DEVICE, Learned.ALONE, Learned.GROUP})
