from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from diagnose.collect import recorder
from diagnose.collect.bundle import Sink
from diagnose.runtime.children import Unavailable

REPORT = "NCCL version 2.29.1 compiled with CUDA 13.0\n\nJob summary\n"


@contextmanager
def server(answer: Callable[[str], bytes | None]) -> Iterator[tuple[dict[str, str], list[str]]]:
    """NCCL's side: an answer a line, None ends the connection. Gives an environment and lines."""
    heard: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)

        def serve() -> None:
            for _ in range(2):
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection, connection.makefile("rwb", buffering=0) as stream:
                    while line := stream.readline().decode().strip():
                        heard.append(line)
                        said = answer(line)
                        if said is None:
                            break
                        stream.write(said)
                        if line.endswith("STATUS"):
                            break

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield {"NCCL_RAS_ADDR": f"127.0.0.1:{listening.getsockname()[1]}"}, heard
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


def new(line: str) -> bytes:
    if line.startswith("CLIENT"):
        return b"SERVER PROTOCOL 2\n"
    return b'{"nccl_version": "2.29.1"}\n' if line.endswith("STATUS") else b"OK\n"


def old(line: str) -> bytes:
    if line.startswith("CLIENT"):
        return b"SERVER PROTOCOL 2\n"
    if line.startswith("SET"):
        return b"ERROR: Unknown command 'SET FORMAT json'\n"
    return REPORT.encode() if line.endswith("STATUS") else b"OK\n"


def test_a_report_in_json(sink: Sink) -> None:
    with server(new) as (environment, heard):
        assert recorder.ask(sink, [environment, environment], 5) is None
    assert heard == ["CLIENT PROTOCOL 2", "TIMEOUT 3", "SET FORMAT json", "VERBOSE STATUS"]
    assert (sink.folder / "ncclras.json").read_text() == '{"nccl_version": "2.29.1"}\n'


def test_a_second_report_comes_later(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not recorder.answered(sink)
    slept: list[float] = []
    monkeypatch.setattr("diagnose.collect.recorder.time.sleep", slept.append)
    with server(new) as (environment, _):
        recorder.ask(sink, [environment], 5)
        assert recorder.answered(sink)
        assert recorder.second_report(sink, [environment], 5) is None
    assert (sink.folder / "ncclras-2.json").read_text() == '{"nccl_version": "2.29.1"}\n'
    assert 4 < slept[-1] <= recorder.APART_S


def test_a_report_of_an_nccl_that_knows_no_json(sink: Sink) -> None:
    with server(old) as (environment, heard):
        assert recorder.ask(sink, [environment], 5) is None
    assert heard[-3:] == ["CLIENT PROTOCOL 2", "TIMEOUT 3", "VERBOSE STATUS"]
    assert (sink.folder / "ncclras.txt").read_text() == REPORT


def test_something_else_that_listens_there(sink: Sink) -> None:
    with (
        server(lambda _line: b"HTTP/1.1 400 Bad Request\n") as (environment, heard),
        pytest.raises(Unavailable, match=r"what listens at 127.0.0.1:\d+ is not NCCL"),
    ):
        recorder.ask(sink, [environment], 5)
    assert heard == ["CLIENT PROTOCOL 2"]


def test_a_server_that_ends_the_connection(sink: Sink) -> None:
    with (
        server(lambda line: new(line) if line.startswith("CLIENT") else None) as (environment, _),
        pytest.raises(Unavailable, match="no report"),
    ):
        recorder.ask(sink, [environment], 5)


def test_nobody_listens(sink: Sink) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Unavailable, match=f"nobody listens at 127.0.0.1:{port}"):
        recorder.ask(sink, [{"NCCL_RAS_ADDR": f"127.0.0.1:{port}"}], 5)


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("", ("localhost", 28028)),
        ("node1:99", ("node1", 99)),
        ("[::1]:99", ("::1", 99)),
        ("nonsense", ("localhost", 28028)),
    ],
)
def test_where_it_listens(address: str, place: tuple[str, int]) -> None:
    assert recorder.place(address) == place
