from __future__ import annotations

import json
from pathlib import Path
from typing import IO

import pytest

from diagnose.collect import bundle
from diagnose.collect.bundle import Sink
from diagnose.redact.redactor import Redactor

TOKEN = "hf_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY2z"


def test_secrets_are_masked_before_they_are_written(sink: Sink) -> None:
    sink.text("a.txt", f"--token {TOKEN}\nhf_\x1b[0m{TOKEN[3:]}")
    sink.json("a.json", {"command": ["x", TOKEN], TOKEN: 1, "deep": {"n": [1.5, None, True]}})
    text = (sink.folder / "a.txt").read_text() + (sink.folder / "a.json").read_text()
    assert TOKEN[5:] not in text
    assert text.count("[masked]") == 4
    assert json.loads((sink.folder / "a.json").read_text())["deep"] == {"n": [1.5, None, True]}
    assert sink.written == len(text)


def test_a_text_is_cut_at_the_limit_and_says_so(tmp_path: Path) -> None:
    sink = Sink(tmp_path, Redactor(people=False, numbers=False), 1000)
    sink.text("a.txt", "line of text\n" * 1000)
    text = (tmp_path / "a.txt").read_text()
    assert len(text) <= 1000
    assert text.endswith("line of text\n[cut here: the probe's limit is reached]\n")
    with pytest.raises(ValueError, match=r"b\.json would have \d+ bytes, over the limit"):
        sink.json("b.json", {"a": "x y " * 1000})


def test_half_a_file_is_not_left(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, _more: int) -> IO[bytes]:
        path.touch()
        return Path("/dev/full").open("wb")

    monkeypatch.setattr(bundle, "private_file", full)
    with pytest.raises(OSError, match=r"No space left on device: 'a\.txt'"):
        sink.text("a.txt", "text")
    assert list(sink.folder.iterdir()) == []


def test_no_link_is_followed(sink: Sink, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    sink.folder.mkdir()
    (sink.folder / "a.txt").symlink_to(victim)
    with pytest.raises(OSError, match=r"a\.txt"):
        sink.text("a.txt", "text")
    assert victim.read_text() == "kept"


def test_messages_are_one_masked_line(sink: Sink) -> None:
    assert sink.one_line(f"it\nsaid  {TOKEN}") == "it said [masked]"
    assert sink.one_line("x" * 900, 20) == "x" * 19 + "…"
