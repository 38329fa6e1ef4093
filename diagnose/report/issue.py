"""A job as an issue for one project, in the form that its maintainers ask for.

What they ask for is data (`formats/issues/`), and what the job has of it comes from `job.asked`.
What is missing is named with the command that gets it; what no log can answer is left to people.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from diagnose import __version__
from diagnose.errors import InputError
from diagnose.job.asked import Ask, Found, Project, Question, find, fit, projects
from diagnose.redact.places import Places
from diagnose.redact.redactor import Redactor
from diagnose.report import words
from diagnose.report.markdown import LIMIT, code, escape, fenced, fitting, folded, headline, length
from diagnose.report.safe import Scrub, cut, learn_around, safe
from diagnose.text.ranks import counted

if TYPE_CHECKING:
    from diagnose.diagnosis import Diagnosis
    from diagnose.job.model import Job

LEAST = 6_000  # characters: less has no room for what always stays
_OF_SECTION = 12_000  # characters
_LONG = 24  # lines; more are folded away
_TEXT = 600  # characters of a line
_FILES = 12
_LATER = "What they may ask next: for you, delete it before you post"
_FITTING = 4  # questions that fit the cause, beside those that the project always asks


def issue_text(
    job: Job, result: Diagnosis, project: str, *, redact: bool = True, limit: int = LIMIT
) -> str:
    """Markdown for an issue of `project`, at most `limit` characters: what its maintainers ask for.

    `project` is one of nccl, pytorch, vllm, sglang, verl, deepspeed, ray, slurm. With `redact`
    secrets, people, hosts, addresses and the way to folders are masked. Sections that do not fit
    are named. Raises InputError for another project or a limit that is too small.
    """
    to = known_project(project)
    if limit < LEAST:
        raise InputError(f"a limit of at least {LEAST:,} characters is needed")
    redactor = learn_around(job, result, Redactor()) if redact else None
    scrub = Scrub(redactor)
    shown = safe(result, redactor)
    every = [*to.asks, *to.later_asks]
    found = find(job, result, [ask.item for ask in every])
    if redactor is not None:  # what one section names another may hold without its name
        for one in found.values():
            redactor.learn("\n".join(one.lines))
    mask = Places(_hosts(job, result)).text if redact else str
    first = [mask(part) for part in (headline(shown), _verdict(shown))]
    named = [(ask.heading, mask(_section(ask, found[ask.item.item], scrub))) for ask in every]
    lacking = [(mask(words.capital(one.what)), one.how) for one in shown.missing_evidence]
    open_ones, folded_ones = _wanted(to, found, shown)
    now, later = _questions(to, shown)
    tail = [  # commands stay as they are
        _listed("Missing, and how to get it", [*lacking, *_versions(to, shown), *open_ones]),
        _listed("To answer by hand", now, "- [ ] "),
    ]
    last = [mask(_attach(found, scrub)), _signed(to, redact)]
    room = limit - sum(map(length, [*first, *tail, *last])) - 400
    named.append((_LATER, folded(_LATER, _items([*folded_ones, *later]))))
    kept, left_out = fitting([part for _, part in named], room)
    more = [kept.pop()] if len(named) - 1 not in left_out and named[-1][1] else []
    if left_out:
        names = ", ".join(named[place][0] for place in left_out)
        kept.append(f"*Left out, for lack of room in {limit:,} characters: {names}.*")
    return "\n\n".join(filter(None, [*first, *kept, *tail, *more, *last])) + "\n"


def known_project(name: str) -> Project:
    """What a project asks for. Raises InputError where there is none of this name."""
    known = projects()
    if name not in known:
        raise InputError(f"--for {name}: choose {', '.join(known)}")
    return known[name]


def _hosts(job: Job, result: Diagnosis) -> set[str]:
    named = [*result.job.hosts, *result.culprits.hosts, *result.restart.exclude_hosts]
    named += [one.host for one in result.culprits.devices]
    seen = [*(one.host for one in job.sources), *(one.host for one in job.documents.looks)]
    return {*named, *filter(None, seen)}


def _verdict(shown: Diagnosis) -> str:
    """Two lines: what happened, and who is to blame."""
    who = words.culprits(shown)
    facts = {"cause": code(shown.root_cause.cause), "culprits": escape(who) if who else ""}
    line = " · ".join(f"**{name.capitalize()}:** {text}" for name, text in facts.items() if text)
    return f"{escape(words.sentence(shown.root_cause.summary))}\n\n{line}"


def _section(ask: Ask, found: Found, scrub: Scrub) -> str:
    """What there is of one item; empty where nothing is."""
    if not found.lines:
        return ""
    lines = [cut(line, _TEXT) for line in scrub.block(found.lines)]
    more, size = found.more, 0
    for place, line in enumerate(lines):
        size += length(line)
        if size > _OF_SECTION:
            more += len(lines) - place
            lines = lines[:place]
            break
    body = fenced("\n".join(lines))
    if found.place:
        body = f"{code(scrub.text(found.place))}\n\n{body}"
    if more:
        body += f"\n\n*{counted(more, 'more line')} left out.*"
    body = folded(counted(len(lines), "line"), body) if len(lines) > _LONG else body
    return f"#### {escape(ask.heading)}\n\n{body}"


def _wanted(
    to: Project, found: dict[str, Found], shown: Diagnosis
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What the job lacks, with the commands that get it: what is asked first, and later."""
    cause = shown.root_cause.cause
    first = sorted(to.asks, key=lambda ask: -fit(ask.item, cause))
    return (
        [(a.heading, how) for a in first if not found[a.item.item] for how in a.get],
        [(a.heading, how) for a in to.later_asks if not found[a.item.item] for how in a.get],
    )


