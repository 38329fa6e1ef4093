"""Jobs beyond the bounds of memory of a real worker, and the server after them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from .running import API, LOG, running

MIB = 1 << 20
BUSY_S = 180.0  # of a busy machine


def archive(ranks: int) -> bytes:
    """The logs of the ranks of a job: many kinds of lines that matter, each of which is kept."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        for rank in range(ranks):
            lines = [
                f"[rank{rank}]: RuntimeError: {'x' * 400} batch {n} of shard {rank * 7919}\n"
                for n in range(50)
            ]
            data = "".join(lines).encode()
            member = tarfile.TarInfo(f"logs/rank{rank}.log")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


@pytest.mark.slow
def test_a_job_beyond_its_memory_is_told_as_such_and_others_go_on(tmp_path: Path) -> None:
    # Of the bound a worker itself takes some 150 MiB. This job needs 450 more, the next one few.
    with running(tmp_path, workers=1, memory=224 * MIB) as server:
        reply = server.http.post(
            API,
            content=archive(4000),
            headers={"content-type": "application/octet-stream"},
            params={"name": "logs.tar.gz"},
        )
        told = server.until(reply.json()["id"], "failed", seconds=BUSY_S)
        assert told["error"] == "needs more than the 224 MiB of memory that a job may use"
        page = server.http.get(f"/d/{told['id']}").text
        assert "eeds more than the 224 MiB of memory that a job may use." in page
        after = server.until(server.post(LOG)["id"], "done", seconds=BUSY_S)
        assert after["verdict"] == "hung"
        assert list((tmp_path / "spool").iterdir()) == []
