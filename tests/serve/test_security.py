"""Who is kept out, and what cannot be done to a server."""

from __future__ import annotations

import asyncio
import http.client
import io
import shutil
import socket
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock

import pytest
from report.test_secrets_in_outputs import KINDS, unseen
from starlette.applications import Starlette
from starlette.datastructures import Headers

from diagnose.serve import run
from diagnose.serve.security import is_from_here, is_own

from .running import API, LOG, TEXT, Running, running

TOKEN = "a-token-of-enough-characters"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("guarded"), token=TOKEN) as found:
        yield found


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("localhost", True),
        ("LOCALHOST:8321", True),
        ("127.0.0.1:8321", True),
        ("[::1]:8321", True),
        ("diagnose.example.org", True),
        ("diagnose.example.org.", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example:8321", False),
        ("", False),
        ("localhost@evil.example", False),
        ("localhost/x", False),
        ("localhost:port", False),
        ("[::1", False),
    ],
)
def test_which_names_are_ours(host: str, own: bool) -> None:
    assert is_own(host, frozenset({"localhost", "diagnose.example.org"})) is own


def test_a_name_that_was_made_to_point_here_is_refused(server: Running) -> None:
    reply = server.http.get("/", headers={"host": "evil.example"})
    assert reply.status_code == 421
    assert "default-src 'none'" not in reply.text


@pytest.mark.parametrize(
    ("headers", "here"),
    [
        ({}, True),
        ({"origin": "http://localhost:1"}, True),
        ({"origin": "http://localhost:2"}, False),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"sec-fetch-site": "same-origin", "origin": "http://localhost:1"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
    ],
)
def test_where_a_change_may_come_from(headers: dict[str, str], here: bool) -> None:
    assert is_from_here(Headers({"host": "localhost:1", **headers})) is here


def test_other_sites_change_nothing(server: Running) -> None:
    id_ = server.post(LOG)["id"]
    evil = {"origin": "http://evil.example"}
    for method, path in (
        ("POST", API), ("POST", "/"), ("DELETE", f"{API}/{id_}"), ("POST", f"/d/{id_}/delete"),
    ):  # fmt: skip
        assert server.http.request(method, path, headers=TEXT | evil).status_code == 403
    assert server.http.get(f"{API}/{id_}").status_code == 200


def test_a_form_needs_the_word_of_its_page(server: Running) -> None:
    id_ = server.post(LOG)["id"]
    server.word()
    for word in ("", "0" * 64):
        reply = server.http.post(f"/d/{id_}/delete", data={"word": word})
        assert reply.status_code == 403
        assert server.paste(LOG, word=word).status_code == 403
    word = server.word()
    kept = server.http.cookies
    server.http.cookies = {}  # type: ignore[assignment]
    assert server.http.post(f"/d/{id_}/delete", data={"word": word}).status_code == 403
    server.http.cookies = kept
    reply = server.http.post(f"/d/{id_}/delete", data={"word": server.word()})
    assert (reply.status_code, reply.headers["location"]) == (303, "/all")
    assert server.http.get(f"/d/{id_}").status_code == 404


@pytest.mark.parametrize("path", ["/", "/all", "/compare", "/d/x", "/nothing", "/static/serve.js"])
def test_every_page_has_its_fences(server: Running, path: str) -> None:
    headers = server.http.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "server" not in headers


@pytest.mark.slow
def test_nothing_without_the_token(guarded: Running) -> None:
    for path in ("/", "/all", "/compare", "/d/0000000000000000", "/d/x/json"):
        reply = guarded.http.get(path)
        assert (reply.status_code, reply.headers["location"]) == (303, f"/login?next={path}")
    for path in (API, f"{API}/x", f"{API}/x/events", "/api/v1/openapi.json", "/metrics"):
        assert guarded.http.get(path).status_code == 401
    assert guarded.http.post(API, content=LOG, headers=TEXT).status_code == 401
    wrong = {"authorization": "Bearer a-token-of-enough-letters"}
    assert guarded.http.get(API, headers=wrong).status_code == 401
    assert guarded.http.get("/healthz").status_code == 200


