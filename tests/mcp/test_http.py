"""The same tools over streamable HTTP, for those who may ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from diagnose.errors import InputError
from diagnose.mcp.answer import LIMIT
from diagnose.mcp.jobs import Root
from diagnose.mcp.server import Address, serve_http, server_of
from tests.mcp.asking import FIXTURES, JOBS, data, http, length, toured

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with http(FIXTURES) as found:
        yield found


@pytest.mark.slow
def test_every_tool_on_five_jobs(url: str) -> None:
    told = toured(url)
    assert set(told) == set(JOBS)
    for job, answers in told.items():
        for name, result in answers.items():
            assert data(result), (job, name)
            assert length(result) <= LIMIT
    answer = data(told["torchrun-missing-rank"]["triage"])
    assert (answer["verdict"], answer["culprits"]["ranks"]) == ("hung", [5])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:80"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"content-type": "text/plain"}, 400),
    ],
)
@pytest.mark.slow
def test_other_hosts_and_pages_are_refused(url: str, headers: dict[str, str], status: int) -> None:
    answer = httpx.post(url, json=PING, headers=JSON | headers)
    assert answer.status_code == status, answer.text


def test_a_page_of_this_machine_is_answered(url: str) -> None:
    origin = {"origin": "http://localhost:3000"}
    assert httpx.post(url, json=PING, headers=JSON | origin).status_code not in (403, 421)


def test_a_body_is_bounded(url: str) -> None:
    answer = httpx.post(url, content=b"x" * (5 << 20), headers=JSON)
    assert answer.status_code == 413


def test_nothing_else_is_served(url: str) -> None:
    assert httpx.get(url.removesuffix("/mcp") + "/").status_code == 404


@pytest.mark.slow
def test_a_token_is_asked_for(tmp_path: Path) -> None:
    token = "correct-horse-battery"
    (tmp_path / "token").write_text(f"{token}\n")
    with http(FIXTURES, "--token-file", str(tmp_path / "token")) as url:
        for given in ({}, {"authorization": "Bearer wrong"}, {"authorization": token}):
            answer = httpx.post(url, json=PING, headers=JSON | given)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")

        async def ask() -> list[str]:
            headers = {"Authorization": f"Bearer {token}"}
            async with (
                httpx2.AsyncClient(headers=headers) as opened,
                Client(streamable_http_client(url, http_client=opened)) as client,
            ):
                return [tool.name for tool in (await client.list_tools()).tools]

        assert "triage" in anyio.run(ask)


def test_beyond_loopback_only_with_a_token() -> None:
    server = server_of(Root(FIXTURES))
    with pytest.raises(InputError, match="give --token-file, or listen on 127"):
        serve_http(server, Address.of("0.0.0.0:0"), None, print)


def test_a_port_in_use_is_one_line(url: str) -> None:
    port = url.removesuffix("/mcp").rpartition(":")[2]
    with pytest.raises(InputError, match=rf"cannot listen on 127\.0\.0\.1 port {port}: "):
        serve_http(server_of(Root(FIXTURES)), Address.of(f"127.0.0.1:{port}"), None, print)


def test_addresses() -> None:
    assert Address.of("127.0.0.1:8322") == Address("127.0.0.1", 8322)
    assert Address.of(":80") == Address("127.0.0.1", 80)
    assert Address.of("[::1]:80") == Address("::1", 80)
    for wrong in ("", "8322", "localhost", "localhost:x", "localhost:99999", "localhost:²"):
        with pytest.raises(InputError, match="expected HOST:PORT"):
            Address.of(wrong)


def test_names_that_are_answered() -> None:
    local = Address.of(":1").security()
    assert "127.0.0.1:*" in local.allowed_hosts
    assert not {"example.com", "0.0.0.0"} & set(local.allowed_hosts)
    named = Address.of("[::]:1", ["logs.example.com"]).security()
    assert {"logs.example.com", "logs.example.com:*"} <= set(named.allowed_hosts)
    assert "http://logs.example.com:*" in named.allowed_origins
    everywhere = Address.of("0.0.0.0:1").security()
    assert len(everywhere.allowed_hosts) > len(local.allowed_hosts)
    assert "10.1.2.3:*" in Address.of("10.1.2.3:1").security().allowed_hosts
    assert "[fd00::1]:*" in Address.of("[fd00::1]:1").security().allowed_hosts
