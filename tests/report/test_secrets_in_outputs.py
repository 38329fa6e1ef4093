"""No kind of secret is to be seen in any output: terminal, JSON, Markdown, page, stderr, tables."""

import html as markup
import io
import json
import os
import re
from pathlib import Path

import pytest
from rich.console import Console

import diagnose
from diagnose.cli import main as cli
from diagnose.cli import output as console
from diagnose.collect.bundle import Sink
from diagnose.diagnosis import Diagnosis, Evidence, Reason, RootCause, SourceLine
from diagnose.redact.redactor import Redactor
from diagnose.report import html, markdown, slack, terminal
from diagnose.report.safe import escaped, masked, scrubber
from diagnose.serve.work import kept_text
from tests.sizes import few

from .corpus import PEOPLE, PLACES, SECRETS, values

OOM = "[rank0]: torch.OutOfMemoryError: CUDA out of memory."
KINDS = [(line, values(line, redacted)) for line, redacted in SECRETS] + PLACES[::5]
ONE_LINE = [(line, found) for line, found in KINDS if "\n" not in line]
PIECE = 12  # characters of a secret that must not be seen either


def pieces(found: dict[str, str], *, people: bool) -> set[str]:
    """What must not be seen: the values, and every piece of a long one.

    Three characters without blanks may stand in a revision by chance.
    """
    wanted: set[str] = set()
    for value, kind in found.items():
        if kind not in PEOPLE:
            wanted.add(value)
            cut = {value[at : at + PIECE] for at in range(len(value) - PIECE + 1)}
            wanted |= {text for text in cut if len(re.findall(r"\w", bare(text))) >= 8}
            wanted = {text for text in wanted if re.search(r"\d", bare(text))} | {value}
        elif people:
            wanted.add(value)
    return {text for text in wanted if len(bare(text)) >= 4}


def bare(text: str) -> str:
    """Without what an output adds inside of a line: breaks, bars, escapes."""
    return re.sub(r"[\s│\u200b]|\\(?=[^\w\s])", "", markup.unescape(text))


def unseen(text: str, *found: dict[str, str], people: bool = False) -> None:
    """No value of these, and no piece of one, is in the text."""
    plain = bare(text)
    wanted = {bare(piece) for one in found for piece in pieces(one, people=people)}
    assert [piece for piece in wanted if piece in plain] == []


# Many lines in one test: a test for each costs more than what it looks at.
BATCHES = pytest.mark.parametrize("batch", few([KINDS[at::6] for at in range(6)], 2), ids=range(6))


def told(line: str, number: int = 1) -> Diagnosis:
    """A diagnosis that quotes a line everywhere."""
    return Diagnosis(
        "failed",
        RootCause("crash.exception", line, line, "low"),
        evidence=[Evidence(f"{number}.log", number, line, f"case {number}")],
        notes=[line],
        reasons=[
            Reason("verdict", "won", line, line, line, line, line, line, "proven"),
            Reason("event", "absolved", line, line, line, places=[SourceLine(line, number)]),
        ],
    )


def test_there_are_enough_kinds() -> None:
    secret = [line for line, found in KINDS if set(found.values()) - PEOPLE]
    assert len(secret) >= 560


@BATCHES
@pytest.mark.slow
def test_terminal_json_markdown_github_and_slack(batch: list[tuple[str, dict[str, str]]]) -> None:
    for line, found in batch:
        _in_all_forms(line, found)


def _in_all_forms(line: str, found: dict[str, str]) -> None:
    diagnosis = told(line)
    sink = io.StringIO()
    for why in (False, True):
        terminal.render(diagnosis, Console(file=sink, width=200), why=why)
    unseen(sink.getvalue(), found)
    unseen(escaped(masked(diagnosis).to_json()), found)
    unseen(markdown.render(diagnosis, why=True), found, people=True)
    unseen(markdown.render_issue(diagnosis), found, people=True)
    message = slack.render(diagnosis)
    blocks = [block["text"]["text"] for block in message["blocks"]]
    unseen("\n".join([message["text"], *blocks]), found, people=True)


@BATCHES
def test_kept_logs_bundles_and_lines_of_a_page_or_an_answer(
    tmp_path: Path, batch: list[tuple[str, dict[str, str]]]
) -> None:
    for number, (line, found) in enumerate(batch):
        folder = tmp_path / str(number)
        folder.mkdir()
        _in_copies(folder, line, found)


def _in_copies(folder: Path, line: str, found: dict[str, str]) -> None:
    around = f"step 6\n{line}\nstep 7"
    unseen(kept_text(around, Redactor()), found, people=True)
    sink = Sink(folder, Redactor(), 1 << 20)
    sink.text("log.txt", around)
    sink.json("process.json", {"command": [line]})
    unseen("".join(path.read_text() for path in folder.iterdir()), found, people=True)
    scrub = scrubber(redact=True)
    unseen("\n".join(scrub.block(around.split("\n"))), found, people=True)
    unseen(scrubber(redact=True).lines(around), found, people=True)


