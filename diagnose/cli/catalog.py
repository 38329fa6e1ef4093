"""The commands on the catalog: `explain` what has a name; list, find, add and check entries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from diagnose.cli.options import ColorOption, Memory, Patterns, argument, option, path
from diagnose.cli.output import Color, clean, say, show, write
from diagnose.errors import InputError

EXIT_PROBLEMS = 1  # `catalog check` found problems

catalog_app = typer.Typer(rich_markup_mode=None)


def explain(
    name: Annotated[
        str, argument("NAME", "A cause class (net.fabric), a setting (timeout) or a signature.")
    ],
    patterns: Patterns = None,
    color: ColorOption = Color.auto,
) -> None:
    """Explain a cause class, a setting or a signature.

    What it means, what to do, whether to restart; where each framework has the setting.
    """
    from diagnose.catalog.entries import find
    from diagnose.catalog.load import load_catalog
    from diagnose.report import catalog as report

    catalog = load_catalog(patterns or ())
    found = find(catalog, name)
    show(color, lambda console: report.render(found, catalog, console))


@catalog_app.command("list")
def catalog_list(
    cause: Annotated[str | None, option("--class", "Only this cause class.", "CLASS")] = None,
    role: Annotated[str | None, option("--role", "Only this causal role.", "ROLE")] = None,
    patterns: Patterns = None,
) -> None:
    """List signatures and known issues with ID, role, class and title."""
    from typing import get_args

    from diagnose.catalog.entries import unknown
    from diagnose.catalog.load import load_catalog
    from diagnose.catalog.schema import Role
    from diagnose.report import catalog as report

    catalog = load_catalog(patterns or ())
    if cause is not None and cause not in catalog.classes:
        raise InputError(unknown("cause class", cause, catalog.classes))
    roles = [*get_args(Role), report.KNOWN_ISSUE]
    if role is not None and role not in roles:
        raise InputError(unknown("role", role, dict.fromkeys(roles)))
    write(report.listing(catalog, cause=cause, role=role))


@catalog_app.command("new")
def catalog_new(
    entry: Annotated[str, argument("ID", "PRODUCT.FAMILY.NAME of the entry.")],
    role: Annotated[str, option("--role", "Its causal role.", "ROLE")] = "cause",
    cause: Annotated[str, option("--class", "Its cause class, for role cause.", "CLASS")] = "",
    line: Annotated[str, option("--line", "A line that it must match.", "TEXT")] = "",
    job: Annotated[
        str,
        option(
            "--from",
            "A job that was confirmed: draft it from the most telling line of its logs.",
            "JOB",
        ),
    ] = "",
    reference: Annotated[
        str, option("--reference", "With --from: where it is known from.", "URL")
    ] = "",
    memory: Memory = None,
    patterns: Patterns = None,
) -> None:
    """Begin a signature in the file of its ID.

    With --patterns in that folder, else in the built-in catalog, which is for a checkout.
    """
    from typing import get_args

    from diagnose.catalog.authoring import TODO, add
    from diagnose.catalog.entries import unknown
    from diagnose.catalog.load import default_dir
    from diagnose.catalog.schema import Role

    if role not in get_args(Role):
        raise InputError(unknown("role", role, dict.fromkeys(get_args(Role))))
    where = (patterns or [default_dir()])[0]
    if job:
        _from_job(entry, job, where, cause, reference, memory)
        return
    file, number = add(entry, where, role=role, cause=cause, line=line)
    write(
        f"{file}:{number}: {entry}\n"
        f"Fill in each {TODO}: what happened (title), what shows it (match, with a line for each\n"
        "alternative), a line that looks alike and is none of it (near_miss), what to do, and\n"
        "where you know it from (references). Then run:\n"
        f"diagnose catalog test {entry}{f' --patterns {where}' if patterns else ''}\n"
    )


def _from_job(
    entry: str, job: str, where: Path, cause: str, reference: str, memory: Path | None
) -> None:
    """Draft an entry; `where` is its folder."""
    from diagnose.catalog.authoring import add
    from diagnose.catalog.load import default_dir
    from diagnose.cli.job import diagnosed
    from diagnose.memory import place
    from diagnose.memory.draft import draft

    own = [where] if where != default_dir() and any(where.rglob("*.yaml")) else []
    read, diagnosis = diagnosed([job], own, recall=False)
    file = place(memory)
    made = draft(read, diagnosis, file if file.is_file() else None, reference)
    cause = cause or made.cause
    if not cause:
        raise InputError(f"say with --class what it is, or before: diagnose confirm {job} --cause")
    path, number = add(entry, where, role="cause", cause=cause, line=made.line, filled=made.filled)
    product = entry.partition(".")[0]
    write(
        f"{path}:{number}: {entry}\n{clean(made.line)}\n"
        "Read it, shorten the expression to what shows the cause, then run:\n"
        f"diagnose catalog test {entry} --patterns {where}\n"
        "For the learned reader (patterns/learned/*.tsv):\n"
        f"{cause}\t{product}\t{clean(made.line)}\n"
    )


def _fail(problems: Sequence[str]) -> None:
    """End the command where there are problems, and print them."""
    if problems:
        write("".join(f"{clean(problem)}\n" for problem in problems))
        raise typer.Exit(EXIT_PROBLEMS)


@catalog_app.command("test")
def catalog_test(
    entry: Annotated[str, argument("ID", "ID of a signature or known issue.")],
    patterns: Patterns = None,
) -> None:
    """Check one entry and its examples.

    The others are not looked at. Prints one line per problem.
    """
    from diagnose.catalog.authoring import entry_in
    from diagnose.catalog.check import check_entry
    from diagnose.catalog.load import default_dir
    from diagnose.text.ranks import counted

    found = entry_in(entry, [*(patterns or ()), default_dir()])
    _fail(check_entry(found))
    examples = counted(len(found.entry.examples), "example")
    misses = counted(len(found.entry.near_miss), "near miss", "near misses")
    write(f"{found.path}: {entry}: {examples}, {misses}: no problems\n")


@catalog_app.command("where")
def catalog_where(
    line: Annotated[str, argument("TEXT", "A line, as it is in the log.")],
    patterns: Patterns = None,
) -> None:
    """Show which entries match a line, or nearly do.

    Also those that would without their exceptions, what the words of the line suggest, and
    whose examples share most words with it.
    """
    from diagnose.known_line import known_line, wording

    if not line.strip():
        raise InputError("the text is empty; give the line as it is in the log")
    write("".join(f"{clean(row)}\n" for row in wording(known_line(line, patterns or ()))))


@catalog_app.command("schema")
def catalog_schema() -> None:
    """Print the JSON Schema of the files, for editors."""
    from diagnose.catalog.authoring import text

    write(text())


@catalog_app.command("check")
def catalog_check(
    directories: Annotated[
        list[Path] | None, argument("DIR", "Folders with your own signatures.", parser=path)
    ] = None,
    patterns: Patterns = None,
) -> None:
    """Check folders of signatures; prints one line per problem.

    Without a folder the built-in catalog is checked.
    """
    from diagnose.catalog.check import check
    from diagnose.catalog.document import read_catalog
    from diagnose.catalog.load import catalog_files, load_catalog
    from diagnose.text.ranks import counted

    own = [*(directories or ()), *(patterns or ())]
    say("Checking every expression and its examples: this takes some seconds.")
    _fail(check(own))
    catalog = read_catalog(list(catalog_files(own)), "own") if own else load_catalog()
    write(
        f"{counted(len(catalog.signatures), 'signature')}, "
        f"{counted(len(catalog.known_issues), 'known issue')}, "
        f"{counted(len(catalog.classes), 'cause class', 'cause classes')}: no problems\n"
    )
