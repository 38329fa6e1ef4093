"""Reading what a client sends, piece by piece, within bounds of size and time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from diagnose.errors import InputError
from diagnose.serve.refused import Refused
from diagnose.serve.settings import (
    BODY_GRACE_SECONDS,
    BODY_IDLE_SECONDS,
    BODY_RATE,
    FIELD_LIMIT,
    MIB,
)
from diagnose.serve.spool import TooLargeError, Upload
from diagnose.serve.task import PASTE
from diagnose.serve.uploads import Sending

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_MORE = 1 << 20  # bytes that the form around an upload may take
_BLOCK = 1 << 20


async def pieces(
    request: Request, limit: int, sending: Sending | None = None
) -> AsyncIterator[bytes]:
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


async def form(
    request: Request,
    upload: Upload,
    limit: int,
    ready: Callable[[dict[str, str]], None],
    sending: Sending,
) -> dict[str, str]:
    """Read a multipart form: its files and its `text` into `upload`, other fields returned.

    `ready` is asked before the first file is written, with the fields so far; it may refuse.
    """
    kind, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not boundary:
        raise Refused(400, "bad_form", "The form has no boundary.")
    reader = _Form(upload, ready)
    try:
        with _refusing():
            parser = MultipartParser(boundary, reader.callbacks())
            async for piece in pieces(request, limit + _MORE, sending):
                for at in range(0, len(piece), _BLOCK):
                    parser.write(piece[at : at + _BLOCK])
            parser.finalize()
    except FormParserError as error:
        raise Refused(400, "bad_form", f"The form cannot be read: {error}.") from error
    if not reader.ended:
        raise Refused(400, "bad_form", "The form breaks off.")
    ready(reader.fields)
    return reader.fields


class _Form:
    """Takes the parts of a form as they come."""

    def __init__(self, upload: Upload, ready: Callable[[dict[str, str]], None]) -> None:
        self.fields: dict[str, str] = {}
        self.ended = False
        self._upload = upload
        self._ready = ready
        self._headers: dict[bytes, bytes] = {}
        self._key = self._value = b""
        self._field: bytearray | None = None
        self._name = ""
        self._skipped = False

    def callbacks(self) -> MultipartCallbacks:
        """What the parser is to call."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._all,
        }

    def _begin(self) -> None:
        self._headers.clear()
        self._field, self._skipped = None, False

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._key += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._key.lower()] = self._value
        self._key = self._value = b""

    def _headers_end(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        self._name = options.get(b"name", b"").decode(errors="replace")
        file = options.get(b"filename")
        if file is not None and not file:  # no file was chosen
            self._skipped = True
        elif file is not None:
            self._ready(self.fields)
            self._upload.begin(file.decode(errors="replace"))
        elif self._name == "text":
            self._ready(self.fields)
            self._upload.begin(PASTE)
        else:
            self._field = bytearray()

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._skipped:
            return
        if self._field is None:
            self._upload.write(data[start:end])
            return
        self._field += data[start:end]
        if len(self._field) > FIELD_LIMIT or len(self.fields) > 20:
            raise Refused(413, "too_large", "A field of the form is too long.")

    def _end(self) -> None:
        if self._field is not None:
            self.fields[self._name] = self._field.decode(errors="replace")
        elif not self._skipped:
            self._upload.end()

    def _all(self) -> None:
        self.ended = True


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
