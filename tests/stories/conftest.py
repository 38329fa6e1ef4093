"""Timelines made by hand."""

from __future__ import annotations

from tests.infer.conftest import make

__all__ = ["make"]
