"""A stand-in for the engine, and a job to diagnose."""

from pathlib import Path

import pytest

from tests.cli.running import TRACEBACK, Engine


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine()
    monkeypatch.setattr("diagnose.job.load.read", engine.read)
    monkeypatch.setattr("diagnose.cli.job._tell_compiling", lambda _: None)
    # past the lazy attributes of the package
    monkeypatch.setattr("diagnose.infer.pipeline.diagnose", lambda job: job.diagnosis)
    return engine


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_bytes(TRACEBACK)
    (tmp_path / "logs" / "train.py").write_text("import torch\n")  # costs a note
    return tmp_path / "logs"
