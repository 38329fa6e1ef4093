"""The command line: options, exit statuses, and what goes to which stream."""

import gzip
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

import diagnose
from diagnose.catalog.load import CatalogError
from diagnose.cli import main as cli
from diagnose.diagnosis import Diagnosis, RootCause
from diagnose.errors import InputError
from diagnose.ingest.source import Source
from tests.checkpoint.make import hf
from tests.test_workers import left

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "diagnose"]


def answer(verdict: str = "hung", notes: tuple[str, ...] = ()) -> Diagnosis:
    cause = RootCause("net.socket", "Wrong interface", "NCCL chose docker0", "high")
    return Diagnosis(verdict, cause, notes=list(notes))  # type: ignore[arg-type]


class Engine:
    """Stands in for the real one: remembers what it was asked and answers what it was told."""

    def __init__(self) -> None:
        self.diagnosis = answer()
        self.error: BaseException | None = None
        self.sources: list[str] = []
        self.patterns: list[str] = []

    def read(self, sources: list[Source], *, patterns: list[Path]) -> "Engine":
        if self.error:
            raise self.error
        self.sources = [source.name for source in sources]
        self.patterns = [str(path) for path in patterns]
        return self


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine()
    monkeypatch.setattr("diagnose.job.load.read", engine.read)
    # past the lazy attributes of the package
    monkeypatch.setitem(vars(diagnose), "diagnose", lambda job: job.diagnosis)
    return engine


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
        "import sys, diagnose.cli.main; "
        "print({'pandas', 'numpy', 'rich', 'yaml', 'pydantic', 'hyperscan', 'jinja2', 'regex'}"
        " & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_triage_prints_the_verdict(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["triage", "a.log", "b.log", "--patterns", "x", "--patterns", "y"]) == 0
    assert (engine.sources, engine.patterns) == (["a.log", "b.log"], ["x", "y"])
    out, err = capsys.readouterr()
    assert out.startswith("HUNG  Wrong interface (high confidence)\n  NCCL chose docker0.\n")
    assert err == ""


