"""The HTTP API over a real connection."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from diagnose.serve.intake import Sending
from diagnose.serve.intake import form as form_of
from diagnose.serve.spool import Upload

from .running import API, LOG, ROOT, TEXT, Running

FIXTURES = ROOT / "fixtures"


@pytest.mark.slow
def test_a_text_is_diagnosed_and_found_again(server: Running) -> None:
    found = server.post(LOG, title="job 7")
    assert (found["state"], found["verdict"], found["class"]) == (
        "done", "hung", "desync.missing_rank",
    )  # fmt: skip
    assert found["diagnosis"]["schema"] == "diagnose/2"
    assert found["culprits"] == "Rank 5: never reached the collective"
    assert (found["title"], found["source"], found["bytes"]) == (
        "job 7", "pasted text", len(LOG.encode()),
    )  # fmt: skip
    assert server.http.get(f"{API}/{found['id']}").json() == found
    listed = server.http.get(API, params={"limit": 1}).json()["diagnoses"]
    assert listed == [{key: value for key, value in found.items() if key != "diagnosis"}]


@pytest.mark.slow
def test_page_and_markdown_of_a_text_are_made_of_its_masked_input(server: Running) -> None:
    found = server.post(LOG)
    for name, start in (("page", "<!doctype html>"), ("markdown", "### Hung"), ("input", LOG[:20])):
        reply = server.http.get(found["links"][name])
        assert reply.status_code == 200
        assert reply.text.startswith(start)
    page = server.http.get(found["links"]["page"])
    assert page.headers["content-security-policy"].startswith("sandbox")
    assert "attachment" in page.headers["content-disposition"]
    assert "Rank 5: never reached the collective" in page.text


@pytest.mark.slow
def test_without_waiting_the_answer_comes_at_once(server: Running) -> None:
    reply = server.http.post(API, content=LOG, headers=TEXT)
    assert reply.status_code == 202
    where = reply.headers["location"]
    assert reply.json()["links"]["self"] == where
    assert server.http.get(where, params={"wait": "30"}).json()["state"] == "done"


@pytest.mark.slow
def test_several_files_keep_their_folders(server: Running) -> None:
    folder = FIXTURES / "nccl-op-mismatch"
    logs = sorted(folder.glob("*.log"))
    files = [("files", (f"job/{path.name}", path.read_bytes())) for path in logs]
    reply = server.http.post(API, files=files, data={"title": "four"}, params={"wait": "30"})
    found = reply.json()
    assert found["state"] == "done", found
    assert found["class"].startswith("desync.")
    assert found["source"] == "job/ with 4 files"
    kept = server.http.get(found["links"]["input"]).text
    assert kept.startswith("==> rank0.log <==\n")
    assert str(server.served.settings.data) not in json.dumps(found) + kept
    loose = [("files", (f"{n}.log", LOG)) for n in range(5)]
    told = server.http.post(API, files=[*loose, files[0]]).json()
    assert told["source"] == "0.log, 1.log, 2.log and 3 more"


def test_an_archive_is_read_where_it_lies(server: Running) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        tar.add(FIXTURES / "nccl-op-mismatch", "job")
    reply = server.http.post(
        API,
        content=stream.getvalue(),
        headers={"content-type": "application/octet-stream"},
        params={"name": "../../job.tar.gz", "wait": "30"},
    )
    found = reply.json()
    assert (found["state"], found["source"]) == ("done", "job.tar.gz")
    assert found["class"].startswith("desync.")
    page = server.http.get(found["links"]["page"])
    assert page.status_code == 200


def test_json_with_a_text(server: Running) -> None:
    reply = server.http.post(API, json={"text": LOG, "title": "x"}, params={"wait": "30"})
    assert reply.json()["verdict"] == "hung"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ("[]", 422, "bad_request"),
        ("{", 400, "bad_json"),
        ("[" * 100_000, 400, "bad_json"),
        ("{}", 422, "bad_request"),
        ('{"text": "a", "urls": []}', 422, "bad_request"),
        ('{"text": 1}', 422, "bad_request"),
        ('{"text": ""}', 400, "empty"),
        ('{"text": "a", "more": 1}', 422, "bad_request"),
        ('{"text": "a", "title": []}', 422, "bad_request"),
        ('{"urls": []}', 422, "bad_request"),
        ('{"urls": ["http://127.0.0.1/"]}', 403, "url_not_allowed"),
        ('{"urls": [1]}', 403, "url_not_allowed"),
    ],
)
def test_json_that_asks_for_nothing_possible(
    server: Running, body: str, status: int, code: str
) -> None:
    reply = server.http.post(API, content=body, headers={"content-type": "application/json"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)


def test_what_cannot_be_a_log_fails_with_a_reason(server: Running) -> None:
    found = server.post("\n \n")
    assert (found["state"], found["verdict"]) == ("failed", None)
    assert found["error"] == "the input is empty"
    page = server.http.get(f"/d/{found['id']}")
    assert "The input is empty." in page.text
    binary = server.http.post(
        API, content=bytes(range(256)) * 40, headers=TEXT, params={"wait": "30"}
    ).json()
    assert binary["state"] == "failed"


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ({"content-type": "image/png"}, b"x", 415, "media_type"),
        (TEXT | {"content-encoding": "gzip"}, b"x", 415, "encoded"),
        (TEXT, b"", 400, "empty"),
        (TEXT, b"x" * (9 << 20), 413, "too_large"),
        ({"content-type": "multipart/form-data"}, b"x", 400, "bad_form"),
        ({"content-type": "multipart/form-data; boundary=x"}, b"nonsense", 400, "bad_form"),
        (
            {"content-type": "multipart/form-data; boundary=x"},
            b'--x\r\nContent-Disposition: form-data; name="text"\r\n\r\nbreaks off',
            400,
            "bad_form",
        ),
        (
            {"content-type": "multipart/form-data; boundary=x"},
            b'--x\r\nContent-Disposition: form-data; name="title"\r\n\r\n'
            + b"t" * 5000
            + b"\r\n--x--\r\n",
            413,
            "too_large",
        ),
        (
            {"content-type": "multipart/form-data; boundary=x"},
            b"".join(
                b'--x\r\nContent-Disposition: form-data; name="text"\r\n\r\n%s\r\n'
                % (b"t" * (2900 << 10))
                for _ in range(3)
            )
            + b"breaks off",
            413,
            "too_large",
        ),
    ],
)
def test_what_is_refused(
    server: Running, headers: dict[str, str], body: bytes, status: int, code: str
) -> None:
    spool = server.served.settings.data / "spool"
    before = {*spool.iterdir()}  # of tests before, whose logs may still be removed
    reply = server.http.post(API, content=body, headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
    assert {*spool.iterdir()} <= before


@pytest.mark.parametrize("size", [1, 90, 300, 1000])
def test_files_of_a_form_stay_apart_however_it_comes(tmp_path: Path, size: int) -> None:
    files = {"a.err": b"", "a.log": b"A" * 300, "b.err": b"", "b.log": b"B" * 200, "c.err": b""}
    form = b"".join(
        b'--x\r\nContent-Disposition: form-data; name="f"; filename="%s"\r\n\r\n%s\r\n'
        % (name.encode(), data)
        for name, data in files.items()
    )
    pieces = io.BytesIO(form + b"--x--\r\n")

    async def receive() -> dict[str, Any]:
        piece = pieces.read(size)
        return {"type": "http.request", "body": piece, "more_body": bool(piece)}

    headers = [(b"content-type", b"multipart/form-data; boundary=x")]
    request = Request({"type": "http", "headers": headers}, receive)
    upload = Upload(tmp_path, 1 << 20)
    assert asyncio.run(form_of(request, upload, 1 << 20, Sending())) == {}
    assert upload.names == [*files]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_a_short_text_in_a_form_is_taken(server: Running) -> None:
    text = "RuntimeError: CUDA error: an illegal memory access was encountered"
    for files in ([("text", (None, text))], [("files", ("paste.txt", text.encode()))]):
        reply = server.http.post(API, files=files, params={"wait": "30"})
        assert (reply.status_code, reply.json()["bytes"]) == (200, len(text))


@pytest.mark.parametrize("charset", ["punycode", "undefined", "rot13"])
def test_a_form_is_utf_8_whatever_charset_it_claims(server: Running, charset: str) -> None:
    text = b"x" * 300_000 + b"-" + b"a" * 60_000  # punycode: minutes, and none for others
    form = b'--x\r\nContent-Disposition: form-data; name="text"\r\n\r\n' + text + b"\r\n--x--\r\n"
    kind = {"content-type": f"multipart/form-data; boundary=x; charset={charset}"}
    began = time.monotonic()
    assert server.http.post(API, content=form, headers=kind).status_code == 202
    assert time.monotonic() - began < 5


def test_a_body_of_unknown_length_is_bounded_too(server: Running) -> None:
    def pieces():
        for _ in range(200):
            yield b"x" * (64 << 10)

    try:
        reply = server.http.post(API, content=pieces(), headers=TEXT)
    except httpx.HTTPError:  # the server may close before all was sent
        return
    assert reply.status_code == 413


def test_search_finds_words_of_verdict_title_and_evidence(server: Running) -> None:
    one = server.post(LOG, title="needle-81922 run")["id"]
    for query in ("needle-81922", "hung needle-81922", "NEEDLE-81922 allreduce", one):
        found = server.http.get(API, params={"q": query}).json()["diagnoses"]
        assert [item["id"] for item in found] == [one], query
    assert server.http.get(API, params={"q": "needle-81922 healthy"}).json()["diagnoses"] == []
    assert server.http.get(API, params={"q": "needle%"}).json()["diagnoses"] == []


def test_the_list_goes_on_where_it_ended(server: Running) -> None:
    for _ in range(3):
        server.post("[rank0]: step 1\n")
    first = server.http.get(API, params={"limit": 2}).json()
    second = server.http.get(API, params={"limit": 2, "before": first["next"]}).json()
    ids = [item["id"] for item in first["diagnoses"] + second["diagnoses"]]
    assert len(set(ids)) == 4 or len(set(ids)) == len(ids) == 3


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=201", "before=-1", "limit=1.5",
                                   "wait=61", "wait=1e1", "before=" + "9" * 30])  # fmt: skip
def test_numbers_out_of_range(server: Running, query: str) -> None:
    id_ = server.post("x\n")["id"]
    path = f"{API}/{id_}" if query.startswith("wait") else API
    assert server.http.get(f"{path}?{query}").status_code == 422


def test_deleting_leaves_nothing(server: Running) -> None:
    found = server.post(LOG + "\nunmistakable-needle\n")
    path = found["links"]["self"]
    assert server.http.delete(path).status_code == 204
    for after in (path, f"{path}/input", f"{path}/events", f"/d/{found['id']}"):
        assert server.http.get(after).status_code == 404
    assert server.http.delete(path).status_code == 404
    assert server.served.store.output(found["id"], "input") is None


def test_events_end_with_the_result(server: Running) -> None:
    id_ = server.http.post(API, content=LOG, headers=TEXT).json()["id"]
    with server.http.stream("GET", f"{API}/{id_}/events") as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        text = "".join(reply.iter_text())
    events = [part for part in text.split("\n\n") if part.startswith("event: ")]
    last = json.loads(events[-1].partition("data: ")[2])
    assert (last["state"], last["verdict"]) == ("done", "hung")
    assert server.served.streams == 0


def test_unknown_paths_and_methods(server: Running) -> None:
    assert server.http.get("/api/v1/nothing").json()["error"]["code"] == "http"
    assert server.http.put(API).status_code == 405
    assert server.http.get(f"{API}/0000000000000000").status_code == 404
    assert "no such page" in server.http.get("/nothing").text


def test_health_and_metrics(server: Running) -> None:
    server.post(LOG)
    assert server.http.get("/healthz").text == "ok\n"
    text = server.http.get("/metrics").text
    values = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            values[name] = float(value)
    assert values['diagnose_serve_jobs_total{state="done"}'] >= 1
    assert values["diagnose_serve_queue_waiting"] == 0
    assert values["diagnose_serve_results"] >= 1
    assert values["diagnose_serve_results_bytes"] > 1000
