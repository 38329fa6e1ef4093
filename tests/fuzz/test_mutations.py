"""Each mutation does what its name says, the same for the same seed."""

from __future__ import annotations

import re
from random import Random

import pytest

from tests.fuzz import corpus, oracles
from tests.fuzz.case import Case, File
from tests.fuzz.mutations import MUTATIONS, Grade, Mutation, of_grade

LINES = [b"one", b"two", b"[rank1]: three", b"four"]
SPARE = frozenset([b"two", b"four"])


def case(*datas: bytes, spare: frozenset[bytes] = SPARE) -> Case:
    files = (File(f"rank_{n}.log", data, spare=spare) for n, data in enumerate(datas))
    return Case("x", tuple(files))


def lines(case: Case | None) -> list[bytes]:
    assert case is not None
    return case.files[0].data.splitlines()


def once(name: str, what: Case, seed: object = 0) -> Case:
    changed = MUTATIONS[name].change(what, Random(str(seed)))
    assert changed is not None
    return changed


TEXT = b"\n".join(LINES) + b"\n"


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=lambda mutation: mutation.name)
def test_a_mutation_changes_something_and_always_the_same(mutation: Mutation) -> None:
    changed = 0
    for name in ("lab-sigkill", "lab-key-error", "healthy-axolotl", "lab error by_rank"):
        start = corpus.case(name)
        for seed in range(3):
            one, two = (mutation.change(start, Random(f"{name} {seed}")) for _ in range(2))
            assert one == two
            changed += one is not None and one != start
    assert changed > 0


@pytest.mark.parametrize("mutation", of_grade(Grade.SAME), ids=lambda mutation: mutation.name)
def test_what_is_stored_otherwise_says_the_same(mutation: Mutation) -> None:
    start = corpus.case("lab error by_rank")
    for seed in range(4):
        changed = once(mutation.name, start, seed)
        found = {fatal.text for fatal in oracles.fatal_lines(changed)}
        assert found == {fatal.text for fatal in oracles.fatal_lines(start)} != set()


@pytest.mark.parametrize("name", ["drop_spare", "double_spare", "blank_lines", "colours", "quoted"])
def test_harmless_mutations_keep_all_lines_but_the_spare(name: str) -> None:
    for seed in range(5):
        left = [
            re.sub(rb"\x1b\[[\d;]*m", b"", line).removeprefix(b"> ")
            for line in lines(once(name, case(TEXT), seed))
        ]
        assert [line for line in left if line and line not in SPARE] == [LINES[0], LINES[2]]


def test_mutations_that_store_otherwise() -> None:
    assert once("windows_lines", case(b"a\r\nb\nc")).files[0].data == b"a\r\nb\r\nc"
    assert once("byte_order_mark", case(TEXT)).files[0].data == b"\xef\xbb\xbf" + TEXT
    assert once("folder", case(TEXT)).files[0].name.endswith("/rank_0.log")
    assert once("chunks", case(b"x" * 20_000)).chunk_limit == 20_001
    both = once("order", case(b"a", b"b", b"c"), 1)
    assert sorted(both.files, key=lambda file: file.name) == list(case(b"a", b"b", b"c").files)


def test_damage() -> None:
    assert TEXT.startswith(once("truncate", case(TEXT)).files[0].data)
    assert TEXT.startswith(once("truncate_line", case(TEXT), 1).files[0].data)
    assert TEXT.endswith(once("behead", case(TEXT)).files[0].data)
    assert sorted(lines(once("shuffle", case(TEXT)))) == sorted(LINES)
    assert len(once("flip", case(TEXT)).files[0].data) == len(TEXT)
    assert len(once("other_numbers", case(TEXT)).files[0].data) == len(TEXT)
    assert len(lines(once("flood", case(TEXT)))) >= 104
    assert b"".join(lines(once("join_lines", case(TEXT)))) == b"".join(LINES)
    assert once("nuls", case(TEXT)).files[0].data.replace(b"\0", b"") == TEXT
    wrapped = lines(once("wrap", case(b"x" * 500)))
    assert b"".join(line.strip() for line in wrapped) == b"x" * 500
    assert max(map(len, wrapped)) <= 208


def test_two_jobs_know_the_lines_of_both() -> None:
    start = corpus.case("lab-sigkill")
    for name in ("interleave", "two_jobs"):
        both = once(name, start, 3)
        assert both.fatal >= start.fatal
        assert both.size > start.size


def test_a_cut_file_is_known_to_be_cut() -> None:
    cut = once("cut_packed", corpus.case("healthy-axolotl"))
    assert cut.cut
    assert not cut.files[0].log


def test_nothing_to_do() -> None:
    assert MUTATIONS["order"].change(case(TEXT), Random(0)) is None
    assert MUTATIONS["quoted"].change(case(TEXT, TEXT), Random(0)) is None
    assert MUTATIONS["truncate"].change(case(b""), Random(0)) is None
    assert MUTATIONS["wide"].change(case(b"caf\xe9"), Random(0)) is None
