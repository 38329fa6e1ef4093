"""The commands on the catalog: `explain` a class or a setting; list, show and check entries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diagnose.cli.options import ColorOption, Patterns, path
from diagnose.cli.output import Color, clean, show, write
from diagnose.errors import InputError

if TYPE_CHECKING:
    from diagnose.catalog.schema import KnownIssue, Signature

EXIT_PROBLEMS = 1  # `catalog check` found problems

catalog_app = typer.Typer(rich_markup_mode=None)


def explain(
    cause: Annotated[
        str,
        typer.Argument(
            metavar="CLASS|SETTING", help="A cause class, such as net.fabric, or a setting."
        ),
    ],
    patterns: Patterns = None,
    color: ColorOption = Color.auto,
) -> None:
    """Explain a cause class: what it means, what to do, whether to restart.

    Or a setting that a remedy names, such as timeout: where each framework has it.
    """
    from diagnose.catalog.load import load_catalog
    from diagnose.report import catalog as report

    catalog = load_catalog(patterns or ())
    setting, found = catalog.settings.get(cause), catalog.classes.get(cause)
    if setting is not None:
        show(color, lambda console: report.render_setting(setting, console))
        return
    if found is None:
        raise InputError(
            _unknown("cause class or setting", cause, [*catalog.classes, *catalog.settings])
        )
    show(color, lambda console: report.render_class(found, catalog, console))


@catalog_app.command("list")
def catalog_list(
    cause: Annotated[
        str | None, typer.Option("--class", metavar="CLASS", help="Only this cause class.")
    ] = None,
    role: Annotated[
        str | None, typer.Option("--role", metavar="ROLE", help="Only this causal role.")
    ] = None,
    patterns: Patterns = None,
) -> None:
    """List signatures and known issues with ID, role, class and title."""
    from typing import get_args

    from diagnose.catalog.load import load_catalog
    from diagnose.catalog.schema import Role
    from diagnose.report import catalog as report

    catalog = load_catalog(patterns or ())
    if cause is not None and cause not in catalog.classes:
        raise InputError(_unknown("cause class", cause, list(catalog.classes)))
    roles = [*get_args(Role), report.KNOWN_ISSUE]
    if role is not None and role not in roles:
        raise InputError(_unknown("role", role, roles))
    write(report.listing(catalog, cause=cause, role=role))


@catalog_app.command("show")
def catalog_show(
    entry: Annotated[str, typer.Argument(metavar="ID", help="ID of a signature or known issue.")],
    patterns: Patterns = None,
    color: ColorOption = Color.auto,
) -> None:
    """Show one signature or known issue."""
    from diagnose.catalog.load import load_catalog
    from diagnose.report import catalog as report

    catalog = load_catalog(patterns or ())
    entries: dict[str, Signature | KnownIssue] = {e.id: e for e in catalog.signatures}
    entries |= {e.id: e for e in catalog.known_issues}
    found = entries.get(entry)
    if found is None:
        raise InputError(_unknown("id", entry, list(entries)))
    show(color, lambda console: report.render_entry(found, console))


@catalog_app.command("check")
def catalog_check(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIR", parser=path, help="Folders with your own signatures."),
    ] = None,
    patterns: Patterns = None,
) -> None:
    """Check folders of signatures (default: the built-in catalog); prints one line per problem."""
    from diagnose.catalog.check import check
    from diagnose.catalog.load import catalog_files, load_catalog, read_catalog

    own = [*(directories or ()), *(patterns or ())]
    problems = check(own)
    if problems:
        write("".join(f"{clean(problem)}\n" for problem in problems))
        raise typer.Exit(EXIT_PROBLEMS)
    catalog = read_catalog(list(catalog_files(own)), "own") if own else load_catalog()
    write(
        f"{len(catalog.signatures)} signatures, {len(catalog.known_issues)} known issues, "
        f"{len(catalog.classes)} cause classes: no problems\n"
    )


def _unknown(what: str, given: str, choices: Sequence[str]) -> str:
    """A message for a name that does not exist: near ones, or all when they are few."""
    from difflib import get_close_matches

    message = f"unknown {what} {given!r}"
    near = get_close_matches(given, choices, n=3, cutoff=0.5)
    if near:
        message += f"; did you mean {' or '.join(near)}?"
    if len(choices) <= 60:
        return f"{message}{'' if near else ';'} choose from {', '.join(choices)}"
    return message if near else f"{message}; `diagnose catalog list` shows all {len(choices)}"
