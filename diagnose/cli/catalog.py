"""The commands on the catalog: `explain` what has a name; list, show and check entries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diagnose.cli.options import ColorOption, Patterns, path
from diagnose.cli.output import Color, clean, say, show, write
from diagnose.errors import InputError

EXIT_PROBLEMS = 1  # `catalog check` found problems

catalog_app = typer.Typer(rich_markup_mode=None)


def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A cause class (net.fabric), a setting (timeout) or a signature."
        ),
    ],
    patterns: Patterns = None,
    color: ColorOption = Color.auto,
) -> None:
    """Explain a cause class, a setting or a signature.

    What it means, what to do, whether to restart; where each framework has the setting.
    """
    from diagnose.catalog.load import load_catalog
    from diagnose.catalog.lookup import find
    from diagnose.report import catalog as report

    catalog = load_catalog(patterns or ())
    found = find(catalog, name)
    show(color, lambda console: report.render(found, catalog, console))


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
    from diagnose.catalog.lookup import unknown
    from diagnose.catalog.schema import Role
    from diagnose.report import catalog as report

    catalog = load_catalog(patterns or ())
    if cause is not None and cause not in catalog.classes:
        raise InputError(unknown("cause class", cause, catalog.classes))
    roles = [*get_args(Role), report.KNOWN_ISSUE]
    if role is not None and role not in roles:
        raise InputError(unknown("role", role, dict.fromkeys(roles)))
    write(report.listing(catalog, cause=cause, role=role))


@catalog_app.command("show")
def catalog_show(
    entry: Annotated[str, typer.Argument(metavar="ID", help="ID of a signature or known issue.")],
    patterns: Patterns = None,
    color: ColorOption = Color.auto,
) -> None:
    """Show one signature or known issue."""
    from diagnose.catalog.load import load_catalog
    from diagnose.catalog.lookup import entries, unknown
    from diagnose.report import catalog as report

    catalog = load_catalog(patterns or ())
    known = entries(catalog)
    if entry not in known:
        raise InputError(unknown("id", entry, known))
    show(color, lambda console: report.render_entry(known[entry], console))


@catalog_app.command("check")
def catalog_check(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIR", parser=path, help="Folders with your own signatures."),
    ] = None,
    patterns: Patterns = None,
) -> None:
    """Check folders of signatures; prints one line per problem.

    Without a folder the built-in catalog is checked.
    """
    from diagnose.catalog.check import check
    from diagnose.catalog.load import catalog_files, load_catalog, read_catalog
    from diagnose.text.ranks import counted

    own = [*(directories or ()), *(patterns or ())]
    say("Checking every example against the whole catalog: this takes a minute.")
    problems = check(own)
    if problems:
        write("".join(f"{clean(problem)}\n" for problem in problems))
        raise typer.Exit(EXIT_PROBLEMS)
    catalog = read_catalog(list(catalog_files(own)), "own") if own else load_catalog()
    write(
        f"{counted(len(catalog.signatures), 'signature')}, "
        f"{counted(len(catalog.known_issues), 'known issue')}, "
        f"{counted(len(catalog.classes), 'cause class', 'cause classes')}: no problems\n"
    )
