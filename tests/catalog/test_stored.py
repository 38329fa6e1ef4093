"""The catalog comes back from between runs as it was, but for its examples."""

from pathlib import Path

import pytest

from diagnose.catalog import cache, stored
from diagnose.catalog.schema import (
    Catalog,
    CauseClass,
    Condition,
    Example,
    KnownIssue,
    Match,
    Place,
    Remedy,
    Run,
    Setting,
    Signature,
)
from diagnose.catalog.vocabulary import Near, Vocabulary, Word

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


def test_all_but_the_examples_comes_back() -> None:
    stored.write(CATALOG)
    back = stored.read("0123")
    assert back is not None
    assert (back.signatures[0].examples, back.signatures[0].near_miss) == ([], [])
    assert back.signatures[0].remedies == back.by_id["a.b"].remedies == [STEP]
    assert [*stored.sizes(back.signatures)] == stored.sizes(CATALOG.signatures) == [1]
    assert [*back.known_issues] == CATALOG.known_issues
    assert [*back.vocabularies] == CATALOG.vocabularies
    assert back.classes == CATALOG.classes
    assert back.settings == CATALOG.settings


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"signatures": [{"id": 1}]}', b"\xff"])
def test_what_cannot_be_read_is_read_anew(data: bytes) -> None:
    cache.keep("catalog-0123.json", data)
    assert stored.read("0123") is None


@pytest.mark.parametrize("change", [(b'"a.b", "title"', b'"a.b"; "title"'), (b"shell", b"shall")])
def test_a_damaged_entry_shows_before_it_is_asked_for(change: tuple[bytes, bytes]) -> None:
    stored.write(CATALOG)
    kept = cache.read("catalog-0123.json") or b""
    assert change[0] in kept
    cache.keep("catalog-0123.json", kept.replace(*change))
    assert stored.read("0123") is None


def test_another_revision_is_not_there() -> None:
    stored.write(CATALOG)
    assert stored.read("4567") is None
