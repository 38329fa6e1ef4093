from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.batch import work
from diagnose.ingest.place import File, LocalPlace, place_of, walk


class Refusing(LocalPlace):
    """A place of which one folder cannot be listed."""

    def listing(self, folder: str, *, every: bool = False) -> tuple[list[File], list[str]]:
        if folder.endswith("secret"):
            raise PermissionError(13, "Permission denied")
        return super().listing(folder, every=every)


@pytest.fixture
def tree(tmp_path: Path) -> str:
    for name in ("a.log", "secret/b.log", "one/c.log", "one/two/d.log"):
        (tmp_path / "job" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "job" / name).write_text("x\n")
    return str(tmp_path / "job")


def test_a_walk_tells_which_folders_it_passed_by(tree: str) -> None:
    missed: list[tuple[str, str]] = []
    assert [file.name for file in walk(Refusing(), tree, 1, missed)] == ["a.log", "c.log"]
    assert missed == [
        (f"{tree}/one/two", "too many folders deep"),
        (f"{tree}/secret", "permission denied"),
    ]


def test_sources_of_a_folder_tell_what_was_not_reached(
    tree: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, path = place_of(f"file://{tree}")
    assert isinstance(place, LocalPlace)
    sources = work._remote_folder(Refusing(), path)
    assert [(s.name, s.unread) for s in sources] == [
        ("a.log", []),
        ("job/secret", ["permission denied"]),
        ("one/c.log", []),
        ("one/two/d.log", []),
    ]
    monkeypatch.setattr(work, "MAX_FILES", 2)
    unread = {s.name: s.unread for s in work._remote_folder(place, path) if s.unread}
    assert unread == {"job": ["only the first 2 files were looked at"]}
