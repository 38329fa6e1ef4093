"""The command line as a whole: the commands, what every one of them has, and how errors end it.

Start-up is part of the answer's speed: whatever is heavy (pandas, rich, the engine) is imported
inside the command that needs it, and of the commands only the one that was asked for is made.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from diagnose import __version__
from diagnose.cli.output import clean, reader_is_gone, say, write
from diagnose.errors import DiagnoseError
from diagnose.runtime.command import INTERRUPTED, leave, prepare

EXIT_UNUSABLE = 2
_COMPLETING = "_DIAGNOSE_COMPLETE"  # as the script of --install-completion sets it
EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h

# Where each command is: a function of its name (`catalog` is a group) in a module of this package.
_COMMANDS: Mapping[str, str] = {
    "triage": "job",
    "report": "job",
    "issue": "job",
    "compare": "compare",
    "confirm": "memory",
    "act": "memory",
    "collect": "collect",
    "watch": "watch",
    "checkpoint": "checkpoint",
    "scan": "fleet",
    "fleet": "fleet",
    "serve": "serve",
    "mcp": "serve",
    "explain": "catalog",
    "catalog": "catalog",
}


def _app(asked: str) -> typer.Typer:
    """The command line: with the command asked for, or with all where it is none of them."""
    app = typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    for name in [asked] if asked in _COMMANDS else _COMMANDS:
        module = import_module(f"diagnose.cli.{_COMMANDS[name]}")
        if name == "catalog":
            app.add_typer(
                module.catalog_app, name=name,
                help="List, find, add or check the entries of known failures.",
            )  # fmt: skip
        else:
            app.command()(getattr(module, name))
    return app


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
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = typer.main.get_command(_app(given[0] if given else ""))
    try:
        if _COMPLETING in os.environ:  # a shell asks what may follow
            command.main(given, "diagnose", _COMPLETING)
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
        return INTERRUPTED
    except BrokenPipeError as error:
        return 0 if reader_is_gone() else _unexpected(error)
    except Exception as error:
        return _unexpected(error)
    return 0


def main() -> None:
    """The command `diagnose`, once it is imported; `__main__` is where it begins."""
    prepare()
    leave(run())


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
    option = getattr(error, "option_name", None)
    owners = _owners(option) if option else []
    if owners:  # more to the point than an option that is spelt like it
        *most, last = owners
        who = f"{', '.join(most)} and {last} have" if most else f"{last} has"
        message = f"{getattr(error, 'message', message)}; diagnose {who} it"
    message = " ".join(message.replace("Value error, ", "").split())
    if arguments and os.path.exists(arguments[0]):  # noqa: PTH110  Path's raises on long names
        return f"{message} (to diagnose a file or folder: diagnose triage PATH)"
    context = getattr(error, "ctx", None)
    given = " ".join(["diagnose", *(name for name in arguments[:1] if name in _COMMANDS)])
    return f"{message} (see {context.command_path if context else given} --help)"


def _owners(option: str) -> list[str]:
    """The commands that have an option."""
    group: Any = typer.main.get_command(_app(""))
    return [
        name
        for name, command in group.commands.items()
        if any(option in parameter.opts for parameter in command.params)
    ]
