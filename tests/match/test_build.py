"""Databases are compiled once; what cannot be used of what is kept is compiled anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from diagnose.catalog import stored
from diagnose.catalog.schema import Catalog, Signature
from diagnose.match import build
from diagnose.match.compile import compile_matcher, compiled_before, databases_of
from diagnose.match.rows import DATABASES, name_of

LOST = Signature("a.b.c", "t", "cause", [r"the licence (?P<name>\w+) is lost"], cause="env.config")
STEP = Signature("a.b.d", "t", "progress", [r"step \d+ of"], per_step=True)
LINE = b"the licence x is lost\nstep 3 of 4\n"
_PLATFORM = slice(12, 20)  # of a serialized database


def catalog() -> Catalog:
    """The same catalog, as another process would have it."""
    return Catalog([LOST, STEP], [], {}, "0123")


@pytest.fixture(autouse=True)
def compiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mock:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = Mock(wraps=build.compile_all)
    monkeypatch.setattr(build, "compile_all", found)
    return found


def finds() -> bool:
    """Whether another process finds the line."""
    return [number for number, _ in compile_matcher(catalog()).scan(LINE).patterns] == [0]


def damaged(sections: dict[str, bytes]) -> dict[str, bytes]:
    return sections | {"marks": sections["marks"][:200] + b"\1" + sections["marks"][201:]}


def foreign(sections: dict[str, bytes]) -> dict[str, bytes]:
    other = bytearray(sections["marks"])
    other[_PLATFORM] = bytes(8)
    return sections | {"marks": bytes(other)}


def incomplete(sections: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in sections.items() if name != "marks"}


def test_a_catalog_is_compiled_once(compiling: Mock) -> None:
    assert not compiled_before(catalog())
    assert finds()
    assert finds()
    assert compiling.call_count == 1
    assert compiled_before(catalog())


@pytest.mark.parametrize("changed", [damaged, foreign, incomplete])
def test_what_is_damaged_or_for_another_processor_is_compiled_anew(
    compiling: Mock, changed: Callable[[dict[str, bytes]], dict[str, bytes]]
) -> None:
    databases_of(catalog())
    (good,) = stored.find(name_of("0123"))
    sections = {name: good.section(name).tobytes() for name in (*DATABASES, "digits")}
    stored.keep(name_of("0123"), changed(sections))
    assert not compiled_before(catalog())
    assert finds()
    assert compiling.call_count == 2
    assert compiled_before(catalog())


def test_what_came_with_the_package_and_cannot_be_used_is_passed_over(
    compiling: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "PACKAGE", tmp_path)
    stored.write(tmp_path, name_of("0123"), {"marks": b"of another processor"})
    for _ in range(2):
        assert finds()
    assert compiling.call_count == 1
