"""A server in a thread of the test's process, and what tests ask it for."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from diagnose.serve import desk, run
from diagnose.serve.intake import Served
from diagnose.serve.model import Settings
from diagnose.serve.run import application

ROOT = Path(__file__).parents[2]
LOG = (ROOT / "fixtures" / "torchrun-missing-rank" / "console.log").read_text()
API = "/api/v1/diagnoses"
TEXT = {"content-type": "text/plain"}


@dataclass
class Running:
    """A server under test; `http` asks it and follows no redirects."""

    url: str
    http: httpx.Client
    served: Served

    def post(self, text: str | bytes, wait: int = 30, **query: str) -> dict[str, Any]:
        """The result of a paste through the API."""
        query["wait"] = str(wait)
        reply = self.http.post(API, content=text, headers=TEXT, params=query)
        assert reply.status_code in (200, 202), reply.text
        return reply.json()

    def word(self, path: str = "/") -> str:
        """The word that a form of a page carries."""
        found = re.search(r'name="word" value="([0-9a-f]{64})"', self.http.get(path).text)
        assert found is not None
        return found[1]

    def paste(self, text: str, **fields: str) -> httpx.Response:
        """What a browser gets for the form of the first page."""
        data = {"word": self.word(), **fields}
        files = [(name, (None, value)) for name, value in data.items()]
        return self.http.post("/", files=[*files, ("text", (None, text))])

    def until(self, id_: str, state: str, seconds: float = 30) -> dict[str, Any]:
        """The job when it is in a state."""
        end = time.monotonic() + seconds
        while True:
            found: dict[str, Any] = self.http.get(f"{API}/{id_}").json()
            if found["state"] == state:
                return found
            assert time.monotonic() < end, found
            time.sleep(0.02)


@contextmanager
def running(data: Path, **options: Any) -> Iterator[Running]:
    """A server on a data folder."""
    lock = run.claim(data)
    settings = Settings(data=data, **options)
    desk.check(settings.patterns, data / "spool")
    app = application(settings, run.key_of(data))
    server = run.server_of(app)
    with run.listening(settings.host, 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            url = run.url(settings.host, listener.getsockname()[1]).rstrip("/")
            with httpx.Client(base_url=url, timeout=60) as http:
                yield Running(url, http, app.state.served)
        finally:
            server.should_exit = True
            thread.join()
            os.close(lock)
