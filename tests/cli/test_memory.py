"""The commands `confirm` and `act`, from their arguments to what they print."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from diagnose.cli import main as cli
from tests.cli.running import ROOT, shell, triage

XID = ROOT / "fixtures" / "megatron-xid79"
FREEZE = ROOT / "fixtures" / "axolotl-kto-freeze"


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DIAGNOSE_MEMORY", str(tmp_path / "memory.sqlite"))
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path / "memory.sqlite"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, list[str]]:
    status = cli.run([*map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, [line for line in err.splitlines() if not line.startswith("note: ")]


def test_what_was_confirmed_is_in_the_first_block(
    capsys: pytest.CaptureFixture[str], memory: Path
) -> None:
    status, out, _ = run(capsys, "confirm", XID, "--fix", "replaced the GPU")
    assert status == 0
    assert out == f"megatron-xid79: hw.gpu (the verdict was right)\n{memory} has 1 incident\n"
    _, out, _ = run(capsys, "triage", XID)
    block = out.split("\n\n")[1]
    assert "seen before megatron-xid79 (20" in block
    assert "this job: hw.gpu, rank 11 on gpu08." in block
    assert "Fix: replaced the GPU." in block
    _, _, found = triage(capsys, XID)
    assert [one["likeness"] for one in found["earlier"]] == ["job"]
    page = memory.with_name("page.html")
    run(capsys, "report", XID, "-o", page)
    assert "Fix: replaced the GPU." in page.read_text()


def test_what_was_wrong(capsys: pytest.CaptureFixture[str], memory: Path) -> None:
    _, out, _ = run(capsys, "confirm", XID, "--cause", "net.fabric", "--culprit", "gpu07")
    assert out.startswith("megatron-xid79: net.fabric (the verdict, hw.gpu, was wrong)\n")
    _, out, _ = run(capsys, "confirm", XID, "--wrong", "--memory", memory.parent)
    assert out.startswith("megatron-xid79: cause unknown (the verdict, hw.gpu, was wrong)\n")
    assert out.endswith(f"{memory} has 1 incident\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["confirm", "/no/such"], "diagnose: no log to read: /no/such: no such file or directory"),
        (["confirm", XID, "--cause", "x"], "diagnose: unknown cause class 'x'"),
        (["confirm", XID, "--culprit", "a b"],
         "diagnose: --culprit 'a b' is neither a rank (3, 0-7) nor a host"),
        (["confirm", "7", "--results", "/no/such"], "diagnose: /no/such/diagnose.sqlite does not"),
        (["act", XID, "--apply"], "diagnose: --apply needs --form slurm or kubernetes"),
        (["act", XID, "--form", "x"], "diagnose: Invalid value for '--form'"),
        (["act", XID, "--days", "0"], "diagnose: Invalid value for '--days'"),
        (["act", ""], "diagnose: Invalid value for 'JOB': the path is empty"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[object], line: str, memory: Path
) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out, len(err)) == (2, "", 1)
    assert err[0].startswith(line)
    assert not memory.exists()


@pytest.mark.slow
def test_jobs_of_a_scan(capsys: pytest.CaptureFixture[str], memory: Path) -> None:
    results = memory.with_name("results")
    run(capsys, "scan", XID, FREEZE, "-o", results, "--workers", 1)
    _, out, _ = run(capsys, "act", "megatron-xid79", "--results", results, "--form", "exclude")
    assert out == "--exclude=gpu08\n"
    _, out, _ = run(capsys, "confirm", "megatron-xid79", "--results", results, "--fix", "new GPU")
    assert out.startswith("megatron-xid79: hw.gpu (the verdict was right)")
    _, _, found = triage(capsys, XID)  # the same job, read from its files
    assert [(one["likeness"], one["fix"]) for one in found["earlier"]] == [("job", "new GPU")]
    status, _, err = run(capsys, "act", "nope", "--results", results)
    assert (status, err) == (
        2, [f"diagnose: {results} has no job nope: diagnose fleet {results} --jobs lists them"]
    )  # fmt: skip
    status, out, _ = run(capsys, "act", results)
    assert (status, out) == (0, "")  # one job makes no suspect


def test_act_prints_and_asks(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "act", XID)
    assert status == 0
    first, reason, where, until = out.splitlines()
    assert first == "Drain gpu08"
    assert reason == "  hw.gpu: A GPU fell off the bus (Xid 79) (high confidence)"
    assert where.startswith("  where: journal/gpu08.txt:4, ")
    assert until.endswith("; fingerprint c6c239b757a05147")
    assert max(map(len, out.splitlines())) <= 80
    status, out, err = run(capsys, "act", FREEZE, "--form", "slurm", "--apply", "--yes")
    assert (status, out) == (0, "")
    assert err == ["nothing to run: no decision that changes a node"]
    done = shell("</dev/null", "act", XID, "--form", "slurm", "--apply")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "diagnose: --apply asks on a terminal; in a script add --yes"
    )


def test_nothing_to_decide_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    healthy = ROOT / "fixtures" / "gpu-healthy-ddp"
    assert cli.run(["act", str(healthy), "--form", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"schema": "diagnose-action/1", "actions": []}
    assert "note: no decision: nothing went wrong\n" in err


def test_a_form_without_a_node_says_what_is_decided(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["act", str(ROOT / "fixtures" / "deepspeed-nfs-stall"), "--form", "slurm"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "no node to act on for slurm: the decision is retry (--form text)" in err


def test_records_are_taken_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, record, _ = run(capsys, "act", XID, "--form", "json")
    file = tmp_path / "record.json"
    file.write_text(record)
    _, out, _ = run(capsys, "act", file, "--form", "exclude")
    assert out == "--exclude=gpu08\n"
    run(capsys, "scan", FREEZE, "-o", tmp_path / "results", "--workers", 1)
    status, out, _ = run(capsys, "act", file, "--outcome", tmp_path / "results")
    assert (status, out) == (0, "Drain gpu08: open\n  no later job says anything of it\n")
    old = file.with_name("old.json")
    old.write_text(re.sub(r'"expires": "[^"]*"', '"expires": "2026-01-01T00:00:00Z"', record))
    for form in ("slurm", "json"):
        assert cli.run(["act", str(old), "--form", form]) == 0
        assert "gpu08" not in capsys.readouterr().out
    _, out, _ = run(capsys, "act", old, "--undo")
    assert out.startswith("Back in service: gpu08\n")
    status, _, err = run(capsys, "act", file, "--undo", "--form", "json")
    assert (status, err) == (
        2, ["diagnose: --undo needs another --form than json: a record says what to do"]
    )  # fmt: skip
    file.write_text("{}")
    status, _, err = run(capsys, "act", file)
    assert status == 2
    assert err[0].startswith("diagnose: no records of schema diagnose-action/1")


LOG = """\
2026-03-01 10:00:00 [rank0] starting training
2026-03-01 10:00:05 [rank0] step 1 loss 2.3
2026-03-01 10:00:06 [rank0] step 2 loss 2.2
2026-03-01 10:00:07 [rank0] acme ring agent: lease 4711 of /data/s/17 was revoked (key={secret})
2026-03-01 10:00:08 [rank0] acme ring agent: the pump is off
"""
SECRET = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.slow
def test_a_confirmed_job_drafts_its_signature(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job, own = tmp_path / "job", tmp_path / "own"
    job.mkdir()
    own.mkdir()
    (job / "train.log").write_text(LOG.format(secret=SECRET))
    new = ("catalog", "new", "acme.ring.revoked", "--from", job, "--patterns", own)
    status, _, err = run(capsys, *new)
    assert status == 2
    assert err == [
        f"diagnose: say with --class what it is, or before: diagnose confirm {job} --cause"
    ]
    run(capsys, "confirm", job, "--cause", "slow.storage", "--fix", "Raise the lease time")
    status, out, _ = run(capsys, *new, "--reference", "https://wiki.example.org/ring")
    assert status == 0
    assert out.splitlines()[-1].startswith("slow.storage\tacme\t2026-03-01 10:00:07 [rank0] acme")
    text = (own / "acme" / "ring.yaml").read_text()
    assert r"'acme ring agent: lease [\d.,]+ of \S+ was revoked" in text
    assert "do: 'Raise the lease time'" in text
    assert SECRET not in out + text
    status, out, _ = run(capsys, "catalog", "check", own)
    assert (status, out) == (0, "1 signature, 0 known issues, 0 cause classes: no problems\n")
    _, _, found = triage(capsys, job, "--patterns", own)
    assert found["root_cause"]["signature"] == "acme.ring.revoked"


def test_a_job_without_a_telling_line_drafts_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a.log").write_text("step 1 loss 2.3\nstep 2 loss 2.2\n")
    status, _, err = run(
        capsys, "catalog", "new", "acme.a.b", "--from", tmp_path / "a.log", "--class", "net.fabric",
        "--patterns", tmp_path,
    )  # fmt: skip
    assert status == 2
    assert err == [
        "diagnose: no line of this job says what went wrong that the catalog does not know"
    ]
    assert not (tmp_path / "acme").exists()
