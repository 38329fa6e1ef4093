"""The command `collect`: its options, its answers, and how it ends."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import typer

from diagnose.cli import collect as command
from diagnose.cli import main as cli
from diagnose.collect import bundle
from diagnose.collect import node as module
from diagnose.collect.bundle import Node, NodeOptions
from diagnose.collect.reach.gather import Reached
from diagnose.collect.reach.run import Collected, Progress, counted, outcome, size
from tests.collect.reach.test_gather import node
from tests.collect.reach.test_remote import quick
from tests.collect.reach.test_unpack import member, stream

RANK = {"role": "rank"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and probes that cost nothing."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(module, "collect_node", quick)
    return folder


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for ssh: a host answers with its file, and others refuse."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "ssh"
    program.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != -- ]; do shift; done\n'
        f'if [ -f {folder}/"$2" ]; then cat {folder}/"$2"; exit 0; fi\n'
        'echo "ssh: connect to host $2 port 22: No route to host" >&2; exit 255\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, list[str]]:
    """Status, standard output, lines of standard error."""
    status = cli.run(["collect", *words])
    out, err = capsys.readouterr()
    err = re.sub(r"\d+\.\d (s|KiB)", r"9.9 \1", err)
    return status, out, err.splitlines()


def test_this_node_into_a_name_with_the_time(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys)
    (bundle,) = here.iterdir()
    assert re.fullmatch(r"diagnose-\d{8}-\d{6}-\d+\.tar\.zst", bundle.name)
    assert (status, out) == (0, f"{bundle.name}\n")
    assert err == ["collect: h: () None 5", "collect: 1 rank on 1 node, 9.9 KiB, in 9.9 s"]


def absent(folder: Path, options: NodeOptions) -> Node:
    """Stands in for the probes of a node that has no process of the job."""
    node = Node("h", "1", problems=["no process 9 is here", "look elsewhere"])
    bundle.reserve(folder / node.folder / "node.json")
    bundle.overwrite(folder / node.folder / "node.json", node.to_dict())
    return node


def test_a_job_that_is_not_here(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "collect_node", absent)
    status, out, err = run(capsys, "--pid", "9", "-o", "b")
    assert (status, out, err) == (2, "", ["diagnose: no process 9 is here; look elsewhere"])
    assert list(here.iterdir()) == []


def test_nodes_that_answer_and_have_nothing(
    here: Path, ssh: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (ssh / "n1").write_bytes(node("n1", problems=["no process of job 7 was found"]))
    status, out, err = run(capsys, "--hosts", "n1", "--job", "7", "-o", "b")
    assert (status, out) == (2, "")
    assert err[0] == "collect: n1: no process of job 7 was found"
    assert err[-1] == "diagnose: nothing was collected (b says why)"
    assert (here / "b" / "manifest.json").is_file()


def test_options_of_the_probes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(
        capsys, "-o", "b", "--pid", "7", "--pid", "8", "--job", "j", "--seconds", "0.5"
    )
    assert (status, out) == (0, "b\n")
    manifest = json.loads((here / "b" / "manifest.json").read_text())
    assert manifest["nodes"][0]["problems"] == ["(7, 8) j 0.5"]


def test_hosts(here: Path, ssh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (ssh / "n1").write_bytes(node("n1", processes=[RANK, RANK], problems=["no kernel log"]))
    (ssh / "n2").write_bytes(node("n2", processes=[RANK], problems=3))
    status, out, err = run(capsys, "--hosts", "n[1-3]", "-o", "b.tar.gz")
    assert (status, out) == (0, "b.tar.gz\n")
    assert err == [
        "collect: n3: ssh: connect to host n3 port 22: No route to host",
        "collect: n1: no kernel log",
        "collect: 3 ranks on 2 nodes, 9.9 KiB, in 9.9 s",
    ]
    assert [path.name for path in here.iterdir()] == ["b.tar.gz"]


def test_no_host_answers(here: Path, ssh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "--hosts", "n[1-25]", "-o", "b")
    assert (status, out) == (2, "")
    assert err[0] == "collect: n1: ssh: connect to host n1 port 22: No route to host"
    assert err[20:] == [
        "collect: 5 more problems: see manifest.json",
        "diagnose: nothing was collected (b says why)",
    ]
    manifest = json.loads((here / "b" / "manifest.json").read_text())
    assert (len(manifest["problems"]), manifest["nodes"]) == (25, [])


def test_what_a_node_says_is_clean(
    here: Path, ssh: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "\x1b]0;x\x07 token=hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
    (ssh / "n1").write_bytes(node("n1", problems=[hostile, {"a": 1}]))
    _, _, err = run(capsys, "--hosts", "n1", "-o", "b")
    assert err[0] == "collect: n1:  token=[masked]"
    assert "\x1b" not in "".join(err)


def test_an_interrupt(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = Collected([{"host": "n1"}], ["n2: interrupted"], interrupted=True)
    monkeypatch.setattr("diagnose.collect.reach.run.collect", lambda *_, **__: stopped)
    status, out, err = run(capsys, "-o", "b")
    assert (status, out) == (130, "")
    assert err[-1] == "collect: interrupted; what had come is in b"


def test_the_verdict_at_once(here: Path, ssh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stack = b'Thread 7 (idle): "MainThread"\n    wait (train.py:3)\n'
    document = json.dumps({"diagnose": "node/1", "host": "n1", "processes": [RANK]}).encode()
    data = stream(
        member("nodes/n1/node.json", document), member("nodes/n1/rank-0/stack.txt", stack)
    )
    (ssh / "n1").write_bytes(data)
    status, out, err = run(capsys, "--hosts", "n1", "-o", "b", "--triage")
    assert status == 0, err
    assert out.startswith("UNKNOWN")
    assert "collect: 1 rank on 1 node, 9.9 KiB, in 9.9 s" in err


def test_the_side_of_a_node(here: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    status = cli.run(["collect", "--node-only", "-o", "-", "--seconds=0.5", "--probe-size=9"])
    out, err = capfdbinary.readouterr()
    assert (status, out[:2], err) == (0, b"\x1f\x8b", b"")


@pytest.mark.slow
def test_the_program_as_a_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--write-program", "node.pyz") == (0, "", [])
    assert "__main__.py" in zipfile.ZipFile(here / "node.pyz").namelist()
    done = subprocess.run(
        [sys.executable, "-I", "node.pyz", "--help"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "--node-only" in done.stdout) == (0, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "-"], "a bundle cannot be written to standard output"),
        (["-o", ""], "Invalid value for '-o' / '--output': it is empty"),
        (["--slurm", ""], "Invalid value for '--slurm': it is empty"),
        (["--slurm", "1", "--via", "x"], "--slurm and --via are two ways to the nodes: give one"),
        (["--max-size", "much"], "'much' is no size such as 512M"),
        (["--max-size", "0"], "'0' is no size such as 512M"),
        (["--seconds", "0"], "0.0 is not in the range 0.1<=x<=600"),
        (["--hosts", "/nowhere/hosts"], "/nowhere/hosts: no such file"),
    ],
)
def test_what_cannot_be_meant(
    words: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, *words)
    assert (status, out, len(err)) == (2, "", 1)
    assert message in err[0]
    assert list(here.iterdir()) == []


def test_a_bundle_that_exists(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "-o", "b")[0] == 0
    status, _, err = run(capsys, "-o", "b")
    assert (status, err) == (2, ["diagnose: b exists (--force replaces it)"])
    assert run(capsys, "-o", "b", "--force")[0] == 0


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("2K", 2048), ("512M", 1 << 29), ("1GiB", 1 << 30), ("1tb", 1 << 40)],
)
def test_sizes(text: str, number: int) -> None:
    assert command.size(text) == number
    with pytest.raises(typer.BadParameter):
        command.size(f"-{text}")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_of_a_few_nodes() -> None:
    screen = Terminal()
    progress = Progress(screen, 3, str.upper)
    progress(Reached("n1", 6.11, [{"processes": [RANK, {}, 3]}, {"processes": 3}], 4, 3 << 19))
    progress(Reached("n2", problems=["n2: refused", "and more"]))
    progress(Reached("n3"))
    progress.end()
    assert screen.getvalue() == "N1: 1 RANK, 1.5 MIB, 6.1 S\nN2: REFUSED\nN3: NO ANSWER\n"


def test_progress_of_many_nodes() -> None:
    screen = Terminal()
    progress = Progress(screen, 512, str)
    progress(Reached("n1"))
    progress(Reached("n2", problems=["n2: refused"]))
    progress.end()
    assert screen.getvalue() == ("\r1/512 nodes\x1b[K\r2/512 nodes, 1 with problems\x1b[K\n")


def test_without_a_terminal_there_is_no_progress() -> None:
    stream = io.StringIO()
    progress = Progress(stream, 1, str)
    progress(Reached("n1"))
    progress.end()
    assert stream.getvalue() == ""


def test_words() -> None:
    assert [counted(n, "rank") for n in (0, 1, 2)] == ["0 ranks", "1 rank", "2 ranks"]
    assert (size(100), size(3 << 20)) == ("0.1 KiB", "3.0 MiB")
    assert outcome(Reached("n1", 1.0, [{}], 1, 2048)) == "n1: 0 ranks, 2.0 KiB, 1.0 s"
