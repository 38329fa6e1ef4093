"""Which URLs are fetched, and what they may give."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from diagnose.errors import InputError
from diagnose.serve import spool

from .running import API, LOG, running

ROOT = "https://logs.example.org/jobs"


@pytest.mark.parametrize(
    "url",
    [
        "https://logs.example.org/jobs",
        "https://logs.example.org/jobs/",
        "https://LOGS.example.org:443/jobs/1/a%20b.log?x=1",
    ],
)
def test_what_lies_below_is_fetched(url: str) -> None:
    assert spool.permitted(url, [ROOT])


@pytest.mark.parametrize(
    "url",
    [
        "http://logs.example.org/jobs/1",
        "https://logs.example.org:8443/jobs/1",
        "https://logs.example.org/jobs2/1",
        "https://logs.example.org/",
        "https://logs.example.org/jobs/../admin",
        "https://logs.example.org/jobs/%2e%2e/admin",
        "https://logs.example.org/jobs/..%2fadmin",
        "https://logs.example.org/jobs\\..\\admin",
        "https://logs.example.org@evil.example/jobs/1",
        "https://evil.example#@logs.example.org/jobs/1",
        "https://logs.example.org.evil.example/jobs/1",
        "https://logs.example.org/jobs/1\r\nX-A: b",
        "https://logs.example.org /jobs/1",
        "https://[::1]/jobs",
        "https://[/jobs",
        "https://logs.example.org:99999/jobs",
        "file:///etc/passwd",
        "ftp://logs.example.org/jobs/1",
        "//logs.example.org/jobs/1",
        "",
    ],
)
def test_everything_else_is_not(url: str) -> None:
    assert not spool.permitted(url, [ROOT])
    assert not spool.permitted(url, [])


@pytest.mark.parametrize("url", ["ftp://x/", "https://x/?q", "x", "https://u@x/", "https:///x"])
def test_a_prefix_is_a_plain_url(url: str) -> None:
    with pytest.raises(InputError, match="--allow-url"):
        spool.prefix(url)


class Site(BaseHTTPRequestHandler):
    """Serves a log, redirects, errors and too much."""

    def do_GET(self) -> None:
        """See BaseHTTPRequestHandler."""
        path = self.path
        if path.startswith("/jobs/to/"):
            self.send_response(302)
            self.send_header("Location", path.removeprefix("/jobs/to/"))
            self.end_headers()
            return
        self.send_response(404 if "missing" in path else 200)
        self.end_headers()
        if "large" in path:
            for _ in range(40):
                self.wfile.write(b"x" * (64 << 10))
        else:
            self.wfile.write(LOG.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def get(site: str, path: str, folder: Path) -> None:
    spool.fetch([f"{site}{path}"], [f"{site}/jobs"], folder, 1 << 20, lambda _: None)


def test_a_log_is_fetched_under_its_name(site: str, tmp_path: Path) -> None:
    get(site, "/jobs/1/rank0.log?token=1", tmp_path)
    assert (tmp_path / "rank0.log").read_text() == LOG
    get(site, f"/jobs/to/{site}/jobs/1/rank1.log", tmp_path)
    assert (tmp_path / "rank1.log").exists() or len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/admin", "is not below a URL that this server may fetch"),
        ("/jobs/to//admin", "redirects to where this server may not fetch"),
        ("/jobs/to/file:///etc/passwd", "redirects to where this server may not fetch"),
        ("/jobs/to/http://xn--a/jobs/1", "cannot be fetched: "),
        ("/jobs/missing", "answers 404"),
        ("/jobs/large", "more than 1 MiB in one upload"),
    ],
)
def test_what_is_not_fetched(site: str, tmp_path: Path, path: str, error: str) -> None:
    with pytest.raises(InputError, match=error):
        get(site, path, tmp_path)


def test_nobody_there(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9/jobs/1"
    with pytest.raises(InputError, match="cannot be fetched: "):
        spool.fetch([url], [url], tmp_path, 1000, lambda _: None)


@pytest.mark.slow
def test_urls_through_the_api(site: str, tmp_path: Path) -> None:
    with running(tmp_path, urls=(f"{site}/jobs",)) as server:
        asked = {"urls": [f"{site}/jobs/1/console.log"], "title": "fetched"}
        found = server.http.post(API, json=asked, params={"wait": "30"}).json()
        assert (found["state"], found["verdict"]) == ("done", "hung")
        assert found["source"] == f"{site}/jobs/1/console.log"
        bad = server.http.post(API, json={"urls": [f"{site}/admin"]})
        assert bad.status_code == 403
