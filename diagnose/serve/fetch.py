"""Fetching logs by URL, only from where the server's owner allowed it.

The list of allowed prefixes is the whole protection: scheme, host and port must be the same and the
path must lie below the prefix; so must the target of every redirect. No credentials, cookies or
proxies are used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

import httpx

from diagnose.errors import InputError
from diagnose.serve.spool import Upload
from diagnose.serve.task import Progress

_SECONDS = 30.0  # without a byte
_REDIRECTS = 3
_PORTS = {"http": 80, "https": 443}
_ODD = re.compile(r"[\x00-\x20\x7f\\]|[^\x00-\x7f]")
_HIDDEN = re.compile(r"%(?:2f|5c|2e|00|25)", re.IGNORECASE)


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
