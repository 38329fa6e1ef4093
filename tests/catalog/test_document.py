"""What a catalog file may hold, and that each thing else is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from diagnose.catalog import document
from diagnose.catalog.document import MAX_DEPTH, DocumentError, read

LAUGHS = "a: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
PATTERNS = Path(__file__).parents[2] / "patterns"
BOTH = [yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)]


@pytest.fixture(params=BOTH, ids=["python", "libyaml"])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    monkeypatch.setattr(document, "_LOADER", request.param)
    return request.param  # type: ignore[no-any-return]


@pytest.mark.usefixtures("loader")
def test_data_and_lines() -> None:
    text = """\
# comment
first: [a, yes, ~, "12", 'no']
second:
  key: &k {on: off, 7: x}
  again: *k
third: |
  two
  lines
"""
    root = read(text.encode())
    assert root.data == {
        "first": ["a", True, None, "12", "no"],
        "second": {"key": {"on": False, "7": "x"}, "again": {"on": False, "7": "x"}},
        "third": "two\nlines\n",
    }
    paths: list[list[str | int]] = [
        [], ["first"], ["first", 4], ["second", "key"], ["second", "key", "7"], ["third"],
        ["first", 5], ["second", "none"], ["third", "x"],
    ]  # fmt: skip
    assert [*map(root.line_of, paths)] == [2, 2, 2, 4, 4, 6, 2, 3, 6]


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize("text", ["", "# nothing\n", "\n\n"])
def test_nothing(text: str) -> None:
    assert read(text.encode()).data is None


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings(encoding: str) -> None:
    root = read("a: \u00e9\U0001f600\r\nb: c\r\n".encode(encoding))
    assert root.data == {"a": "\u00e9\U0001f600", "b": "c"}


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(
    ("data", "line", "problem"),
    [
        (LAUGHS, 1, "more than 100,000 entries"),
        pytest.param(
            "a:\n" + "- x\n" * 100_000,
            100_000,
            "more than 100,000 entries",
            marks=pytest.mark.slow,
        ),
        ("a: &a\n- *a\n", 1, f"nested more than {MAX_DEPTH} deep"),
        ("a: *b\n", 1, "undefined alias"),
        ("a:\n  &k b: c\n  *k : d\n", 2, "b: the key appears twice"),
        ("x: y\n? [a, b]\n: c\n", 2, "a key must be a text"),
        ("? {a: b}\n: c\n", 1, "a key must be a text"),
        ("a: 1\na: 2\n", 1, "1: is of type int"),
        ("a: b\na: c\n", 2, "a: the key appears twice"),
        ("a: [b, {c: d,\n c: e}]\n", 2, "c: the key appears twice"),
        ("a: 2026-13-45\n", 1, "2026-13-45: is of type timestamp"),
        ("a: " + "9" * 10_000, 1, "is of type int"),
        ("a: .nan\n", 1, ".nan: is of type float"),
        ("a: 0x_\n", 1, "is of type int"),
        ("a: !!binary '!'\n", 1, "tag tag:yaml.org,2002:binary is not allowed"),
        ("a:\n  !!python/name:os.system x\n", 2, "is not allowed"),
        ("a: !mine {b: c}\n", 1, "the tag !mine is not allowed"),
        ("a: b\n---\na: c\n", 2, "found another document"),
        ("[" * 100_000, 1, f"nested more than {MAX_DEPTH} deep"),
        ("{a: " * 100_000, 1, f"nested more than {MAX_DEPTH} deep"),
        ("- " * 100_000, 1, f"nested more than {MAX_DEPTH} deep"),
        ("a: b\nc: [d\n", 3, "not valid YAML"),
        ("a: b\nc: \x01\n", 2, "the character U+0001"),
        ("a: b\n\x00", 2, "the character U+0000"),
        (b"a: b\nc: \xff\n", 2, "not UTF-8 text"),
        (b"\xff\xfea", 1, "not UTF-16 text"),
        ('a: b\nc: "\\ud800"\n', 2, "not valid YAML"),
    ],
)
def test_what_is_refused(data: str | bytes, line: int, problem: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read(data if isinstance(data, bytes) else data.encode())
    assert (caught.value.line, problem in str(caught.value)) == (line, True), caught.value


def test_nothing_of_a_document_is_shared() -> None:
    root = read(b"a: &x [b]\nc: *x\n")
    data = root.data
    data["a"].append("more")
    assert data["c"] == ["b"]


@pytest.mark.slow
def test_every_parser_of_yaml_reads_the_catalog_alike() -> None:
    """Parsers differ in what a plain word in brackets may be; editors have others than libyaml."""
    for path in sorted(PATTERNS.rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        assert yaml.load(text, BOTH[0]) == yaml.load(text, BOTH[1]), path
