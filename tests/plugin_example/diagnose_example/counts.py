"""Acme's table of the collectives of each rank: `acme counts`, then `rank begun done`."""

from __future__ import annotations

from diagnose.artifacts import Artifacts, Reader
from diagnose.ingest.source import Source
from diagnose.parse.comm_rank import CommRank

HEAD = b"acme counts\n"


def recognises(head: bytes, name: str) -> bool:
    return head.startswith(HEAD)


def read(source: Source) -> Artifacts:
    rows = [map(int, line.split()) for line in source.content().decode().splitlines()[1:]]
    ranks = [
        CommRank(
            source.name, number, "world", rank, len(rows), rank, launched=begun, completed=done
        )
        for number, (rank, begun, done) in enumerate(rows, 2)
    ]
    return Artifacts(ras=ranks)


READER = Reader(recognises, read)
