"""The token that a server asks for."""

from __future__ import annotations

import os
from pathlib import Path

from diagnose.errors import InputError

_MOST = 4096  # bytes
_LEAST = 16  # characters


def token_of(file: Path) -> str:
    """The token in a file, which only its owner should read. Raises InputError."""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:  # noqa: PTH123
            token = opened.read(_MOST + 1).decode("ascii").strip()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: a token is plain ASCII") from error
    if len(token) < _LEAST or len(token) > _MOST or not token.isprintable():
        raise InputError(f"{file}: expected one line with a token of at least {_LEAST} characters")
    return token
