"""`collect --kubernetes` against a stand-in for kubectl, since there is no cluster here.

It answers `get pods` with a list in the form of a real one, and runs on this machine what
`exec` is given, with nothing in PATH but a shell: as in an image that keeps its Python elsewhere.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.collect.reach.running import COMMAND, ranks

KUBECTL = """\
#!/bin/sh
echo "$*" >> {folder}/calls
case "$*" in
  *" get pods "*) exec cat {folder}/pods.json ;;
  *" exec --stdin llm-2 "*)
    echo 'error: unable to upgrade connection: container not found ("main")' >&2; exit 1 ;;
  *" exec --stdin llm-3 "*) path={folder}/bare ;;
  *" exec --stdin "*) path={folder}/pod ;;
  *) echo "unknown command $*" >&2; exit 1 ;;
esac
while [ "$1" != -- ]; do shift; done
shift
find=$3
shift 5 # sh -c SCRIPT sh PYTHON, and no Python is at that path in an image
set -- sh -c "$find" sh /nowhere/bin/python "$@"
env -i PATH="$path" HOSTNAME=llm "$@" && exit
status=$?
echo "command terminated with exit code $status" >&2
exit $status
"""


def pod(name: str, phase: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "train", "labels": {"job-name": "llm"}},
        "spec": {
            "containers": [{"name": "main", "image": "pytorch"}, {"name": "istio-proxy"}],
            "nodeName": "gke-1",
        },
        "status": {"phase": phase, "podIP": "10.0.0.7"},
    }


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "site"
    for name, tools in (("pod", ("sh", "readlink")), ("bare", ("sh",))):
        (folder / name).mkdir(parents=True)
        for tool in tools:
            place = shutil.which(tool)
            assert place
            (folder / name / tool).symlink_to(place)
    phases = ("Running", "Failed", "Running", "Running")
    pods = [pod(f"llm-{number}", phase) for number, phase in enumerate(phases)]
    (folder / "pods.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
    )
    kubectl = folder / "kubectl"
    kubectl.write_text(KUBECTL.format(folder=folder))
    kubectl.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.slow
def test_every_pod_is_collected_and_others_are_a_line_each(
    environment: dict[str, str], tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle"
    with ranks("of-the-pod-test", 2, tmp_path):
        done = subprocess.run(
            [*COMMAND, "--kubernetes", "job-name=llm", "-n", "train", "--context", "prod",
             "--seconds=0.2", "--job=of-the-pod-test", "-o", str(bundle)],
            env=environment, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest["via"] == "kubernetes"
    assert manifest["problems"] == [
        "pod llm-1 is failed: not reached",
        'llm-2: error: unable to upgrade connection: container not found ("main")',
        "llm-3: no Python 3.10 or newer was found there",
    ]
    assert (done.returncode, done.stdout) == (0, f"{bundle}\n"), done.stderr
    (found,) = manifest["nodes"]
    assert [one["rank"] for one in found["processes"] if one["role"] == "rank"] == [0, 1]
    calls = (tmp_path / "site" / "calls").read_text().splitlines()
    begin = "--context=prod --namespace=train"
    assert calls[0] == f"{begin} get pods --selector=job-name=llm --output=json"
    assert sum(call.startswith(f"{begin} exec --stdin llm-0 --container=main -- sh -c")
               for call in calls) == 1  # fmt: skip
