"""Readers of documents: what takes a dump, a report or stacks as a whole and tells what it holds.

A new kind of document is a reader here and a line in `ingest.sniff`, which tells the kind. Other
packages add theirs by entry points of the group `diagnose.readers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from diagnose import plugins
from diagnose.artifacts import Artifacts
from diagnose.ingest.sniff import HEAD
from diagnose.ingest.source import Source
from diagnose.parse.detectors import kind_of, read_report
from diagnose.parse.flight_recorder import read_dump
from diagnose.parse.inspector import read_inspector
from diagnose.parse.probes import read_probe
from diagnose.parse.ras import (
    RasReport,
    joined,
    read_ras,
    seconds_of,
    signs_of_death,
    signs_of_errors,
    signs_of_lateness,
)
from diagnose.parse.recorders import read_recorder
from diagnose.parse.stacks import read_stacks

Read = Callable[[Source], Artifacts]


def _flight_recorder(source: Source) -> Artifacts:
    dump = read_dump(source.content(), source.name)
    unread = [f"{source.name}: truncated dump"] if dump.partial else []
    return Artifacts(dumps=[dump], unread=unread)


def _ras(source: Source) -> Artifacts:
    found = Artifacts(reports=[(source.name, read_ras(source.content(), source.name))])
    if kind_of(source.content()[:HEAD]):  # events of monitor mode, in JSON
        found.add(_detector(source))
    return found


def weighed(reports: Iterable[tuple[str, RasReport]]) -> Artifacts:
    """What RAS reports come to, those of one job together."""
    found = Artifacts()
    for name, report in joined(reports):
        found.ras += report.ranks
        found.passing |= report.moving is None
        found.halted |= report.moving is False
        if report.moving is None and report.communicators:
            found.glances.append(seconds_of(report.timestamp))
        for signs in (signs_of_errors, signs_of_death, signs_of_lateness):
            found.signs += signs(report, name)
        found.notes += [f"{name}: {note}" for note in report.notes]
    return found


def _inspector(source: Source) -> Artifacts:
    pieces = (chunk.data for chunk in source.chunks())
    return Artifacts(inspector=read_inspector(pieces, source.name), passing=True)


def _stacks(source: Source) -> Artifacts:
    return Artifacts(stacks=read_stacks(source.content(), source.name))


def _probe(source: Source) -> Artifacts:
    probed = read_probe(source.content(), source.name)
    notes = [f"collect: {note}" for note in probed.notes]
    return Artifacts(
        looks=probed.looks, silent_mounts=probed.silent_mounts, signs=probed.signs, notes=notes
    )


def _detector(source: Source) -> Artifacts:
    report = read_report(source.content(), source.name, source.host)
    calm = [f"{source.name}: {report.tool} reports nothing wrong"] if report.calm else []
    return Artifacts(claims=report.claims, concluded=report.concludes, notes=calm)


def _recorder(source: Source) -> Artifacts:
    return Artifacts(inspector=read_recorder(source.content(), source.name), passing=True)


READERS: Mapping[str, Read] = {
    "fr_dump": _flight_recorder,
    "ras": _ras,
    "inspector": _inspector,
    "stacks": _stacks,
    "probe": _probe,
    "detector": _detector,
    "recorder": _recorder,
}


def reader_of(kind: str) -> Read:
    """What reads sources of a kind; our own readers come first."""
    own = READERS.get(kind)
    if own is not None:
        return own
    read: Read = plugins.loaded(plugins.READERS).found[kind].read
    return read
