"""The exact text of the reports. After a wanted change: UPDATE_EXPECTED=1 pytest tests/report."""

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from diagnose.report import markdown, terminal

from .samples import ALL

EXPECTED = Path(__file__).parent / "expected"


def compare(name: str, text: str) -> None:
    path = EXPECTED / name
    if os.environ.get("UPDATE_EXPECTED"):
        path.write_text(text, encoding="utf-8")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines()


def plain(name: str, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        terminal.render(ALL[name], console)
    return capture.get()


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("name", ALL)
def test_terminal(name: str, width: int) -> None:
    compare(f"{name}.{width}.txt", plain(name, width))


@pytest.mark.parametrize("name", ALL)
def test_markdown(name: str) -> None:
    compare(f"{name}.md", markdown.render(ALL[name]))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    copied = [line for step in ALL[name].remedies for run in step.run for line in run.lines]
    for line in plain(name, width).splitlines():
        assert len(line) < width or line.strip() in copied
        assert line == line.rstrip()


def test_the_verdict_and_the_first_step_fit_the_first_screen() -> None:
    screen = "\n".join(plain("hung", 80).splitlines()[:24])
    for wanted in ("HUNG", "high", "Rank 0", "2025-03-08 08:18:22", "preprocessing", "ALLREDUCE"):
        assert wanted in screen
    assert "1. Tokenise once" in screen
    assert "tokenized_path=/data/tokenized" in screen
