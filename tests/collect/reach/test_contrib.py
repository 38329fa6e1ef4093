"""The examples of contrib/collect do what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.collect.reach.running import ask, ranks, until

CONTRIB = Path(__file__).parents[3] / "contrib" / "collect"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """PATH with a `diagnose` that is quick, and writes archives that this test can read."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "diagnose"
    script.write_text(
        "#!/bin/sh\n"
        'for word; do set -- "$@" "$(echo "$word" | sed s/zst$/gz/)"; shift; done\n'
        f'exec {sys.executable} -m diagnose "$@" --seconds=0.2\n'
    )
    script.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def manifest(archive: Path) -> dict[str, list[dict[str, list[dict[str, object]]]]]:
    with tarfile.open(archive) as opened:
        name = archive.name.removesuffix(".tar.gz")
        found = json.load(opened.extractfile(f"{name}/manifest.json"))  # type: ignore[arg-type]
    assert isinstance(found, dict)
    return found


@pytest.mark.cluster
def test_a_slurm_job_collects_when_it_is_asked_to(
    slurm: dict[str, str],
    path: str,
    tmp_path: Path,
) -> None:
    """By the signal that Slurm sends before the time limit; then the job goes on, and ends."""
    flag = tmp_path / "go"
    work = (
        f"import os, time\nwhile not os.path.exists({str(flag)!r}):\n    time.sleep(0.1)\n"
        "raise SystemExit(7)"
    )
    environment = {**slurm, "PATH": path}
    number = ask(
        environment, "sbatch", "--parsable", "-N2", "-n2", f"--chdir={tmp_path}",
        f"--output={tmp_path}/out", str(CONTRIB / "slurm-job.sh"), sys.executable, "-c", work,
    ).strip()  # fmt: skip
    assert number.isdecimal()
    until(lambda: ".0" in ask(slurm, "squeue", "-h", "-s", "-j", number, "-o", "%i"), "it runs")
    ask(slurm, "scancel", "--batch", "--signal=USR1", number)
    bundle = tmp_path / f"diagnose-{number}.tar.gz"
    until(bundle.exists, "the bundle is there")
    assert len(manifest(bundle)["nodes"]) == 2
    flag.touch()
    until(lambda: not ask(slurm, "squeue", "-h", "-j", number), "the job has ended")
    said = ask(slurm, "scontrol", "show", "job", number)
    assert "ExitCode=7:0" in said, (tmp_path / "out").read_text() + said


@pytest.mark.slow
def test_what_holds_a_job_that_does_not_end(path: str, tmp_path: Path) -> None:
    """Slurm itself would run it only for a process that SIGKILL does not end."""
    folder = tmp_path / "kept"
    environment = {
        **os.environ, "PATH": path, "DIAGNOSE_FOLDER": str(folder), "SLURMD_NODENAME": "n1",
        "SLURM_JOB_ID": "of-the-unkillable-test",
    }  # fmt: skip
    with ranks("of-the-unkillable-test", 2, tmp_path):
        subprocess.run(
            [CONTRIB / "slurm-unkillable.sh"], env=environment, check=True, timeout=60,
            capture_output=True,
        )  # fmt: skip
    (archive,) = folder.iterdir()
    assert archive.name == "of-the-unkillable-test-n1.tar.gz"
    (node,) = manifest(archive)["nodes"]
    assert [one["rank"] for one in node["processes"] if one["role"] == "rank"] == [0, 1]


def test_the_role_allows_what_is_needed_and_no_more() -> None:
    """Only its form can be tested: there is no Kubernetes here."""
    role = yaml.safe_load((CONTRIB / "kubernetes-role.yaml").read_text(encoding="utf-8"))
    assert (role["kind"], role["metadata"]["name"]) == ("Role", "diagnose")
    allowed = {
        (what, verb)
        for rule in role["rules"]
        for what in rule["resources"]
        for verb in rule["verbs"]
    }
    assert allowed == {
        ("pods", "get"), ("pods", "list"), ("pods/exec", "create"), ("pods/exec", "get")
    }  # fmt: skip
