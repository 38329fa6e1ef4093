"""Asks NCCL's RAS service how far each rank of each communicator got, as `ncclras` does.

Lines over TCP (nccl: src/ras/client.cc, client_support.cc): both sides name their protocol, then
`TIMEOUT n`, `SET FORMAT json` (2.29 on) and `VERBOSE STATUS`; the report ends with the connection.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from diagnose.collect.children import Unavailable
from diagnose.collect.sink import Sink

PORT = 28028
_PROTOCOL = 2
_LEG_S = 3  # for which NCCL waits for the other nodes
_MAX_REPORT = 32 << 20
_NAME = "ncclras"
APART_S = 5.5  # what is behind after so long did not fall behind in passing


def answered(sink: Sink) -> bool:
    """Whether there is a first report."""
    return _first(sink) is not None


def second_report(sink: Sink, environments: list[Mapping[str, str]], seconds: float) -> str | None:
    """A second report, long enough after the first. Raises Unavailable, OSError."""
    first = _first(sink)
    since = first.stat().st_mtime if first else 0.0
    time.sleep(max(0.0, min(APART_S, since + APART_S - time.time())))
    return ask(sink, environments, seconds, f"{_NAME}-2")


def _first(sink: Sink) -> Path | None:
    return next(sink.folder.glob(f"{_NAME}.*"), None)


def ask(
    sink: Sink, environments: list[Mapping[str, str]], seconds: float, name: str = _NAME
) -> str | None:
    """`ncclras.json`, or `ncclras.txt` of older versions. Raises Unavailable, OSError."""
    addresses = {one.get("NCCL_RAS_ADDR", "") for one in environments}
    refused = ""
    for address in sorted(addresses) or [""]:
        host, port = place(address)
        for form in ("json", "text"):
            try:
                report = _report(host, port, form, seconds)
            except ConnectionRefusedError:
                refused = f"nobody listens at {host}:{port}"
                break
            if report:
                sink.text(f"{name}.{'json' if form == 'json' else 'txt'}", report)
                return None
    raise Unavailable(refused or "no report")


def place(address: str) -> tuple[str, int]:
    """Host and port of NCCL_RAS_ADDR: `host:port`, `[::1]:port`; where empty, NCCL's own."""
    host, _, port = address.strip().rpartition(":")
    if not host or not port.isdecimal():
        return "localhost", PORT
    return host.strip("[]"), int(port)


def _report(host: str, port: int, form: str, seconds: float) -> str:
    """The report in one form, "" where NCCL does not know it. Raises OSError."""
    with socket.create_connection((host, port), timeout=1.0) as connection:
        connection.settimeout(seconds)
        stream = connection.makefile("rwb", buffering=0)

        def say(line: str) -> str:
            stream.write(f"{line}\n".encode())
            answer = stream.readline(1024)
            return (answer or b"").decode("ascii", "replace").strip()

        with suppress(BrokenPipeError, ConnectionResetError):
            if not say(f"CLIENT PROTOCOL {_PROTOCOL}").upper().startswith("SERVER PROTOCOL"):
                raise Unavailable(f"what listens at {host}:{port} is not NCCL")
            if say(f"TIMEOUT {_LEG_S}").upper() != "OK":
                return ""
            if form == "json" and say("SET FORMAT json").upper() != "OK":
                return ""
            stream.write(b"VERBOSE STATUS\n")
            parts, left = [], _MAX_REPORT
            while left > 0 and (part := connection.recv(1 << 16)):
                parts.append(part)
                left -= len(part)
            return b"".join(parts).decode("utf-8", "replace")
    return ""
