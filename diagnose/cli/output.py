"""How commands talk: stdout for the answer, stderr for what stands beside it, files as a whole."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING

from diagnose.errors import InputError
from diagnose.runtime.command import width
from diagnose.runtime.files import write_text

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console


class Color(StrEnum):
    """When to use colour; `auto` means on a terminal, unless NO_COLOR is set."""

    auto = "auto"
    always = "always"
    never = "never"


def show(color: Color, draw: Callable[[Console], None]) -> None:
    """Let `draw` print to a console that knows the terminal, then write what it printed."""
    screen = console(color)
    with screen.capture() as capture:
        draw(screen)
    write(capture.get())


def console(color: Color) -> Console:
    """A console that knows the terminal."""
    from rich.console import Console  # slow to import

    return Console(
        width=width(),
        height=25,
        color_system={Color.auto: "auto", Color.always: "standard", Color.never: None}[color],
        force_terminal=True if color is Color.always else None,
        highlight=False,
        emoji=False,
        markup=False,
    )


def write(text: str, encoding: str | None = None) -> None:
    """Write to stdout. A reader who has seen enough and closed the pipe is no error."""
    if sys.stdout is None:
        raise InputError("standard output is closed")
    data = text.encode(encoding or sys.stdout.encoding or "utf-8", "replace")
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        # Python flushes stdout once more at exit; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise InputError(f"cannot write the output: {error.strerror}") from error


def save(target: Path, text: str, *lines: str) -> None:
    """Write a file as a whole; then say these lines, and that it is there."""
    write_text(target, text)
    for line in (*lines, f"wrote {clean(str(target))}"):
        say(line)


def say(message: str) -> None:
    """One line on stderr, beside the output proper."""
    print(message, file=sys.stderr, flush=True)


def note(text: str) -> None:
    """A remark on stderr, of whatever text."""
    say(f"note: {clean(text)}")


def reader_is_gone() -> bool:
    """Whether stdout is a pipe that nobody reads any more."""
    gone = select.poll()
    with suppress(OSError):
        gone.register(1, 0)
    return any(events & select.POLLERR for _, events in gone.poll(0))


def clean(text: str) -> str:
    """Names and text from logs may stand in messages: one line, nothing hostile, no secrets."""
    from diagnose.report import safe  # slow to import

    return safe.masked_line(text, 1000)
