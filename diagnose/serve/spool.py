"""Where uploads lie until they are diagnosed: a folder for each, streamed to, bounded.

Names come from strangers. What they say of ranks and hosts is worth keeping, so a path stays a path
below the folder of the upload, and nothing else: no absolute path, no `..`, no link is followed.

Logs are fetched by URL only from where the server's owner allowed it. The list of allowed prefixes
is the whole protection: scheme, host and port must be the same and the path must lie below the
prefix; so must the target of every redirect. No credentials, cookies or proxies are used.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import SplitResult, unquote, urlsplit

import httpx

from diagnose.errors import InputError
from diagnose.serve.model import MAX_FILES, Progress

_NAME_BYTES = 120  # of one part of a path
_DEPTH = 12
_KEPT_DOT = frozenset({".metadata", ".zarray"})  # what checkpoints are known by
_DRIVE = re.compile(r"[A-Za-z]:")


_SECONDS = 30.0  # without a byte
_REDIRECTS = 3
_PORTS = {"http": 80, "https": 443}
_ODD = re.compile(r"[\x00-\x20\x7f\\]|[^\x00-\x7f]")
_HIDDEN = re.compile(r"%(?:2f|5c|2e|00|25)", re.IGNORECASE)


class TooLargeError(InputError):
    """An upload is larger than allowed."""


class Upload:
    """Writes the files of one upload into its folder.

    What goes wrong is an InputError: too many files, or TooLargeError beyond `limit` bytes.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.names: list[str] = []
        self.size = 0
        self._limit = limit
        self._file: BinaryIO | None = None
        self._twins: Counter[PurePosixPath] = Counter()  # files of one name, to try none twice

    def begin(self, name: str) -> None:
        """Begin a file of this name, and end the one before; two of one name stay apart."""
        self.end()
        if len(self.names) >= MAX_FILES:
            raise InputError(f"more than {MAX_FILES} files in one upload")
        path = below(name)
        number = self._twins[path]
        while number < MAX_FILES:
            number += 1
            twin = f"{path.stem}-{number}{path.suffix}" if number > 1 else path.name
            target = self.folder / path.parent / twin
            try:
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = _created(target)
            except FileExistsError:  # also where a file has the name of a folder
                if not target.parent.is_dir():
                    path = PurePosixPath(path.name)
                    number = max(number, self._twins[path])
                continue
            except OSError as error:
                raise InputError(f"cannot keep {name[:80]!r}: {error.strerror}") from error
            self._twins[path] = number
            self.names.append(target.relative_to(self.folder).as_posix())
            return
        raise InputError("too many files of one name")

    def write(self, data: bytes) -> None:
        """Append to the file begun last."""
        self.size += len(data)
        if self.size > self._limit:
            raise TooLargeError(f"more than {self._limit >> 20} MiB in one upload")
        assert self._file is not None
        try:
            self._file.write(data)
        except OSError as error:
            raise InputError(f"cannot keep the upload: {error.strerror}") from error

    def end(self) -> None:
        """End the file begun last."""
        if self._file is not None:
            self._file.close()
            self._file = None


def below(name: str) -> PurePosixPath:
    """The relative path that stands for a stranger's file name."""
    parts = [_part(part) for part in re.split(r"[/\\]", _DRIVE.sub("", name, count=1))]
    kept = [part for part in parts if part]
    return PurePosixPath(*kept[-_DEPTH:]) if kept else PurePosixPath("log")


def _part(text: str) -> str:
    """One part of a path: printable, no dots alone, not hidden, as long as file systems allow."""
    text = "".join(char if char.isprintable() else "_" for char in text).strip(" ")
    text = text if text in _KEPT_DOT else text.lstrip(".")
    data = text.encode(errors="replace")
    if len(data) <= _NAME_BYTES:
        return data.decode()
    stem, dot, suffix = text.rpartition(".")
    end = (dot + suffix) if dot and len(suffix) <= 8 else ""
    room = _NAME_BYTES - len(end.encode(errors="replace"))
    short = (stem if end else text).encode(errors="replace")[:room]
    return short.decode(errors="ignore") + end


