"""The rules for cause classes: what the engine assumes of one must not contradict another."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterator

from diagnose.catalog.schema import Catalog


def class_problems(catalog: Catalog, ids: Collection[str]) -> Iterator[str]:
    """What is wrong with the cause classes; `ids` are those of the other entries."""
    names = {*ids, *catalog.classes}
    owned: dict[str, dict[str, str]] = {"busy": {}, "held": {}, "shown_by": {}}
    for cause in catalog.classes.values():
        if not cause.remedies and cause.id not in ("none", "unknown"):
            yield f"{cause.id}: a cause class needs remedies"
        for pattern in cause.explains:
            if not fnmatch.filter(names, pattern):
                yield f"{cause.id}: explains: {pattern} names no entry and no class"
        if len(set(cause.explains)) < len(cause.explains):
            yield f"{cause.id}: explains: something is there twice"
        if cause.phase and cause.usual_phase:
            yield f"{cause.id}: usual_phase: never used, as the class has a phase"
        if cause.moving and cause.longer_timeout != "yes":
            yield f"{cause.id}: moving: only says when longer_timeout: yes holds"
        for name, owners in owned.items():
            for one in getattr(cause, name):
                if one in owners:
                    yield f"{cause.id}: {name}: {one} is already that of {owners[one]}"
                owners.setdefault(one, cause.id)