def test_the_token_opens(guarded: Running) -> None:
    right = {"authorization": f"Bearer {TOKEN}"}
    assert guarded.http.get(API, headers=right).status_code == 200
    data = {"word": guarded.word("/login?next=/all"), "next": "/all"}
    assert guarded.http.post("/login", data={**data, "token": "wrong"}).status_code == 403
    reply = guarded.http.post("/login", data={**data, "token": TOKEN})
    assert (reply.status_code, reply.headers["location"]) == (303, "/all")
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert TOKEN not in cookie
    assert guarded.http.get("/all").status_code == 200
    guarded.http.cookies.clear()


@pytest.mark.parametrize("path", ["//evil.example", "https://evil.example", "/\\evil", "/a?b", ""])
def test_the_login_leads_nowhere_else(guarded: Running, path: str) -> None:
    data = {"word": guarded.word("/login"), "next": path, "token": TOKEN}
    assert guarded.http.post("/login", data=data).headers["location"] == "/"
    guarded.http.cookies.clear()


@pytest.mark.slow
def test_no_secret_of_the_corpus_is_kept(server: Running) -> None:
    """The corpus as a paste and as a file: in no output, and not in the file of results."""
    text = "\n".join(["[rank0]: torch.OutOfMemoryError: CUDA out of memory.", *map(_line, KINDS)])
    ids = [server.post(text, title=KINDS[0][0][:100])["id"]]
    upload = server.http.post(API, files=[("files", ("a.log", text))], params={"wait": "30"})
    ids.append(upload.json()["id"])
    for id_ in ids:
        seen = [server.http.get(f"{API}/{id_}").text]
        names = ("json", "markdown", "input")
        seen += [server.http.get(f"/d/{id_}/{name}").text for name in names]
        seen += [server.http.get(f"/d/{id_}").text.partition('id="data"')[0]]
        for page in seen:
            unseen(page, *(found for _, found in KINDS))
    record = server.served.store.search(limit=1)[0]
    unseen(repr(record), *(found for _, found in KINDS))


def _line(kind: tuple[str, object]) -> str:
    return kind[0]


def test_hostile_text_stays_text(server: Running) -> None:
    hostile = "<script>window.hacked=1</script>"
    log = f"[rank0]: ValueError: {hostile}\n{hostile}\n"
    found = server.post(log, title=hostile)
    id_ = found["id"]
    for path in (f"/d/{id_}", "/all", "/", f"/all?q={hostile}", f"/d/{id_}/delete",
                 f"/compare?id={id_}&id={id_}", f"/all?with={id_}"):  # fmt: skip
        page = server.http.get(path)
        assert page.status_code == 200
        assert hostile not in page.text
    for name in ("json", "markdown", "input"):
        headers = server.http.get(f"/d/{id_}/{name}").headers
        assert headers["content-type"].split(";")[0] in ("application/json", "text/plain")
        assert "sandbox" in headers["content-security-policy"]


@pytest.mark.parametrize(
    "name",
    ["../../../etc/cron.d/x", "/etc/passwd", "..\\..\\x", "C:\\x", "a/../../b", "\x00", "." * 300,
     "a/" * 200 + "x", "x" * 5000, "\u202ex", "~/.ssh/id", "lock", "nul\x00.log"],
)  # fmt: skip
def test_no_name_leads_out_of_the_upload(server: Running, name: str) -> None:
    data = server.served.settings.data
    before = sorted(path.name for path in data.iterdir())
    reply = server.http.post(API, files=[("files", (name, LOG.encode()))], params={"wait": "30"})
    assert reply.status_code in (200, 400)
    assert sorted(path.name for path in data.iterdir()) == before
    assert server.http.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/d/../../etc/passwd",
     "/static//etc/passwd"],
)  # fmt: skip
def test_no_path_leads_out_of_the_package(server: Running, path: str) -> None:
    host, _, port = server.url.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    connection.request("GET", path)
    assert connection.getresponse().status == 404
    connection.close()


