"""Settings that every framework has in a place of its own: timeouts, the size of /dev/shm.

`patterns/settings.yaml` has them, each with the page that documents it; a remedy names one, and a
job is shown the place of its own framework.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

from diagnose.catalog.schema import Run
from diagnose.lazy import expression

_STRICT = {"extra": "forbid"}
_ID = expression(r"[a-z]+(?:-[a-z]+)*\Z")
_REFERENCE = expression(r"https?://\S+\Z")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a framework has the setting, and the page that says so.

    One of framework `torch` is for what is built on it and has no place of its own, one of no
    framework for all others. Beside the framework `unless`, it is not the place: what FSDP saves is
    nothing to a job that runs on DeepSpeed. YAML writes all parts as one mapping.
    """

    __pydantic_config__ = _STRICT

    run: Run
    reference: str
    unless: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that jobs are told, and where each framework has it; `about` holds for all."""

    __pydantic_config__ = _STRICT

    id: str
    title: str
    about: str
    places: list[Place]


def setting_problems(setting: Setting, named: Set[str]) -> Iterator[str]:
    """What is wrong with a setting; `named` are those that remedies name."""
    if not _ID.match(setting.id):
        yield f"{setting.id}: ids of settings are words joined by hyphens"
    if setting.id not in named:
        yield f"{setting.id}: no remedy names this setting"
    seen: list[tuple[str, list[str]]] = []
    for place in setting.places:
        framework = place.run.framework
        if not _REFERENCE.match(place.reference):
            yield f"{setting.id}: {framework}: reference: {place.reference} is not a URL"
        if (framework, place.run.lines) in seen:
            yield f"{setting.id}: {framework}: is there twice"
        seen.append((framework, place.run.lines))
