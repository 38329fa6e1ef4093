"""What a person confirms of a job, as the incident that is kept of it."""

from __future__ import annotations

import getpass
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from diagnose.catalog.entries import unknown
from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import Diagnosis
from diagnose.errors import InputError
from diagnose.memory.recall import key_of
from diagnose.memory.store import MAX_TEXT, Incident
from diagnose.report.safe import masked_line
from diagnose.text.hosts import is_host

MOST_RANKS = 1 << 20
_RANKS = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


@dataclass(frozen=True, slots=True)
class Subject:
    """A job with its diagnosis, without what a memory knows of it."""

    name: str
    fingerprint: str
    diagnosis: Diagnosis


def incident(
    subject: Subject,
    catalog: Catalog,
    *,
    cause: str = "",
    culprits: Sequence[str] = (),
    fix: str = "",
    wrong: bool = False,
) -> Incident:
    """The incident of a job: its verdict was right, or `wrong`, or it was another `cause`.

    Raises InputError for what cannot be meant.
    """
    diagnosis = subject.diagnosis
    given = diagnosis.root_cause.cause
    if cause and cause not in catalog.classes:
        raise InputError(unknown("cause class", cause, catalog.classes))
    if not cause and not wrong and given == "unknown":
        raise InputError("the verdict is unknown: say with --cause CLASS what it was")
    ranks, hosts = named(culprits)
    found = diagnosis.culprits
    meant = not culprits or (
        (not ranks or ranks == sorted(found.ranks)) and (not hosts or hosts == sorted(found.hosts))
    )
    correct = not wrong and meant and cause in ("", given)
    if correct:
        ranks, hosts = ranks or list(found.ranks), hosts or list(found.hosts)
    return Incident(
        key=key_of(diagnosis),
        name=masked_line(subject.name, 120),
        fingerprint=subject.fingerprint,
        verdict=diagnosis.verdict,
        given=given,
        confidence=diagnosis.root_cause.confidence,
        cause=cause or (given if correct else ""),
        correct=correct,
        ranks=ranks,
        hosts=[masked_line(host, 253) for host in hosts],
        fix=masked_line(fix, MAX_TEXT),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        who=_who(),
    )


def named(culprits: Sequence[str]) -> tuple[list[int], list[str]]:
    """Ranks (3, 0-7) and hosts of texts, sorted. Raises InputError for what is neither."""
    ranks: set[int] = set()
    hosts: set[str] = set()
    for text in (part for given in culprits for part in given.split(",")):
        found = _RANKS.fullmatch(text)
        if found:
            first, last = int(found[1]), int(found[2] or found[1])
            if not first <= last < MOST_RANKS:
                raise InputError(f"--culprit {text}: ranks go up from 0, as in 0-7")
            ranks.update(range(first, last + 1))
        elif is_host(text):
            hosts.add(text)
        else:
            raise InputError(f"--culprit {text!r} is neither a rank (3, 0-7) nor a host")
    return sorted(ranks), sorted(hosts)


def _who() -> str:
    try:
        return masked_line(getpass.getuser(), 80)
    except (OSError, KeyError):  # a user without a name, as in a container
        return ""