def _versions(to: Project, shown: Diagnosis) -> list[tuple[str, str]]:
    stated = {name.lower() for name in shown.job.versions}
    lacking = [name for name in to.versions if name not in stated]
    return [(f"Versions: {', '.join(lacking)}", to.versions[name]) for name in lacking]


def _questions(
    to: Project, shown: Diagnosis
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What people have to answer: the project's own and those that fit the cause, and others."""

    def closest(asked: list[Question]) -> list[Question]:
        return sorted(asked, key=lambda one: -fit(one, cause))

    cause = shown.root_cause.cause
    fitting_ones = [one for one in closest(to.later_questions)[:_FITTING] if fit(one, cause)]
    now = closest([*to.questions, *fitting_ones])
    later = [one for one in to.later_questions if one not in now]
    return _pairs(now), _pairs(later)


def _pairs(asked: list[Question]) -> list[tuple[str, str]]:
    return [(one.ask, one.how) for one in asked]


def _listed(heading: str, rows: Iterable[tuple[str, str]], bullet: str = "- ") -> str:
    items = _items(rows, bullet)
    return f"#### {heading}\n\n{items}" if items else ""


def _items(rows: Iterable[tuple[str, str]], bullet: str = "- ") -> str:
    """A line for each thing asked, with the ways to get it."""
    lines: dict[str, list[str]] = {}
    for what, how in rows:
        lines.setdefault(what, []).extend([code(how)] if how else [])
    return "\n".join(
        f"{bullet}{escape(what)}{(' ' if what[-1] in '?.' else ': ') * bool(how)}"
        f"{', '.join(dict.fromkeys(how))}"
        for what, how in lines.items()
    )


def _attach(found: dict[str, Found], scrub: Scrub) -> str:
    names = dict.fromkeys(name for one in found.values() for name in one.files)
    shown = [code(scrub.text(name)) for name in list(names)[:_FILES]]
    shown += [f"and {len(names) - _FILES} more"] if len(names) > _FILES else []
    return f"#### To attach, once you have looked through it\n\n{', '.join(shown)}" if names else ""


def _signed(to: Project, redact: bool) -> str:
    made = "masked" if redact else "**not masked**"
    by = f"diagnose {__version__}, {made}; read it before you post it."
    return f"<sub>For {to.name} ({to.open}). {by}</sub>"
