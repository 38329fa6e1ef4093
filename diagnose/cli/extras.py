"""What a command needs that is installed only on request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from diagnose.errors import InputError
from diagnose.extras import install


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around the imports of a command: where a package is missing, what to install.

    `name` is that of the extra and of the command. Raises InputError.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "diagnose":
            raise
        raise InputError(f"{name} needs {package}: {install(name)}") from error
