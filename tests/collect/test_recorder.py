from __future__ import annotations

import http.server
import json
import os
import pickle
import socketserver
import struct
import threading
import time
from pathlib import Path

import pytest

from diagnose.collect import recorder
from diagnose.collect.bundle import Process, Sink
from diagnose.collect.find import Seen
from diagnose.parse.flight_recorder import read_dump
from diagnose.runtime.children import Unavailable
from tests.collect.machines import Machine

TOKEN = "hf_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY2z"
RANK = Process(20, "rank", rank=3)
DUMP = {
    "version": "2.10",
    "entries": [
        {
            "record_id": 1, "collective_seq_id": 1, "profiling_name": "nccl:all_reduce",
            "process_group": ("0", "default_pg"), "state": "scheduled", "retired": False,
            "frames": [{"name": "f", "filename": f"/w/{TOKEN}/train.py", "line": 3}],
        }
    ],
}  # fmt: skip


def collect(
    sink: Sink, env: dict[str, str], *, dump: bool = True, seconds: float = 2.0, started: int = 0
) -> str | None:
    seen = Seen(20, 1, "python", started, environment=env)
    return recorder.collect(sink, RANK, seen, dump, seconds)


@pytest.fixture
def rank(machine: Machine) -> Machine:
    machine.process(20)
    return machine


