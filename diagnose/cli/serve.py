"""The commands that serve: `serve`, a page and an HTTP API, and `mcp`, tools for coding agents."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from diagnose.cli.options import Patterns, option, path
from diagnose.cli.output import clean, say
from diagnose.errors import InputError, install

_MIB = 1 << 20


Host = Annotated[
    str, option("--host", "Address to listen on; others than loopback need a token.", "HOST")
]
Port = Annotated[int, option("--port", "Port; 0 takes a free one.", "PORT", min=0, max=65535)]
Data = Annotated[Path | None, option("--data", "Folder of the results.", "DIR", parser=path)]
TokenFile = Annotated[
    Path | None, option("--token-file", "File with the token to ask for.", "FILE", parser=path)
]
Workers = Annotated[int, option("--workers", "Worker processes; 0 means one per core.", "N", min=0)]
Queue = Annotated[int, option("--queue", "Jobs that may wait.", "N", min=1, max=10_000)]
Seconds = Annotated[float, option("--max-seconds", "Time that one job may take.", "S", min=1)]
Memory = Annotated[int, option("--max-memory", "Memory of one job.", "MIB", min=100)]
Upload = Annotated[int, option("--max-upload", "Size of one upload.", "MIB", min=1)]
KeepDays = Annotated[
    float, option("--keep-days", "Delete older results; 0 keeps them.", "DAYS", min=0)
]
KeepSize = Annotated[
    int, option("--keep-size", "Delete the oldest beyond this; 0 keeps them.", "MIB", min=0)
]
KeepOriginals = Annotated[bool, option("--keep-originals", "Keep what was uploaded, unmasked.")]
NoRedact = Annotated[bool, option("--no-redact", "Do not mask secrets and names.")]
AllowUrl = Annotated[
    list[str] | None, option("--allow-url", "URLs below it may be fetched (repeatable).", "PREFIX")
]
AllowHost = Annotated[
    list[str] | None,
    option("--allow-host", "Name that the server is called by (repeatable).", "NAME"),
]


def serve(
    host: Host = "127.0.0.1",
    port: Port = 8321,
    data: Data = None,
    token_file: TokenFile = None,
    workers: Workers = 0,
    queue: Queue = 100,
    seconds: Seconds = 300.0,
    memory: Memory = 1024,
    upload: Upload = 1024,
    keep_days: KeepDays = 30.0,
    keep_size: KeepSize = 2048,
    keep_originals: KeepOriginals = False,
    no_redact: NoRedact = False,
    allow_url: AllowUrl = None,
    allow_host: AllowHost = None,
    patterns: Patterns = None,
) -> None:
    """Serve a page to paste logs into, and an HTTP API."""
    with extra("serve"):
        from diagnose.serve import run
        from diagnose.serve.model import Settings
        from diagnose.serve.spool import prefix
    from platformdirs import user_data_path

    from diagnose.runtime.command import cores

    settings = Settings(
        data=data or user_data_path("diagnose") / "serve",
        host=host,
        port=port,
        workers=workers or max(2, cores()),
        queue=queue,
        seconds=seconds,
        memory=memory * _MIB,
        upload=upload * _MIB,
        keep_days=keep_days,
        keep_bytes=keep_size * _MIB,
        redact=not no_redact,
        originals=keep_originals,
        token=token_of(token_file) if token_file else None,
        hosts=tuple(allow_host or ()),
        urls=tuple(prefix(one) for one in allow_url or ()),
        patterns=tuple(str(folder.resolve()) for folder in patterns or ()),
    )
    run.run(settings, lambda text: say(clean(text)))


def mcp(
    root: Annotated[
        Path,
        option(
            "--root",
            "Folder below which files may be read (default: the current one).",
            "DIR",
            parser=path,
            show_default=False,
        ),
    ] = Path(),
    http: Annotated[
        str | None,
        option(
            "--http",
            "Serve streamable HTTP at /mcp instead of standard input and output.",
            "HOST:PORT",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        option(
            "--token-file",
            "With --http: ask for the bearer token in this file; needed beyond loopback.",
            "FILE",
            parser=path,
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        option(
            "--allow-host",
            "With --http: a name by which clients reach this machine (repeatable).",
            "NAME",
        ),
    ] = None,
    patterns: Patterns = None,
    no_redact: Annotated[
        bool, option("--no-redact", "Do not mask secrets and names in log text.")
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


_LONGEST_TOKEN = 4096  # bytes
_SHORTEST_TOKEN = 16  # characters


def token_of(file: Path) -> str:
    """The token in a file, which only its owner should read. Raises InputError."""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:  # noqa: PTH123
            token = opened.read(_LONGEST_TOKEN + 1).decode("ascii").strip()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: a token is plain ASCII") from error
    if len(token) < _SHORTEST_TOKEN or len(token) > _LONGEST_TOKEN or not token.isprintable():
        raise InputError(
            f"{file}: expected one line with a token of at least {_SHORTEST_TOKEN} characters"
        )
    return token


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around the imports of a command: where a package is missing, what to install.

    `name` is that of the extra and of the command. Raises InputError.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "diagnose":
            raise
        raise InputError(f"{name} needs {package}: {install(name)}") from error
