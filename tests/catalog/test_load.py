import os
import re
import stat
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import hyperscan
import pytest

from diagnose.catalog import document, load
from diagnose.catalog.document import read_catalog
from diagnose.catalog.load import catalog_files, load_catalog
from diagnose.catalog.schema import Catalog
from diagnose.errors import CatalogError
from diagnose.match.compile import compile_matcher

GOOD = """\
signatures:
  - id: mine.lost-license
    title: The license server went away
    role: cause
    class: env.config
    match: [{regex: 'LICENSE (?P<name>\\w+) LOST', example: LICENSE abc LOST}]
    near_miss: [LICENSE abc found]
    remedies: [{when: now, do: Renew it}]
    restart: fix_first
    references: [https://example.org/license]
"""


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(tmp_path: Path, text: str) -> Path:
    directory = tmp_path / "mine"
    directory.mkdir(exist_ok=True)
    (directory / "mine.yaml").write_text(text)
    return directory


def afresh() -> Catalog:
    """The shipped catalog as another process would load it."""
    load._base.cache_clear()
    return load_catalog()


def test_own_entries_join_the_shipped_ones(tmp_path: Path) -> None:
    shipped = len(load_catalog().signatures)
    catalog = load_catalog([write(tmp_path, GOOD)])
    assert len(catalog.signatures) == shipped + 1
    assert catalog.signatures[-1].cause == "env.config"


def test_an_own_entry_replaces_the_shipped_one_where_it_stood(tmp_path: Path) -> None:
    shipped = load_catalog()
    text = GOOD.replace("mine.lost-license", shipped.signatures[3].id)
    own = load_catalog([write(tmp_path, text)])
    assert [s.id for s in own.signatures] == [s.id for s in shipped.signatures]
    assert own.signatures[3].title == "The license server went away"
    assert own.revision != shipped.revision


@pytest.mark.usefixtures("own_cache")
@pytest.mark.slow
def test_the_cached_catalog_equals_the_read_one(monkeypatch: pytest.MonkeyPatch) -> None:
    first = afresh()
    monkeypatch.setattr(load, "read_shipped", None)  # a second read would fail
    second = afresh()
    assert second.revision == first.revision
    assert [*second.signatures] == [replace(s, written=[], near_miss=[]) for s in first.signatures]
    assert [*second.known_issues] == [
        replace(one, examples=[], near_miss=[]) for one in first.known_issues
    ]
    assert second.classes == first.classes


@pytest.mark.usefixtures("own_cache")
def test_own_entries_are_read_once_and_again_where_what_was_kept_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Mock(wraps=document.joined)
    monkeypatch.setattr(document, "joined", read)
    own = write(tmp_path, GOOD)

    def afresh() -> str:
        load._extended.cache_clear()
        return load_catalog([own]).signatures[-1].cause

    assert [afresh(), afresh()] == ["env.config"] * 2
    assert read.call_count == 1
    (file,) = (tmp_path / "cache" / "diagnose").glob(f"{load_catalog([own]).revision}.*")
    file.write_bytes(file.read_bytes()[:-1])
    assert afresh() == "env.config"
    assert read.call_count == 2


def test_what_was_compiled_is_no_longer_used_when_the_code_that_compiles_changes() -> None:
    code = "import sys, diagnose.match.build; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {
        name for name in done.stdout.split() if re.match(r"diagnose\.(catalog|match)\.", name)
    }
    known = {
        f"diagnose.{folder}.{name}" for folder, names in load.COMPILERS.items() for name in names
    }
    assert imported <= known
    assert {name for name in known if find_spec(name) is None} == set()


def test_the_shipped_entries_are_read_once_a_process() -> None:
    assert load_catalog() is load_catalog()
    assert compile_matcher(load_catalog()) is compile_matcher(load_catalog())


