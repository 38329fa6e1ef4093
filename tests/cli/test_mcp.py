"""`mcp`: its options, its end, and what it says where the extra is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from diagnose.cli import main as cli
from tests.cli.running import COMMAND, ROOT

TOKEN = "correct-horse-battery"


@pytest.mark.slow
def test_it_ends_with_its_input() -> None:
    done = subprocess.run(
        [*COMMAND, "mcp", "--root", "fixtures"],
        cwd=ROOT,
        input="",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--root", "nothing-there"], "nothing-there: no such file or directory"),
        (["--http", "8322"], "8322: expected HOST:PORT"),
        (["--http", "0.0.0.0:0"], "others could read the logs; give --token-file"),
        (["--token-file", "x"], "--token-file and --allow-host are for --http"),
        (["--allow-host", "x"], "--token-file and --allow-host are for --http"),
        (["--http", ":0", "--token-file", "nothing"], "nothing: No such file or directory"),
        (["--http", ":0", "--token-file", "short"], "a token of at least 16 characters"),
        (["--http", ":0", "--token-file", "lines"], "a token of at least 16 characters"),
        (["--http", ":0", "--token-file", "odd"], "a token is plain ASCII"),
        (["--patterns", "nothing"], "nothing: no such file or directory"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("abc\n")
    (tmp_path / "lines").write_text(f"{TOKEN}\n{TOKEN}\n")
    (tmp_path / "odd").write_bytes(b"\xff" * 30)
    assert cli.run(["mcp", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("diagnose.mcp")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert cli.run(["mcp"]) == 2
    assert capsys.readouterr().err == ("diagnose: mcp needs mcp: pip install 'mcp>=2'\n")


@pytest.mark.slow
def test_other_commands_do_not_load_it() -> None:
    code = "import sys; from diagnose.cli import main; main.run(['triage', '-']); print([m for m in sys.modules if m.split('.')[0] in ('mcp', 'starlette', 'uvicorn') or m.startswith('diagnose.mcp')])"  # noqa: E501
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        input="[rank0]: step 1\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == "[]"
