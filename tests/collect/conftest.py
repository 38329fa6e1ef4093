from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.collect import proc
from diagnose.collect.bundle import Sink
from diagnose.redact.redactor import Redactor
from tests.collect.machines import Machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A made-up /proc that is the one that is looked at."""
    made = Machine(tmp_path / "proc")
    monkeypatch.setattr(proc, "PROC", made.root)
    return made


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path / "out", Redactor(people=False, numbers=False), 1 << 20)
