"""Events that a document tells and no line of a log: a dump, a report, a stack."""

from __future__ import annotations

from diagnose.timeline.draft import Draft
from diagnose.timeline.event import NO_WORK, Meaning, Work
from diagnose.timeline.learned import Learned

# What they tell: operations of the table of collectives, and where a rank's stack is.
PENDING, IDLE, STANDS = "pending", "idle", "stands"
DOCUMENT_TELLS = (PENDING, IDLE, STANDS)


def document(
    source: str,
    line: int,
    rank: int,
    text: str,
    meaning: Meaning,
    work: Work = NO_WORK,
    site: str | None = None,
) -> Draft:
    """The draft of such an event: its rank is the document's own, `site` a place in user code."""
    fields = {"site": site} if site else {}
    return Draft(
        source, line, 0, text, meaning, work, fields,
        rank=rank, learned=Learned.LINE, document=True,
    )  # fmt: skip
