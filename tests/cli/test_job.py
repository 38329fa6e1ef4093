"""What the commands on one job share: paths, standard input, notes, exit statuses."""

import gzip
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from diagnose.catalog import stored
from diagnose.cli import main as cli
from diagnose.cli.job import MAX_NOTES
from diagnose.match import compile  # noqa: A004
from tests.cli.running import ROOT, TRACEBACK, Engine, answer, triage
from tests.runtime.test_workers import left


def test_notes_are_bounded(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.diagnosis = answer(notes=("n",) * 25)
    cli.run(["triage", "a.log"])
    err = capsys.readouterr().err.splitlines()
    assert len(err) == MAX_NOTES + 1
    assert err[-1] == "note: 15 more notes not shown"


@pytest.mark.parametrize(
    ("verdict", "status"), [("hung", 1), ("failed", 1), ("healthy", 0), ("unknown", 0)]
)
def test_exit_code(engine: Engine, verdict: str, status: int) -> None:
    engine.diagnosis = answer(verdict)
    assert cli.run(["triage", "a.log", "--exit-code"]) == status
    assert cli.run(["triage", "a.log"]) == 0


class Stdin(io.TextIOWrapper):
    def __init__(self, text: bytes, terminal: bool) -> None:
        super().__init__(io.BytesIO(text))
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def test_a_person_at_a_terminal_is_told_how_to_paste(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(b"pasted", terminal=True))
    cli.run(["triage"])
    assert engine.sources == ["<stdin>"]
    assert "Ctrl-D" in capsys.readouterr().err


def test_a_pipe_is_read_without_a_word(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, sources in (
        (["triage"], ["<stdin>"]),
        (["triage", "-"], ["<stdin>"]),
        (["triage", "dmesg.txt", "-"], ["<stdin>", "dmesg.txt"]),
    ):
        monkeypatch.setattr(sys, "stdin", Stdin(b"piped", terminal=False))
        cli.run(arguments)
        assert engine.sources == sources
        assert capsys.readouterr().err == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_who_waits_at_a_terminal_for_the_first_answer_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    (tmp_path / "a.log").write_bytes(TRACEBACK)
    said = io.StringIO()
    said.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setattr(compile, "compiled_before", lambda _: False)
    told = "Compiling signatures, about 10 s: new or changed since the last run.\n"
    assert cli.run(["triage", str(tmp_path / "a.log")]) == 0
    assert said.getvalue() == told * terminal
    monkeypatch.setattr(compile, "compiled_before", lambda _: True)
    assert cli.run(["triage", str(tmp_path / "a.log")]) == 0
    assert said.getvalue() == told * terminal


@pytest.mark.parametrize(
    ("folder", "told"),
    [
        ("/tmp/diagnose-0", "no writable cache (XDG_CACHE_HOME), kept in /tmp/diagnose-0"),
        (None, "no writable cache (XDG_CACHE_HOME) or temporary folder, so in every run"),
    ],
)
def test_without_a_writable_cache_it_says_where_the_signatures_are_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folder: str | None,
    told: str,
) -> None:
    (tmp_path / "a.log").write_bytes(TRACEBACK)
    monkeypatch.setattr(compile, "compiled_before", lambda _: False)
    monkeypatch.setattr(stored, "writable", lambda: folder and Path(folder))
    assert cli.run(["triage", str(tmp_path / "a.log")]) == 0
    assert capsys.readouterr().err == f"Compiling signatures, about 10 s: {told}.\n"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.log", b"", "no log to read: a.log: empty"),
        ("a.log", b" \n\n\t \n", "the input is empty"),
        ("a.dat", bytes(range(256)) * 20, "no log to read: a.dat: binary data"),
        ("a.log", b"\x7fELF\2\1", "no log to read: a.log: ELF program, library or core dump"),
        ("a.log", b"\0" * 4096, "no log to read: a.log: nothing but NUL bytes"),
        (
            "a.gz",
            gzip.compress(TRACEBACK, mtime=0)[:8],
            "no log to read: a.gz: truncated gzip data, read",
        ),
    ],
)
def test_input_that_holds_no_log_is_refused_on_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    status, err, answer = triage(capsys, tmp_path / name)
    assert (status, answer) == (2, {})
    assert err.startswith(f"diagnose: {message}")
    assert err.count("\n") == 1


