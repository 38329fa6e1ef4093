"""The exact commands for each way to the nodes, and what is no way."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from diagnose.collect.bundle import NodeOptions
from diagnose.collect.reach import program, ways
from diagnose.collect.reach.gather import Call, Plan
from diagnose.collect.reach.hosts import Host
from diagnose.collect.reach.program import Start
from diagnose.collect.reach.remote import arguments
from diagnose.collect.reach.ways import Asked
from diagnose.errors import InputError

START = Start(("sh", "-c", "echo 'a b'", "--timeout=60"), b"the program")


class Site:
    """Commands in a folder that is all of PATH; each prints what it is to answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()

    def has(self, name: str, answer: str = "", error: str = "", status: int = 0) -> None:
        for what, text in (("out", answer), ("err", error)):
            (self.folder / f"{name}.{what}").write_text(text)
        path = self.folder / name
        path.write_text(
            f'#!/bin/sh\necho "$0 $*" >> {self.folder}/calls\nenv > {self.folder}/{name}.env\n'
            f"/bin/cat {self.folder}/{name}.out\n/bin/cat {self.folder}/{name}.err >&2\n"
            f"exit {status}\n"
        )
        path.chmod(0o755)

    def calls(self) -> list[str]:
        text = (self.folder / "calls").read_text()
        return [line.removeprefix(f"{self.folder}/") for line in text.splitlines()]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    found = Site(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(found.folder))
    (found.folder / "env").symlink_to("/usr/bin/env")
    return found


# --- ssh ------------------------------------------------------------------------------------------


def test_ssh(site: Site) -> None:
    site.has("ssh")
    hosts = [Host("n1"), Host("n2", "alice", 2222), Host("fd00::7")]
    options = (
        "ssh", "-T", "-x", "-a", "-oLogLevel=ERROR", "-oBatchMode=yes", "-oConnectTimeout=10",
        "-oClearAllForwardings=yes", "-oControlMaster=no",
    )  # fmt: skip
    said = "sh -c 'echo '\"'\"'a b'\"'\"'' --timeout=60"
    assert ways.ssh(hosts, START) == Plan(
        "ssh",
        [
            Call("n1", (*options, "--", "n1", said), b"the program"),
            Call("n2:2222", (*options, "-p2222", "--", "alice@n2", said), b"the program"),
            Call("fd00::7", (*options, "--", "fd00::7", said), b"the program"),
        ],
    )


@pytest.mark.parametrize(
    ("way", "tool"),
    [
        (lambda: ways.ssh([Host("n1")], START), "ssh"),
        (lambda: ways.slurm("1", START), "srun"),
        (lambda: ways.kubernetes(Asked(kubernetes="a=b"), START), "kubectl"),
        (lambda: ways.launched("mpirun -npernode 1", START), "mpirun"),
    ],
)
@pytest.mark.usefixtures("site")
def test_a_tool_that_is_not_installed_is_one_line(way, tool: str) -> None:  # type: ignore[no-untyped-def]
    found = way()
    assert found.calls == []
    assert found.problems == [f"{tool} is not installed here (or not in PATH)"]


# --- Slurm ----------------------------------------------------------------------------------------


def srun(number: str, node: str) -> Call:
    words = (
        "srun", f"--jobid={number}", "--overlap", f"--nodelist={node}", "--nodes=1", "--ntasks=1",
        "--cpus-per-task=1", "--cpu-bind=none", "--mpi=none", "--job-name=diagnose", "--chdir=/",
        "--quiet", *START.words, f"--job={number}",
    )  # fmt: skip
    return Call(node, words, b"the program")


