"""The parts of the answers that the tour of five jobs does not come by; in this process."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import uvicorn
from mcp import Client
from mcp.types import CallToolResult
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from diagnose.catalog.load import load_catalog
from diagnose.diagnosis import Diagnosis, Evidence, RootCause, WaitGraph
from diagnose.errors import InputError
from diagnose.ingest.source import Source
from diagnose.job.load import load, load_text
from diagnose.mcp import jobs as loading
from diagnose.mcp.answer import LIMIT, data_of, text_of
from diagnose.mcp.job_tools import lines, timeline, triage, waits
from diagnose.mcp.jobs import Jobs, Opened, Root
from diagnose.mcp.server import Address, _Guard, serve_http, server_of
from diagnose.report.safe import scrubber
from tests.checkpoint.make import hf
from tests.mcp.asking import FIXTURES, asked, data, length, text, toured


def opened(job: str) -> Opened:
    return Jobs(Root(FIXTURES), redact=True).of_path(job)


@pytest.mark.slow
def test_every_tool_in_this_process() -> None:
    for answers in toured(server_of(Root(FIXTURES))).values():
        assert all(length(result) <= LIMIT for result in answers.values())


@pytest.mark.slow
def test_several_ask_at_once() -> None:
    """Each gets what it would get alone."""
    server = server_of(Root(FIXTURES))
    calls = [("triage", {"path": path.name}) for path in sorted(FIXTURES.iterdir())[:16]]
    serial = asked(server_of(Root(FIXTURES)), *calls)
    found: dict[int, CallToolResult] = {}

    async def ask() -> None:
        async def one(number: int) -> None:
            name, arguments = calls[number]
            found[number] = await client.call_tool(name, arguments)

        async with Client(server) as client, anyio.create_task_group() as group:
            for number in range(len(calls)):
                group.start_soon(one, number)

    anyio.run(ask)
    assert [data(found[number]) for number in range(len(calls))] == [data(one) for one in serial]


@pytest.mark.slow
def test_checkpoints(tmp_path: Path) -> None:
    for step in range(100, 4100, 100):
        folder = tmp_path / "out" / f"checkpoint-{step}"
        hf.trainer(folder, step=step, world=1, start=1e9 + step)
    first = next((tmp_path / "out" / "checkpoint-100").glob("*.safetensors"))
    first.write_bytes(first.read_bytes()[:-10])
    server = server_of(Root(tmp_path))
    (result,) = asked(server, ("checkpoint", {"path": "out", "verify": True}))
    answer = data(result)
    assert answer["checkpoints_in_all"] == 40
    names = {one["path"].rpartition("/")[2]: one for one in answer["checkpoints"]}
    assert len(names) <= 30
    assert names["checkpoint-100"]["state"] in ("partial", "corrupt")
    assert names["checkpoint-100"]["reasons"]
    assert "checkpoint-100 is" in text(result)
    assert "is no sign of damage" in text(result)
    assert length(result) <= LIMIT
    (tmp_path / "out" / "elsewhere").symlink_to(tmp_path.parent)
    (refused,) = asked(server, ("checkpoint", {"path": "out"}))
    assert "out/elsewhere: is outside" in text(refused)


def test_known_issues_and_settings_are_explained() -> None:
    issue = load_catalog().known_issues[0]
    one, setting = asked(
        server_of(Root(FIXTURES)),
        ("explain", {"name": issue.id}),
        ("explain", {"name": " timeout "}),
    )
    assert (data(one)["role"], data(one)["class"]) == ("known-issue", issue.cause)
    assert issue.title in text(one)
    assert {place["framework"] for place in data(setting)["places"]} >= {"torch", "deepspeed"}
    assert length(setting) <= LIMIT


@pytest.mark.slow
def test_every_class_signature_and_setting_fits() -> None:
    catalog = load_catalog()
    names = [*catalog.classes, *catalog.settings, *(e.id for e in catalog.known_issues[::9])]
    names += [entry.id for entry in catalog.signatures[::97]]
    server = server_of(Root(FIXTURES))
    for name, result in zip(
        names, asked(server, *[("explain", {"name": name}) for name in names]), strict=True
    ):
        assert not result.is_error
        assert length(result) <= LIMIT, name


def test_lines_are_looked_up_by_words_and_by_likeness() -> None:
    rows = [
        "[rank1]: something failed with ECONNREFUSED in my own program",
        "zxcvb qwert",
        *[f"[rank{n}]: torch.OutOfMemoryError: CUDA out of memory." for n in range(30)],
    ]
    (result,) = asked(server_of(Root(FIXTURES)), ("match_line", {"text": "\n\n".join(rows)}))
    told = data(result)["lines"]
    assert told[0]["word"]["class"] == "net.socket"
    assert told[1]["matches"] == []
    assert "no signature and no word of the catalog matches this line" in text(result)
    assert "12 more lines: give them to `triage`" in text(result)
    assert "word word." in text(result)
    assert length(result) <= LIMIT


def test_a_long_timeline_comes_in_pages(tmp_path: Path) -> None:
    rows = [f"[rank{n % 3}]: {{'loss': 1.{n}, 'epoch': 0.1}} step {n}" for n in range(60)]
    rows += [f"[rank{n % 3}]: ValueError: bad batch {n} {'x ' * 300}" for n in range(200)]
    (tmp_path / "a.log").write_text("\n".join(rows))
    job = Jobs(Root(tmp_path), redact=True).of_path("a.log")
    seen, offset = 0, 0
    while True:
        answer = timeline(job, None, offset)
        told = data_of(answer)
        assert "left_out" not in told
        assert "more lines:" not in text_of(answer)
        seen += len(told["rows"])
        if told["next_offset"] is None:
            break
        assert f"call again with offset={told['next_offset']}" in text_of(answer)
        offset = told["next_offset"]
    assert seen == told["rows_in_all"] > 100


def test_alike_events_are_folded() -> None:
    # Losses of one rank that follow each other, as its log has them.
    answer = timeline(opened("healthy-transformers"), None, 0)
    folded = [row for row in data_of(answer)["rows"] if row["times"] > 1]
    assert folded
    assert f"{folded[0]['times']} times, to line" in text_of(answer)


def test_a_job_without_events(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("hello\n")
    job = Jobs(Root(tmp_path), redact=True).of_path("a.log")
    assert "the job: no known event" in text_of(timeline(job, None, 0))
    with pytest.raises(InputError, match="none; leave out the rank"):
        timeline(job, 3, 0)
    assert "To know it next time" in text_of(waits(job))


def test_stacks_and_graphs() -> None:
    stuck = waits(opened("stacks-dataloader"))
    assert (
        "Stack of rank 3: data loading: _try_get_data in torch/utils/data/dataloader.py, called "
        "at train.py:16\n│ select  /usr/lib/python3.11/selectors.py:415\n"
    ) in text_of(stuck)
    assert [stack["ranks"] for stack in data_of(stuck)["stacks"]] == ["rank 3", "ranks 0-2"]
    edges = [(n, n + 1, f"op {chr(97 + n // 26)}{chr(97 + n % 26)}") for n in range(75)]
    graph = WaitGraph(dict.fromkeys(range(200), "waiting"), edges)
    cause = RootCause("desync.mismatch", "t", "s", "high")
    job = load_text("[rank0]: step 1\n")
    many = Opened("x", job, Diagnosis("hung", cause, graph=graph), scrubber(redact=True))
    assert "more waits of this kind" in text_of(waits(many))
    assert data_of(waits(many))["states"] == {"waiting": "ranks 0-199"}


def test_many_notes_are_counted() -> None:
    cause = RootCause("crash.exception", "t", "s", "high")
    evidence = [Evidence("a.log", 1, "x" * 1000, "why")]
    told = Diagnosis("failed", cause, evidence=evidence, notes=[f"note {n}" for n in range(9)])
    job = Opened("x", load_text("[rank0]: step 1\n"), told, scrubber(redact=True))
    answer = triage(job)
    assert "3 more notes" in text_of(answer)
    assert len(data_of(answer)["notes"]) == 6
    assert len(data_of(answer)["evidence"][0]["text"]) == 401


def test_the_only_log_needs_no_name(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"one\r\n 10%\r 20%\rtwo\nthree")
    job = Jobs(Root(tmp_path), redact=True).of_path("a.log")
    assert [row["text"] for row in data_of(lines(job, "", 2, 5, 5))["lines"]] == [
        "one", "two", "three",
    ]  # fmt: skip
    assert [row["line"] for row in data_of(lines(job, "a.log", 2, 0, 0))["lines"]] == [2]
    with pytest.raises(InputError, match=r"a\.log has no line 9; its last line is 3"):
        lines(job, "a.log", 9, 2, 2)


def test_lines_of_a_log_that_wraps_others() -> None:
    """Docker's JSON: the lines shown are those inside, with the numbers that the evidence has."""
    job = opened("healthy-lightning-k8s")
    name = next(source.name for source in job.job.sources if source.kind == "text")
    rows = data_of(lines(job, name, 3, 2, 2))["lines"]
    assert [row["line"] for row in rows] == [1, 2, 3, 4, 5]


