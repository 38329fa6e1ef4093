"""Where the post-mortem of a job lies in the results folder."""

from __future__ import annotations

import hashlib
import re

FOLDER = "reports"
_NAME = 60  # characters of a source's name that its page is called by
_MARK = re.compile(r"-([0-9a-f]{16})\.html\Z")


def page_of(source: str) -> str:
    """The path of the page of a job, relative to the results.

    Its end tells apart jobs of one name, and names that a file system takes for one.
    """
    name = source.rstrip("/").rpartition("/")[2]
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:_NAME].strip("._-")
    return f"{FOLDER}/{name or 'job'}-{mark(source)}.html"


def mark(source: str) -> str:
    """What stands for a source in the name of its page."""
    return hashlib.blake2b(source.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def marked(name: str) -> str | None:
    """The mark in the name of a page; None if it is none."""
    found = _MARK.search(name)
    return found[1] if found else None
