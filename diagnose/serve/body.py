"""Reading what a client sends, piece by piece, within bounds of size and time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from diagnose.errors import InputError
from diagnose.serve.refused import Refused
from diagnose.serve.settings import (
    BODY_GRACE_SECONDS,
    BODY_IDLE_SECONDS,
    BODY_RATE,
    FIELD_LIMIT,
    MAX_FILES,
    MAX_UPLOADS,
    MAX_UPLOADS_OF_ONE,
    MIB,
    TEXT_LIMIT,
    UPLOAD_SLOW_RATE,
    UPLOAD_SURE_SECONDS,
)
from diagnose.serve.spool import TooLargeError, Upload
from diagnose.serve.task import PASTE


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
        free = (
            self._room(own, MAX_UPLOADS_OF_ONE)
            if len(own) >= MAX_UPLOADS_OF_ONE
            else self._room(self._sending, MAX_UPLOADS)
        )
        if not free:
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


_MORE = 1 << 20  # bytes that the form around an upload may take
_FIELDS = 4  # of a form: text, title, word
_FIELD = 2 * TEXT_LIMIT  # bytes of all of them, which are held in memory


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
        super().__init__(
            request.headers,
            stream,
            max_files=MAX_FILES + 8,
            max_fields=_FIELDS,
            max_part_size=_FIELD,
        )
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


class _refusing:  # noqa: N801  used like a function
    """Makes what is wrong with an upload a refusal."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, TooLargeError):
            raise Refused(413, "too_large", f"{_sentence(error)}.") from error
        if isinstance(error, InputError):
            raise Refused(400, "bad_upload", f"{_sentence(error)}.") from error


def is_text(file: Path, limit: int) -> bool:
    """Whether a file is short enough for a paste, and text by its first bytes."""
    if file.stat().st_size > limit:
        return False
    with file.open("rb") as stream:
        return b"\0" not in stream.read(8 << 10)


def _sentence(error: Exception) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]


def _too_large(limit: int) -> Refused:
    most = f"{limit // MIB} MiB" if limit >= MIB else f"{limit:,} bytes"
    return Refused(413, "too_large", f"More than the {most} that one request may have.")


def _too_slow() -> Refused:
    return Refused(408, "too_slow", "The upload came too slowly.", {"Connection": "close"})