def test_an_archive_is_read(tmp_path: Path) -> None:
    shutil.make_archive(str(tmp_path / "job"), "gztar", FIXTURES / "torchrun-missing-rank")
    triaged, around = asked(
        server_of(Root(tmp_path)),
        ("triage", {"path": "job.tar.gz"}),
        ("lines", {"job": "job.tar.gz", "source": "console.log", "line": 48}),
    )
    assert data(triaged)["culprits"]["ranks"] == [5]
    assert "Watchdog caught" in text(around)


@pytest.mark.slow
def test_a_large_job_is_read_by_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(3):
        (tmp_path / f"rank{rank}.log").write_text(f"[rank{rank}]: ValueError: bad {rank}\n")
    asked_for = []

    def processes(sources: list[Source]) -> int:
        asked_for.append(len(sources))
        return 2

    monkeypatch.setattr(loading, "processes", processes)
    found = Jobs(Root(tmp_path), redact=True).of_path(".")
    assert asked_for == [3]
    assert found.job.events.ranks == load(tmp_path).events.ranks == [0, 1, 2]


def test_a_folder_with_too_many_files_is_read_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.log").write_text("[rank0]: step 1\n")
    monkeypatch.setattr(loading, "_MAX_STAMPED", 0)
    jobs = Jobs(Root(tmp_path), redact=True)
    assert jobs.of_path(".") is not jobs.of_path(".")


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("let in")(scope, receive, send)


