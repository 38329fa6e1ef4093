"""What a job that prints no failure shows all the same."""

from __future__ import annotations

from pathlib import Path

import diagnose
from tests.infer.rules.test_node_signs import MOVING, bundle
from tests.parse.test_ras_several import as_json


def test_busy_processes_are_not_at_work_where_no_counter_moves(tmp_path: Path) -> None:
    """Who waits for its GPU spins, as in a real job whose kernel never ended."""
    assert bundle(tmp_path, {}, samples=MOVING).verdict == "running"
    for number, second in enumerate((35, 45), 1):
        (tmp_path / f"ncclras-{number}.json").write_text(as_json(second, [17] * 4))
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert found.verdict != "running"
    (tmp_path / "ncclras-2.json").write_text(as_json(45, [18] * 4))
    assert diagnose.diagnose(diagnose.load(tmp_path)).verdict == "running"
