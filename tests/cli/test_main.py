"""The command line as a whole: usage, errors, exit statuses, and what goes to which stream."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import diagnose
from diagnose.cli import main as cli
from diagnose.errors import CatalogError, InputError
from tests.cli.running import COMMAND, ROOT, Engine, shell


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr() == (f"diagnose {diagnose.__version__}\n", "")


def test_without_a_command_it_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Usage: diagnose")
    assert "triage" in out


def test_starting_up_imports_nothing_heavy() -> None:
    code = (
        "import sys, diagnose.cli.main as cli; cli.run(['nothing']); "
        "print({'diagnose.cli.job'} - set(sys.modules), {'pandas', 'numpy', 'rich',"
        " 'yaml', 'pydantic', 'hyperscan', 'jinja2', 'regex'}"
        " & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set() set()\n"


@pytest.mark.slow
def test_of_the_commands_only_the_one_asked_for_is_imported() -> None:
    code = (
        "import sys, diagnose.cli.main as cli; cli.run(['explain', 'none']); "
        "print({'diagnose.cli.job', 'diagnose.cli.catalog'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "{'diagnose.cli.catalog'}"


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (InputError("x.log: no such file or folder"), 2, "x.log: no such file or folder"),
        (CatalogError("my.yaml:3: match: missing"), 2, "my.yaml:3: match: missing"),
        (PermissionError(13, "Permission denied", "x.log"), 2, "x.log: Permission denied"),
        (InputError("bad\nname\x1b[31m"), 2, "bad name"),
        (
            KeyError("rank"),
            70,
            "internal error, please report it: KeyError: 'rank' (DIAGNOSE_TRACEBACK=1 shows where)",
        ),
    ],
)
def test_errors_are_one_line(
    engine: Engine,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    status: int,
    message: str,
) -> None:
    engine.error = error
    assert cli.run(["triage", "x.log"]) == status
    assert capsys.readouterr() == ("", f"diagnose: {message}\n")


def test_an_interrupt_is_quiet(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.error = KeyboardInterrupt()
    assert cli.run(["triage", "x.log"]) == 130
    out, err = capsys.readouterr()
    assert (out, err.strip()) == ("", "")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["triage", "--format", "xml"], ["'xml'", "terminal", "json", "markdown"]),
        (["triage", "--color", "red"], ["'red'", "auto", "always", "never"]),
        (["explain", "crash.gpu_om"], ["'crash.gpu_om'", "did you mean crash.gpu_oom"]),
        (["explain", "\x1b[31m"], ["diagnose catalog list shows all"]),
        (["explain"], ["NAME", "see diagnose explain --help"]),
        (["catalog", "test"], ["ID", "see diagnose catalog test --help"]),
        (["scan", "--worker"], ["see diagnose scan --help"]),
        (
            ["report", "--format", "json"],
            ["--format; diagnose triage, compare, checkpoint"],
        ),
        (["triage", "--since", "3d"], ["--since; diagnose scan and fleet have it"]),
        (["catalog", "list", "--role", "boss"], ["'boss'", "choose from cause, effect"]),
        (["catalog", "list", "--class", "x"], ["'x'", "crash.gpu_oom"]),
        (
            ["catalog", "test", "tqdm.bar.trainin"],
            ["'tqdm.bar.trainin'", "did you mean tqdm.bar.training"],
        ),
        (["catalog", "list", "--patterns", "no/such"], ["no/such", "no such file"]),
        (["nonsense"], ["'nonsense'", "see diagnose --help"]),
        ([str(Path(__file__))], ["diagnose triage PATH"]),
    ],
)
def test_wrong_usage_names_the_choices_on_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], parts: list[str]
) -> None:
    assert cli.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("diagnose: ")
    assert all(part in err for part in parts)
    assert "\x1b" not in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.slow
def test_a_full_disk_is_told_on_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "catalog", "list"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == b"diagnose: cannot write the output: No space left on device\n"


@pytest.mark.parametrize(("closed", "name"), [("<&-", "input"), (">&-", "output")])
def test_closed_streams_are_told_on_one_line(closed: str, name: str, tmp_path: Path) -> None:
    script = f'exec "$@" {closed}'
    (tmp_path / "a.log").write_text("text\n")
    log = ["-"] if name == "input" else [str(tmp_path / "a.log")]
    done = subprocess.run(
        ["sh", "-c", script, "sh", *COMMAND, "triage", *log],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, f"diagnose: standard {name} is closed\n")


def test_a_closed_pipe_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "catalog", "list"], cwd=ROOT, stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("streams", ["2>&-", pytest.param("2>/dev/full", marks=pytest.mark.slow)])
def test_the_answer_is_the_same_whatever_happens_to_stderr(log: Path, streams: str) -> None:
    done = shell(streams, "triage", log, "--format", "json", "--exit-code")
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["root_cause"]["class"] == "crash.gpu_oom"
    assert shell(streams, "triage", log / "gone").returncode == 2


def test_help_for_a_reader_who_has_seen_enough_is_no_failed_job() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "triage", "--help"], cwd=ROOT, stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_pipe_that_breaks_inside_is_no_reader_who_has_seen_enough(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.error = BrokenPipeError(32, "Broken pipe")
    assert cli.run(["triage", "x.log"]) == 2
    assert capsys.readouterr() == ("", "diagnose: Broken pipe\n")


def test_an_internal_error_keeps_its_status_where_it_is_shown(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DIAGNOSE_TRACEBACK", "1")
    engine.error = KeyError("rank")
    assert cli.run(["triage", "x.log"]) == 70
    assert "in read" in capsys.readouterr().err


def test_an_argument_longer_than_any_path_is_wrong_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["x" * 5000]) == 2
    assert capsys.readouterr().err.startswith("diagnose: No such command 'xxx")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["report", "x.log", "-o", ""], "the path is empty"),
        (["report", "x.log", "-o", "no/"], "no/ names a folder"),
        (["report", "x.log", "-o", "/"], "/ names a folder"),
        (["triage", "x.log", "--patterns", ""], "the path is empty"),
        (["triage", "x.log", "--checkpoints", ""], "the path is empty"),
        (["catalog", "check", ""], "the path is empty"),
        (["scan", "jobs", "-o", ""], "the path is empty"),
        (["scan", "", "-o", "results"], "the path is empty"),
        (["fleet", ""], "the path is empty"),
        (["fleet", "results", "--html", ""], "the path is empty"),
        (["checkpoint", "out", "--logs", ""], "the path is empty"),
    ],
)
def test_an_empty_path_is_not_the_current_folder(
    engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    what: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f": {what} (" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["typer", "hyperscan"])
def test_ctrl_c_during_an_import_is_quiet(log: Path, module: str) -> None:
    code = f"""