def test_slurm(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.has("srun")
    site.has("squeue", "81922|81922|RUNNING|n[1-2]\n")
    site.has("scontrol", "n1\nn2\n")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    assert ways.slurm("81922", START) == Plan(
        "slurm",
        [srun("81922", "n1"), srun("81922", "n2")],
        environment=ways.environment(ways.SLURM_CLEAN),
    )
    assert site.calls() == [
        "squeue --noheader --jobs=81922 --format=%i|%A|%T|%N",
        "scontrol show hostnames n[1-2]",
    ]
    told = (site.folder / "squeue.env").read_text()
    assert "SLURM_CONF=/etc/slurm.conf" in told
    assert "SLURM_JOB_ID" not in told


def test_an_element_of_an_array_and_parts_of_a_job(site: Site) -> None:
    site.has("srun")
    site.has("scontrol", "n1\n")
    site.has("squeue", "90_4|94|RUNNING|n1\n")
    assert ways.slurm("90_4", START).calls == [srun("94", "n1")]
    site.has("squeue", "90+0|90|RUNNING|n1\n90+1|91|RUNNING|n1\n90+2|92|PENDING|\n")
    assert ways.slurm("90", START).calls == [srun("90", "n1"), srun("91", "n1")]


@pytest.mark.parametrize(
    ("answer", "error", "status", "problem"),
    [
        ("", "slurm_load_jobs error: Invalid job id specified\n", 1,
         "slurm_load_jobs error: Invalid job id specified"),
        ("", "", 0, "it is not running (it has ended)"),
        ("7|7|PENDING|\n", "", 0, "it is not running (pending)"),
        ("7_1|8|RUNNING|n1\n7_2|9|RUNNING|n2\n", "", 0,
         "it is an array of 2 jobs: name one of them, as 7_1, 7_2"),
        ("7|7|RUNNING|n1;id\n", "", 0, "scontrol gave no names for its nodes 'n1;id'"),
        ("", "", 9, "squeue ended with exit status 9"),
    ],
)  # fmt: skip
def test_what_slurm_cannot_say(
    site: Site, answer: str, error: str, status: int, problem: str
) -> None:
    site.has("srun")
    site.has("squeue", answer, error, status)
    site.has("scontrol", "--oh\n")
    found = ways.slurm("7", START)
    assert (found.calls, found.problems) == ([], [f"job 7: {problem}"])


@pytest.mark.parametrize("job", ["", "-a", "7;id", "seven", "7_a", "9" * 30])
def test_what_is_no_job(site: Site, job: str) -> None:
    for tool in ("srun", "squeue", "scontrol"):
        site.has(tool)
    assert ways.slurm(job, START).problems == [f"{job!a} is no job of Slurm"]


# --- Kubernetes -----------------------------------------------------------------------------------


def pod(name: str, phase: str = "Running", containers: str = "main", default: str = "") -> object:
    notes = {"kubectl.kubernetes.io/default-container": default} if default else {}
    return {
        "metadata": {"name": name, "annotations": notes},
        "spec": {"containers": [{"name": one} for one in containers.split()]},
        "status": {"phase": phase},
    }


def test_kubernetes(site: Site) -> None:
    pods = [
        pod("llm-0"),
        pod("llm-1", "Pending"),
        pod("llm-2", containers="istio trainer", default="trainer"),
        pod("llm-3", containers="istio trainer", default="gone"),
    ]
    site.has("kubectl", json.dumps({"items": pods}))
    kubectl = ("kubectl", "--context=prod", "--namespace=train")

    def call(name: str, container: str) -> Call:
        words = (*kubectl, "exec", "--stdin", name, f"--container={container}", "--", *START.words)
        return Call(name, words, b"the program")

    asked = Asked(kubernetes="job-name=llm", namespace="train", context="prod")
    found = ways.kubernetes(asked, START)
    assert found == Plan(
        "kubernetes",
        [call("llm-0", "main"), call("llm-2", "trainer"), call("llm-3", "istio")],
        ["pod llm-1 is pending: not reached"],
    )
    assert site.calls() == [
        "kubectl --context=prod --namespace=train get pods --selector=job-name=llm --output=json"
    ]
    found = ways.kubernetes(replace(asked, container="trainer"), START)
    assert found.calls == [call("llm-2", "trainer"), call("llm-3", "trainer")]
    assert found.problems[0] == "pod llm-0 has no container trainer: not reached"


@pytest.mark.parametrize(
    ("answer", "error", "status", "problem"),
    [
        ('{"items": []}', "", 0, "no pod in the namespace train has the labels a=b"),
        ("", "Error from server (Forbidden): pods is forbidden\n", 1,
         "kubectl: Error from server (Forbidden): pods is forbidden"),
        ("{", "", 0, "kubectl: its list of pods cannot be read"),
        ('{"items": [{"metadata": 3}]}', "", 0, "kubectl: its list of pods cannot be read"),
        ("[" * 100_000, "", 0, "kubectl: its list of pods cannot be read"),
    ],
)  # fmt: skip
def test_what_kubernetes_cannot_say(
    site: Site, answer: str, error: str, status: int, problem: str
) -> None:
    site.has("kubectl", answer, error, status)
    found = ways.kubernetes(Asked(kubernetes="a=b", namespace="train"), START)
    assert (found.calls, found.problems) == ([], [problem])


# --- any launcher ---------------------------------------------------------------------------------


def test_any_launcher(site: Site) -> None:
    site.has("mpirun")
    found = ways.launched("mpirun -npernode 1 -x 'A=b c'", START)
    words = ("mpirun", "-npernode", "1", "-x", "A=b c", *START.words)
    assert found == Plan(
        "mpirun -npernode 1 -x 'A=b c'",
        [Call("mpirun", words, lines=True)],
        environment=ways.environment(ways.LAUNCHER_CLEAN),
    )
    with pytest.raises(InputError, match="--via: No closing quotation"):
        ways.launched("mpirun 'a", START)
    with pytest.raises(InputError, match="--via is empty"):
        ways.launched("  ", START)


# --- which of them --------------------------------------------------------------------------------

WORDS = [
    "collect", "--node-only", "-o", "-", "--seconds=5", "--timeout=60", "--probe-size=67108864",
]  # fmt: skip


def test_what_a_node_is_asked_for() -> None:
    assert arguments(NodeOptions(), 60.0) == WORDS
    options = NodeOptions((7, 8), "j1", apart_s=0.5, probe_bytes=9)
    assert arguments(options, 1.5, lines=True) == [
        "collect", "--node-only", "-o", "-", "--seconds=0.5", "--timeout=1.5", "--probe-size=9",
        "--job=j1", "--pid=7", "--pid=8", "--lines",
    ]  # fmt: skip


def test_the_way_that_was_asked_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "program", lambda: b"zip")
    for tool in ("ssh", "mpirun"):
        site.has(tool)
    site.has("kubectl", json.dumps({"items": [pod("llm-0")]}))
    options = NodeOptions()
    assert ways.plan(Asked(), options, 60) is None
    found = ways.plan(Asked(hosts="n1"), options, 60)
    assert found is not None
    assert (found.via, found.calls[0].stdin[-4:]) == ("ssh", b"\nzip")
    assert 'in "$here" python3 python ; do' in found.calls[0].command[-1]
    assert "\n" not in found.calls[0].command[-1]
    found = ways.plan(Asked(via="mpirun"), options, 60)
    assert found is not None
    python = (sys.executable, "-P", "-m", "diagnose")
    assert found.calls[0].command == ("mpirun", *python, *WORDS, "--lines")
    found = ways.plan(Asked(hosts="n1"), options, 60, "/opt/venv/bin/diagnose -v")
    assert found is not None
    assert found.calls[0].command[-1] == " ".join(["/opt/venv/bin/diagnose", "-v", *WORDS])
    assert found.calls[0].stdin == b""
    found = ways.plan(Asked(kubernetes="a=b"), options, 60)
    assert found is not None
    assert found.via == "kubernetes"
    assert 'in "$here" python3 python /proc/[0-9]*/exe; do' in " ".join(found.calls[0].command)
    found = ways.plan(Asked(slurm="7"), options, 60)
    assert found is not None
    assert found.via == "slurm"


