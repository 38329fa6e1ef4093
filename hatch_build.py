"""Compiles the catalog when the package is built, so that no start has to.

An editable installation has it in the checkout, in which it is used as long as nothing that it
depends on changes.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED = "diagnose/compiled"


class CompiledCatalog(BuildHookInterface):  # type: ignore[type-arg]
    """The hook; hatchling finds it as the only one here."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile into the checkout, or into a folder that becomes part of the wheel."""
        sys.path.insert(0, self.root)
        from diagnose.match.build import build  # noqa: PLC0415  it is there only now

        if version == "editable":
            self._folder = Path(self.root, COMPILED)
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir()
        else:
            self._folder = Path(tempfile.mkdtemp())
            build_data["force_include"][str(self._folder)] = COMPILED
        build(self._folder)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what is in the wheel now."""
        if version != "editable":
            shutil.rmtree(self._folder)
