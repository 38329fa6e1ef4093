"""The command `mcp`: the tools for coding agents, on standard input and output or over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diagnose.cli.options import Patterns, extra, path, token_of
from diagnose.cli.output import say
from diagnose.errors import InputError


def mcp(
    root: Annotated[
        Path,
        typer.Option(
            "--root",
            metavar="DIR",
            parser=path,
            help="Folder below which files may be read (default: the current one).",
            show_default=False,
        ),
    ] = Path(),
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Serve streamable HTTP at /mcp instead of standard input and output.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            parser=path,
            help="With --http: ask for the bearer token in this file; needed beyond loopback.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="With --http: a name by which clients reach this machine (repeatable).",
        ),
    ] = None,
    patterns: Patterns = None,
    no_redact: Annotated[
        bool, typer.Option("--no-redact", help="Do not mask secrets and names in log text.")
    ] = False,
) -> None:
    """Offer the diagnosis to coding agents, by MCP.

    That is the Model Context Protocol.
    """
    with extra("mcp"):
        from diagnose.mcp import server
    from diagnose.mcp.jobs import Root

    offered = server.server_of(Root(root), redact=not no_redact, patterns=patterns or ())
    if http is None:
        if token_file or allow_host:
            raise InputError("--token-file and --allow-host are for --http")
        server.serve_stdio(offered)
    else:
        address = server.Address.of(http, allow_host or ())
        token = token_of(token_file) if token_file else None
        server.serve_http(offered, address, token, lambda url: say(f"diagnose mcp: {url}"))
