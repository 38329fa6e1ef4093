"""Counts what a piece of the program does: unlike its seconds, the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd

import diagnose

PACKAGE = str(Path(diagnose.__file__).parent)
FRAMES = tuple(
    str(Path(pd.__file__).parent / "core" / f"{name}.py")
    for name in ("frame", "series", "generic", "indexing")
)


@dataclass
class Count:
    """Instructions run in the package plus calls outside of it; of these, operations on frames."""

    work: int = 0
    frames: int = 0

    def during(self, run: Callable[[], object]) -> None:
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            run()
        finally:
            sys.settrace(before)

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_filename.startswith(PACKAGE):
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return self._instruction
        self.work += 1
        self.frames += frame.f_code.co_filename.startswith(FRAMES)
        return None

    def _instruction(self, frame: FrameType, event: str, arg: object) -> Any:
        self.work += event == "opcode"
        return self._instruction
