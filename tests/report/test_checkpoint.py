"""The exact text. After a wanted change: UPDATE_EXPECTED=1 pytest tests/report."""

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from diagnose.checkpoint.model import Checkpoint, Inspection, Lost, State, resume
from diagnose.report import checkpoint as report
from diagnose.report.safe import masked_strings

EXPECTED = Path(__file__).parent / "expected"
CUT = "ends after 1,024 of 4,096 bytes: the save was cut off"


def at(step: int, state: State = "whole", *reasons: str, notes: tuple[str, ...] = ()) -> Checkpoint:
    return Checkpoint(
        f"/data/out/checkpoint-{step}", "HF Trainer", step, 8, state, list(reasons), 23,
        4_400_000_000, float(step), "transformers", list(notes),
    )  # fmt: skip


def inspection(*found: Checkpoint) -> Inspection:
    return Inspection(list(found), resume(found))


SEVERAL = inspection(
    at(100),
    at(200, notes=("best_model_checkpoint names checkpoint-50, which is gone",)),
    at(
        300, "partial", f"optimizer.pt: {CUT}", "trainer_state.json: missing: it is written last",
        *(f"rng_state_{rank}.pth: missing: 1 of 8 ranks wrote one" for rank in range(1, 8)),
    ),
)  # fmt: skip
SAMPLES = {
    "several": (SEVERAL, Lost(250, 50, 3.25)),
    "whole": (inspection(at(100)), None),
    "broken": (
        inspection(at(100, "corrupt", "a.pt: the header is damaged"), at(200, "unknown", "odd")),
        None,
    ),
    "hostile": (
        inspection(
            replace(
                at(1, "partial", "\x1b[2J[red]x\u202e: \x07gone"),
                path="/data/" + "very-long-name-" * 12 + "\x1b]0;owned\x07",
            )
        ),
        None,
    ),
    "none": (Inspection([]), None),
}


def rendered(name: str, width: int) -> str:
    found, lost = SAMPLES[name]
    stream = io.StringIO()
    report.render(found, Console(file=stream, width=width, color_system=None), lost)
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("name", SAMPLES)
def test_terminal(name: str, width: int) -> None:
    text = rendered(name, width)
    path = EXPECTED / f"checkpoint-{name}.{width}.txt"
    if os.environ.get("UPDATE_EXPECTED"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    how = found.resume.how if (found := SAMPLES[name][0]).resume else ""
    assert all(len(line) < width or line.strip() == how for line in text.splitlines())


def test_of_thousands_the_damaged_and_the_newest_are_shown() -> None:
    many = [at(step) for step in range(1, 3000)]
    many[4] = at(5, "partial", "cut")
    stream = io.StringIO()
    report.render(inspection(*many), Console(file=stream, width=100, color_system=None))
    text = stream.getvalue()
    assert "checkpoint-5 " in text
    assert "checkpoint-2999 " in text
    assert f"… and {2999 - report.MAX_ROWS} more" in text


def test_json_masks_secrets_and_has_the_keys_of_the_schema() -> None:
    secret = replace(at(1), path="https://user:geheim12345@host/out/checkpoint-1")
    text = masked_strings(inspection(secret)).to_json()
    assert "geheim12345" not in text
    assert (
        masked_strings(SEVERAL)
        .to_json()
        .startswith(
            '{\n  "schema": "diagnose-checkpoint/1",\n  "checkpoints": [\n    {\n'
            '      "path": "/data/out/checkpoint-100",\n      "layout": "HF Trainer",\n'
            '      "step": 100,\n      "state": "whole",\n      "reasons": [],\n'
            '      "files": 23,\n      "bytes": 4400000000\n    },'
        )
    )
