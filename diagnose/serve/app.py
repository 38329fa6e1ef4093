"""The application: routes, the door in front of them, and what runs beside them."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from diagnose.serve import api, pages
from diagnose.serve.desk import Desk
from diagnose.serve.intake import Served
from diagnose.serve.metrics import Metrics
from diagnose.serve.refused import Refused
from diagnose.serve.security import Door
from diagnose.serve.settings import Settings
from diagnose.serve.store import Store

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
