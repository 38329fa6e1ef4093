"""What of a diagnosis is compared with others: its verdict, its story, the templates of its lines.

A feature is kept as a number that is made of its text: the file of a memory holds no line of a log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from diagnose.diagnosis import Diagnosis
from diagnose.fingerprint import normalised
from diagnose.redact.redactor import mask

MAX_LINES = 24  # of the evidence, and of the sequence of events
MAX_FRAMES = 12
MAX_FEATURES = 96


def features(diagnosis: Diagnosis) -> list[int]:
    """The features of a diagnosis, each once: positive numbers of 63 bits."""
    found = {_number(text): None for text in _texts(diagnosis)}
    return [*found][:MAX_FEATURES]


def _texts(diagnosis: Diagnosis) -> Iterator[str]:
    root, stopped, raised = diagnosis.root_cause, diagnosis.collective, diagnosis.exception
    hosts = {*diagnosis.job.hosts, *diagnosis.culprits.hosts}
    yield f"verdict {diagnosis.verdict}"
    yield f"class {root.cause}"
    for kind, value in (
        ("signature", root.signature),
        ("phase", diagnosis.phase),
        ("culprits", diagnosis.culprits.kind),
        ("operation", stopped and stopped.op),
        ("site", stopped and stopped.site and _base(stopped.site)),
        ("exception", raised and raised.type),
        ("title", normalised(mask(root.title), hosts)),
    ):
        if value:
            yield f"{kind} {value}"
    for frame in raised.frames[-MAX_FRAMES:] if raised else ():
        yield f"frame {_base(frame.file)} {frame.function}"
    if raised and raised.message:
        yield f"message {normalised(mask(raised.message), hosts)}"
    job = diagnosis.job
    yield from (f"framework {name}" for name in job.frameworks)
    yield from (f"version {name} {number}" for name, number in job.versions.items())
    if job.world_size:
        yield f"ranks {job.world_size}"
    for one in diagnosis.evidence[:MAX_LINES]:
        yield _line(one.text, hosts)
    for link in diagnosis.causal_chain[:MAX_LINES]:
        yield f"event {normalised(mask(link.event), hosts)}"


def of_line(text: str, hosts: Iterable[str]) -> int:
    """The feature of a line of evidence."""
    return _number(_line(text, hosts))


def _line(text: str, hosts: Iterable[str]) -> str:
    return f"line {normalised(mask(text), hosts)}"


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _number(text: str) -> int:
    data = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(data, "big") >> 1