def test_the_guard() -> None:
    async def ask() -> None:
        transport = httpx.ASGITransport(app=_Guard(_answer, "secret"))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            for given in ("", "secret", "Bearer secreT", "Bearer ", "Bearer secret"):
                found = await client.get("/", headers={"Authorization": given})
                answers.append(found.status_code)

    answers: list[int] = []
    anyio.run(ask)
    assert answers == [401, 401, 401, 401, 200]


def test_where_it_listens_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(_self: uvicorn.Server, sockets: list[Any]) -> None:
        listening.append(sockets[0].getsockname()[0])

    listening: list[str] = []
    said: list[str] = []
    monkeypatch.setattr(uvicorn.Server, "serve", serve)
    server = server_of(Root(FIXTURES))
    serve_http(server, Address.of(":0"), None, said.append)
    serve_http(server_of(Root(FIXTURES)), Address.of("0.0.0.0:0"), "a-token", said.append)
    assert listening == ["127.0.0.1", "0.0.0.0"]
    assert [line.rpartition(":")[0] for line in said] == ["http://127.0.0.1", "http://0.0.0.0"]
    assert said[0].endswith("/mcp")


def test_what_a_line_tells_is_one_row() -> None:
    """The most important first, and no facts of the job between what ranks did."""
    answer = timeline(opened("watchdog-stuck-gil"), 1, 0)
    rows = data_of(answer)["rows"]
    assert len({row["line"] for row in rows}) == len(rows)
    (ended,) = [row for row in rows if row["line"] == 10]
    assert (ended["role"], ended["also"]) == ("cause", ["torch.c10d.teardown"])
    assert "fact" not in {row["event"] for row in rows}
