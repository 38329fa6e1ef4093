"""Messages to a chat, against a server that fails as servers do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from diagnose.errors import InputError
from diagnose.watch.outlets import Webhook, message


class Chat(HTTPServer):
    """Answers with these statuses in turn, and keeps what it was sent."""

    statuses: list[int]
    got: list[tuple[str, Any]]


class _Handler(BaseHTTPRequestHandler):
    server: Chat

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.headers["Content-Type"], json.loads(body)))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        self.server.got.append(("GET", None))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_given: object) -> None:
        pass


@pytest.fixture
def chat() -> Iterator[Chat]:
    server = Chat(("127.0.0.1", 0), _Handler)
    server.statuses, server.got = [], []
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def posted(chat: Chat, *titles: str) -> list[str]:
    said: list[str] = []
    port = chat.server_port
    hook = Webhook(f"http://127.0.0.1:{port}/services/SECRET", said.append, (0.01, 0.01))
    for title in titles:
        hook.post(title, "activity: training")
    hook.close(20)
    assert "SECRET" not in "".join(said)
    return said


def test_messages_come_in_their_order(chat: Chat) -> None:
    assert posted(chat, "one", "two") == []
    assert [(kind, body["text"]) for kind, body in chat.got] == [
        ("application/json", "one"),
        ("application/json", "two"),
    ]


def test_a_server_that_is_busy_is_asked_again(chat: Chat) -> None:
    chat.statuses = [503, 429]
    assert posted(chat, "one") == []
    assert len(chat.got) == 3


def test_a_server_that_refuses_is_not(chat: Chat) -> None:
    chat.statuses = [404]
    assert posted(chat, "one", "two") == ["webhook 127.0.0.1: HTTP status 404"]
    assert len(chat.got) == 2


def test_it_gives_up(chat: Chat) -> None:
    chat.statuses = [500, 500, 500]
    assert posted(chat, "one") == ["webhook 127.0.0.1: HTTP status 500"]


def test_no_redirect_is_followed(chat: Chat) -> None:
    chat.statuses = [302]
    assert posted(chat, "one") == ["webhook 127.0.0.1: HTTP status 302"]
    assert len(chat.got) == 1


def test_nobody_listens() -> None:
    said: list[str] = []
    hook = Webhook("http://127.0.0.1:9/x", said.append, ())
    hook.post("one", "")
    hook.close(20)
    assert said == ["webhook 127.0.0.1: not reached: [Errno 111] Connection refused"]


def test_a_queue_that_is_full_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(Webhook, "_work", lambda _self: None)
    hook = Webhook("https://chat.example/x", said.append)
    for number in range(33):
        hook.post(str(number), "")
    hook.close(0.01)
    assert said == ["webhook chat.example: too many messages wait; one was dropped"]


@pytest.mark.parametrize("url", ["", "hooks.example/x", "file:///etc/passwd", "http://[x/"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InputError, match=r"^--webhook: "):
        Webhook(url, print)


def test_the_form_is_that_of_slack() -> None:
    assert message("a <b> & c", "x: `y`\nz") == {
        "text": "a &lt;b&gt; &amp; c",
        "blocks": [
            {
                "type": "section",
                "text": {"type": "mrkdwn", "text": "*a &lt;b&gt; &amp; c*\n```x: 'y'\nz```"},
            }
        ],
    }
    assert len(message("a", "x" * 9000)["blocks"][0]["text"]["text"]) <= 3000
