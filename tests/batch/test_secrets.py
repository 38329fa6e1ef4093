"""The results of a scan, and what a fleet's reports show of them, hold no secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diagnose.batch.results import described, diagnoses
from diagnose.cli.main import run
from tests.batch.fleet import table

TOKENS = ["hf_" + "aB3dEf" * 6, "hf_" + "Zy9xWv" * 6]
WORD = "Zq7kLmN2pRsTvWx"
LOG = (
    f"export SERVICE_PASSWORD={WORD}\nstep 1 loss 2.1\n"
    "2026-06-02 08:15:00 [rank0]: torch.OutOfMemoryError: CUDA out of memory. "
    f"with {WORD} and {TOKENS[0][:20]}\n"
)


def everything(folder: Path) -> str:
    """All of the results as text."""
    texts = [table(folder).to_csv(), json.dumps([described(folder), *diagnoses(folder)])]
    texts += [path.read_bytes().decode("latin-1") for path in folder.iterdir() if path.is_file()]
    return "\n".join(texts)


@pytest.mark.slow
def test_tables_diagnoses_and_manifest(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Jobs whose names differ only in a secret stay two, also when the scan is resumed."""
    for token in TOKENS:
        folder = tmp_path / TOKENS[1] / f"run-{token}"
        folder.mkdir(parents=True)
        (folder / "rank_0.log").write_text(LOG)
    jobs, results = tmp_path / TOKENS[1], tmp_path / "R"
    arguments = ["scan", str(jobs), "-o", str(results), "--workers", "1"]
    label = ["--label", r"/run-(?P<team>[^/]+)$"]
    assert run([*arguments, *label]) == 0
    page = tmp_path / "fleet.html"
    shown = [*capfd.readouterr(), everything(results)]
    for command in (
        ["--html", str(page)],
        ["--format", "json", "--by", "team"],
        ["--format", "csv", "--by", "team"],
        ["--by", "team"],
    ):
        assert run(["fleet", str(results), *command]) == 0
        shown += capfd.readouterr()
    text = "\n".join([*shown, page.read_text()])
    for secret in (*TOKENS, WORD):
        for at in range(len(secret) - 11):
            assert secret[at : at + 12] not in text
    rows = table(results)
    assert sorted(rows["job"]) == ["run-[masked]", "run-[masked]"]
    assert rows["source"].nunique() == 2
    assert set(rows["class"]) == {"crash.gpu_oom"}
    assert described(results)["archives"] == [f"{tmp_path}/[masked]"]
    assert run([*arguments, *label, "--resume"]) == 0
    assert "2 unchanged" in capfd.readouterr().err
    assert len(table(results)) == 2
