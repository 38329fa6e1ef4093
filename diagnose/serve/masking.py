"""Text as it is kept: nothing hostile to a screen, and secrets and people masked.

Every line stays at its number, so that what a diagnosis says of line 48 is found there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from diagnose.ingest.source import TEXT_KINDS, Source
from diagnose.redact.redactor import Redactor
from diagnose.report.safe import MAX_RAW, clean

KEPT = 8 << 20  # bytes of all logs together that are kept
KEPT_EACH = 2 << 20  # of one log

_KEEP = re.compile(r"([\r\t])")  # of a progress bar, and of columns


def kept_text(text: str, redactor: Redactor | None) -> str:
    """`text` of any number of lines as it is kept; without `redactor` secrets stay."""
    plain = "\n".join(_clean(line) for line in text.split("\n"))
    return redactor.text(plain) if redactor else plain


def _clean(line: str) -> str:
    line = line.removesuffix("\r")
    if line.isprintable():
        return line[:MAX_RAW]
    parts = _KEEP.split(line)
    for at in range(0, len(parts), 2):
        part = parts[at]
        end = " " * (len(part) - len(part.rstrip(" ")) > 0 and at + 1 < len(parts))
        parts[at] = clean(part, limit=MAX_RAW, lines=True).replace("\n", " ") + end
    return "".join(parts)


def kept_logs(sources: Iterable[Source], redactor: Redactor | None) -> str:
    """The logs of a job one after the other, each below its name, as much as is kept of them."""
    blocks, left = [], KEPT
    for source in sources:
        if source.kind not in TEXT_KINDS:
            continue
        data, whole = _head(source, min(left, KEPT_EACH))
        left -= len(data)
        text = data.decode(errors="replace").removesuffix("\n")
        more = "" if whole else "\n[the rest of this log is not kept]"
        blocks.append(f"==> {source.name} <==\n{text}{more}\n")
        if left <= 0:
            blocks.append("[further logs are not kept]\n")
            break
    return kept_text("\n".join(blocks), redactor)


def _head(source: Source, limit: int) -> tuple[bytes, bool]:
    """The first lines of a log, `limit` bytes at most, and whether these are all."""
    have = b""
    for chunk in source.chunks():
        have += chunk.data
        if len(have) > limit:
            return have[:limit].rpartition(b"\n")[0], False
    return have, True
