from pathlib import Path

import pytest

from diagnose.catalog import load
from diagnose.catalog.load import CatalogError, load_catalog, read_catalog

GOOD = """\
signatures:
  - id: mine.lost-license
    title: The license server went away
    role: cause
    class: env.config
    match: ['LICENSE (?P<name>\\w+) LOST']
    remedies: [{when: now, do: Renew it}]
    restart: fix_first
    references: [https://example.org/license]
    examples: {match: [{line: LICENSE abc LOST}], near_miss: [LICENSE abc found]}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(tmp_path: Path, text: str) -> Path:
    directory = tmp_path / "mine"
    directory.mkdir(exist_ok=True)
    (directory / "mine.yaml").write_text(text)
    return directory


def test_own_entries_join_the_shipped_ones(tmp_path: Path) -> None:
    shipped = len(load_catalog().signatures)
    catalog = load_catalog([write(tmp_path, GOOD)])
    assert len(catalog.signatures) == shipped + 1
    assert catalog.signatures[-1].cause == "env.config"


def test_the_cached_catalog_equals_the_read_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_catalog()
    monkeypatch.setattr(load, "read_catalog", None)  # a second read would fail
    second = load_catalog()
    assert second.revision == first.revision
    assert [s.id for s in second.signatures] == [s.id for s in first.signatures]
    assert second.signatures[0].match == first.signatures[0].match
    assert second.classes == first.classes


def test_a_damaged_cache_is_read_anew(tmp_path: Path) -> None:
    first = load_catalog()
    cached = next((tmp_path / "cache" / "diagnose").glob("catalog-*.json"))
    cached.write_bytes(b'{"signatures": [{"id": 1}]')
    assert [s.id for s in load_catalog().signatures] == [s.id for s in first.signatures]


@pytest.mark.parametrize(
    ("change", "line", "problem"),
    [
        (("role: cause", "role: guilt"), 4, "mine.lost-license: role: "),
        (("title:", "titel:"), 2, "mine.lost-license: "),
        (
            ("restart: fix_first", "restart: fix_first\n    blame: me"),
            9,
            "mine.lost-license: blame: ",
        ),
        (("when: now", "when: soon"), 7, "mine.lost-license: remedies.0.when: "),
        (("signatures:", "signature:"), 1, "signature: unknown key"),
        (("class: env.config", "title: again"), 5, "title: the key appears twice"),
        (("['LICENSE", "[['LICENSE"), 7, "not valid YAML"),
    ],
)
def test_errors_name_file_line_and_field(
    tmp_path: Path, change: tuple[str, str], line: int, problem: str
) -> None:
    directory = write(tmp_path, GOOD.replace(*change, 1))
    with pytest.raises(CatalogError) as caught:
        load_catalog([directory])
    message = str(caught.value)
    assert message.startswith(f"{directory / 'mine.yaml'}:{line}: ")
    assert problem in message
    assert "\n" not in message


def test_python_objects_in_yaml_are_refused(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    text = f"signatures: !!python/object/apply:os.system ['touch {marker}']\n"
    with pytest.raises(CatalogError, match="not valid YAML"):
        load_catalog([write(tmp_path, text)])
    assert not marker.exists()


@pytest.mark.parametrize("what", ["missing", "empty"])
def test_a_directory_without_entries_is_an_error(tmp_path: Path, what: str) -> None:
    directory = tmp_path / what
    if what == "empty":
        directory.mkdir()
    with pytest.raises(CatalogError, match=str(directory)):
        load_catalog([directory])


def test_later_entries_replace_earlier_ones_of_the_same_id() -> None:
    second = GOOD.replace("The license server went away", "Another title")
    files = [(Path("a.yaml"), GOOD.encode()), (Path("b.yaml"), second.encode())]
    catalog = read_catalog(files, "test")
    assert [s.title for s in catalog.signatures] == ["Another title"]
