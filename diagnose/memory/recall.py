"""The earlier incidents that a diagnosis resembles, and what the site's record says of it.

Alike are incidents with the same fingerprint, and those that share most of what is rare. A feature
weighs by how few incidents have it, and the similarity of two is the weight of what they share,
as a share of all that both have (Dice); the same fingerprint counts a little more.
Nothing here looks at the network or at logs.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import log
from pathlib import Path

from diagnose.catalog.schema import UNKNOWN
from diagnose.diagnosis import WELL, Diagnosis, Earlier, Likeness, Reason, plain
from diagnose.errors import InputError
from diagnose.fingerprint import fingerprint
from diagnose.memory.features import features
from diagnose.memory.site import level, record
from diagnose.memory.store import Incident, Memory, opened
from diagnose.redact.redactor import mask

MOST = 3  # earlier incidents that are shown
LEAST = 0.4  # similarity of those with another fingerprint
_OTHER = 0.7  # of it is left where the verdict is another class
_SAME = 0.1  # what the same fingerprint adds to it, for their order
_CLOSE = 200  # incidents that are looked at in full
_COMMON = 2000  # incidents; what more have finds none


def remembered(diagnosis: Diagnosis, path: Path) -> Diagnosis:
    """The diagnosis with what a memory knows of it; of a memory that cannot be read, a note."""
    if diagnosis.verdict in WELL:
        return diagnosis
    try:
        with opened(path) as memory:
            found = earlier(diagnosis, memory)
            rows = memory.record(key_of(diagnosis))
    except InputError as error:
        return replace(diagnosis, notes=[*diagnosis.notes, f"memory not read: {error}"])
    return _recorded(replace(diagnosis, earlier=found), rows)


def _recorded(diagnosis: Diagnosis, rows: Iterable[tuple[str, str, int, int]]) -> Diagnosis:
    """With the confidence that its record at this site is worth, and the reason."""
    root = diagnosis.root_cause
    if UNKNOWN in (diagnosis.verdict, root.cause):
        return diagnosis
    found = record(rows, root.cause, root.confidence)
    if found is None or not found.confirmed:
        return diagnosis
    now = level(found.share, root.confidence)
    which = f"of {root.cause} " if found.of_class else ""
    effect = "leaves" if now == root.confidence else "makes"
    why = (
        f"{found.correct} of {found.confirmed} verdicts {which}at {root.confidence} confidence "
        f"were right at this site, which {effect} it {now}"
    )
    reason = Reason("confidence", "reached", now, "site_record", why)
    reasons = [*diagnosis.reasons]  # behind the others of its step
    ends = [at for at, one in enumerate(reasons, 1) if one.step == reason.step]
    reasons.insert(ends[-1] if ends else 0, reason)
    changed = replace(root, confidence=now)
    return replace(diagnosis, root_cause=changed, site_record=found, reasons=reasons)


def key_of(diagnosis: Diagnosis) -> str:
    """What one job is known by, however often it is read: its facts, and where its lines are."""
    seen = [(one.source, one.line, mask(one.text)) for one in diagnosis.evidence]
    chain = [(one.time, one.source, one.line) for one in diagnosis.causal_chain]
    parts = diagnosis.onset.time, diagnosis.progress, diagnosis.job, seen, chain
    data = json.dumps(plain(list(parts)), sort_keys=True).encode(errors="replace")
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def earlier(diagnosis: Diagnosis, memory: Memory) -> list[Earlier]:
    """The most similar incidents, the most similar first; those with one cause and fix as one."""
    shared = similar(features(diagnosis), memory)
    mark, key = fingerprint(diagnosis), key_of(diagnosis)
    # Without a line or a signature a fingerprint says no more than the class.
    proper = bool(diagnosis.evidence or diagnosis.root_cause.signature)
    same = {*memory.of_fingerprint(mark, _CLOSE)} if proper else set[int]()
    incidents = memory.incidents(same | shared.keys())
    shared = {
        number: shared.get(number, LEAST) * _of_class(one, diagnosis.root_cause.cause)
        for number, one in incidents.items()
    }
    ranked = sorted(
        (item for item in incidents.items() if item[0] in same or shared[item[0]] >= LEAST),
        key=lambda item: (
            item[1].key == key,
            shared[item[0]] + _SAME * (item[0] in same),
            item[1].made,
        ),
        reverse=True,
    )
    alike: dict[tuple[str, ...], list[tuple[int, Incident]]] = defaultdict(list)
    for number, one in ranked:
        group = (one.key,) if one.key == key else (one.cause, one.fix or one.fingerprint)
        alike[group].append((number, one))
    found = []
    for several in [*alike.values()][:MOST]:
        number, one = several[0]
        likeness: Likeness = "fingerprint" if number in same else "similar"
        found.append(
            Earlier(
                job=one.name, confirmed=one.made, cause=one.cause, ranks=one.ranks, hosts=one.hosts,
                fix=one.fix, likeness="job" if one.key == key else likeness,
                similarity=round(min(shared[number], 1.0), 3), incidents=len(several),
            )
        )  # fmt: skip
    return found


def _of_class(incident: Incident, cause: str) -> float:
    """What another verdict leaves of a likeness: how a hang ends is alike whatever its cause is."""
    classes = (incident.given, incident.cause)
    return 1.0 if "unknown" in (cause, incident.given) or cause in classes else _OTHER


def similar(wanted: Sequence[int], memory: Memory) -> dict[int, float]:
    """The similarity of the incidents that share most of what is rare."""
    counts, total = memory.counts(wanted), memory.size()
    rare = [one for one in wanted if counts.get(one, 0) <= _COMMON]
    shared: dict[int, float] = defaultdict(float)
    for incident, feature in memory.having(rare):
        shared[incident] += _weight(counts[feature], total)
    close = sorted(shared, key=lambda one: (-shared[one], -one))[:_CLOSE]
    theirs: dict[int, set[int]] = defaultdict(set)
    for incident, feature in memory.features(close):
        theirs[incident].add(feature)
    counts |= memory.counts({one for some in theirs.values() for one in some} - counts.keys())
    weights = {one: _weight(counts.get(one, 0), total) for one in {*wanted, *counts}}
    mine, own = {*wanted}, sum(weights[one] for one in wanted)
    return {
        one: 2
        * sum(weights[f] for f in mine & theirs[one])
        / (own + sum(weights[f] for f in theirs[one]))
        for one in close
    }


def _weight(having: int, total: int) -> float:
    """What a feature weighs that so many of all incidents have."""
    return log((total + 2) / (having + 1))
