"""Rules of other packages: entry points of the group `diagnose.rules`."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose import plugins
from diagnose.infer.rules.base import Context, Hypothesis


def propose(context: Context) -> Iterator[Hypothesis]:
    """What these propose; one that raises, or names a class that is none, is left out."""
    rules = plugins.loaded(plugins.RULES)
    for name, rule in [*rules.found.items()]:
        try:
            found: list[Hypothesis] = [*rule(context)]
            for hypothesis in found:
                if hypothesis.cause not in context.catalog.classes:
                    raise ValueError(f"no cause class {hypothesis.cause}")
        except Exception as error:
            rules.drop(name, error)
        else:
            yield from found
