r"""Names of files as the results hold them, any name as UTF-8, and back; and of post-mortems.

Python keeps the bytes of a name that are no UTF-8 as half characters (surrogates), which no text in
SQLite, Parquet or JSON can hold. They are written as `\udcff`; so that no two names are stored
alike, the backslash of a name that looks like this already is written as `\x5c`.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

REPORTS = "reports"
_NAME = 60  # characters of a source's name that its page is called by
_HALF = re.compile(r"[\ud800-\udfff]")
_LOOKS_STORED = r"(?:x5c)*ud[89a-f][0-9a-f]{2}"
_STORE = re.compile(rf"{_HALF.pattern}|\\(?={_LOOKS_STORED})")
_RESTORE = re.compile(rf"\\u(d[89a-f][0-9a-f]{{2}})|\\x5c(?={_LOOKS_STORED})")


def stored(text: str) -> str:
    """A name, path or URL as it stands in the results."""
    return _STORE.sub(lambda m: r"\x5c" if m[0] == "\\" else f"\\u{ord(m[0]):04x}", text)


def restored(text: str) -> str:
    """The name that was stored so."""
    return _RESTORE.sub(lambda m: chr(int(m[1], 16)) if m[1] else "\\", text)


def shown(value: Any, *, within_json: bool = False) -> Any:
    """A value to be shown and not taken for a name again: every text in it is UTF-8.

    In a text that is JSON a backslash is written as two.
    """
    if isinstance(value, str):
        back = "\\\\" if within_json else "\\"
        return _HALF.sub(lambda m: f"{back}u{ord(m[0]):04x}", value)
    if isinstance(value, dict):
        return {shown(key): shown(item) for key, item in value.items()}
    return [shown(item) for item in value] if isinstance(value, list) else value


def page_of(source: str) -> str:
    """The path of the page of a job, relative to the results.

    Its end tells apart jobs of one name, and names that a file system takes for one.
    """
    name = source.rstrip("/").rpartition("/")[2]
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:_NAME].strip("._-")
    mark = hashlib.blake2b(source.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return f"{REPORTS}/{name or 'job'}-{mark}.html"
