"""The pages: paste, wait, post-mortem, list, compare, delete. They work without scripts."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from diagnose import __version__
from diagnose.report.html.shell import asset, template
from diagnose.serve import security
from diagnose.serve.api import output_of, record_of, served_of, text_headers
from diagnose.serve.desk import Status
from diagnose.serve.intake import accept, whole
from diagnose.serve.model import FIELD_LIMIT, METRICS_TYPE, MIB, Refused
from diagnose.serve.store import WAITING, Record
from diagnose.text.ranks import ranks_phrase

_PACKAGE = "diagnose.serve"
_WAIT = 3.0  # seconds that a page of a job waits for its result
_RECENT, _PAGE = 6, 50  # rows
_RAW = ("json", "markdown", "input")
_STATIC = {"style.css": "text/css", "serve.js": "text/javascript"}
_HEADER = '<header class="top">'
_ROOT = '<html lang="en"'
_META = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')


_QUOTES = 3  # lines of evidence
_NOTHING = "not known"

Data = Mapping[str, Any]


async def home(request: Request) -> Response:
    """GET: the box to paste into."""
    served = served_of(request)
    return _page(
        request,
        "home.html.j2",
        recent=[_shown(record) for record in served.store.search(limit=_RECENT)],
        upload_mib=served.settings.upload // MIB,
        settings=served.settings,
    )


async def submit(request: Request) -> Response:
    """POST: what the box and the choice of files hold."""
    check = partial(_check, request)
    record = await accept(served_of(request), request, ready=check, viewed=True)
    return RedirectResponse(f"/d/{record.id}", 303)


async def view(request: Request) -> Response:
    """GET: the post-mortem, or how far it is."""
    served, record = served_of(request), record_of(request)
    if record.state in WAITING:
        await served.desk.result(record.id, _WAIT)
        record = record_of(request)
    if record.state == "done":
        page = (await output_of(served, record, "page")).decode()
        return _post_mortem(request, record, page)
    if record.state == "failed":
        return _page(request, "failed.html.j2", record=_shown(record))
    now = served.desk.status(record.id)
    return _page(request, "waiting.html.j2", record=_shown(record), stage=_stage(now))


async def raw(request: Request) -> Response:
    """GET: the JSON, the Markdown or the masked input, beside the post-mortem."""
    name = request.path_params["name"]
    if name not in _RAW:
        raise HTTPException(404)
    data = await output_of(served_of(request), record_of(request), name)
    return Response(data, headers=text_headers(name))


async def history(request: Request) -> Response:
    """GET: earlier diagnoses, newest first; `q` searches."""
    served = served_of(request)
    query = request.query_params.get("q", "")[:200]
    before = request.query_params.get("before", "")
    number = int(before) if before.isascii() and before.isdecimal() and len(before) < 19 else None
    found = served.store.search(query, _PAGE + 1, number)

    beside = request.query_params.get("with", "")
    chosen = served.store.get(beside) if beside else None
    following = ""
    if len(found) > _PAGE:
        asked = {"q": query, "with": beside, "before": str(found[_PAGE - 1].number)}
        following = "/all?" + urlencode({name: value for name, value in asked.items() if value})
    return _page(
        request,
        "all.html.j2",
        records=[_shown(record) for record in found[:_PAGE]],
        query=query,
        following=following,
        chosen=_shown(chosen) if chosen else None,
    )


async def side_by_side(request: Request) -> Response:
    """GET: two diagnoses compared."""
    served = served_of(request)
    asked = request.query_params.getlist("id")
    if len(asked) != 2:
        raise Refused(400, "two", "Choose two diagnoses to compare.")
    sides, documents = [], []
    for id_ in asked:
        record = served.store.get(id_)
        if record is None or record.state != "done":
            raise Refused(404, "unknown", "One of the two diagnoses is not there.")
        sides.append(_shown(record))
        documents.append(json.loads(await output_of(served, record, "json")))
    return _page(request, "compare.html.j2", sides=sides, sections=compare(*documents))


async def confirm(request: Request) -> Response:
    """GET: ask before deleting."""
    return _page(request, "delete.html.j2", record=_shown(record_of(request)))


async def delete(request: Request) -> Response:
    """POST: delete a diagnosis, or cancel a job."""
    await _fields(request)
    waiting = record_of(request).state in WAITING
    served_of(request).desk.delete(request.path_params["id"])
    return RedirectResponse("/" if waiting else "/all", 303)


async def login(request: Request) -> Response:
    """GET and POST: the token, for a browser."""
    served = served_of(request)
    token = served.settings.token
    following = _local(request.query_params.get("next", "/"))
    if token is None:
        return RedirectResponse("/", 303)
    if request.method == "GET":
        return _page(request, "login.html.j2", following=following, wrong=False)
    fields = await _fields(request)
    following = _local(fields.get("next", "/"))
    if not security.same(fields.get("token", ""), token):
        served.metrics.count("refused_total", reason="token")
        return _page(request, "login.html.j2", 403, following=following, wrong=True)
    answer = RedirectResponse(following, 303)
    answer.set_cookie(
        security.SESSION,
        security.session(token, served.key),
        max_age=security.SESSION_SECONDS,
        httponly=True,
        samesite="lax",
    )
    return answer


async def static(request: Request) -> Response:
    """GET: the style and the script of these pages."""
    name = request.path_params["name"]
    if name not in _STATIC:
        raise HTTPException(404)
    text = asset(f"static/{name}", _PACKAGE)
    if name == "style.css":
        text = asset("style.css") + text
    kind = f"{_STATIC[name]}; charset=utf-8"
    return Response(text, headers={"content-type": kind, "cache-control": "max-age=3600"})


async def healthz(_request: Request) -> Response:
    """GET: whether the server is there."""
    return PlainTextResponse("ok\n")


async def measured(request: Request) -> Response:
    """GET: counters for Prometheus."""
    served = served_of(request)
    waiting, running = served.desk.counts()
    results, size = served.store.usage()
    gauges = {
        "queue_waiting": waiting,
        "queue_running": running,
        "workers_replaced_total": served.desk.replaced(),
        "results": results,
        "results_bytes": size,
    }
    return PlainTextResponse(served.metrics.text(gauges), headers={"content-type": METRICS_TYPE})


async def icon(_request: Request) -> Response:
    """GET: there is no icon."""
    return Response(status_code=204)


def refused(request: Request, error: Exception) -> Response:
    """What is refused, for people."""
    if isinstance(error, Refused):
        status, message, headers = error.status, error.message, error.headers
    else:
        assert isinstance(error, HTTPException)
        status, headers = error.status_code, dict(error.headers or {})
        message = "There is no such page." if status == 404 else error.detail
    answer = _page(request, "refused.html.j2", status, message=message)
    answer.headers.update(headers)
    return answer


def _page(request: Request, name: str, status: int = 200, **values: Any) -> Response:
    """A page made of a template; a browser gets the cookie that its forms go with."""
    who = security.visitor(request)
    text = template(name, _PACKAGE).render(
        word=security.form_word(who, served_of(request).key),
        theme=_theme(request),
        version=__version__,
        path=request.url.path,
        **values,
    )
    answer = HTMLResponse(text, status)
    if request.cookies.get(security.VISITOR) != who:
        answer.set_cookie(
            security.VISITOR, who, max_age=security.SESSION_SECONDS, httponly=True, samesite="lax"
        )
    return answer


def _post_mortem(request: Request, record: Record, page: str) -> Response:
    """The post-mortem as it was written, with a bar of links above it.

    Its own policy is sent along; under it nothing but its own scripts runs. The first `<header` is
    its own: text of logs is escaped everywhere.
    """
    bar = template("bar.html.j2", _PACKAGE).render(
        record=record, redact=served_of(request).settings.redact
    )
    page = page.replace(_HEADER, bar + _HEADER, 1)
    theme = _theme(request)
    if theme:
        page = page.replace(_ROOT, f'{_ROOT} data-theme="{theme}"', 1)
    found = _META.search(page, 0, 8000)
    policy = html.unescape(found[1]) if found else "default-src 'none'"
    answer = HTMLResponse(page)
    answer.headers["content-security-policy"] = f"{policy}; frame-ancestors 'none'"
    return answer


def _theme(request: Request) -> str:
    given = request.cookies.get(security.THEME, "")
    return given if given in ("dark", "light") else ""


def _check(request: Request, fields: Mapping[str, str]) -> None:
    """Refuse a form that none of our pages made."""
    security.check_word(request, fields.get("word", ""), served_of(request).key)


async def _fields(request: Request) -> dict[str, str]:
    """The fields of a small form that one of our pages made. Raises Refused."""
    data = await whole(request, FIELD_LIMIT)
    try:
        fields = dict(parse_qsl(data.decode("ascii"), max_num_fields=20))
    except ValueError as error:
        raise Refused(400, "bad_form", "The form cannot be read.") from error
    _check(request, fields)
    return fields


def _local(path: str) -> str:
    """A path of this server to go on to; never another site."""
    plain = re.fullmatch(r"/(?:[\w.~-]+/?)*", path, re.ASCII)
    return path if plain else "/"


def _shown(record: Record) -> dict[str, Any]:
    """A diagnosis as the lists show it."""
    when = datetime.fromtimestamp(record.created, UTC)
    return {
        **asdict(record),
        "label": record.verdict or {"failed": "no diagnosis"}.get(record.state, record.state),
        "name": record.title or record.source,
        "headline": record.headline or record.error,
        "when": when.strftime("%Y-%m-%d %H:%M"),
        "iso": when.isoformat(timespec="seconds"),
        "size": _size(record.bytes),
    }


def _stage(status: Status | None) -> str:
    """How far a job is, in words; the script of the page says it alike."""
    if status is None:
        return "Almost done"
    if status.position:
        return f"Waiting: {status.position} in the queue"
    now = status.now
    parts = [now.stage]
    if now.total > 1:
        parts.append(f"log {min(now.done + 1, now.total)} of {now.total}")
    if now.size:
        parts.append(f"{_size(now.read)} of {_size(now.size)}")
    return ", ".join(parts)


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count = round(count / 1024)
    return f"{count} GiB"


def compare(left: Data, right: Data) -> dict[str, dict[str, tuple[list[str], list[str]]]]:
    """Two documents of schema `diagnose/2`: under each heading what is compared, as (left, right).

    Each side is some lines; what neither says anything of is left out.
    """
    found = {}
    for (heading, one), other in zip(_sides(left).items(), _sides(right).values(), strict=True):
        rows = {
            label: (one.get(label) or [_NOTHING], other.get(label) or [_NOTHING])
            for label in dict.fromkeys([*one, *other])
            if one.get(label) or other.get(label)
        }
        if rows:
            found[heading] = rows
    return found


def _sides(data: Data) -> dict[str, dict[str, list[str]]]:
    root, culprits, job = data["root_cause"], data["culprits"], data["job"]
    who = [ranks_phrase(culprits["ranks"])] if culprits["ranks"] else []
    return {
        "Verdict": {
            "Verdict": _one(data["verdict"]),
            "Cause": _one(root["class"]),
            "What happened": _one(root["title"]),
            "Confidence": _one(root["confidence"]),
            "Culprits": [*who, *culprits["hosts"]],
            "Phase": _one(data["phase"]),
            "Collective": _collective(data["collective"]),
            "Last step": _one((data["progress"] or {}).get("last_step")),
            "Restart": _one(data["restart"]["advice"].replace("_", " ")),
        },
        "Job": {
            "Ranks": _one(job["world_size"]),
            "Hosts": [*job["hosts"]],
            "Attempts": _one(job["attempts"]),
            "Frameworks": [*job["frameworks"]],
            **{f"Version of {name}": _one(value) for name, value in job["versions"].items()},
        },
        "Evidence": {"Lines": [item["text"] for item in data["evidence"][:_QUOTES]]},
        "What to do": {"Steps": [step["do"] for step in data["remedies"]]},
    }


def _collective(value: Data | None) -> list[str]:
    if value is None:
        return []
    call = [str(value[name]) for name in ("op", "group") if value[name] is not None]
    number = [] if value["seq"] is None else [f"sequence number {value['seq']}"]
    missing = [f"missing: {ranks_phrase(value['missing'])}"] if value["missing"] else []
    return [", ".join([*call, *number, *missing])]


def _one(value: object) -> list[str]:
    return [] if value is None or value == "" else [str(value)]


ROUTES = [
    Route("/", home, methods=["GET"]),
    Route("/", submit, methods=["POST"]),
    Route("/all", history, methods=["GET"]),
    Route("/compare", side_by_side, methods=["GET"]),
    Route("/login", login, methods=["GET", "POST"]),
    Route("/d/{id}", view, methods=["GET"]),
    Route("/d/{id}/delete", confirm, methods=["GET"]),
    Route("/d/{id}/delete", delete, methods=["POST"]),
    Route("/d/{id}/{name}", raw, methods=["GET"]),
    Route("/static/{name}", static, methods=["GET"]),
    Route("/healthz", healthz, methods=["GET"]),
    Route("/metrics", measured, methods=["GET"]),
    Route("/favicon.ico", icon, methods=["GET"]),
]
