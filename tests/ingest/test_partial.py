from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.ingest import log_drivers
from diagnose.ingest.chunks import stream_chunks
from diagnose.ingest.log_drivers import join_partials, partial_form
from diagnose.ingest.source import Chunk

T = "2026-08-20T10:00:00.123456789Z"
CRI = f"""{T} stderr P [rank0]: Watchdog caught coll
{T} stdout F step 1
{T} stderr P ective operation
{T} stderr F  timeout
{T} stdout F step 2
""".encode()
CRI_JOINED = f"""{T} stdout F step 1
{T} stderr F [rank0]: Watchdog caught collective operation timeout
{T} stdout F step 2
""".encode()


def docker(text: str, stream: str = "stderr") -> bytes:
    row = {"log": text, "stream": stream, "time": T}
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def joined(data: bytes, limit: int = 1 << 20) -> tuple[bytes, list[int], list[int]]:
    form = partial_form(data)
    assert form is not None
    out = b""
    lines: list[int] = []
    offsets: list[int] = []
    for chunk in join_partials(stream_chunks([data], 0, limit), form):
        out += chunk.data
        count = chunk.data.count(b"\n")
        lines += chunk.lines or range(chunk.first_line, chunk.first_line + count)
        offsets += chunk.raw_offsets or [0] * count
    return out, lines, offsets


def test_cri_pieces_become_one_line_at_the_place_of_the_first() -> None:
    data, lines, offsets = joined(CRI)
    assert data == CRI_JOINED
    assert lines == [2, 1, 5]
    assert offsets == [CRI.index(b"\n") + 1, 0, CRI.rindex(b"\n", 0, -1) + 1]


def test_cri_tags_and_an_unfinished_last_line() -> None:
    data = f"{T} stderr F:x whole\n{T} stderr P unfini".encode()
    assert joined(data)[0] == f"{T} stderr F:x whole\n{T} stderr F unfini\n".encode()


def test_docker_pieces_become_one_object() -> None:
    data = docker('a "quoted" \\n ') + docker("out\n", "stdout") + docker("é end\n") + docker("z\n")
    out, lines, _ = joined(data)
    rows = [json.loads(row) for row in out.splitlines()]
    assert [row["log"] for row in rows] == ["out\n", 'a "quoted" \\n é end\n', "z\n"]
    assert {row["time"] for row in rows} == {T}
    assert lines == [2, 1, 4]


def test_a_literal_backslash_n_at_the_end_of_a_piece_is_no_newline() -> None:
    data = docker("path C:\\n") + docker("ew\n")
    assert [json.loads(row)["log"] for row in joined(data)[0].splitlines()] == ["path C:\\new\n"]


def test_whole_lines_pass_untouched() -> None:
    chunk = Chunk(f"{T} stdout F step 1\n".encode() * 3, 0, 1)
    form = partial_form(chunk.data)
    assert form is not None
    assert next(join_partials(iter([chunk]), form)) is chunk
    chunk = Chunk(docker("step 1\n") * 3, 0, 1)
    form = partial_form(chunk.data)
    assert form is not None
    assert next(join_partials(iter([chunk]), form)) is chunk


def test_a_joined_line_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_drivers, "JOINED_LIMIT", 10)
    data = f"{T} stdout P 12345678\n".encode() * 4 + f"{T} stdout F end\n".encode()
    out = joined(data)[0].replace(f"{T} stdout F ".encode(), b"")
    assert out == b"1234567812345678\n1234567812345678\nend\n"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[rank0]: P stdout\n",
        f"{T} stdout F step\nnot a container line\n".encode(),
        b'{"log": "x", "level": "info"}\n',
    ],
)
def test_other_sources_have_no_such_form(data: bytes) -> None:
    assert partial_form(data) is None


@given(st.lists(st.tuples(st.sampled_from("PF"), st.sampled_from(["out", "err"])), max_size=30))
def test_joining_does_not_depend_on_the_chunk_size(tags: list[tuple[str, str]]) -> None:
    rows = [f"{T} std{stream} {tag} {n}\n" for n, (tag, stream) in enumerate(tags)]
    data = f"{T} stdout F start\n".encode() + "".join(rows).encode()
    whole = joined(data)
    for limit in (1, 100, 150):
        assert joined(data, max(limit, 60))[:2] == whole[:2]