def test_a_zip_bomb_ends_within_its_bounds(server: Running) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("rank0.log", b"a line of nothing\n" * (4 << 20))
    began = time.monotonic()
    reply = server.http.post(
        API, files=[("files", ("bomb.zip", stream.getvalue()))], params={"wait": "60"}
    )
    assert reply.json()["state"] in ("done", "failed")
    assert time.monotonic() - began < 60
    assert server.post(LOG)["verdict"] == "hung"


def _raw(server: Running) -> socket.socket:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=10)


@pytest.mark.slow
def test_headers_that_never_end_are_cut_off(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "HEADER_SECONDS", 0.3)
    with _raw(server) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        time.sleep(0.15)
        slow.sendall(b"X-A: 1\r\n")
        assert _rest(slow) == b""
    with _raw(server) as silent:
        assert _rest(silent) == b""
    with _raw(server) as second:  # also the headers of a further request
        second.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        have = b""
        while not have.endswith(b"ok\n"):
            have += second.recv(4096)
        second.sendall(b"GET ")
        assert _rest(second) == b""
    assert server.http.get("/healthz").status_code == 200


def _rest(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    have = b""
    try:
        while data := connection.recv(65536):
            have += data
    except ConnectionResetError:
        pass
    return have


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    ],
)  # fmt: skip
def test_broken_requests_are_refused(server: Running, request_: bytes) -> None:
    with _raw(server) as connection:
        connection.sendall(request_ + b"\r\n\r\n")
        assert _rest(connection)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 431")
    assert server.http.get("/healthz").status_code == 200


