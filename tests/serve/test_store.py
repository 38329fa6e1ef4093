"""The file of results."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from diagnose.serve.model import Summary
from diagnose.serve.store import Store, new_id

SUMMARY = Summary("hung", "x.y", "high", "A headline", "", "rank 1", 1, "gpu07 allreduce")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results.sqlite")


def add(store: Store, title: str = "") -> str:
    return store.add(new_id(), "text", title, "pasted text", 10, "json input", "").id


def finished(store: Store, title: str = "", data: bytes = b"{}") -> str:
    id_ = add(store, title)
    assert store.begin(id_)
    assert store.finish(id_, SUMMARY, {"json": data})
    return id_


def test_a_result_is_there_as_a_whole_or_not_at_all(store: Store) -> None:
    id_ = add(store)
    store.begin(id_)
    with pytest.raises(sqlite3.Error):
        store.finish(id_, SUMMARY, {"json": b"1", "page": ["no bytes"]})  # type: ignore[dict-item]
    record = store.get(id_)
    assert record is not None
    assert (record.state, record.verdict) == ("running", "")
    assert store.output(id_, "json") is None


def test_a_result_is_kept_once(store: Store) -> None:
    id_ = finished(store)
    assert not store.begin(id_)
    assert not store.finish(id_, SUMMARY, {"json": b"other"})
    store.fail(id_, "late")
    record = store.get(id_)
    assert record is not None
    assert record.state == "done"
    assert store.output(id_, "json") == b"{}"


def test_what_was_deleted_gets_no_result(store: Store) -> None:
    id_ = add(store)
    store.begin(id_)
    assert store.delete(id_)
    assert not store.delete(id_)
    assert not store.finish(id_, SUMMARY, {"json": b"{}"})
    store.add_outputs(id_, {"page": b"x"})
    assert store.output(id_, "page") is None


def test_deleted_text_is_gone_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    store = Store(path)
    needle = b"needle in the file of results"
    id_ = finished(store, data=needle)
    store.delete(id_)
    store.close()
    assert needle not in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600


def test_words_of_a_search_are_words(store: Store) -> None:
    one, other = finished(store, "100%_sure"), finished(store, "100 sure")
    assert [record.id for record in store.search("100%_")] == [one]
    assert [record.id for record in store.search("GPU07 sure")] == [other, one]
    assert store.search("' OR 1=1 --") == []
    assert store.search("gpu08") == []


def test_two_threads_at_once(store: Store) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda number: finished(store, str(number)), range(64)))
    assert len(set(ids)) == 64
    assert store.usage() == (64, 128)
    assert len(store.search(limit=100)) == 64
