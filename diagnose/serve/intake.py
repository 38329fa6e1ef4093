"""From a request to a job in the queue: what was sent is on disk, whole, before it is accepted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from diagnose.serve import body, fetch, spool
from diagnose.serve.body import Sending, Uploads
from diagnose.serve.desk import Desk, FullError
from diagnose.serve.metrics import Metrics
from diagnose.serve.refused import Refused, busy
from diagnose.serve.settings import (
    MAX_URLS,
    MIB,
    TEXT_LIMIT,
    TITLE_LIMIT,
    UPLOAD_SURE_SECONDS,
    Settings,
)
from diagnose.serve.spool import Upload
from diagnose.serve.store import Record, Store, new_id
from diagnose.serve.task import PASTE, TYPES, Kind

_JSON_LIMIT = 2 * TEXT_LIMIT  # escapes take room
_SPARE = 256 * MIB  # of the disk
_SHOWN = 3  # names of files in a list
_NAME = 80  # characters of one

Fields = dict[str, str]


@dataclass(slots=True)
class Served:
    """All that answering a request needs."""

    settings: Settings
    store: Store
    desk: Desk
    metrics: Metrics
    key: bytes
    uploads: Uploads = field(default_factory=Uploads)
    streams: int = field(default=0)


@dataclass(frozen=True, slots=True)
class _Given:
    """What a request gave: `names` of files or `urls`, and how many bytes."""

    kind: Kind
    size: int
    title: str = ""
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()


async def accept(
    served: Served,
    request: Request,
    *,
    ready: Callable[[Fields], None] = lambda _: None,
    viewed: bool = False,
) -> Record:
    """Take in what a request sends and put it into the queue.

    `ready` may refuse a form by its fields. With `viewed` the page is wanted at once. Raises
    Refused.
    """
    _check(served, request)
    with served.uploads.place(request.client.host if request.client else "") as sending:
        if sending is None:
            raise busy(round(UPLOAD_SURE_SECONDS))
        record = await _taken(served, request, sending, ready, viewed=viewed)
    served.desk.put(record)
    return record


async def _taken(
    served: Served,
    request: Request,
    sending: Sending,
    ready: Callable[[Fields], None],
    *,
    viewed: bool,
) -> Record:
    """What a request sends, on disk and in the store. Raises Refused."""
    id_ = new_id()
    folder = spool.folder_of(served.settings.data / "spool", id_)
    upload = Upload(folder, served.settings.upload)
    accepted = False
    try:
        given = await _read(served, request, upload, ready, sending)
        _check_queue(served)  # others may have come while it was read
        record = served.store.add(
            id_, given.kind, _title(given.title), _source(given), given.size,
            _wanted(given.kind, viewed), "\n".join(given.urls),
        )  # fmt: skip
        accepted = True
    finally:
        upload.end()
        if not accepted:
            spool.remove(folder)
    served.metrics.count("upload_bytes_total", given.size)
    return record


def _check(served: Served, request: Request) -> None:
    """Refuse before anything is read what cannot be taken in. Raises Refused."""
    _check_queue(served)
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, "encoded", "Send the body as it is; compressed files are understood.")
    if shutil.disk_usage(served.settings.data).free < served.settings.upload + _SPARE:
        length = request.headers.get("content-length", "")
        size = int(length) if length.isdecimal() else served.settings.upload
        if shutil.disk_usage(served.settings.data).free < size + _SPARE:
            raise Refused(507, "disk_full", "The disk of the server is full.")


def _check_queue(served: Served) -> None:
    try:
        served.desk.check()
    except FullError as error:
        raise busy(error.seconds) from error


async def _read(
    served: Served,
    request: Request,
    upload: Upload,
    ready: Callable[[Fields], None],
    sending: Sending,
) -> _Given:
    limit = served.settings.upload
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    title = request.query_params.get("title", "")
    if kind == "multipart/form-data":
        fields = await body.form(request, upload, limit, sending)
        ready(fields)
        return _given(upload, fields.get("title", title))
    if kind == "application/json":
        return _from_json(
            await body.whole(request, _JSON_LIMIT, sending), served.settings, upload, title
        )
    if kind in ("text/plain", ""):
        await body.to_file(request, upload, PASTE, limit, sending)
        return _given(upload, title)
    if kind == "application/octet-stream":
        await body.to_file(request, upload, request.query_params.get("name", "log"), limit, sending)
        return _given(upload, title)
    raise Refused(
        415, "media_type",
        "Send text/plain, application/octet-stream, application/json or multipart/form-data.",
    )  # fmt: skip


def _given(upload: Upload, title: str) -> _Given:
    """What lies in the folder now: a paste, or files. Raises Refused where it is nothing."""
    paste = upload.folder / PASTE
    if PASTE in upload.names and not paste.stat().st_size:
        paste.unlink()
        upload.names.remove(PASTE)
    if not upload.names or not upload.size:
        raise Refused(400, "empty", "There is nothing to diagnose: paste a log or choose files.")
    kind: Kind = "files"
    if upload.names == [PASTE] and body.is_text(paste, TEXT_LIMIT):
        kind = "text"
    return _Given(kind, upload.size, title, tuple(upload.names))


def _from_json(data: bytes, settings: Settings, upload: Upload, title: str) -> _Given:
    try:
        asked: Any = json.loads(data)
    except ValueError as error:
        raise Refused(400, "bad_json", "The body is not JSON.") from error
    except RecursionError as error:
        raise Refused(400, "bad_json", "The JSON is nested too deeply.") from error
    if not isinstance(asked, dict):
        raise _wrong("The body must be an object with text or urls.")
    text, urls, title = asked.get("text"), asked.get("urls"), asked.get("title", title)
    if set(asked) - {"text", "urls", "title"}:
        raise _wrong("The object may have text, urls and title, and nothing else.")
    if not isinstance(title, str) or (text is None) == (urls is None):
        raise _wrong("The object must have a text or a list of urls, and may have a title.")
    if text is not None:
        if not isinstance(text, str):
            raise _wrong("The text must be a string.")
        upload.begin(PASTE)
        upload.write(text.encode(errors="replace"))
        upload.end()
        return _given(upload, title)
    if not isinstance(urls, list) or not 0 < len(urls) <= MAX_URLS:
        raise _wrong(f"The urls must be a list of 1 to {MAX_URLS}.")
    for url in urls:
        if not isinstance(url, str) or not fetch.permitted(url, settings.urls):
            raise Refused(403, "url_not_allowed", "A URL is not among those this server may fetch.")
    return _Given("urls", 0, title, urls=tuple(urls))


def _wrong(message: str) -> Refused:
    return Refused(422, "bad_request", message)


def _wanted(kind: Kind, viewed: bool) -> str:
    """The outputs to make at once; those of a paste can be made later of its masked input."""
    if kind != "text":
        return " ".join(TYPES)
    return "json input page" if viewed else "json input"


def _title(text: str) -> str:
    """A title in one clean line, secrets masked."""
    from diagnose.report.safe import masked_line  # noqa: PLC0415  not before a first title

    return masked_line(text, TITLE_LIMIT).strip() if text.strip() else ""


def _source(given: _Given) -> str:
    """What was given, for a list."""
    from diagnose.report.safe import masked_line  # noqa: PLC0415

    names = given.urls or given.names
    if given.kind == "text":
        return "pasted text"
    folders = {name.partition("/")[0] for name in given.names if "/" in name}
    if len(names) > 1 and len(folders) == 1 and all("/" in name for name in given.names):
        return f"{masked_line(folders.pop(), _NAME)}/ with {len(names)} files"
    shown = ", ".join(masked_line(name, _NAME) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