def test_paths_without_a_log_are_refused_on_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("import torch\n")
    (tmp_path / "nothing").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "secret.log").write_bytes(TRACEBACK)
    opened = os.open

    def refuse(path: Any, *rest: Any, **more: Any) -> int:
        if str(path).endswith("secret.log"):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    for path, message in {
        tmp_path / "gone.log": f"no log to read: {tmp_path}/gone.log: no such file or directory",
        tmp_path / "nothing": f"no log to read: {tmp_path}/nothing: no files in this folder",
        tmp_path / "code": "no log to read: code: 1 file that is not a log left out: train.py",
        tmp_path / "pipe": f"no log to read: {tmp_path}/pipe: named pipe: not read; give it as "
        "standard input",
        tmp_path / "secret.log": "no log to read: secret.log: permission denied",
        Path("/dev/null"): "no log to read: /dev/null: device: not read",
    }.items():
        assert triage(capsys, path) == (2, f"diagnose: {message}\n", {})
    assert triage(capsys, "") == (2, "diagnose: one of the paths is empty\n", {})


def test_what_was_typed_is_kept_and_what_is_spelt_like_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs" / "81922").mkdir(parents=True)
    log = tmp_path / "jobs" / "81922" / "rank0.log"
    log.write_bytes(TRACEBACK)
    absent = "no such file or directory"
    for given, message in {
        tmp_path / "joobs" / "81922" / "rank0.log": f"{absent}; did you mean {log}?",
        tmp_path / "jobs" / "81922" / "rnak0.log": f"{absent}; did you mean {log}?",
        tmp_path / "jobs" / "77" / "train.log": absent,  # neither is like what is there
        tmp_path / "jobs" / "*" / "*.txt": "nothing matches this pattern",
    }.items():
        assert triage(capsys, given) == (2, f"diagnose: no log to read: {given}: {message}\n", {})
    for url in ("https://ci.example.org/7/log.txt", "s3://logs/7"):
        status, err, _ = triage(capsys, url)
        assert (status, err.count("\n")) == (2, 1)
        assert err.startswith(f"diagnose: {url}: URLs are not read here; ")


def test_a_pattern_that_the_shell_did_not_expand_stands_for_what_it_matches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_bytes(TRACEBACK)
    (tmp_path / "logs" / "b[0].log").write_bytes(TRACEBACK)  # a name that is a pattern, too
    for given in ("logs/*.log", "logs/b[0].log"):
        status, _, answer = triage(capsys, tmp_path / given)
        assert (status, answer["root_cause"]["class"]) == (0, "crash.gpu_oom")


def test_of_several_paths_those_that_cannot_be_read_are_notes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").write_bytes(TRACEBACK)
    status, err, answer = triage(capsys, tmp_path / "a.log", tmp_path / "gone.log")
    assert (status, err) == (0, f"note: {tmp_path}/gone.log: no such file or directory\n")
    assert answer["root_cause"]["class"] == "crash.gpu_oom"


@pytest.mark.slow
def test_a_worker_that_is_killed_is_told_on_one_line(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"rank_{rank}.log").write_text("step 1\n")
    code = """
import os, signal, time
import diagnose.job.parallel as batches
here, scan = os.getpid(), batches.scan_source
def scan_source(source, matcher):
    if os.getpid() != here:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.1)
    return scan(source, matcher)
batches.scan_source, batches._BATCH = scan_source, 1
from diagnose.cli.main import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "triage", tmp_path, "--workers", "2"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "diagnose: a worker process was killed, probably for lack of memory; try fewer workers\n"
    )


@pytest.mark.slow
def test_the_workers_of_a_job_end_with_it(tmp_path: Path) -> None:
    for rank in range(2):  # what is read in the parent, and what in a worker, never ends
        (tmp_path / f"rank_{rank}.log").write_text("step 1\n")
    code = f"""
import os, sys, time
def scan_source(source, matcher):
    open({str(tmp_path)!r} + "/up-" + str(os.getpid()), "w").close()
    time.sleep(600)
import diagnose.job.parallel
diagnose.job.parallel.scan_source, diagnose.job.parallel._BATCH = scan_source, 1
if __name__ == "__main__":
    from diagnose.cli.main import main
    main()
"""
    (tmp_path / "command.py").write_text(code)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "command.py", "triage", tmp_path, "--workers", "2"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while len(list(tmp_path.glob("up-*"))) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    process.terminate()
    assert left(process) == []
    _, said = process.communicate()
    assert (process.returncode, said) == (-signal.SIGTERM, "")
