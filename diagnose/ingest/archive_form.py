"""Whether bytes are an archive, told by their start."""

from __future__ import annotations

import re
from typing import Literal

from diagnose.ingest.archive_feeds import StreamFeed
from diagnose.ingest.archive_tar import BLOCK, is_tar
from diagnose.ingest.archive_zip import is_zip
from diagnose.ingest.compress import Codec, codec_of, decompress
from diagnose.ingest.raw import Store

Form = Literal["tar", "zip"]

_TAR_SUFFIX = re.compile(
    r"\.(?:tar|tar\.(?:gz|bz2|xz|zst|Z)|tgz|taz|tbz2?|tb2|txz|tzst)\Z", re.IGNORECASE
)


def archive_form(store: Store, name: str) -> Form | None:
    """Whether a store is an archive, by its content. Raises OSError.

    The name decides only where an archive is so damaged that its content does not tell.
    """
    with store.open() as reader:
        head = reader.read_at(0, BLOCK)
        codec = codec_of(head)
        if codec is not None:
            head = StreamFeed(decompress(reader, codec, _no_note)).peek(BLOCK)
        return form_of(head, codec, name)


def form_of(head: bytes, codec: Codec | None, name: str) -> Form | None:
    """The form of an archive that starts with `head`, after decompression if there is a codec."""
    if codec is None and is_zip(head):
        return None if b"/data.pkl" in head[:300] or b"/.format_version" in head[:300] else "zip"
    if is_tar(head) or (len(head) == BLOCK and head[257:262] == b"ustar"):
        return "tar"
    # An archive of nothing, or cut within its first header.
    is_rest = not head.strip(b"\0") or (len(head) < BLOCK and b"\0" in head)
    return "tar" if head and is_rest and _TAR_SUFFIX.search(name) else None


def _no_note(_: str) -> None:
    """Notes come when the bytes are read in earnest."""
