"""One server: its application, its data folder, its socket, its connections, and its end."""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from diagnose.errors import InputError
from diagnose.runtime.database import locked
from diagnose.runtime.sockets import is_loopback, listening, url
from diagnose.serve import api, pages
from diagnose.serve.desk import Desk, check
from diagnose.serve.intake import Served
from diagnose.serve.model import (
    HEADER_BYTES,
    HEADER_SECONDS,
    MAX_CONNECTIONS,
    REPLY_IDLE_SECONDS,
    Metrics,
    Refused,
    Settings,
)
from diagnose.serve.security import Door
from diagnose.serve.store import Store

_ANSWER_SECONDS = 5  # that requests have to end when the server does
STOP_SECONDS = 10.0  # that running jobs have to end when the server does
_TIDY_SECONDS = 300.0
NOT_READ = "The results of the server cannot be read or written: is its disk full, or damaged?"
_DAY = 86400.0


def application(settings: Settings, key: bytes) -> Starlette:
    """The application of a data folder that nobody else uses."""
    store = Store(settings.data / "diagnoses.sqlite")
    # The desk needs the event loop, and is there as soon as requests are.
    served = Served(settings, store, None, Metrics(), key)  # type: ignore[arg-type]

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        served.desk = Desk(settings, store, served.metrics)
        served.desk.start()
        tidying = asyncio.create_task(_tidy(served))
        try:
            yield
        finally:
            tidying.cancel()
            await served.desk.stop(STOP_SECONDS)
            store.close()

    async def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, Refused):
            served.metrics.count("refused_total", reason=error.code)
        if request.url.path.startswith("/api/"):
            return await api.refused(request, error)
        return pages.refused(request, error)

    async def gone(_request: Request, _error: Exception) -> Response:
        return Response(status_code=400)  # nobody reads it

    async def unusable(request: Request, error: Exception) -> Response:
        served.metrics.problem(error)
        return await refused(request, Refused(500, "store", NOT_READ))

    handlers: dict[Any, Any] = {
        sqlite3.Error: unusable,
        Refused: refused,
        HTTPException: refused,
        ClientDisconnect: gone,
    }
    app = Starlette(
        routes=[*api.ROUTES, *pages.ROUTES],
        middleware=[Middleware(Door, served=served)],
        exception_handlers=handlers,
        lifespan=lifespan,
    )
    app.state.served = served
    return app


async def _tidy(served: Served) -> None:
    """Delete what is too old or too much, now and then."""
    while True:
        with suppress(Exception):
            await asyncio.to_thread(tidy, served, time.time())
        await asyncio.sleep(_TIDY_SECONDS)


def tidy(served: Served, now: float) -> None:
    """Delete what is too old at `now`, or too much."""
    settings = served.settings
    oldest = now - settings.keep_days * _DAY if settings.keep_days else 0.0
    for id_ in served.store.expired(oldest, settings.keep_bytes):
        served.desk.delete(id_)


class Deadlines(H11Protocol):
    """Ends connections that keep us waiting."""

    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._late is None and self.conn.their_state is h11.IDLE:
            self._expect()
        super().data_received(data)
        if self._late is not None and self.conn.their_state is not h11.IDLE:
            self._late.cancel()
            self._late = None

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        for timer in (self._late, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        super().pause_writing()
        self._unread = self.loop.call_later(REPLY_IDLE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def _expect(self) -> None:
        """The headers of a request must be there in time."""
        self._late = self.loop.call_later(HEADER_SECONDS, self.transport.abort)


def run(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve until a signal asks to end. `announce` gets the address. Raises InputError."""
    if settings.token is None and not is_loopback(settings.host):
        raise InputError(f"{settings.host} can be reached by others: give a --token-file")
    lock = claim(settings.data)
    try:
        with listening(settings.host, settings.port) as listener:
            check(settings.patterns, settings.data / "spool")
            app = application(settings, key_of(settings.data))
            announce(f"diagnose serve: {url(settings.host, listener.getsockname()[1])}")
            server_of(app).run(sockets=[listener])
    finally:
        os.close(lock)


def server_of(app: Starlette) -> uvicorn.Server:
    """What speaks HTTP for an application, with bounds on connections and headers."""
    config = uvicorn.Config(
        app,
        http=Deadlines,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_ANSWER_SECONDS,
    )
    return uvicorn.Server(config)


def claim(folder: Path) -> int:
    """Make a data folder ready, and ours alone as long as what is returned is open.

    Raises InputError where another server has it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "spool").mkdir(mode=0o700, exist_ok=True)
        lock = locked(folder / "lock")
    except OSError as error:
        raise InputError(f"cannot keep results in {folder}: {error.strerror}") from error
    if lock is None:
        raise InputError(f"another server uses {folder}; give this one its own --data")
    return lock


def key_of(folder: Path) -> bytes:
    """The key of the cookies and forms of a data folder, made when it is first asked for."""
    path = folder / "key"
    try:
        if len(found := path.read_bytes()) == 32:
            return found
    except FileNotFoundError:
        pass
    key = secrets.token_bytes(32)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as stream:
        stream.write(key)
    return key
