"""The first words of a source, where it says them again."""

from __future__ import annotations

import pytest

from diagnose.ingest.source import Chunk
from diagnose.match import cadence
from diagnose.match.cadence import beginnings
from diagnose.match.lines import first_lines
from diagnose.match.shapes import ShapeTable

BEGIN = "2026-01-04 17:18:{:02},389 - INFO - Iniciando processo de ajuste"


def found(*texts: str) -> list[tuple[int, int]]:
    """The lines of what is said again, and those before them."""
    chunks, line, offset = [], 1, 0
    for text in texts:
        chunks.append(Chunk(text.encode(), offset, line))
        line, offset = line + text.count("\n"), offset + len(text.encode())
    first, shapes = first_lines(chunks[0]), ShapeTable(lambda _: ())
    return [(two.before.line, two.line.line) for two in beginnings(chunks, first, shapes)]


def run(second: int, *lines: str) -> str:
    return "\n".join([BEGIN.format(second), *lines, ""])


def test_a_program_of_any_language_begins_again() -> None:
    first, other = run(4, "carregando dados", "fim"), run(50, "carregando dados")
    assert found(first + other + other) == [(1, 1), (3, 4), (5, 6)]
    # However the source is read.
    assert found(first, other, other) == [(1, 1), (4, 4), (6, 6)]


def test_the_same_rank_begins_again_as_another_process() -> None:
    line = "[rank{0}]: n1:{1}:{1} [{0}] NCCL INFO Bootstrap : Using eth0\n"
    runs = [line.format(rank, pid + rank) for pid in (40, 90) for rank in range(2)]
    assert [line for _, line in found("".join(runs))] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "text",
    [
        run(4, "carregando dados"),
        # A rule or a number is no beginning.
        "==========================\n1\n==========================\n1\n",
        # Each rank says them once.
        "".join(f"[rank{rank}]: carregando dados agora\n" for rank in range(4)),
        # The words are part of another line.
        run(4, "x: Iniciando processo de ajuste", "Iniciando processo de ajuste fino"),
        # What is said often is no beginning.
        run(4, "a") * 65,
    ],
)
def test_what_is_no_beginning(text: str) -> None:
    assert found(text) == []


def test_large_sources_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    text = run(4, "a") * 3
    monkeypatch.setattr(cadence, "LIMIT", len(text))
    assert len(found(text)) == 3
    assert found(text + "b") == []
