"""What the catalog knows of one line, in words."""

from pathlib import Path

from diagnose.known_line import known_line, wording

OWN = """\
signatures:
  - id: acme.store.lost
    title: The store was lost
    role: cause
    class: slow.storage
    match:
      - {regex: 'acme store (?P<name>\\S+) lost', example: acme store a lost}
    unless: [for now]
    near_miss: [acme store a found]
"""


def rows(tmp_path: Path, line: str) -> list[str]:
    (tmp_path / "own.yaml").write_text(OWN)
    return [*wording(known_line(line, [tmp_path / "own.yaml"]))]


def test_what_matches_and_its_captures(tmp_path: Path) -> None:
    assert rows(tmp_path, "[rank3]: acme store b lost") == [
        "matches acme.store.lost: The store was lost (cause, slow.storage, strong)",
        "captures name=b",
    ]


def test_what_would_match_without_its_exceptions(tmp_path: Path) -> None:
    found = rows(tmp_path, "acme store b lost for now")
    assert found[:3] == [
        "no signature and no word of the catalog matches this line",
        "would match acme.store.lost: The store was lost (cause, slow.storage, strong)",
        "unless the line had for now",
    ]


def test_which_examples_share_its_words(tmp_path: Path) -> None:
    found = rows(tmp_path, "acme store: lost")
    assert found[0] == "no signature and no word of the catalog matches this line"
    assert "shares 75% of the words with acme.store.lost: The store was lost" in found[-1]


def test_what_its_words_suggest(tmp_path: Path) -> None:
    found = rows(tmp_path, "[rank3]: cannot extend the restart file: the disk quota is exhausted")
    (read,) = [row for row in found if row.startswith("its words")]
    assert "quota" in read
    assert "suggest env.storage" in read
