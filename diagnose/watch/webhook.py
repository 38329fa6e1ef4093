"""Messages to a chat: JSON of Slack's form, posted by a thread that never makes the watch wait."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from diagnose.errors import InputError

TIMEOUT_S = 10.0
PAUSES_S = (1.0, 5.0, 20.0)  # before each further attempt
_WAITING = 32  # messages that may wait; more are dropped
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
_PART = 2900  # characters of one block; Slack takes 3000


class Webhook:
    """Posts messages in their order; what fails is said by `say`, without the URL: it is a secret.

    Raises InputError for a URL that is none of HTTP.
    """

    def __init__(
        self, url: str, say: Callable[[str], None], pauses_s: Sequence[float] = PAUSES_S
    ) -> None:
        try:
            parts = urlsplit(url)
            self._where = parts.hostname or ""
        except ValueError:
            raise InputError("--webhook: not a URL") from None
        if parts.scheme not in ("http", "https") or not self._where:
            raise InputError("--webhook: a URL that begins with https:// or http:// is needed")
        self._url, self._say, self._pauses_s = url, say, pauses_s
        self._opener: OpenerDirector = build_opener(_NoRedirect)
        self._messages: queue.Queue[bytes | None] = queue.Queue(_WAITING)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def post(self, title: str, details: str) -> None:
        """Send a message: its first line, and what stands below it."""
        try:
            self._messages.put_nowait(json.dumps(message(title, details)).encode())
        except queue.Full:
            self._say(f"webhook {self._where}: too many messages wait; one was dropped")

    def close(self, wait_s: float) -> None:
        """Wait so long until all messages are sent."""
        try:
            self._messages.put(None, timeout=wait_s)
        except queue.Full:
            pass
        else:
            self._thread.join(wait_s)
        self._stop.set()

    def _work(self) -> None:
        while (body := self._messages.get()) is not None:
            problem = ""
            for pause in (0.0, *self._pauses_s):
                if self._stop.wait(pause):
                    return
                problem, retry = self._sent(body)
                if not retry:
                    break
            if problem:
                self._say(f"webhook {self._where}: {problem}")

    def _sent(self, body: bytes) -> tuple[str, bool]:
        """What went wrong, and whether to try again."""
        request = Request(self._url, body, {"Content-Type": "application/json"})
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                answer.read(1024)
        except HTTPError as error:
            error.close()
            return f"HTTP status {error.code}", error.code in _LATER
        except URLError as error:
            return f"not reached: {error.reason}", True
        except (OSError, ValueError) as error:
            return f"not reached: {type(error).__name__}", True
        return "", False


class _NoRedirect(HTTPRedirectHandler):
    """A message is for the given address only."""

    def redirect_request(self, *_given: Any) -> None:
        """Follow none; the answer is an error then."""
        return


def message(title: str, details: str) -> dict[str, Any]:
    """The JSON of a message, as Slack's incoming webhooks and those that imitate it take it."""
    text = f"*{_escaped(title)}*"
    if details:
        text += f"\n```{_escaped(details)}```"
    if len(text) > _PART:
        text = text[: _PART - 4] + "…```"
    section = {"type": "section", "text": {"type": "mrkdwn", "text": text}}
    return {"text": _escaped(title), "blocks": [section]}


def _escaped(text: str) -> str:
    """The three characters that Slack gives a meaning; a fence of code cannot be ended early."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("`", "'")
