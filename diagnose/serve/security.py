"""Who may ask at all: the door that every request comes through.

A server on this machine can be reached by any page that its user's browser shows. So the name it is
called by must be its own (DNS rebinding), what changes something must come from its own pages, and
forms carry a word that only its own pages know.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diagnose.serve.intake import Served
from diagnose.serve.model import HEADER_BYTES, Refused, Settings

SESSION, VISITOR, THEME = "diagnose_session", "diagnose_visitor", "diagnose_theme"
SESSION_SECONDS = 30 * 86400
OPEN = ("/healthz", "/login", "/static/")  # without a token
SAFE = ("GET", "HEAD", "OPTIONS")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Door:
    """Lets a request in, or answers it; adds the headers that every answer has."""

    def __init__(self, app: ASGIApp, served: Served) -> None:
        self._app = app
        self._served = served
        self._names = names(served.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        metrics = self._served.metrics

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                metrics.count("requests_total", status=f"{message['status'] // 100}xx")
                headers = MutableHeaders(raw=message["headers"])
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("content-security-policy", POLICY)
                headers.setdefault("cache-control", "no-store")
                message["headers"] = headers.raw
            await send(message)

        answer = self._refusal(Request(scope))
        if answer is None:
            await self._app(scope, receive, sending)
        else:
            await answer(scope, receive, sending)

    def _refusal(self, request: Request) -> Response | None:
        """The answer to who may not come in."""
        if _header_bytes(request.scope) > HEADER_BYTES:
            return self._no(431, "headers", "The headers are too long.")
        if not is_own(request.headers.get("host", ""), self._names):
            return self._no(421, "bad_host", "This server does not go by that name (--allow-host).")
        if request.method not in SAFE and not is_from_here(request.headers):
            return self._no(403, "cross_site", "This came from a page of another site.")
        token = self._served.settings.token
        path = request.url.path
        if token is None or path.startswith(OPEN) or may(request, token, self._served.key):
            return None
        self._served.metrics.count("refused_total", reason="token")
        if path.startswith("/api/") or path == "/metrics":
            return JSONResponse(
                {"error": {"code": "token", "message": "A token is needed."}},
                401,
                {"WWW-Authenticate": "Bearer"},
            )
        return RedirectResponse(f"/login?next={quote(path, safe='/')}", 303)

    def _no(self, status: int, code: str, message: str) -> Response:
        self._served.metrics.count("refused_total", reason=code)
        return PlainTextResponse(f"{message}\n", status)


def _header_bytes(scope: Scope) -> int:
    """What came before the body; the protocol bounds it by the reads of a socket only."""
    fields = sum(len(name) + len(value) for name, value in scope["headers"])
    return fields + len(scope["raw_path"]) + len(scope["query_string"])


def names(settings: Settings) -> frozenset[str]:
    """The names that this server goes by, besides addresses."""
    found = {"localhost", settings.host.lower(), *(name.lower() for name in settings.hosts)}
    if settings.token is not None:
        found.add(socket.gethostname().lower())
    return frozenset(found)


def is_own(host: str, own: frozenset[str]) -> bool:
    """Whether a Host header is an address, or a name of this server.

    Who makes a name point here (DNS rebinding) sends that name; an address cannot be pointed.
    """
    try:
        parts = urlsplit(f"//{host}")
        name = parts.hostname or ""
        _ = parts.port
    except ValueError:
        return False
    if not name or "@" in host or "/" in host:
        return False
    if name.rstrip(".") in own:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_from_here(headers: Headers) -> bool:
    """Whether a request that changes something comes from our own pages, or from no page at all."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    return urlsplit(origin).netloc.lower() == headers.get("host", "").lower() != ""


def may(request: Request, token: str, key: bytes) -> bool:
    """Whether a request has the token, or the cookie that was given for it."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and same(given.strip(), token):
        return True
    return same(request.cookies.get(SESSION, ""), session(token, key))


def session(token: str, key: bytes) -> str:
    """The cookie of who knows the token; from it the token cannot be told."""
    return _mac(key, f"session:{hashlib.sha256(token.encode()).hexdigest()}")


def same(one: str, other: str) -> bool:
    """Compare without telling by the time it takes."""
    return hmac.compare_digest(one.encode(), other.encode())


def visitor(request: Request) -> str:
    """The cookie of a browser, new if it has none yet."""
    given = request.cookies.get(VISITOR, "")
    return given if 20 <= len(given) <= 60 and given.isascii() else secrets.token_urlsafe(18)


def form_word(who: str, key: bytes) -> str:
    """What a form of this visitor carries."""
    return _mac(key, f"form:{who}")


def check_word(request: Request, word: str, key: bytes) -> None:
    """Refuse a form that none of our pages made for this browser."""
    who = request.cookies.get(VISITOR, "")
    if not who or not same(word, form_word(who, key)):
        raise Refused(
            403, "bad_form_word", "This form is too old, or cookies are off. Reload the page."
        )


def _mac(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