def test_a_huge_length_is_refused_before_it_comes(server: Running) -> None:
    with _raw(server) as connection:
        connection.sendall(
            b"POST /api/v1/diagnoses HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
            b"Content-Length: 99999999999999\r\n\r\nx"
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")


def test_who_sends_too_slowly_is_sent_away(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    from diagnose.serve import intake

    monkeypatch.setattr(intake, "BODY_IDLE_SECONDS", 0.2)
    with _raw(server) as connection:
        connection.sendall(
            b"POST /api/v1/diagnoses HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
            b"Content-Length: 100\r\n\r\nx"
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 408")
    monkeypatch.setattr(intake, "BODY_IDLE_SECONDS", 5.0)
    monkeypatch.setattr(intake, "BODY_GRACE_SECONDS", 0.1)
    with _raw(server) as connection:
        connection.sendall(
            b"POST /api/v1/diagnoses HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
            b"Content-Length: 100\r\n\r\nx"
        )
        time.sleep(0.3)
        connection.sendall(b"y")
        assert connection.recv(4096).startswith(b"HTTP/1.1 408")
    assert list((server.served.settings.data / "spool").iterdir()) == []


_DRIP = (
    b"POST /api/v1/diagnoses HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 1000\r\n\r\nx"
)


def test_uploads_that_drip_keep_nobody_out(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    from diagnose.serve import intake

    monkeypatch.setattr(intake, "MAX_UPLOADS", 4)
    monkeypatch.setattr(intake, "UPLOAD_SURE_SECONDS", 0.3)
    with ExitStack() as stack:
        dripping = [stack.enter_context(_raw(server)) for _ in range(4)]
        for connection in dripping:
            connection.sendall(_DRIP)
        _until(lambda: len(server.served.uploads) == 4)
        reply = server.http.post(API, content="x", headers=TEXT)
        assert reply.status_code == 429  # each of them is sure of its place for a moment
        time.sleep(0.4)
        for _ in range(3):  # of whoever sends at once
            assert server.http.post(API, content="x", headers=TEXT).status_code == 202
        assert dripping[0].recv(4096).startswith(b"HTTP/1.1 408")  # the first came slowest
    _until(lambda: len(server.served.uploads) == 0)


def test_one_address_does_not_take_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    from diagnose.serve import intake

    monkeypatch.setattr(intake, "MAX_UPLOADS_OF_ONE", 2)
    held = intake.Uploads()
    with ExitStack() as stack:
        places = [stack.enter_context(held.place(client)) for client in ("a", "a", "a", "b")]
        assert [place is not None for place in places] == [True, True, False, True]
    assert len(held) == 0


def test_what_is_fast_does_not_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    from diagnose.serve import intake

    monkeypatch.setattr(intake, "MAX_UPLOADS", 1)
    monkeypatch.setattr(intake, "UPLOAD_SURE_SECONDS", 0.0)
    held = intake.Uploads()
    with held.place("a") as first:
        assert first is not None
        first.size = 1 << 30
        with held.place("b") as second:
            assert second is None
        first.size = 0
        with held.place("b") as second:
            assert second is not None
        assert first.given_up


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_an_upload_that_breaks_off_leaves_nothing(server: Running, tmp_path: Path) -> None:
    with _raw(server) as connection:
        connection.sendall(
            b"POST /api/v1/diagnoses HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
            b"Content-Length: 1000\r\n\r\nhalf"
        )
    spool = server.served.settings.data / "spool"
    _until(lambda: not [*spool.iterdir()] and len(server.served.uploads) == 0)


def test_who_does_not_read_the_answer_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the calls of asyncio: what the kernel keeps of an answer is another thing everywhere."""
    monkeypatch.setattr(run, "REPLY_IDLE_SECONDS", 0.05)
    server = run.server_of(Starlette())
    server.config.load()

    async def connected(pause: Callable[[run.Deadlines], None]) -> bool:
        transport = Mock(asyncio.Transport)
        transport.get_extra_info.return_value = None
        made = run.Deadlines(server.config, server.server_state, {}, asyncio.get_running_loop())
        made.connection_made(transport)
        pause(made)
        await asyncio.sleep(0.2)
        made.connection_lost(None)
        return not transport.abort.called

    def read(made: run.Deadlines) -> None:
        made.pause_writing()
        made.resume_writing()

    assert not asyncio.run(connected(lambda made: made.pause_writing()))
    assert asyncio.run(connected(read))


def test_a_full_disk_and_too_many_uploads_are_told(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    from diagnose.serve import intake

    nothing = shutil.disk_usage("/")._replace(free=0)
    with monkeypatch.context() as patch:
        patch.setattr(intake.shutil, "disk_usage", lambda _: nothing)
        reply = server.http.post(API, content="x", headers=TEXT)
        assert (reply.status_code, reply.json()["error"]["code"]) == (507, "disk_full")
        patch.setattr(
            intake.shutil, "disk_usage", lambda _: nothing._replace(free=(256 << 20) + 10)
        )
        assert server.http.post(API, content="x", headers=TEXT).status_code == 202
    monkeypatch.setattr(intake, "MAX_UPLOADS", 0)
    assert server.http.post(API, content="x", headers=TEXT).status_code == 429


def test_what_is_wrong_with_a_form_is_told(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    from diagnose.serve import spool

    def sent(*files: tuple[str, bytes]) -> tuple[int, str]:
        reply = server.http.post(API, files=[("files", file) for file in files])
        return reply.status_code, reply.json().get("error", {}).get("message", "")

    edge = "x"
    empty = f'--{edge}\r\nContent-Disposition: form-data; name="files"; filename=""\r\n\r\n'
    reply = server.http.post(
        API,
        content=f"{empty}\r\n--{edge}--\r\n",
        headers={"content-type": f"multipart/form-data; boundary={edge}"},
    )
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "empty"
    large = b"x" * ((8 << 20) + 100)
    assert sent(("a.log", large)) == (413, "More than 8 MiB in one upload.")
    monkeypatch.setattr(spool, "MAX_FILES", 2)
    several = [(f"{n}.log", b"x") for n in range(3)]
    assert sent(*several) == (400, "More than 2 files in one upload.")
