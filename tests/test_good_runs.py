"""What projects print in good runs though it looks bad: no cause may match it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from diagnose.ingest import text_source
from diagnose.job.load import read

LINES = [
    pytest.param(line, id=f"{project}-{number}")
    for project, lines in yaml.safe_load(
        (Path(__file__).parent / "good_runs.yaml").read_text(encoding="utf-8")
    ).items()
    for number, line in enumerate(lines)
]


@pytest.mark.parametrize("line", LINES)
def test_no_cause_matches_it(line: str) -> None:
    frame = read([text_source(f"the run begins\n{line}\nand goes on\n")]).timeline
    causes = frame.loc[(frame["role"] == "cause").fillna(False), "signature"]
    assert causes.to_list() == []
