"""What is timed runs as people run it."""

from __future__ import annotations

import os


def keep_byte_code() -> None:
    """Let the processes that begin later keep what they compile of their source, as is usual."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
