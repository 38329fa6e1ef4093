"""`--fail-on` and `--exit-code`: exit statuses that a script can rely on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnose.cli import main as cli
from diagnose.cli.job import Condition, conditions
from diagnose.diagnosis import Diagnosis, RootCause
from diagnose.errors import InputError
from tests.cli.running import ROOT, Engine, answer

HUNG = ROOT / "fixtures" / "torchrun-missing-rank"  # desync.missing_rank, medium
HEALTHY = ROOT / "fixtures" / "healthy-transformers"


def made(verdict: str, cause: str, confidence: str) -> Diagnosis:
    return Diagnosis(verdict, RootCause(cause, "", "", confidence))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ([], 0),
        (["--exit-code"], 1),
        (["--fail-on", "any"], 1),
        (["--fail-on", "hung"], 1),
        (["--fail-on", "failed"], 0),
        (["--fail-on", "failed", "--exit-code"], 1),
        (["--fail-on", "failed", "--fail-on", "desync"], 1),
        (["--fail-on", "failed, desync.missing_rank"], 1),
        (["--fail-on", "desync.mismatch"], 0),
        (["--fail-on", "desync:medium"], 1),
        (["--fail-on", "desync:high"], 0),
        (["--fail-on", "medium"], 1),
        (["--fail-on", "high"], 0),
        (["--fail-on", "unknown"], 0),
    ],
)
def test_the_status_of_a_hung_job(
    capsys: pytest.CaptureFixture[str], options: list[str], status: int
) -> None:
    assert cli.run(["triage", str(HUNG), *options]) == status
    assert capsys.readouterr().out.startswith("HUNG  ")


def test_a_job_that_ended_well_fails_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["any", "hung", "failed", "unknown", "net", "low"]
    assert cli.run(["triage", str(HEALTHY), "--fail-on", ",".join(options)]) == 0
    assert capsys.readouterr().out.startswith("HEALTHY")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("netw", "--fail-on netw: did you mean net"),
        ("hang", "did you mean"),
        ("", "choose any, hung, failed, unknown, a confidence, or a cause class"),
        ("any:", "behind the colon goes low, medium or high"),
        ("net:sure", "behind the colon goes low, medium or high"),
        ("unknown:high", "behind the colon goes low, medium or high"),
        ("none", "did you mean"),
    ],
)
def test_what_no_diagnosis_can_be_is_refused_before_anything_is_read(
    capsys: pytest.CaptureFixture[str], engine: Engine, text: str, says: str
) -> None:
    assert cli.run(["triage", "a.log", "--fail-on", text]) == 2
    out, err = capsys.readouterr()
    assert (out, engine.sources) == ("", [])
    assert says in err


def test_the_page_ends_alike(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.diagnosis = replace(answer(), verdict="unknown")
    assert cli.run(["triage", "a.log", "--fail-on", "unknown"]) == 1
    assert cli.run(["triage", "a.log", "--exit-code"]) == 0


def test_conditions() -> None:
    from diagnose.catalog.load import load_catalog

    catalog = load_catalog()
    assert conditions(["net:high,hung", "high"], catalog) == [
        Condition("net", "high"),
        Condition("hung"),
        Condition("any", "high"),
    ]
    assert all(conditions([name], catalog) for name in catalog.classes if name != "none")
    with pytest.raises(InputError):
        conditions(["net.fabric.x"], catalog)


@pytest.mark.parametrize(
    ("condition", "diagnosis", "holds"),
    [
        (Condition("net"), made("hung", "net.fabric", "low"), True),
        (Condition("net"), made("unknown", "net.fabric", "low"), False),  # a lead, no verdict
        (Condition("ne"), made("hung", "net.fabric", "low"), False),
        (Condition("net", "medium"), made("hung", "net.fabric", "low"), False),
        (Condition("any", "high"), made("failed", "net.fabric", "high"), True),
        (Condition("any"), made("running", "none", "medium"), False),
        (Condition("unknown"), made("unknown", "unknown", "low"), True),
    ],
)
def test_holds(condition: Condition, diagnosis: Diagnosis, holds: bool) -> None:
    assert condition.holds(diagnosis) is holds