@pytest.mark.parametrize(
    ("change", "line", "problem"),
    [
        (("role: cause", "role: guilt"), 4, "mine.lost-license: role: "),
        (("title:", "titel:"), 2, "mine.lost-license: "),
        (
            ("restart: fix_first", "restart: fix_first\n    blame: me"),
            10,
            "mine.lost-license: blame: ",
        ),
        (("when: now", "when: soon"), 8, "mine.lost-license: remedies.0.when: "),
        (("signatures:", "signature:"), 1, "signature: unknown key"),
        (("class: env.config", "title: again"), 5, "title: the key appears twice"),
        (("match: [", "match: [["), 7, "not valid YAML"),
        (("mine.lost-license", "2026-13-45"), 2, "2026-13-45: is of type timestamp"),
        (("The license", "9" * 10_000 + " #"), 3, "is of type int"),
        (("title: The", "title: .nan #"), 3, "is of type float"),
        (("title:", "? [a, b]\n    : c\n    title:"), 3, "a key must be a text"),
        (("'LICENSE", "'" + "(" * 5000 + "a" + ")" * 5000), 6, "does not compile: longer"),
        (("'LICENSE", "'" + "(" * 900 + "a" + ")" * 900), 6, "does not compile: nested too deeply"),
        (("'LICENSE", "'(LICENSE"), 6, "mine.lost-license: does not compile: missing )"),
        (("'LICENSE", "'(?=LICENSE)"), 6, "not linear-time"),
        (("[{regex", "[plain, {regex"), 6, "match: expected {regex: …, example: …}"),
        (("regex:", "regexp:"), 6, "match: regexp: unknown key"),
        (("regex:", "any_of: [a], regex:"), 6, "match: needs exactly one of regex and any_of"),
        (("regex:", "after: a, regex:"), 6, "match: after and before go with any_of"),
        (("regex: 'LICENSE (?P<name>\\w+) LOST'", "any_of: []"), 6, "any_of: a text is missing"),
        (("example: LICENSE abc LOST", "example: {line: [a]}"), 6, "example: expected a line"),
        (("example: LICENSE abc LOST", "example: {line: a, captures: [a]}"), 6, "captures: expect"),
        (("example: LICENSE abc LOST", "example: {line: a, what: b}"), 6, "what: unknown key"),
        (("regex: ", "after: [a], regex: "), 6, "match: after: expected a text"),
        (("regex: ", "regex: [], regexes: "), 6, "match: regexes: unknown key"),
        (("example: LICENSE abc LOST", "example: [a]"), 6, "example: expected a line"),
        (("example: LICENSE abc LOST", "examples: a"), 6, "examples: expected a list"),
        (("match:", "written: []\n    match:"), 6, "written: unknown key"),
        (("env.config", "env.none"), 5, "mine.lost-license: class: unknown class env.none"),
        (("    class: env.config\n", ""), 4, "mine.lost-license: class: needed for role cause"),
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


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("mine/a.yaml", os.mkfifo),
        ("mine/a.yaml", lambda path: path.symlink_to("/dev/zero")),
        ("mine", os.mkfifo),
    ],
    ids=["pipe", "device", "pipe given"],
)
def test_only_regular_files_are_read(tmp_path: Path, name: str, make: Any) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    make(path)
    with pytest.raises(CatalogError, match=f"^{path}: not a regular file$"):
        list(catalog_files([tmp_path / "mine"]))


def test_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.yaml", "b.yaml", "folder.yaml/c.yml", "c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#" * 10)
    found = [path.name for path, _ in catalog_files([tmp_path])]
    assert found == ["a.yaml", "b.yaml", "c.yml"]
    for bound, value, problem in (
        ("_MAX_FILES", 2, "more than 2 files"),
        ("_MAX_BYTES", 29, "more than 1000 files or 0 MiB"),
        ("_MAX_FILE", 9, "a.yaml: larger than"),
        ("_MAX_MET", 4, "too many files for a folder of signatures"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(load, bound, value)
            with pytest.raises(CatalogError, match=problem):
                list(catalog_files([tmp_path]))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_a_folder_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    directory = write(tmp_path, GOOD)
    directory.chmod(stat.S_IWUSR)
    with pytest.raises(CatalogError, match=f"{directory}: cannot be read: Permission denied"):
        load_catalog([directory])


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    directory = write(tmp_path, GOOD)
    (directory / "mine.yaml").rename(directory / os.fsdecode(b"m\xff.yaml"))
    assert load_catalog([directory]).signatures[-1].id == "mine.lost-license"


@pytest.mark.usefixtures("own_cache")
@pytest.mark.slow
def test_patterns_that_are_too_much_together_are_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(*_: object, literal: bool) -> None:
        raise hyperscan.error("too large")

    catalog = load_catalog([write(tmp_path, GOOD)])
    monkeypatch.setattr("diagnose.match.build.compile_database", too_much)
    with pytest.raises(CatalogError, match="do not compile together: too large"):
        compile_matcher(catalog)


def test_the_same_files_give_the_same_catalog_again(tmp_path: Path) -> None:
    first = load_catalog([write(tmp_path, GOOD)])
    assert load_catalog([write(tmp_path, GOOD)]) is first
    assert load_catalog([write(tmp_path, GOOD.replace("went away", "is gone"))]) is not first
