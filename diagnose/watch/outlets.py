"""Where a watch sends what it finds: a command once for each stall, a chat, Prometheus.

None of them makes the watch wait.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from diagnose.errors import InputError, install
from diagnose.runtime.children import run
from diagnose.watch.pulse import State

if TYPE_CHECKING:
    from prometheus_client.core import Metric


LIMIT_S = 600.0  # after which it and all that it started are killed
_LINE, _LINES = 2000, 200  # of its output are shown


class Hook:
    """Runs a shell command beside the watch; of one command at a time.

    Its output goes, line by line and bounded, to `say`, apart from what the watch itself prints.
    """

    def __init__(self, command: str, say: Callable[[str], None], limit_s: float = LIMIT_S) -> None:
        self._command, self._say, self._limit_s = command, say, limit_s
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def run(self, values: Mapping[str, str]) -> None:
        """Start it with these variables, unless the one before still runs."""
        if self._thread is not None and self._thread.is_alive():
            self._say("not started: it still runs for the stall before")
            return
        self._thread = threading.Thread(target=self._attend, args=(dict(values),), daemon=True)
        self._thread.start()

    def close(self, wait_s: float) -> None:
        """Wait so long for it to end, then end it."""
        if self._thread is None:
            return
        self._thread.join(wait_s)
        self._over.set()
        self._thread.join(5)

    def _attend(self, values: dict[str, str]) -> None:
        lines = _Lines(self._say)
        ending = run(
            ["/bin/sh", "-c", self._command],
            lines,
            seconds=self._limit_s,
            stop=lambda: "the watch is over" if self._over.is_set() else None,
            environment={**os.environ, **values},
            merged=True,
            grace_s=0,
        )
        lines.end()
        if ending.status is None:
            self._say(f"ended: {ending.why}")
        elif ending.status:
            self._say(f"exit status {ending.status}")


class _Lines:
    """Says what is written, line by line."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._rest = b""
        self._count = 0

    def write(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._one(line)
        while len(self._rest) > _LINE:
            self._one(self._rest[:_LINE])
            self._rest = self._rest[_LINE:]

    def end(self) -> None:
        if self._rest:
            self._one(self._rest)

    def _one(self, line: bytes) -> None:
        self._count += 1
        if self._count <= _LINES:
            self._say(line[:_LINE].decode(errors="replace").rstrip())
        elif self._count == _LINES + 1:
            self._say("[...]")


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


MAX_RANKS = 256  # with an age of their own
_PREFIX = "diagnose_watch"


@dataclass(frozen=True, slots=True)
class View:
    """The state of a watch at one look. `ages` maps authors to seconds since their progress."""

    state: State = State.STARTING
    stalls: int = 0
    attempt: int = 0
    phase: str = ""
    heartbeat: float | None = None
    limit: float | None = None
    age: float | None = None
    step: int | None = None
    files: int = 0
    missed: int = 0
    ages: Mapping[str, float] = field(default_factory=dict)


class Metrics:
    """Serves the metrics over HTTP until `close`. Raises InputError where it cannot."""

    def __init__(self, address: str) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415
        except ImportError:
            raise InputError(f"--metrics needs a package: {install('watch')}") from None
        self.view = View()
        host, port = parsed(address)
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise InputError(f"--metrics {address}: {error.strerror}") from error
        self.port = int(self._server.server_port)

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def collect(self) -> Iterator[Metric]:
        """The metrics now, as prometheus_client asks for them."""
        from prometheus_client.core import (  # noqa: PLC0415  of an extra
            CounterMetricFamily,
            GaugeMetricFamily,
        )

        def labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
            family = GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=[label])
            for of, value in values.items():
                family.add_metric([of], value)
            return family

        view = self.view
        states = {one.value: float(view.state is one) for one in State}
        yield labelled("state", "1 for the state of the job.", "state", states)
        yield labelled("phase", "1 for what it is doing.", "phase", {view.phase: 1.0})
        yield CounterMetricFamily(f"{_PREFIX}_stalls", "Stalls reported.", value=view.stalls)
        yield CounterMetricFamily(f"{_PREFIX}_restarts", "Attempts begun.", value=view.attempt)
        for name, text, value in (
            ("heartbeat_seconds", "Usual time between signs of progress.", view.heartbeat),
            ("limit_seconds", "Silence after which a stall is reported.", view.limit),
            ("progress_age_seconds", "Time since the last progress of any rank.", view.age),
            ("step", "Highest step of any rank.", view.step),
            ("files", "Files followed.", view.files),
            ("missed_bytes", "Bytes skipped as they came too fast.", view.missed),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"{_PREFIX}_{name}", text, value=value)
        about = f"Time since the last progress of a rank (of the {MAX_RANKS} oldest)."
        yield labelled("rank_progress_age_seconds", about, "rank", view.ages)


def parsed(address: str) -> tuple[str, int]:
    """Host and port of `:9400`, `127.0.0.1:9400`, `[::1]:9400` or `9400`; without a host any."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise InputError(f"--metrics {address}: an address such as :9400 is needed")
    return host.strip("[]") or "0.0.0.0", int(port)