def _created(path: Path) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def folder_of(root: Path, id_: str) -> Path:
    """A new folder for an upload."""
    folder = root / id_
    folder.mkdir(mode=0o700, parents=True)
    return folder


def remove(folder: Path) -> None:
    """Remove the folder of an upload, if it is there."""
    with suppress(OSError):
        shutil.rmtree(folder)


def prefix(text: str) -> str:
    """A prefix of URLs as an owner gives it. Raises InputError."""
    try:
        parts = _split(text)
    except ValueError as error:
        raise InputError(f"--allow-url {text}: {error}") from error
    if parts.query:
        raise InputError(f"--allow-url {text}: a prefix has no query")
    return text


def permitted(url: str, allowed: Sequence[str]) -> bool:
    """Whether a URL lies below one of the allowed prefixes."""
    try:
        parts = _split(url)
    except ValueError:
        return False
    return any(_below(parts, _split(one)) for one in allowed)


def fetch(
    urls: Sequence[str],
    allowed: Sequence[str],
    folder: Path,
    limit: int,
    tell: Callable[[Progress], None],
) -> None:
    """Put what the URLs give into a folder, of `limit` bytes together at most.

    Raises InputError for a URL that is not allowed, does not answer or gives too much.
    """
    upload = Upload(folder, limit)
    headers = {"User-Agent": "diagnose-serve", "Accept-Encoding": "identity"}
    with httpx.Client(headers=headers, timeout=_SECONDS, trust_env=False) as client:
        for number, url in enumerate(urls):
            tell(Progress("Fetching", number, len(urls)))
            try:
                _fetch(client, url, allowed, upload)
            except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
                raise InputError(f"{url} cannot be fetched: {error}") from error
            finally:
                upload.end()


def _fetch(client: httpx.Client, url: str, allowed: Sequence[str], upload: Upload) -> None:
    """Fetch one URL, and follow redirects to where it is allowed."""
    if not permitted(url, allowed):
        raise InputError(f"{url} is not below a URL that this server may fetch")
    at = url
    for _ in range(_REDIRECTS + 1):
        client.cookies.clear()
        with client.stream("GET", at) as reply:
            if reply.next_request is not None:
                following = str(reply.next_request.url)
                if not permitted(following, allowed):
                    raise InputError(f"{at} redirects to where this server may not fetch")
                at = following
                continue
            if not reply.is_success:
                raise InputError(f"{url} answers {reply.status_code}")
            upload.begin(unquote(urlsplit(url).path).rpartition("/")[2] or "log")
            for block in reply.iter_raw():
                upload.write(block)
            return
    raise InputError(f"{url} redirects more than {_REDIRECTS} times")


def _split(url: str) -> SplitResult:
    """The parts of a URL. Raises ValueError, which says why it is none that is fetched."""
    if _ODD.search(url):
        raise ValueError("has characters that a URL cannot have")
    parts = urlsplit(url)
    _ = parts.port  # raises
    if parts.scheme not in _PORTS:
        raise ValueError("is neither http nor https")
    if not parts.hostname or "@" in parts.netloc:
        raise ValueError("has no plain host")
    if _HIDDEN.search(parts.path) or {".", ".."} & set(parts.path.split("/")):
        raise ValueError("has a path that leads elsewhere than it says")
    return parts


def _below(parts: SplitResult, root: SplitResult) -> bool:
    def server(one: SplitResult) -> tuple[str, str | None, int]:
        return one.scheme, one.hostname, one.port or _PORTS[one.scheme]

    folder = root.path if root.path.endswith("/") else f"{root.path}/"
    path = parts.path or "/"
    return server(parts) == server(root) and (path == root.path or path.startswith(folder))
