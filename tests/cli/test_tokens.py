"""The token that a server asks for."""

from pathlib import Path

import pytest

from diagnose.cli.serve import token_of
from diagnose.errors import InputError


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "at least 16"), ("short", "at least 16"), ("a b\x00" * 10, "at least 16"),
        ("é" * 20, "plain ASCII"), ("x" * 4097, "at least 16"),
    ],
)  # fmt: skip
def test_a_token_keeps_somebody_out(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "token"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=why):
        token_of(file)


def test_a_token_is_a_line(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    assert token_of(file) == "0123456789abcdef"
    with pytest.raises(InputError, match="No such file"):
        token_of(tmp_path / "none")