import os, signal, sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
from diagnose.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "triage", str(log)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


COMMANDS = (
    *((name,) for name in cli._COMMANDS),
    *(("catalog", name) for name in ("list", "new", "test", "where", "schema", "check")),
)


@pytest.mark.parametrize("command", [(), *COMMANDS], ids=" ".join)
def test_the_help_fits_a_terminal_and_has_no_riddles(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    assert cli.run([*command, "-h"]) == 0
    short = capsys.readouterr().out
    assert cli.run([*command, "--help"]) == 0
    assert capsys.readouterr().out == short
    usage, *lines = short.splitlines()
    for line in lines:
        assert len(line) <= 80
        assert not line.rstrip().endswith("...")  # a summary that is cut
        assert not re.search(r"<(int|float|str)\b|\(\d+[KMG]\)", line)  # a type, a default as typed
    if command and command[0] in ("triage", "report", "watch", "checkpoint", "scan"):
        assert "..." in usage  # several are taken


def test_shells_complete_commands_and_options() -> None:
    def completed(words: str) -> list[str]:
        asked = {
            "_DIAGNOSE_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        done = subprocess.run(
            COMMAND,
            cwd=ROOT,
            env={**os.environ, **asked},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    assert completed("diagnose re") == ["report"]
    assert completed("diagnose catalog ch") == ["check"]
    assert completed("diagnose triage --fo") == ["--format"]


def test_the_script_for_a_shell_can_be_printed() -> None:
    line = shlex.join([*COMMAND, "--show-completion"])
    done = subprocess.run(
        ["bash", "-c", f"{line}; exit $?"],  # which shell it is for, it asks its parents
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "_DIAGNOSE_COMPLETE=complete_bash" in done.stdout
