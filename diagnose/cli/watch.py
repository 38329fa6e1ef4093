"""The command `watch`: follow the logs of a running job and say when it stops."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from diagnose.cli.job import EXIT_FAILURE_FOUND, STDIN
from diagnose.cli.options import ExitCode, Patterns, argument, option
from diagnose.cli.output import note, write
from diagnose.errors import InputError
from diagnose.runtime.command import INTERRUPTED

Heartbeats = Annotated[
    float, option("--heartbeats", "Heartbeats without progress that are a stall.", "N", min=2)
]
Grace = Annotated[
    float,
    option(
        "--grace",
        "How long the first step, or a first checkpoint or evaluation, may be silent.",
        "SECONDS",
        min=1,
    ),
]
MinSilence = Annotated[
    float,
    option(
        "--min-silence", "Silence that is no stall, however fast the steps are.", "SECONDS", min=0
    ),
]
OnStall = Annotated[
    str | None, option("--on-stall", "Shell command to run for each stall.", "COMMAND")
]
WebhookUrl = Annotated[
    str | None,
    option(
        "--webhook", "Post messages there, as JSON for Slack.", "URL", envvar="DIAGNOSE_WEBHOOK"
    ),
]


def watch(
    paths: Annotated[
        list[str] | None,
        argument("PATH...", "Log files and job folders; none or - follows standard input."),
    ] = None,
    every_rank: Annotated[
        bool, option("--every-rank", "Also report a rank that stops while others go on.")
    ] = False,
    heartbeats: Heartbeats = 6,
    grace: Grace = 600,
    min_silence: MinSilence = 30,
    on_stall: OnStall = None,
    webhook: WebhookUrl = None,
    metrics: Annotated[
        str | None, option("--metrics", "Serve Prometheus metrics, as on :9400.", "ADDRESS")
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
