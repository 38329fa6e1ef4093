"""A host whose lease was lost is taken away from the job, whatever the ranks say then."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.infer.rules.base import Context, Hypothesis, Tier


def propose(context: Context) -> Iterator[Hypothesis]:
    for event in context.timeline:
        if event.signature == "acme.lease.lost":
            host = str(event.fields.get("host", ""))
            yield Hypothesis(
                cause="scheduler.preempted",
                tier=Tier.PROVEN,
                title="The lease of a host was lost",
                summary=f"Acme took {host} away from the job",
                rows=[event.index],
                hosts=[host],
                why="its lease was lost",
                sure=True,
            )
