"""The command `watch`: follow the logs of a running job and say when it stops."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from diagnose.cli.job import EXIT_FAILURE_FOUND, STDIN
from diagnose.cli.options import ExitCode, Patterns
from diagnose.cli.output import note, write
from diagnose.errors import InputError
from diagnose.runtime.command import INTERRUPTED

Heartbeats = Annotated[
    float,
    typer.Option(
        "--heartbeats",
        metavar="N",
        min=2,
        help="Heartbeats without progress that are a stall.",
    ),
]
Grace = Annotated[
    float,
    typer.Option(
        "--grace",
        min=1,
        metavar="SECONDS",
        help="How long the first step, or a first checkpoint or evaluation, may be silent.",
    ),
]
MinSilence = Annotated[
    float,
    typer.Option(
        "--min-silence",
        min=0,
        metavar="SECONDS",
        help="Silence that is no stall, however fast the steps are.",
    ),
]
OnStall = Annotated[
    str | None,
    typer.Option("--on-stall", metavar="COMMAND", help="Shell command to run for each stall."),
]
WebhookUrl = Annotated[
    str | None,
    typer.Option(
        "--webhook",
        metavar="URL",
        envvar="DIAGNOSE_WEBHOOK",
        help="Post messages there, as JSON for Slack.",
    ),
]


def watch(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...", help="Log files and job folders; none or - follows standard input."
        ),
    ] = None,
    every_rank: Annotated[
        bool,
        typer.Option("--every-rank", help="Also report a rank that stops while others go on."),
    ] = False,
    heartbeats: Heartbeats = 6,
    grace: Grace = 600,
    min_silence: MinSilence = 30,
    on_stall: OnStall = None,
    webhook: WebhookUrl = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="ADDRESS", help="Serve Prometheus metrics, as on :9400."),
    ] = None,
    patterns: Patterns = None,
    exit_code: ExitCode = False,
) -> None:
    """Follow a running job and report when it stops or ends.

    Also when it goes on after a stop.
    """
    from diagnose.ingest.names import local
    from diagnose.watch.run import Options, Watch

    given = paths or [STDIN]
    found = [str(path) for path in local(path for path in given if path != STDIN)]
    if STDIN in given and sys.stdin is None:
        raise InputError("standard input is closed")
    options = Options(
        heartbeats,
        grace,
        every_rank,
        on_stall,
        webhook,
        metrics,
        tuple(patterns or ()),
        min_silence,
    )
    stdin = sys.stdin.fileno() if STDIN in given else None
    outcome = Watch(found, options, write, note, stdin).run()
    if outcome.interrupted:
        raise typer.Exit(INTERRUPTED)
    if exit_code and outcome.verdict is not None and outcome.verdict.verdict in ("hung", "failed"):
        raise typer.Exit(EXIT_FAILURE_FOUND)
