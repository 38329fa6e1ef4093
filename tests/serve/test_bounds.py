"""Jobs beyond the bounds of memory of a real worker, and the server after them."""

from __future__ import annotations

import gzip
from pathlib import Path

from .running import API, LOG, running

MIB = 1 << 20


def test_a_job_beyond_its_memory_is_told_as_such_and_others_go_on(tmp_path: Path) -> None:
    # A log of many kinds of lines that matter, each of which is kept.
    lines = "".join(
        f"[rank{n % 64}]: RuntimeError: {'x' * 400} batch {n} of shard {n * 7919}\n"
        for n in range(20_000)
    )
    with running(tmp_path, workers=1, memory=8 * MIB) as server:
        reply = server.http.post(
            API,
            content=gzip.compress(lines.encode() * 4, 1),
            headers={"content-type": "application/octet-stream"},
            params={"wait": "60", "name": "rank0.log.gz"},
        )
        assert reply.json()["state"] == "failed"
        assert reply.json()["error"] == "needs more than the 8 MiB of memory that a job may use"
        page = server.http.get(f"/d/{reply.json()['id']}").text
        assert "eeds more than the 8 MiB of memory that a job may use." in page
        after = server.post(LOG, wait=60)
        assert after["verdict"] == "hung"
        assert list((tmp_path / "spool").iterdir()) == []
