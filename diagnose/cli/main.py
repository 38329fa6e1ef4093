"""The command line as a whole: the commands, what every one of them has, and how errors end it.

Start-up is part of the answer's speed: whatever is heavy (pandas, rich, the engine) is imported
inside the command that needs it.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from diagnose import __version__, process
from diagnose.cli.catalog import catalog_app, explain
from diagnose.cli.checkpoint import checkpoint
from diagnose.cli.collect import collect
from diagnose.cli.fleet import fleet
from diagnose.cli.mcp import mcp
from diagnose.cli.output import clean, reader_is_gone, say, write
from diagnose.cli.report import report
from diagnose.cli.scan import scan
from diagnose.cli.serve import serve
from diagnose.cli.triage import triage
from diagnose.cli.watch import watch
from diagnose.errors import DiagnoseError

EXIT_UNUSABLE = 2
EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
for command in (
    triage, report, collect, watch, checkpoint, scan, fleet, serve, mcp, explain,
):  # fmt: skip
    app.command()(command)
app.add_typer(
    catalog_app, name="catalog", help="List, show or check the catalog of known failures."
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Find out why a distributed training job hung or died, which rank is at fault, what to do."""
    if version:
        write(f"diagnose {__version__}\n")
    elif context.invoked_subcommand is None:
        write(context.get_help() + "\n")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's) and give its exit status."""
    # The base of every error in the command line itself; typer has moved it between modules.
    usage_error: type[Exception] = typer.BadParameter.__mro__[1]
    command = typer.main.get_command(app)
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        # Not main(), which makes 1, our status of a failed job, of whatever pipe broke.
        with command.make_context("diagnose", list(given)) as context:
            command.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    except usage_error as error:
        return _fail(_usage(error, given), EXIT_UNUSABLE)
    except DiagnoseError as error:
        return _fail(str(error), EXIT_UNUSABLE)
    except KeyboardInterrupt:
        return process.INTERRUPTED
    except BrokenPipeError as error:
        return 0 if reader_is_gone() else _unexpected(error)
    except Exception as error:
        return _unexpected(error)
    return 0


def main() -> None:
    """The command `diagnose`, once it is imported; `__main__` is where it begins."""
    process.prepare()
    # A short-lived process without cycles to speak of: looking for garbage while it imports and
    # makes the events of a large job costs a tenth of its time for nothing.
    gc.set_threshold(5_000_000, 50, 100)
    process.leave(run())


def _fail(message: str, status: int) -> int:
    say(f"diagnose: {clean(message)}")
    return status


def _unexpected(error: Exception) -> int:
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}", EXIT_UNUSABLE)
    if os.environ.get("DIAGNOSE_TRACEBACK"):
        traceback.print_exception(error)
    return _fail(
        f"internal error, please report it: {type(error).__name__}: {error} "
        "(DIAGNOSE_TRACEBACK=1 shows where)",
        EXIT_BUG,
    )


def _usage(error: Exception, arguments: Sequence[str]) -> str:
    """What is wrong with the command line, on one line, and where to look."""
    message = getattr(error, "format_message", error.__str__)()
    message = " ".join(message.replace("Value error, ", "").split())
    if arguments and os.path.exists(arguments[0]):  # noqa: PTH110  Path's raises on long names
        return f"{message} (to diagnose a file or folder: diagnose triage PATH)"
    return f"{message} (see diagnose --help)"