@pytest.mark.parametrize("name", ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"])
def test_a_dump_is_copied_from_where_the_environment_says(
    rank: Machine, sink: Sink, tmp_path: Path, name: str
) -> None:
    (tmp_path / "trace_3").write_bytes(pickle.dumps({"version": "2.10", "entries": []}))
    assert collect(sink, {name: f"{tmp_path}/trace_"}) is None
    copy = (sink.folder / "nccl_trace_rank_3").read_bytes()
    assert copy == (tmp_path / "trace_3").read_bytes()


def test_a_dump_is_found_in_the_cache_of_the_user(
    rank: Machine, sink: Sink, tmp_path: Path
) -> None:
    place = tmp_path / ".cache" / "torch"
    place.mkdir(parents=True)
    (place / "nccl_trace_rank_3").write_bytes(b"{}")
    assert collect(sink, {"HOME": str(tmp_path)}) is None


def test_secrets_in_a_dump_are_overwritten_and_it_is_still_one(sink: Sink) -> None:
    data = recorder.masked(pickle.dumps(DUMP, protocol=4), sink)
    assert TOKEN.encode() not in data
    assert len(data) == len(pickle.dumps(DUMP, protocol=4))
    (entry,) = pickle.loads(data)["entries"]
    assert entry["profiling_name"] == "nccl:all_reduce"
    assert set(entry["frames"][0]["filename"]) == {"*"}
    assert read_dump(data, "nccl_trace_rank_3").rank == 3
    assert TOKEN.encode() not in recorder.masked(f'{{"a": "{TOKEN}"}}'.encode(), sink)
    assert TOKEN.encode() not in recorder.masked(pickle.dumps(DUMP)[:-20], sink)


def test_numbers_of_a_dump_that_look_like_text_are_left(sink: Sink) -> None:
    (time,) = struct.unpack(">d", b"@\\6qab \x01")
    dump = DUMP | {"entries": [{"duration_ms": time}]}
    data = pickle.dumps(dump, protocol=2)
    assert recorder.masked(data, sink) == data
    # A secret beside them changes nothing of these.
    again = pickle.loads(recorder.masked(pickle.dumps(dump | {"note": TOKEN}, protocol=2), sink))
    assert again == dump | {"note": "*" * len(TOKEN)}


def test_a_dump_of_another_job_is_left(rank: Machine, sink: Sink, tmp_path: Path) -> None:
    (tmp_path / "trace_3").write_bytes(b"{}")
    os.utime(tmp_path / "trace_3", (1, 1))
    env = {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_", "HOME": str(tmp_path)}
    with pytest.raises(Unavailable, match="older than the process: of another job"):
        collect(sink, env)


def test_where_there_is_none_it_says_so(rank: Machine, sink: Sink, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no dump was written"):
        collect(sink, {"HOME": str(tmp_path)})
    nobody = Seen(20, 1, "python", 0)
    with pytest.raises(Unavailable, match="the rank is unknown"):
        recorder.collect(sink, Process(20, "rank"), nobody, True, 1)


def test_a_dump_that_is_too_large_is_left_out(rank: Machine, sink: Sink, tmp_path: Path) -> None:
    (tmp_path / "trace_3").write_bytes(b"x" * 2000)
    sink.left = 1000
    told = collect(sink, {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_"})
    assert told == f"{tmp_path}/trace_3: larger than 1000 bytes, left out"


def test_torch_is_asked_where_it_listens(rank: Machine, sink: Sink, tmp_path: Path) -> None:
    """As ProcessGroupNCCL does: anything in the pipe, and a dump is written a while later."""
    pipe = tmp_path / "ask_3.pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    old = tmp_path / "trace_3"
    old.write_bytes(b"old")
    os.utime(old, (time.time() - 60, time.time() - 60))

    def listen() -> None:
        for _ in range(200):
            try:
                if os.read(reader, 128):
                    old.write_bytes(b"{}")
                    return
            except BlockingIOError:
                pass
            time.sleep(0.02)

    torch = threading.Thread(target=listen)
    torch.start()
    env = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/ask_",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{tmp_path}/trace_",
    }
    try:
        assert collect(sink, env, seconds=10) is None
    finally:
        torch.join()
        os.close(reader)
    assert (sink.folder / "nccl_trace_rank_3").read_bytes() == b"{}"


def test_nobody_is_asked_who_does_not_listen(rank: Machine, sink: Sink, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ask_3.pipe")
    env = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/ask_", "HOME": str(tmp_path)}
    with pytest.raises(Unavailable):
        collect(sink, env)
    (tmp_path / "ask_3.pipe").unlink()
    (tmp_path / "ask_3.pipe").write_bytes(b"a file")
    with pytest.raises(Unavailable):
        collect(sink, env)
    assert (tmp_path / "ask_3.pipe").read_bytes() == b"a file"


def test_an_ask_without_an_answer_is_told(rank: Machine, sink: Sink, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ask_3.pipe")
    reader = os.open(tmp_path / "ask_3.pipe", os.O_RDONLY | os.O_NONBLOCK)
    env = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/ask_", "HOME": str(tmp_path)}
    try:
        assert collect(sink, env, seconds=0.2) == "asked for a dump, and none was written"
        assert os.read(reader, 9) == b"1\n"
        with pytest.raises(Unavailable):
            collect(sink, env, dump=False)
        assert os.read(reader, 9) == b""
    finally:
        os.close(reader)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    names = ("ping", "fr_trace_json")

    def do_GET(self) -> None:
        self.answer(json.dumps(self.names).encode())

    def do_POST(self) -> None:
        self.answer(b'{"version": "2.10"}' if self.path == "/handler/fr_trace_json" else b"?")

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "rank"

    def log_message(self, *_: object) -> None:
        pass


def test_the_server_of_a_rank_gives_a_dump(
    sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "w.sock"
    env = {"TORCH_WORKER_SERVER_SOCKET": str(place), "HOME": str(tmp_path)}
    seen = Seen(os.getpid(), 1, "python", 0, environment=env)
    rank = Process(os.getpid(), "rank", rank=3)
    with pytest.raises(Unavailable):
        recorder.collect(sink, rank, seen, True, 2.0)
    with socketserver.ThreadingUnixStreamServer(str(place), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(Unavailable):  # it belongs to somebody else
                recorder.collect(sink, Process(os.getppid(), "rank", rank=3), seen, True, 2.0)
            assert recorder.collect(sink, rank, seen, True, 2.0) is None
            dump = (sink.folder / "nccl_trace_rank_3.json").read_bytes()
            assert dump == b'{"version": "2.10"}'
            with pytest.raises(Unavailable):
                recorder.collect(sink, rank, seen, False, 2.0)
            monkeypatch.setattr(_Handler, "names", ("ping",))
            with pytest.raises(Unavailable):
                recorder.collect(sink, rank, seen, True, 2.0)
        finally:
            server.shutdown()
            thread.join()
