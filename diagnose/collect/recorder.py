"""What torch and NCCL have recorded: Flight Recorder dumps, copied and asked for, and RAS reports.

A process group of NCCL that was given TORCH_NCCL_DEBUG_INFO_PIPE_FILE opens a named pipe
(`PREFIX<rank>.pipe`) and writes a dump when anything comes in; to `PREFIX<rank>` of
TORCH_FR_DUMP_TEMP_FILE or TORCH_NCCL_DEBUG_INFO_TEMP_FILE, else below /tmp or the cache of the
user (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, FlightRecorder.cpp). A rank with a server of
its own at the local socket TORCH_WORKER_SERVER_SOCKET (torch/distributed/elastic/control_plane.py)
gives a dump as JSON, of gloo as well.

NCCL's RAS service says how far each rank of each communicator got, as `ncclras` shows: lines over
TCP (nccl: src/ras/client.cc, client_support.cc): both sides name their protocol, then `TIMEOUT n`,
`SET FORMAT json` (2.29 on) and `VERBOSE STATUS`; the report ends with the connection.
"""

from __future__ import annotations

import json
import os
import pickletools
import re
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from diagnose.collect import proc
from diagnose.collect.bundle import Process, Sink
from diagnose.collect.find import Seen
from diagnose.runtime.children import Unavailable

PORT = 28028
_PROTOCOL = 2
_LEG_S = 3  # for which NCCL waits for the other nodes
_MAX_REPORT = 32 << 20
_NAME = "ncclras"
APART_S = 5.5  # what is behind after so long did not fall behind in passing
_PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
_SERVER = "TORCH_WORKER_SERVER_SOCKET"
_HANDLERS = ("dump_nccl_trace_json", "fr_trace_json")
_MAX_LIST = 4 << 20
_STEM = "nccl_trace_rank_"
_SETTLED_S = 0.3  # a dump that has not grown for so long is written
_MAX_DUMP = 64 << 20
_TICKS = os.sysconf("SC_CLK_TCK")
_PLAIN = re.compile(rb"[ -~]{8,}")


def collect(sink: Sink, process: Process, seen: Seen, dump: bool, seconds: float) -> str | None:
    """The dumps of a rank below `flight_recorder/`. Raises Unavailable where it has none."""
    if process.rank is None:
        raise Unavailable("the rank is unknown, and so is the name of its dump")
    root = f"{proc.PROC}/{process.pid}/root"
    places = [*dict.fromkeys(_places(seen.environment, process.rank))]
    given = _served(seen.environment, process.pid, seconds) if dump else None
    if given is not None and len(given) < sink.left:
        sink.data(f"{_STEM}{process.rank}.json", masked(given, sink))
        return None
    asked = dump and _ask(root, seen.environment, process.rank)
    if asked:
        _await(root, places, seconds)
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    began = boot + seen.started / _TICKS
    stale = 0
    for place in places:
        try:
            stat = Path(root + place).stat()
            if stat.st_mtime < began - 1:
                stale += 1  # of a job before this one
                continue
            data = proc.raw(root + place, _MAX_DUMP + 1)
        except OSError:
            continue
        if len(data) > min(_MAX_DUMP, sink.left):
            return f"{place}: larger than {min(_MAX_DUMP, sink.left)} bytes, left out"
        sink.data(f"{_STEM}{process.rank}", masked(data, sink))
        return None
    if asked:
        return "asked for a dump, and none was written"
    raise Unavailable(
        "its dump is older than the process: of another job" if stale else "no dump was written"
    )


def masked(data: bytes, sink: Sink) -> bytes:
    """A dump without secrets, of the same length and still readable: each is overwritten."""
    if data[:1] in (b"{", b"["):
        return sink.masked(data.decode("utf-8", "replace")).encode()
    plain = {found[0].decode("ascii") for found in _PLAIN.finditer(data)}
    if not any(sink.secret(text) for text in plain):
        return data
    found, read = bytearray(data), 0
    with suppress(Exception):  # a dump cut short
        for _, argument, at in pickletools.genops(data):
            read = at or 0
            if isinstance(argument, str) and sink.secret(argument):
                text = argument.encode("utf-8", "surrogatepass")
                begin = data.index(text, read)
                found[begin : begin + len(text)] = b"*" * len(text)
        read += 1  # what stands before is no text: numbers may look like any
    for run in _PLAIN.finditer(bytes(found), read):  # what is no whole string, behind a cut
        if sink.secret(run[0].decode("ascii")):
            found[run.start() : run.end()] = b"*" * len(run[0])
    return bytes(found)


def _places(environment: Mapping[str, str], rank: int) -> Iterator[str]:
    for name in _PREFIXES:
        if environment.get(name):
            yield f"{environment[name]}{rank}"
    yield f"/tmp/{_STEM}{rank}"
    home = environment.get("HOME", "/root")
    cache = environment.get("XDG_CACHE_HOME") or f"{home}/.cache"
    yield f"{cache}/torch/{_STEM}{rank}"


def _ask(root: str, environment: Mapping[str, str], rank: int) -> bool:
    """Write into the pipe by which torch is asked; False where nobody listens."""
    prefix = environment.get(_PIPE)
    if not prefix:
        return False
    try:
        # No reader, and the open fails instead of waiting for one.
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(f"{root}{prefix}{rank}.pipe", flags)
    except OSError:
        return False
    try:
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return False
        os.write(fd, b"1\n")
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def _served(environment: Mapping[str, str], pid: int, seconds: float) -> bytes | None:
    """A dump from the rank's own server; None where it has none, or it gives no answer."""
    place = environment.get(_SERVER)
    if not place or not _listens(pid, place):
        return None
    connection = HTTPConnection("localhost", timeout=seconds)
    try:
        # None of the two needs Python's lock, which a rank that hangs may hold.
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(seconds)
        connection.sock.connect(place)
        connection.request("GET", "/handler/")
        handlers = json.loads(connection.getresponse().read(_MAX_LIST))
        wanted = [name for name in _HANDLERS if name in handlers]
        if not wanted:
            return None
        connection.request("POST", f"/handler/{wanted[0]}")
        answer = connection.getresponse()
        return answer.read(_MAX_DUMP) if answer.status == HTTPStatus.OK else None
    except (OSError, ValueError, HTTPException):
        return None
    finally:
        connection.close()


def _listens(pid: int, place: str) -> bool:
    """Whether it is this very process that listens at a local socket."""
    inodes = set()
    with suppress(OSError):
        for line in proc.text(f"{proc.PROC}/{pid}/net/unix", _MAX_LIST).splitlines()[1:]:
            words = line.split(maxsplit=7)
            if len(words) == 8 and words[7] == place:
                inodes.add(words[6])
    return bool(inodes & set(proc.sockets(pid)))


def _await(root: str, places: list[str], seconds: float) -> None:
    """Until a dump was written after now and does not grow any more."""
    asked, ends = time.time() - 0.5, time.monotonic() + seconds
    sizes: dict[str, tuple[int, float]] = {}
    while time.monotonic() < ends:
        for place in places:
            with suppress(OSError):
                stat = Path(root + place).stat()
                if stat.st_mtime < asked or not stat.st_size:
                    continue
                size, since = sizes.get(place, (-1, 0.0))
                if size != stat.st_size:
                    sizes[place] = (stat.st_size, time.monotonic())
                elif time.monotonic() - since > _SETTLED_S:
                    return
        time.sleep(0.05)


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
