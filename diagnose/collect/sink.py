"""Where probes write: below one folder, masked, so much and no more."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from diagnose.collect import private
from diagnose.redact.redactor import Redactor
from diagnose.report.safe import clean

_LINE = 20_000  # characters of a line that are kept
_CUT = "[cut here: the probe's limit is reached]"


class Sink:
    """Files of one folder of the bundle.

    Secrets are masked before anything is written, those that `redactor` knows wherever they stand.
    Escape codes go: one inside a token hides it. At `limit` bytes a text is cut.
    """

    def __init__(self, folder: Path, redactor: Redactor, limit: int) -> None:
        self.folder = folder
        self.left = limit
        self.written = 0
        self._redactor = redactor

    def below(self, name: str) -> Sink:
        """A sink for a folder in this one, with what is left of the limit."""
        return Sink(self.folder / name, self._redactor, self.left)

    def masked(self, text: str) -> str:
        """`text`, of any number of lines, without secrets."""
        return self._redactor.text(self._cleaned(text))

    def secret(self, text: str) -> bool:
        """Whether anything of `text` would be masked."""
        cleaned = self._cleaned(text)
        return self._redactor.text(cleaned) != cleaned

    def _cleaned(self, text: str) -> str:
        return clean(text, limit=max(_LINE, self.left), lines=True)

    def one_line(self, text: str, limit: int = 300) -> str:
        """A masked text for a message."""
        shown = " ".join(self.masked(text[: 8 * limit]).split())
        return shown if len(shown) <= limit else shown[: limit - 1] + "…"

    def text(self, name: str, text: str) -> None:
        """Write a text. Raises OSError."""
        room = max(0, self.left - len(_CUT) - 2)
        # Whole lines: half a secret may not look like one any more.
        kept = text if len(text) <= room else text[: text.rfind("\n", 0, room) + 1]
        data = self.masked(kept).encode("utf-8", "replace")
        if len(data) > room:
            data = data[: data.rfind(b"\n", 0, room) + 1]
        data = data.rstrip(b"\n") + b"\n"
        if data.count(b"\n") < text.rstrip("\n").count("\n") + 1:
            data += f"{_CUT}\n".encode()
        self.data(name, data)

    def json(self, name: str, value: Any) -> None:
        """Write a document. Raises OSError, ValueError where it is over the limit."""
        text = json.dumps(self.tree(value), indent=1, ensure_ascii=False)
        data = text.encode("utf-8", "replace")
        if len(data) > self.left:
            raise ValueError(f"{name} would have {len(data)} bytes, over the limit")
        self.data(name, data + b"\n")

    def tree(self, value: Any) -> Any:
        """A copy of a document whose strings are masked."""
        if isinstance(value, str):
            return self.masked(value)
        if isinstance(value, dict):
            return {self.masked(str(key)): self.tree(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(item) for item in value]
        return value

    def data(self, name: str, data: bytes) -> None:
        """Write bytes that hold no secret: the whole file or none. Raises OSError."""
        private.folder(self.folder)
        path = self.folder / name
        try:
            fd = private.opened(path, os.O_TRUNC)
            try:
                private.pour(fd, data)
            finally:
                os.close(fd)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, name) from error
        self.left -= len(data)
        self.written += len(data)