@pytest.mark.parametrize(
    ("asked", "remote", "problem"),
    [
        (Asked(slurm="1", hosts="n1"), None, "--slurm and --hosts are two ways to the nodes"),
        (Asked(hosts="n1", namespace="a"), None, "belong to --kubernetes"),
        (Asked(container="a"), None, "belong to --kubernetes"),
        (Asked(), "diagnose", "--remote-command is for other nodes: say which"),
        (Asked(hosts="n1"), "diagnose 'a", "--remote-command: No closing quotation"),
    ],
)
def test_what_cannot_be_meant(asked: Asked, remote: str | None, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        ways.plan(asked, NodeOptions(), 60, remote)


# --- commands of the site -------------------------------------------------------------------------


def test_a_tool_that_does_not_answer(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "_SECONDS", 0.2)
    path = site.folder / "squeue"
    path.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    path.chmod(0o755)
    with pytest.raises(ways.ToolError, match=r"squeue: no end in 0.2 s"):
        ways.ask(["squeue"])
    with pytest.raises(ways.ToolError, match="/nowhere/squeue: no such file or directory"):
        ways.ask(["/nowhere/squeue"])


def test_a_tool_that_answers_too_much(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "MAX_ANSWER", 1 << 20)
    site.has("squeue", "x" * ((1 << 20) + 1))
    with pytest.raises(ways.ToolError, match="squeue: more than 1048576 bytes"):
        ways.ask(["squeue"])


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], ""),
        (["", "one", "two", ""], "two"),
        (
            ["no Python here", "srun: error: n1: task 0: Exited with exit code 127"],
            "no Python here",
        ),
        (["no Python here", "command terminated with exit code 127"], "no Python here"),
        (["command terminated with exit code 1"], "command terminated with exit code 1"),
        (
            ["srun: unrecognized option '--overlap'", 'Try "srun --help" for more information'],
            "srun: unrecognized option '--overlap'",
        ),
        (["mpirun was unable to find python", "-" * 60], "mpirun was unable to find python"),
    ],
)
def test_the_line_that_says_why(lines: list[str], expected: str) -> None:
    assert ways.last_line("\n".join(lines).encode()) == expected


def test_an_environment_without_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("SLURM_CONF", "1")
    found = ways.environment(("PMI_", "SLURM_"))
    assert (found.get("PMI_RANK"), found["SLURM_CONF"]) == (None, "1")