@pytest.mark.slow
def test_messages() -> None:
    for line, found in KINDS:
        unseen(console.clean(f"cannot read {line}: no such file"), found)
        unseen(console.clean(repr(line)), found)


@pytest.mark.slow
def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One-line secrets are evidence themselves, others stand beside it."""
    monkeypatch.setattr("diagnose.report.html.page.MAX_EVIDENCE", 1000)
    evidence = []
    for number, (line, _) in enumerate(KINDS):
        if "\n" in line:
            (tmp_path / f"{number}.log").write_text(f"{OOM}\n{line}\nstep 7\n")
            evidence.append(Evidence(f"{number}.log", 1, OOM, f"case {number}"))
        else:
            evidence.append(Evidence(f"x{number}.log", 1, line, f"case {number}"))
    cause = RootCause("crash.gpu_oom", "out of memory", "", "high")
    page = html.render(diagnose.load(tmp_path), Diagnosis("failed", cause, evidence=evidence))
    unseen(page, *(found for _, found in KINDS))
    assert page.count("[private-key-") > 20


def fitting(line: str) -> bool:
    return "/" not in line and "\0" not in line and len(line.encode()) <= 240


@pytest.mark.slow
def test_names_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Names stand in notes on stderr, in the list of sources and in the results."""
    monkeypatch.setattr("diagnose.cli.job.MAX_NOTES", 10_000)
    names = [(f"{line}.log", found) for line, found in ONE_LINE if fitting(line)]
    assert len(names) > 250
    (tmp_path / "rank_0.log").write_text(f"{OOM}\n")
    for name, _ in names:
        os.mkfifo(tmp_path / name)
    asked = (
        ["triage"], ["triage", "--why"], ["triage", "--format", "json"], ["report", "-o", "-"],
        ["issue", "--for", "nccl"],
    )  # fmt: skip
    for arguments in asked:
        assert cli.run([*arguments, str(tmp_path)]) == 0
        out, err = capfd.readouterr()
        assert err.count("named pipe") == len(names)
        unseen(f"{err}\n{out}", *(found for _, found in names))


@pytest.mark.parametrize(
    "arguments",
    [
        ["checkpoint", "https://user:S3CRETpw1@127.0.0.1:1/x"],
        ["scan", "https://user:S3CRETpw1@127.0.0.1:1/x", "-o", "R"],
        ["triage", "no/password=S3CRETpw1/x"],
        ["triage", "https://user:S3CRETpw1@git.example.org"],
        ["explain", "password=S3CRETpw1"],
        ["issue", "--for", "password=S3CRETpw1"],
        ["triage", "--password=S3CRETpw1"],
        ["catalog", "list", "--class", "password:S3CRETpw1"],
    ],
)
def test_errors_do_not_repeat_the_secrets_of_a_command_line(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(arguments) == 2
    out, err = capfd.readouterr()
    assert err
    assert "S3CRETpw1" not in out + err


def test_a_secret_of_the_lines_around_is_known_without_its_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The evidence shows the value alone, or a piece of it; its name stands three lines above."""
    log = tmp_path / "job.log"
    log.write_text(
        "export SERVICE_PASSWORD=Zq7kLmN2pRsTvWx\nstep 1\nstep 2\n"
        f"{OOM} while Zq7kLmN2pRsTvWx was sent; Zq7kLmN2pRsT\n"
    )
    for arguments in (
        ["triage"],
        ["triage", "--format", "json"],
        ["triage", "--format", "markdown"],
        ["report", "-o", "-"],
        ["issue", "--for", "pytorch"],
    ):
        assert cli.run([*arguments, str(log)]) == 0
        out, err = capfd.readouterr()
        assert "Zq7kLmN2pRsT" not in bare(out + err)
        assert "wassent" in bare(out)


def test_json_holds_no_invisible_character(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """C1, DEL, bidi and zero-width characters stand as their codes, and the text is the same."""
    hostile = "a\x9b31m\x7f\u202egpj\u200b\u2066\ufeff\U000e0041z"
    text = escaped(json.dumps({"text": hostile}, ensure_ascii=False))
    assert text.isascii()
    assert json.loads(text) == {"text": hostile}
    (tmp_path / "job.log").write_text(f"{OOM} {hostile} hf_{'aB3d' * 3}\u200b{'eF6g' * 6}\n")
    assert cli.run(["triage", "--format", "json", str(tmp_path)]) == 0
    out, _ = capfd.readouterr()
    assert all(char.isprintable() or char == "\n" for char in out)
    assert "eF6g" not in out
