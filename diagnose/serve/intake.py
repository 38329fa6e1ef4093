"""From a request to a job in the queue: what was sent is on disk, whole, before it is accepted.

It is read piece by piece, within bounds of size and time.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from diagnose.errors import InputError
from diagnose.report.safe import masked_line
from diagnose.report.words import started_sentence
from diagnose.serve import spool
from diagnose.serve.desk import Desk, FullError
from diagnose.serve.model import (
    BODY_GRACE_SECONDS,
    BODY_IDLE_SECONDS,
    BODY_RATE,
    FIELD_LIMIT,
    MAX_FILES,
    MAX_UPLOADS,
    MAX_UPLOADS_OF_ONE,
    MAX_URLS,
    MIB,
    PASTE,
    TEXT_LIMIT,
    TITLE_LIMIT,
    TYPES,
    UPLOAD_SLOW_RATE,
    UPLOAD_SURE_SECONDS,
    Kind,
    Metrics,
    Refused,
    Settings,
    busy,
)
from diagnose.serve.spool import TooLargeError, Upload
from diagnose.serve.store import Record, Store, new_id

_MORE = 1 << 20  # bytes that the form around an upload may take
_FIELDS = 4  # of a form: text, title, word
_FIELD = 2 * TEXT_LIMIT  # bytes of all of them, which are held in memory
_JSON_LIMIT = 2 * TEXT_LIMIT  # escapes take room
_SPARE = 256 * MIB  # of the disk
_SHOWN = 3  # names of files in a list
_NAME = 80  # characters of one
Fields = dict[str, str]


@dataclass(eq=False, slots=True)
class Sending:
    """One upload: whose, since when, how much of it came; `wait` is for its next piece."""

    client: str = ""
    began: float = field(default_factory=time.monotonic)
    size: int = 0
    wait: asyncio.Timeout | None = None
    given_up: bool = False

    def rate(self, now: float) -> float:
        """Bytes a second."""
        return self.size / max(now - self.began, 0.001)

    def give_up(self) -> None:
        """End it: its wait is over now."""
        self.given_up = True
        if self.wait is not None:
            self.wait.reschedule(asyncio.get_running_loop().time())


class Uploads:
    """The uploads of a server that are under way. Asked in the thread of its event loop.

    A place in the queue is for a job whose input is there. Before that an upload holds nothing but
    one of MAX_UPLOADS connections, and it is sure of that only while it is not slow: when all are
    taken, the slowest gives its own to the newcomer. So whoever sends bytes now and then keeps
    nobody out.
    """

    def __init__(self) -> None:
        self._sending: list[Sending] = []

    def __len__(self) -> int:
        return len(self._sending)

    @contextmanager
    def place(self, client: str) -> Iterator[Sending | None]:
        """A place for an upload of a client as long as it is held; None where there is none."""
        own = [one for one in self._sending if one.client == client]
        many = len(own) >= MAX_UPLOADS_OF_ONE
        among, most = (own, MAX_UPLOADS_OF_ONE) if many else (self._sending, MAX_UPLOADS)
        if not self._room(among, most):
            yield None
            return
        sending = Sending(client)
        self._sending.append(sending)
        try:
            yield sending
        finally:
            if sending in self._sending:
                self._sending.remove(sending)

    def _room(self, among: list[Sending], most: int) -> bool:
        """Whether there are fewer than `most`, the slowest given up if it is slow."""
        if len(among) < most:
            return True
        now = time.monotonic()
        settled = [one for one in among if now - one.began >= UPLOAD_SURE_SECONDS]
        if not settled:
            return False
        slowest = min(settled, key=lambda one: one.rate(now))
        if slowest.rate(now) >= UPLOAD_SLOW_RATE:
            return False
        slowest.give_up()
        self._sending.remove(slowest)
        return True


async def pieces(
    request: Request, limit: int, sending: Sending | None = None
) -> AsyncGenerator[bytes, None]:
    """The body of a request, of `limit` bytes at most. Raises Refused; ClientDisconnect.

    `sending` is told how it goes, and may be given up for another.
    """
    sending = sending or Sending()
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > limit:
        raise _too_large(limit)
    stream = aiter(request.stream())
    while True:
        if sending.given_up:
            raise _too_slow()
        try:
            async with asyncio.timeout(BODY_IDLE_SECONDS) as sending.wait:
                piece = await anext(stream, b"")
        except TimeoutError:
            raise _too_slow() from None
        finally:
            sending.wait = None
        if not piece:
            return
        sending.size += len(piece)
        if sending.size > limit:
            raise _too_large(limit)
        now = time.monotonic()
        if now - sending.began > BODY_GRACE_SECONDS and sending.rate(now) < BODY_RATE:
            raise _too_slow()
        yield piece


async def whole(request: Request, limit: int, sending: Sending | None = None) -> bytes:
    """A small body as a whole."""
    return b"".join([piece async for piece in pieces(request, limit, sending)])


async def to_file(
    request: Request, upload: Upload, name: str, limit: int, sending: Sending
) -> None:
    """Write a body to a file of an upload."""
    with _refusing():
        upload.begin(name)
        async for piece in pieces(request, limit, sending):
            upload.write(piece)
        upload.end()


async def form(request: Request, upload: Upload, limit: int, sending: Sending) -> dict[str, str]:
    """Read a multipart form: its files and its `text` into `upload`, other fields returned."""
    parser = _Form(request, pieces(request, limit + _MORE, sending), upload)
    try:
        with _refusing():
            items = await parser.parse()
            fields = {name: item for name, item in items.multi_items() if isinstance(item, str)}
            if text := fields.pop("text", ""):
                upload.begin(PASTE)
                upload.write(text.encode(errors="replace"))
            upload.end()
    except MultiPartException as error:
        if "exceeded" in error.message:
            raise _long_field() from error
        raise Refused(400, "bad_form", f"The form cannot be read: {error.message}") from error
    if not parser.ended:
        raise Refused(400, "bad_form", "The form breaks off.")
    if any(len(value) > FIELD_LIMIT for value in fields.values()):
        raise _long_field()
    return fields


class _Form(MultiPartParser):
    """Starlette's parser, but that files go to their place at once.

    It would keep each of thousands of files in memory, or as an open temporary file, to the end.
    """

    ended = False
    _held = 0  # bytes of fields

    def __init__(
        self, request: Request, stream: AsyncGenerator[bytes, None], upload: Upload
    ) -> None:
        bounds = {"max_files": MAX_FILES + 8, "max_fields": _FIELDS, "max_part_size": _FIELD}
        super().__init__(request.headers, stream, **bounds)
        self._upload = upload

    def on_part_begin(self) -> None:
        """Whatever charset is claimed: of some a text takes hours, or fails (`punycode`)."""
        super().on_part_begin()
        self._charset = "utf-8"

    def on_headers_finished(self) -> None:
        """Let a file be written where it belongs, also an empty one: before the next is begun."""
        super().on_headers_finished()
        file = self._current_part.file
        if file is not None:
            self._current_part.file = _Sent(self._upload, file.filename or "")
            self._file_parts_to_write.append((self._current_part, b""))

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        """Bound what all fields take, not each."""
        if self._current_part.file is None:
            self._held += end - start
            if self._held > _FIELD:
                raise MultiPartException("The fields exceeded their size.")
        super().on_part_data(data, start, end)

    def on_end(self) -> None:
        """The form is whole."""
        self.ended = True


class _Sent(UploadFile):
    """A file of a form; without a name none was chosen."""

    def __init__(self, upload: Upload, name: str) -> None:
        super().__init__(BytesIO(), filename=name)
        self._upload = upload
        self._begun = False

    async def write(self, data: bytes) -> None:
        """Append to the file: parts of a form come one after the other."""
        if not self.filename:
            return
        if not self._begun:
            self._begun = True
            self._upload.begin(self.filename)
        self._upload.write(data)

    async def seek(self, _offset: int) -> None:
        """Nothing: what is written is in its place."""


def _long_field() -> Refused:
    return Refused(413, "too_large", "A field of the form is too long; send it as a file.")


@contextmanager
def _refusing() -> Iterator[None]:
    """Makes what is wrong with an upload a refusal."""
    try:
        yield
    except InputError as error:
        text = started_sentence(str(error))
        if isinstance(error, TooLargeError):
            raise Refused(413, "too_large", text) from error
        raise Refused(400, "bad_upload", text) from error


def is_text(file: Path, limit: int) -> bool:
    """Whether a file is short enough for a paste, and text by its first bytes."""
    if file.stat().st_size > limit:
        return False
    with file.open("rb") as stream:
        return b"\0" not in stream.read(8 << 10)


def _too_large(limit: int) -> Refused:
    most = f"{limit // MIB} MiB" if limit >= MIB else f"{limit:,} bytes"
    return Refused(413, "too_large", f"More than the {most} that one request may have.")


def _too_slow() -> Refused:
    return Refused(408, "too_slow", "The upload came too slowly.", {"Connection": "close"})


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
        title = masked_line(given.title, TITLE_LIMIT).strip() if given.title.strip() else ""
        # Other outputs of a paste can be made later of its masked input.
        at_once = ["json", "input", *["page"] * viewed] if given.kind == "text" else TYPES
        record = served.store.add(
            id_, given.kind, title, _source(given), given.size, " ".join(at_once),
            "\n".join(given.urls),
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
        fields = await form(request, upload, limit, sending)
        ready(fields)
        return _given(upload, fields.get("title", title))
    if kind == "application/json":
        return _from_json(
            await whole(request, _JSON_LIMIT, sending), served.settings, upload, title
        )
    if kind in ("text/plain", "", "application/octet-stream"):
        named = request.query_params.get("name", "log")
        name = named if kind == "application/octet-stream" else PASTE
        await to_file(request, upload, name, limit, sending)
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
    if upload.names == [PASTE] and is_text(paste, TEXT_LIMIT):
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
        if not isinstance(url, str) or not spool.permitted(url, settings.urls):
            raise Refused(403, "url_not_allowed", "A URL is not among those this server may fetch.")
    return _Given("urls", 0, title, urls=tuple(urls))


def _wrong(message: str) -> Refused:
    return Refused(422, "bad_request", message)


def _source(given: _Given) -> str:
    """What was given, for a list."""
    names = given.urls or given.names
    if given.kind == "text":
        return "pasted text"
    folders = {name.partition("/")[0] for name in given.names if "/" in name}
    if len(names) > 1 and len(folders) == 1 and all("/" in name for name in given.names):
        return f"{masked_line(folders.pop(), _NAME)}/ with {len(names)} files"
    shown = ", ".join(masked_line(name, _NAME) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
