"""The commands `confirm`, what a job's cause was, and `act`, what is to be done about it."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diagnose.cli.options import Memory, Patterns, argument, named, option, path
from diagnose.cli.output import clean, note, say, write
from diagnose.errors import InputError
from diagnose.report.words import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.act.record import Decision
    from diagnose.memory.confirm import Subject

_MAX_RECORDS = 16 << 20  # bytes

OneJob = Annotated[
    str,
    argument(
        "JOB",
        "Log file or job folder, - for standard input; with --results a job of the scan.",
        parser=named,
    ),
]
Results = Annotated[
    Path | None, option("--results", "Results folder of the scan that has JOB.", "DIR", parser=path)
]


def subject(job: str, results: Path | None, patterns: Sequence[Path]) -> Subject:
    """A job by its path, or one of a scan, with the verdict of the evidence alone."""
    from diagnose.diagnosis import Diagnosis
    from diagnose.fingerprint import fingerprint
    from diagnose.memory.confirm import Subject

    if results is None:
        from diagnose.cli.job import STDIN, diagnosed

        _, found = diagnosed([job], patterns, recall=False)
        name = "a paste" if job == STDIN else job.rstrip("/").rpartition("/")[2] or job
        return Subject(name, fingerprint(found), found)
    from diagnose.batch.results import diagnosis_of, folder_of

    name, mark, document = diagnosis_of(folder_of(results), job)
    try:
        return Subject(name, mark, Diagnosis.from_dict(document))
    except ValueError as error:
        raise InputError(f"{job}: the stored diagnosis is of another version: {error}") from error


def confirm(
    job: OneJob,
    cause: Annotated[str, option("--cause", "Its cause; default: the verdict's.", "CLASS")] = "",
    culprit: Annotated[
        list[str] | None,
        option("--culprit", "A rank (3, 0-7) or host to blame (repeatable).", "WHO"),
    ] = None,
    fix: Annotated[str, option("--fix", "What helped.", "TEXT")] = "",
    wrong: Annotated[
        bool, option("--wrong", "The verdict was wrong, also where nobody knows more.")
    ] = False,
    results: Results = None,
    memory: Memory = None,
    patterns: Patterns = None,
) -> None:
    """Keep what the cause of a job was, and what helped.

    Later verdicts show similar incidents, and their confidence takes into account how often such
    verdicts were right here. Nothing leaves this machine, and no line of a log is kept.
    """
    from diagnose.catalog.load import load_catalog
    from diagnose.memory import place
    from diagnose.memory.confirm import incident
    from diagnose.memory.features import features
    from diagnose.memory.store import keep
    from diagnose.text.ranks import counted

    found = subject(job, results, patterns or ())
    one = incident(
        found, load_catalog(patterns or ()), cause=cause, culprits=culprit or (), fix=fix,
        wrong=wrong,
    )  # fmt: skip
    file = place(memory)
    count = keep(file, one, features(found.diagnosis))
    verdict = "the verdict was right" if one.correct else f"the verdict, {one.given}, was wrong"
    if one.given == "unknown":
        verdict = "the verdict was unknown"
    write(f"{one.name}: {one.cause or 'cause unknown'} ({verdict})\n")
    write(f"{clean(str(file))} has {counted(count, 'incident')}\n")


_FORMS = (
    "text", "json", "slurm", "exclude", "kubernetes", "nvsentinel", "nvrx", "webhook:slack",
    "webhook:teams", "webhook:pagerduty", "webhook:jira",
)  # fmt: skip
Form = StrEnum("Form", {name: name for name in _FORMS})  # type: ignore[misc]


def act(
    job: Annotated[
        str,
        argument(
            "JOB",
            "Log file or job folder, a job of the scan in --results, a results folder (its "
            "suspect nodes), or records as JSON.",
            parser=named,
        ),
    ],
    form: Annotated[
        Form, option("--form", f"{', '.join(_FORMS[:-1])} or {_FORMS[-1]}.", "FORM")
    ] = Form("text"),
    undo: Annotated[
        bool, option("--undo", "The way back: resume the nodes, resolve the alert.")
    ] = False,
    apply: Annotated[
        bool, option("--apply", "Run the commands (slurm, kubernetes); asks before.")
    ] = False,
    yes: Annotated[bool, option("--yes", "With --apply: do not ask.")] = False,
    days: Annotated[int, option("--days", "How long it is meant for.", "N", min=1, max=3650)] = 7,
    outcome: Annotated[
        Path | None,
        option(
            "--outcome",
            "Say whether it helped, by the later jobs in this results folder.",
            "DIR",
            parser=path,
        ),
    ] = None,
    results: Results = None,
    memory: Memory = None,
    patterns: Patterns = None,
) -> None:
    """Decide what to do: drain nodes, restart, or fix first.

    Prints the decision; nothing is changed without --apply.
    """
    from diagnose.act.forms import COMMANDS

    if apply and form.value not in COMMANDS:
        raise InputError(f"--apply needs --form {' or '.join(COMMANDS)}")
    if undo and form == "json":
        raise InputError("--undo needs another --form than json: a record says what to do")
    found = _decision(job, results, memory, patterns or (), days, late=undo or outcome is not None)
    if outcome is not None:
        _print_outcomes(found, outcome, patterns or ())
    elif apply:
        _apply(found, form.value, undo=undo, yes=yes)
    else:
        _print(found, form.value, undo=undo)


def _print(found: Decision, form: str, *, undo: bool) -> None:
    text = _written(found, form, undo)
    write(text, encoding="utf-8")
    if not found.actions:
        note(f"no decision: {found.why_none}")
    elif not text.strip():
        what = " and ".join(dict.fromkeys(one.action for one in found.actions))
        note(f"no node to act on for {form}: the decision is {what} (--form text)")


def _decision(
    job: str,
    results: Path | None,
    memory: Path | None,
    patterns: Sequence[Path],
    days: int,
    *,
    late: bool,
) -> Decision:
    """The decision on what JOB stands for; records that have expired count where it is `late`."""
    from datetime import UTC, datetime

    from diagnose.act import record
    from diagnose.catalog.load import load_catalog
    from diagnose.ingest.names import RESULTS
    from diagnose.memory import recalled

    now = datetime.now(UTC)
    if results is None and job.endswith(".json") and Path(job).is_file():
        if Path(job).stat().st_size > _MAX_RECORDS:
            raise InputError(f"{job}: too large for records")
        records = record.read(Path(job).read_text(encoding="utf-8", errors="replace"))
        return record.Decision(records) if late and records else record.meant(records, now)
    catalog = load_catalog(patterns)
    if results is None and Path(job, RESULTS).is_file():
        from diagnose.fleet import read
        from diagnose.fleet.nodes import nodes

        suspects = nodes(read(Path(job)), catalog.node_causes).suspects
        return record.of_suspects(suspects, job, days, now)
    one = subject(job, results, patterns)
    diagnosis = recalled(one.diagnosis, memory)
    return record.decide(diagnosis, catalog, one.name, one.fingerprint, days, now)


def _written(found: Decision, form: str, undo: bool) -> str:
    from diagnose.act.forms import FORMS, document
    from diagnose.act.webhooks import WEBHOOKS, bodies, headline

    if form == "json":
        return document(found.actions)
    if form in WEBHOOKS:
        return bodies(form, found.actions, undo)
    if form in FORMS:
        return FORMS[form](found.actions, undo)
    return "".join(
        f"{clean(headline(one, undo))}\n  {clean(one.reason)}\n"
        + (f"  where: {', '.join(clean(place(at.source, at.line)) for at in one.evidence)}\n"
           if one.evidence else "")
        + f"  until {one.expires[:10]}; fingerprint {one.fingerprint}\n"
        for one in found.actions
    )  # fmt: skip


def _print_outcomes(found: Decision, folder: Path, patterns: Sequence[Path]) -> None:
    from diagnose.act.outcome import outcome
    from diagnose.act.webhooks import headline
    from diagnose.catalog.load import load_catalog
    from diagnose.fleet import read

    jobs, causes = read(folder), load_catalog(patterns).node_causes
    for one in found.actions:
        became = outcome(one, jobs, causes)
        state = became.state.replace("_", " ")
        write(f"{clean(headline(one))}: {state}\n  {clean(became.why)}\n")


def _apply(found: Decision, form: str, *, undo: bool, yes: bool) -> None:
    from diagnose.act.carry_out import carry_out
    from diagnose.act.forms import COMMANDS, shell
    from diagnose.text.ranks import counted

    commands = COMMANDS[form](found.actions, undo)
    if not commands:
        say(f"nothing to run: {clean(found.why_none or 'no decision that changes a node')}")
        return
    say(shell(commands).rstrip())
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise InputError("--apply asks on a terminal; in a script add --yes")
        if not typer.confirm("Run this?", err=True):
            say("nothing was run")
            return
    carry_out(commands)
    say(f"ran {counted(len(commands), 'command')}")
