"""Asks a server as a client does, with the client of the SDK."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.types import CallToolResult

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
COMMAND = [sys.executable, "-m", "diagnose", "mcp"]
Ask = Callable[..., CallToolResult]

# Five jobs of different kinds: a hang without dumps, one with, a partial checkpoint, several hosts
# that died, and one that ended well.
JOBS = (
    "torchrun-missing-rank", "flight-recorder-mismatch", "llama2-accessory-first-save",
    "mpi-segfault", "healthy-transformers",
)  # fmt: skip


def stdio(root: Path, *arguments: str) -> StdioServerParameters:
    """A server of our own, which starts with the client."""
    # without what the SDK keeps from a server: the cache of the tests, and their environment
    environment = {name: value for name, value in os.environ.items() if value}
    return StdioServerParameters(
        command=COMMAND[0],
        args=[*COMMAND[1:], "--root", str(root), *arguments],
        env=environment,
        cwd=ROOT,
    )


def asked(server: Any, *calls: tuple[str, dict[str, Any]]) -> list[CallToolResult]:
    """The answers to some calls of tools, one after the other on one connection."""

    async def ask() -> list[CallToolResult]:
        async with Client(server) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return anyio.run(ask)


def text(result: CallToolResult) -> str:
    """What the model reads."""
    (content,) = result.content
    assert content.type == "text"
    return content.text


def data(result: CallToolResult) -> dict[str, Any]:
    """The same as data."""
    assert not result.is_error, text(result)
    assert isinstance(result.structured_content, dict)
    return result.structured_content


def length(result: CallToolResult) -> int:
    """Bytes of an answer on the wire."""
    return len(result.model_dump_json(by_alias=True, exclude_none=True).encode())


async def tour(client: Client, job: str) -> dict[str, CallToolResult]:
    """Every tool asked about one job, each with what the answer before told."""
    found = {"triage": await client.call_tool("triage", {"path": job})}
    answer = data(found["triage"])
    evidence = [item for item in answer["evidence"] if item["line"]]
    place = evidence[0] if evidence else None
    ranks = answer["culprits"]["ranks"]
    found["timeline"] = await client.call_tool(
        "timeline", {"job": job, "rank": ranks[0]} if ranks else {"job": job}
    )
    found["waits"] = await client.call_tool("waits", {"job": job})
    asked_for = {"job": job, "project": "pytorch"}
    found["issue_text"] = await client.call_tool("issue_text", asked_for)
    if place:
        where = {"job": job, "source": place["source"], "line": place["line"]}
        found["lines"] = await client.call_tool("lines", where)
        found["match_line"] = await client.call_tool("match_line", {"text": place["text"]})
    found["explain"] = await client.call_tool("explain", {"name": answer["root_cause"]["class"]})
    found["checkpoint"] = await client.call_tool("checkpoint", {"path": job})
    return found


def toured(server: Any) -> dict[str, dict[str, CallToolResult]]:
    """A tour of every job, on one connection."""

    async def ask() -> dict[str, dict[str, CallToolResult]]:
        async with Client(server) as client:
            return {job: await tour(client, job) for job in JOBS}

    return anyio.run(ask)


@contextmanager
def http(root: Path, *arguments: str) -> Iterator[str]:
    """A server on a free port of loopback; its URL."""
    process = subprocess.Popen(
        [*COMMAND, "--root", str(root), "--http", "127.0.0.1:0", *arguments],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("diagnose mcp: http://127.0.0.1:"), line
        yield line.removeprefix("diagnose mcp: ").strip()
    finally:
        process.terminate()
        process.wait(30)
        if process.stderr is not None:
            process.stderr.close()
