"""The HTTP API under /api/v1; docs/serve.md and openapi.json describe it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import zstandard
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from diagnose import __version__
from diagnose.report.html.shell import asset
from diagnose.serve.desk import FullError
from diagnose.serve.intake import Served, accept
from diagnose.serve.model import MAX_STREAMS, Refused, busy
from diagnose.serve.store import WAITING, Record

ROOT = "/api/v1/diagnoses"
OUTPUTS = ("page", "markdown", "input")
_MAX_WAIT = 60.0  # seconds
_MAX_LIST = 200
_MAX_OUTPUT = 256 << 20
_PAUSE = 0.2  # seconds between two events of one stream
_BEAT = 15.0  # seconds after which an idle stream says that it is there
_TOP_NUMBER = 2**63 - 1


def served_of(request: Request) -> Served:
    """What this server is made of."""
    served: Served = request.app.state.served
    return served


async def create(request: Request) -> Response:
    """POST: take in a job; with ?wait=SECONDS answer when it is done."""
    seconds = _number(request, "wait", 0.0, _MAX_WAIT)
    served = served_of(request)
    record = await accept(served, request)
    if seconds:
        await served.desk.result(record.id, seconds)
        record = served.store.get(record.id) or record
    status = 202 if record.state in WAITING else 200
    where = {"Location": f"{ROOT}/{record.id}"}
    return JSONResponse(_document(served, record), status, where)


async def index(request: Request) -> Response:
    """GET: the newest diagnoses, or those that a search finds."""
    served = served_of(request)
    limit = int(_number(request, "limit", 50, _MAX_LIST, least=1))
    before = request.query_params.get("before")
    at = int(_number(request, "before", 0, _TOP_NUMBER, least=1)) if before is not None else None
    found = served.store.search(request.query_params.get("q", ""), limit, at)
    following = found[-1].number if len(found) == limit else None
    items = [document(served, record) for record in found]
    return JSONResponse({"diagnoses": items, "next": following})


async def one(request: Request) -> Response:
    """GET: one diagnosis; with ?wait=SECONDS answer when it is done."""
    served = served_of(request)
    seconds = _number(request, "wait", 0.0, _MAX_WAIT)
    record = record_of(request)
    if seconds and record.state in WAITING:
        await served.desk.result(record.id, seconds)
        record = record_of(request)
    return JSONResponse(_document(served, record))


async def delete(request: Request) -> Response:
    """DELETE: cancel a job, or delete a diagnosis with all that is kept of it."""
    if not served_of(request).desk.delete(record_of(request).id):
        raise _unknown()
    return Response(status_code=204)


async def output(request: Request) -> Response:
    """GET: the page, the Markdown or the masked input."""
    name = request.path_params["name"]
    if name not in OUTPUTS:
        raise _unknown()
    record = record_of(request)
    data = await output_of(served_of(request), record, name)
    headers = text_headers(name)
    if name == "page":
        headers["content-disposition"] = f'attachment; filename="post-mortem-{record.id}.html"'
    return Response(data, headers=headers)


async def events(request: Request) -> Response:
    """GET: the state of a job as server-sent events, until it is done."""
    served, record = served_of(request), record_of(request)
    if served.streams >= MAX_STREAMS:
        raise busy(5)
    return StreamingResponse(_events(served, record.id), media_type="text/event-stream")


async def openapi(_request: Request) -> Response:
    """GET: the description of this API."""
    described = json.loads(asset("openapi.json", "diagnose.serve"))
    described["info"]["version"] = __version__
    return JSONResponse(described)


async def _events(served: Served, id_: str) -> AsyncIterator[str]:
    served.streams += 1
    try:
        last = ""
        while True:
            record = served.store.get(id_)
            if record is None:
                yield "event: deleted\ndata: {}\n\n"
                return
            text = json.dumps(document(served, record), separators=(",", ":"))
            if text != last:
                yield f"event: status\ndata: {text}\n\n"
            elif record.state in WAITING:
                yield ": still here\n\n"
            last = text
            if record.state not in WAITING or served.desk.closing:
                return
            await served.desk.news(_BEAT)
            await asyncio.sleep(_PAUSE)
    finally:
        served.streams -= 1


def record_of(request: Request) -> Record:
    """The diagnosis that the path names. Raises Refused."""
    record = served_of(request).store.get(request.path_params["id"])
    if record is None:
        raise _unknown()
    return record


async def output_of(served: Served, record: Record, name: str) -> bytes:
    """An output of a finished job. Raises Refused."""
    try:
        data = await served.desk.output(record, name)
    except FullError as error:
        raise busy(error.seconds) from error
    if data is None:
        raise Refused(404, "no_output", "There is no such output (yet).")
    return unpacked(data)


def unpacked(data: bytes) -> bytes:
    """An output as it was before it was compressed."""
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=_MAX_OUTPUT)


def text_headers(name: str) -> dict[str, str]:
    """Headers of an output as a file of its own, in which nothing can run."""
    if name == "page":  # its own policy stands in it
        policy = "sandbox allow-scripts allow-downloads; frame-ancestors 'none'"
        return {"content-type": "text/html; charset=utf-8", "content-security-policy": policy}
    kind = "application/json" if name == "json" else "text/plain; charset=utf-8"
    return {
        "content-type": kind,
        "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
    }


def document(served: Served, record: Record) -> dict[str, Any]:
    """A diagnosis as the API gives it in a list."""
    done = record.state == "done"
    status = served.desk.status(record.id) if record.state in WAITING else None
    running = status is not None and status.position == 0
    state = "running" if running else "queued" if record.state in WAITING else record.state
    path = f"{ROOT}/{record.id}"
    return {
        "id": record.id,
        "state": state,
        "created": stamp(record.created),
        "finished": stamp(record.finished) if record.finished is not None else None,
        "title": record.title,
        "source": record.source,
        "bytes": record.bytes,
        "position": status.position if status and not running else None,
        "progress": asdict(status.now) if status and running else None,
        "error": record.error or None,
        "verdict": record.verdict if done else None,
        "class": record.cause if done else None,
        "confidence": (record.confidence or None) if done else None,
        "headline": record.headline if done else None,
        "summary": record.summary if done else None,
        "culprits": record.who if done else None,
        "links": {
            "self": path,
            "events": f"{path}/events",
            "view": f"/d/{record.id}",
            **({name: f"{path}/{name}" for name in OUTPUTS} if done else {}),
        },
    }


def _document(served: Served, record: Record) -> dict[str, Any]:
    """The same with the whole diagnosis, where there is one."""
    shown = document(served, record)
    data = served.store.output(record.id, "json") if record.state == "done" else None
    return {**shown, "diagnosis": json.loads(unpacked(data)) if data else None}


def stamp(seconds: float) -> str:
    """A time in ISO 8601, UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _number(request: Request, name: str, default: float, most: float, *, least: float = 0) -> float:
    text = request.query_params.get(name)
    if text is None:
        return default
    whole = name != "wait"
    plain = re.fullmatch(r"\d+" if whole else r"\d+\.?\d*|\.\d+", text, re.ASCII)
    number = float(text) if plain else -1.0
    if not least <= number <= most:
        raise Refused(422, "bad_request", f"{name} must be a number from {least} to {most:g}.")
    return int(text) if whole else number


def _unknown() -> Refused:
    return Refused(404, "unknown", "There is no such diagnosis.")


async def refused(_request: Request, error: Exception) -> Response:
    """What is refused, for programs."""
    if isinstance(error, Refused):
        return JSONResponse(_error(error.code, error.message), error.status, error.headers)
    assert isinstance(error, HTTPException)
    return JSONResponse(_error("http", error.detail), error.status_code, error.headers)


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


ROUTES = [
    Route(ROOT, create, methods=["POST"]),
    Route(ROOT, index, methods=["GET"]),
    Route(f"{ROOT}/{{id}}", one, methods=["GET"]),
    Route(f"{ROOT}/{{id}}", delete, methods=["DELETE"]),
    Route(f"{ROOT}/{{id}}/events", events, methods=["GET"]),
    Route(f"{ROOT}/{{id}}/{{name}}", output, methods=["GET"]),
    Route("/api/v1/openapi.json", openapi, methods=["GET"]),
]