def test_json_is_the_schema_and_nothing_else(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.diagnosis = answer(notes=("rank3.log: cut\x1b[2J",))
    assert cli.run(["triage", "a.log", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == engine.diagnosis.to_dict()
    assert err == "note: rank3.log: cut\n"


def test_markdown(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["triage", "a.log", "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("### Hung: Wrong interface (high confidence)\n")


def test_notes_are_bounded(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.diagnosis = answer(notes=("n",) * 25)
    cli.run(["triage", "a.log"])
    err = capsys.readouterr().err.splitlines()
    assert len(err) == cli.MAX_NOTES + 1
    assert err[-1] == "note: 15 more notes left out"


@pytest.mark.parametrize(
    ("verdict", "status"), [("hung", 1), ("failed", 1), ("healthy", 0), ("unknown", 0)]
)
def test_exit_code(engine: Engine, verdict: str, status: int) -> None:
    engine.diagnosis = answer(verdict)
    assert cli.run(["triage", "a.log", "--exit-code"]) == status
    assert cli.run(["triage", "a.log"]) == 0


def test_colour(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["triage", "a.log", "--color", "always"])
    assert "\x1b[1;31mHUNG" in capsys.readouterr().out
    for choice in ("never", "auto"):
        cli.run(["triage", "a.log", "--color", choice])
        assert "\x1b" not in capsys.readouterr().out


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
        (["explain", "crash.gpu_om"], ["'crash.gpu_om'", "did you mean crash.gpu_oom", "hw.node"]),
        (["explain", "\x1b[31m"], ["choose from crash.gpu_oom"]),
        (["explain"], ["CLASS", "see diagnose --help"]),
        (["catalog", "list", "--role", "boss"], ["'boss'", "choose from cause, effect"]),
        (["catalog", "list", "--class", "x"], ["'x'", "crash.gpu_oom"]),
        (["catalog", "show", "tqdm.trainin"], ["'tqdm.trainin'", "did you mean tqdm.training"]),
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


TRACEBACK = b"""\
[rank0]: step 10
[rank1]: Traceback (most recent call last):
[rank1]:   File "/job/train.py", line 7, in <module>
[rank1]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""


def triage(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path
) -> tuple[int, str, dict[str, Any]]:
    """Status, stderr and the JSON of a run of the real engine."""
    status = cli.run(["triage", "--format", "json", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, err, json.loads(out) if out else {}


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
        tmp_path / "gone.log": "no log to read: gone.log: no such file or directory",
        tmp_path / "nothing": "no log to read: nothing: no files in this folder",
        tmp_path / "code": "no log to read: code: 1 file that is not a log left out: train.py",
        tmp_path / "pipe": "no log to read: pipe: named pipe: not read; give it as standard input",
        tmp_path / "secret.log": "no log to read: secret.log: permission denied",
        Path("/dev/null"): "no log to read: null: device: not read",
    }.items():
        assert triage(capsys, path) == (2, f"diagnose: {message}\n", {})
    assert triage(capsys, "") == (2, "diagnose: one of the paths is empty\n", {})


def test_of_several_paths_those_that_cannot_be_read_are_notes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").write_bytes(TRACEBACK)
    status, err, answer = triage(capsys, tmp_path / "a.log", tmp_path / "gone.log")
    assert (status, err) == (0, "note: gone.log: no such file or directory\n")
    assert answer["root_cause"]["class"] == "crash.gpu_oom"


LONG = b"[rank1]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate " + b"x y " * (
    13 << 20
)
BARS = b"".join(b"\r %3d%%|##  | %d/99 [00:09<00:09, 1.10it/s]" % (n, n) for n in range(60))


@pytest.mark.parametrize(
    ("data", "verdict", "cause", "ranks"),
    [
        (TRACEBACK.decode().encode("utf-16"), "failed", "crash.gpu_oom", [1]),
        (
            gzip.compress(TRACEBACK + random.Random(7).randbytes(999).hex().encode(), mtime=0)[
                :-40
            ],
            "failed",
            None,
            [1],
        ),
        (TRACEBACK[: TRACEBACK.index(b"Tried")], "failed", "crash.gpu_oom", [1]),
        (LONG, "failed", "crash.gpu_oom", [1]),
        (b"x" * (50 << 20), "unknown", "unknown", []),
        (BARS, "healthy", "none", []),
        (BARS + b"\r" + TRACEBACK.replace(b"\n", b"\r"), "failed", "crash.gpu_oom", [1]),
        (b"hello world\n", "unknown", "unknown", []),
    ],
    ids=["utf-16", "gz cut", "half a line", "52 MB line", "50 MB", "bars", "CR", "no job"],
)
def test_odd_logs_are_diagnosed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    data: bytes,
    verdict: str,
    cause: str | None,
    ranks: list[int],
) -> None:
    (tmp_path / "a.log").write_bytes(data)
    status, _, answer = triage(capsys, tmp_path / "a.log")
    assert (status, answer["verdict"]) == (0, verdict)
    assert answer["root_cause"]["class"] == (cause or "crash.gpu_oom")
    assert answer["culprits"]["ranks"] == ranks


def test_the_log_of_one_waiting_rank_blames_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (ROOT / "fixtures" / "torchrun-missing-rank" / "console.log").read_text("utf-8")
    one = [line for line in whole.splitlines() if "[rank3]" in line]
    (tmp_path / "rank3.log").write_text("\n".join(one))
    _, _, answer = triage(capsys, tmp_path / "rank3.log")
    assert (answer["verdict"], answer["root_cause"]["confidence"]) == ("hung", "low")
    assert (answer["culprits"]["ranks"], answer["culprits"]["hosts"]) == ([], [])
    assert answer["missing_evidence"]


OWN = """\
signatures:
  - id: own.store.gone
    title: The token store was not mounted
    class: slow.storage
    role: cause
    strength: decisive
    culprit: self
    match: ['token store (?P<name>\\S+) not mounted']
    remedies:
      - {when: now, do: Mount it, why: The job reads it first, command: 'mount /tokens'}
    restart: fix_first
    references: ['https://example.org/tokens']
    examples:
      match: [{line: 'rank 3: token store a not mounted', captures: {name: a}}]
      near_miss: ['token store a mounted']
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.yaml").write_text(OWN)
    return tmp_path


def test_catalog_list(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["catalog", "list", "--patterns", str(own), "--class", "slow.storage"]
    assert cli.run(arguments) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    wanted = ["own.store.gone", "cause", "slow.storage", "The", "token"]
    assert wanted in [row[:5] for row in rows]
    assert {row[2] for row in rows} == {"slow.storage"}
    assert cli.run([*arguments, "--role", "aftermath"]) == 0
    assert capsys.readouterr().out == ""


def test_catalog_show(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["catalog", "show", "own.store.gone", "--patterns", str(own)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "own.store.gone  The token store was not mounted"
    for line in (
        "  class       slow.storage",
        "  to blame    the rank or host that printed it",
        r"  token store (?P<name>\S+) not mounted",
        "  Mount it. The job reads it first.",
        "      mount /tokens",
        "  Fix first, then restart.",
        "  https://example.org/tokens",
    ):
        assert line in lines


def test_explain(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "slow.storage", "--patterns", str(own)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("slow.storage  ")
    assert "What to do now" in out
    assert "  own.store.gone: The token store was not mounted" in out.splitlines()


def test_catalog_check_passes_and_counts(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["catalog", "check", str(own)]) == 0
    assert capsys.readouterr().out.endswith(" cause classes: no problems\n")


def test_catalog_check_finds_a_pattern_that_misses_its_example(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own / "own.yaml").write_text(OWN.replace("rank 3: token store a not", "token store not"))
    assert cli.run(["catalog", "check", str(own)]) == 1
    assert "own.store.gone" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (OWN.replace("culprit", "kulprit"), "own.yaml:7: own.store.gone: kulprit: "),
        (OWN.replace("decisive", "huge"), "own.yaml:6: own.store.gone: strength: "),
        (OWN.replace("role: cause", "role: [cause"), "own.yaml:6: not valid YAML: "),
        (OWN.replace("(?P<name>", "((?P<name>"), "own.store.gone: does not compile: "),
        (
            OWN.replace("slow.storage", "slow.disk"),
            "own.store.gone: class: unknown class slow.disk",
        ),
        ('!!python/object/apply:os.system ["id"]', "own.yaml:1: not valid YAML: "),
        ("just text", "own.yaml:1: expected a mapping with signatures"),
    ],
    ids=["unknown field", "wrong value", "YAML", "pattern", "class", "code", "text"],
)
def test_wrong_signatures_are_told_with_file_line_and_field(
    own: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (own / "own.yaml").write_text(text)
    (own / "a.log").write_text("[rank3]: token store a not mounted\n")
    status, err, answer = triage(capsys, own / "a.log", "--patterns", own)
    assert (status, answer) == (2, {})
    assert message in err
    assert err.startswith("diagnose: ")
    assert err.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
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


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_bytes(TRACEBACK)
    (tmp_path / "logs" / "train.py").write_text("import torch\n")  # costs a note
    return tmp_path / "logs"


def shell(streams: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command with its streams as a shell sets them up."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {streams}', "sh", *COMMAND, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    "streams", ["2>&-", pytest.param("2>/dev/full", marks=pytest.mark.slow)]
)
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


@pytest.mark.parametrize("columns", ["0", "²"])
def test_a_terminal_of_no_width_is_answered(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    columns: str,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert cli.run(["triage", "a.log"]) == 0
    assert capsys.readouterr().out.startswith("HUNG  Wrong interface (high confidence)\n")


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


def test_a_page_replaces_a_file_but_no_folder_and_no_pipe(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("diagnose.report.html.render", lambda *_, **__: "page")
    monkeypatch.chdir(log.parent)
    Path("page.html").write_text("old")
    Path("page.html").chmod(0o600)
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert cli.run(["report", str(log), "-o", "page.html"]) == 0
    assert cli.run(["report", str(log), "-o", "pipe"]) == 0
    capsys.readouterr()
    assert cli.run(["report", str(log), "-o", "."]) == 2
    assert capsys.readouterr().err == "diagnose: cannot write .: is a directory\n"
    assert Path("page.html").read_text() == "page"
    assert Path("page.html").stat().st_mode & 0o777 == 0o600
    assert os.read(reader, 100) == b"page"
    os.close(reader)
    assert sorted(path.name for path in Path().iterdir()) == ["logs", "page.html", "pipe"]


@pytest.mark.parametrize("module", ["typer", "pandas"])
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


def test_a_worker_that_is_killed_is_told_on_one_line(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenProcessPool("A process in the process pool was terminated abruptly")

    monkeypatch.setattr("diagnose.job.load.read", broken)
    assert cli.run(["triage", str(log), "--workers", "2"]) == 2
    assert capsys.readouterr().err.startswith("diagnose: a process of --workers was killed")


def test_the_workers_of_a_job_end_with_it(tmp_path: Path) -> None:
    for rank in range(2):  # what is read in the parent, and what in a worker, never ends
        (tmp_path / f"rank_{rank}.log").write_text("step 1\n")
    code = f"""
import os, sys, time
def scan_source(source, matcher):
    open({str(tmp_path)!r} + "/up-" + str(os.getpid()), "w").close()
    time.sleep(600)
import diagnose.job.load
diagnose.job.load.scan_source = scan_source
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


def check_readme(mark: str, shown: str) -> None:
    """The block behind a mark of the README shows this text."""
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    start = text.index(f"<!-- {mark} -->\n```text\n") + len(f"<!-- {mark} -->\n```text\n")
    end = text.index("```\n<!-- end -->", start)
    if os.environ.get("UPDATE_EXPECTED"):
        readme.write_text(text[:start] + shown + text[end:], encoding="utf-8")
    else:
        assert text[start:end].splitlines() == shown.splitlines()


def test_the_readme_shows_what_the_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command = "diagnose triage fixtures/torchrun-missing-rank"
    assert cli.run(["triage", str(ROOT / "fixtures" / "torchrun-missing-rank")]) == 0
    # the first screen and the evidence; the rest is for those who run it
    first, _, _ = capsys.readouterr().out.partition("What happened, in order\n")
    check_readme("output", f"$ {command}\n{first}[…]\n")


def test_the_readme_shows_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    make = hf.MAKERS["hf-trainer-deepspeed-zero2"]
    for number, step in enumerate((2000, 2500, 3000)):
        start = 1_750_000_000.0 + 1800 * number
        make(tmp_path / f"out/checkpoint-{step}", step=step, world=8, start=start)
    last = tmp_path / "out/checkpoint-3000"
    for name in ("trainer_state.json", "rng_state_5.pth"):
        (last / name).unlink()
    cut = next(last.rglob("*zero_pp_rank_5_*_optim_states.pt"))
    cut.write_bytes(cut.read_bytes()[:1000])
    assert cli.run(["checkpoint", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out.replace(str(tmp_path), "/data")
    check_readme("checkpoint", f"$ diagnose checkpoint /data/out\n{out}")


def test_the_signature_in_the_readme_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, rest = (ROOT / "README.md").read_text(encoding="utf-8").partition("```yaml\n")
    (tmp_path / "acme.yaml").write_text(rest.partition("```")[0])
    (tmp_path / "job.log").write_text("[rank3]: token store a not mounted\n")
    cli.run(["catalog", "check", str(tmp_path / "acme.yaml")])
    assert "acme." not in capsys.readouterr().out
    log, own = str(tmp_path / "job.log"), str(tmp_path / "acme.yaml")
    assert cli.run(["triage", log, "--patterns", own, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["root_cause"]["signature"] == "acme.tokens.not-mounted"
    assert answer["culprits"]["ranks"] == [3]
