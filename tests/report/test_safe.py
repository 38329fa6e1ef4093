"""Hostile text and secrets do not pass."""

import json
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.diagnosis import Evidence
from diagnose.redact.redactor import mask, secrets_only
from diagnose.report.safe import clean, each, masked, safe

from .samples import ALL, HUNG


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain \t text", "plain   text"),
        ("\x1b[31;1mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]8;;http://evil\x1b\\click\x1b]8;;\x07", "click"),
        ("\x1b]0;title never ends", ""),
        ("\x1bPq#0;2;0\x1b\\sixel", "sixel"),
        ("a\x1b(Bb\x1bMc", "abc"),
        ("abc\u202egpj.exe\u2066\u200f", "abcgpj.exe"),
        ("nul\x00bell\x07del\x7f", "nulbelldel"),
        ("two\r\nlines\u2028three", "two  lines three"),
        ("half \ud800 pair", "half  pair"),
        ("ünï 日本 ███▊", "ünï 日本 ███▊"),
    ],
)
def test_clean(text: str, expected: str) -> None:
    assert clean(text) == expected


def test_clean_keeps_the_lines_of_a_command() -> None:
    assert clean("a: 1\n  b: 2\x1b[0m", lines=True) == "a: 1\n  b: 2"


def test_clean_bounds_the_length() -> None:
    assert clean("x" * 50, limit=10) == "xxxxxxxxx…"
    assert clean("\x1b[0m" * 10_000 + "x", limit=10) == ""


@given(st.text())
def test_cleaned_text_is_one_printable_line(text: str) -> None:
    once = clean(text)
    assert once.isprintable()
    assert clean(once) == once


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("login hf_abcdefghijklmnopqrstuvwx ok", "login [masked] ok"),
        ("AKIAIOSFODNN7EXAMPLE", "[masked]"),
        ("WANDB_API_KEY=0123456789abcdef", "WANDB_API_KEY=[masked]"),
        ("'hf_token': 'hf_abcdefghijklmnopqrstuvwx'", "'hf_token': '[masked]'"),
        ("Authorization: Bearer abcdefghijklmnopqrst", "Authorization: Bearer [masked]"),
        ("https://me:hunter22@host/x", "https://me:[masked]@host/x"),
        ("password: correcthorse", "password: [masked]"),
        ("eos_token: <|endoftext|>", "eos_token: <|endoftext|>"),
        ("hf_token=None", "hf_token=None"),
        ("pad_token_id=50256, num_tokens: 1234567", "pad_token_id=50256, num_tokens: 1234567"),
        ("tcp://node1:29500", "tcp://node1:29500"),
        ("job a1b2c3d4e5f6a7b8c9d0 sk-1", "job a1b2c3d4e5f6a7b8c9d0 sk-1"),
    ],
)
def test_mask(text: str, expected: str) -> None:
    assert mask(text) == expected


@pytest.mark.parametrize("name", ALL)
def test_safe_reaches_every_string(name: str) -> None:
    def strings(value: object) -> list[str]:
        if isinstance(value, dict):
            return [s for pair in value.items() for part in pair for s in strings(part)]
        if isinstance(value, list):
            return [s for item in value for s in strings(item)]
        return [value] if isinstance(value, str) else []

    for text in strings(safe(ALL[name], secrets_only()).to_dict()):
        assert all(line.isprintable() for line in text.split("\n"))
        assert "hf_" not in text


class Pair(NamedTuple):
    """A tuple with names, one of them as that of an item in a list."""

    name: str
    parts: tuple[str, ...]


def test_tuples_keep_their_type_and_names() -> None:
    seen: list[str] = []

    def change(text: str, field: str) -> str:
        seen.append(field)
        return text.upper()

    found = each([Pair("a", ("b", "c"))], change, "pairs")
    assert found == [Pair("A", ("B", "C"))]
    assert type(found[0]) is Pair
    assert seen == ["name", "parts", "parts"]


def test_masked_changes_secrets_only() -> None:
    leak = Evidence("a.log", 1, "\x1b[0mHF_TOKEN=hf_abcdefghijklmnopqrstuvwx", "")
    diagnosis = masked(type(HUNG)("hung", HUNG.root_cause, evidence=[leak]))
    text = json.loads(diagnosis.to_json())["evidence"][0]["text"]
    assert text == "HF_TOKEN=[masked]"
    plain = Evidence("a.log", 1, "\x1b[0mred\u200b", "")
    assert masked(type(HUNG)("hung", HUNG.root_cause, evidence=[plain])).evidence == [plain]
    assert masked(HUNG) == HUNG
