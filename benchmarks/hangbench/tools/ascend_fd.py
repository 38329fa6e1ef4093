"""Adapter placeholder."""

from __future__ import annotations

from pathlib import Path

from benchmarks.hangbench.commands import Commands
from benchmarks.hangbench.tools import Found, installed


def version(environment: Path) -> str | None:
    return installed(environment, "ascend-faultdiag")


def answer(case: Path, commands: Commands) -> Found:
    return Found()
