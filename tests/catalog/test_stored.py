"""The catalog comes back from between runs as it was, but for its examples."""

from pathlib import Path

import pytest

from diagnose.catalog import stored
from diagnose.catalog.schema import (
    Catalog,
    CauseClass,
    Condition,
    Example,
    KnownIssue,
    Match,
    Near,
    Place,
    Remedy,
    Run,
    Setting,
    Signature,
    Vocabulary,
    Word,
)

RUN = Run("shell", ["a", "b"], "slurm", "f")
STEP = Remedy("now", "do", "why", [RUN], "destructive", "admin", "timeout")
WRITTEN = [Match(["x"], examples=[Example("a")])]
CATALOG = Catalog(
    [Signature("a.b", "t", "cause", ["x"], remedies=[STEP], written=WRITTEN, near_miss=["b"])],
    [KnownIssue("c.d", "t", "env.config", "s", "low", [Condition(op=["X"])], remedies=[STEP])],
    {"env.config": CauseClass("env.config", "t", "e", [STEP], "retry", "w", busy=["checkpoint"])},
    "0123",
    settings={"timeout": Setting("timeout", "t", "a", [Place(RUN, "https://a", "jax")])},
    vocabularies=[
        Vocabulary("w", "a", ["https://b"], [Word(["x"], "none", "weak", near=[Near("n", "c.d")])]),
        Vocabulary("v", "a", [], [], "(?P<word>x)", ["x"], "code"),
    ],
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def keep(changed: tuple[bytes, bytes] = (b"", b"")) -> None:
    """Keep the catalog, with something changed as nobody who damages a file does."""
    sections = stored.sections(CATALOG)
    stored.keep("0123.catalog", {name: data.replace(*changed) for name, data in sections.items()})


def test_all_but_the_examples_comes_back() -> None:
    keep()
    back = stored.read("0123")
    assert back is not None
    assert (back.signatures[0].examples, back.signatures[0].near_miss) == ([], [])
    assert back.signatures[0].remedies == back.by_id["a.b"].remedies == [STEP]
    assert [*stored.sizes(back.signatures)] == stored.sizes(CATALOG.signatures) == [1]
    assert [*back.known_issues] == CATALOG.known_issues
    assert [*back.vocabularies] == CATALOG.vocabularies
    assert back.classes == CATALOG.classes
    assert back.settings == CATALOG.settings
    assert stored.read_examples(back) == [("a.b", "a")]


@pytest.mark.parametrize(
    "change", [(b'"lengths"', b'"length"'), (b'"title"', b'"titel"'), (b"{", b"["), (b"a", b"\xff")]
)
def test_what_cannot_be_read_is_not_there(change: tuple[bytes, bytes]) -> None:
    keep(change)
    assert stored.read("0123") is None


def test_a_damaged_entry_shows_before_it_is_asked_for(tmp_path: Path) -> None:
    keep()
    path = tmp_path / "diagnose" / "0123.catalog"
    data = path.read_bytes()
    assert b'"a.b", "title"' in data
    path.write_bytes(data.replace(b'"a.b", "title"', b'"a.b"; "title"'))
    assert stored.read("0123") is None


def test_another_revision_is_not_there() -> None:
    keep()
    assert stored.read("4567") is None
