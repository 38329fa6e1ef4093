"""`report`: where the page goes."""

import os
from pathlib import Path

import pytest

from diagnose.cli import main as cli


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


def test_without_an_output_the_page_is_report_html_here(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diagnose.report.html.render", lambda *_, **__: "page")
    monkeypatch.chdir(log.parent)
    assert cli.run(["report", str(log)]) == 0
    assert Path("report.html").read_text() == "page"
