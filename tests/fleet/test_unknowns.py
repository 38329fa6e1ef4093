"""What nobody could explain, grouped by how it ends."""

import re

import pytest

from diagnose.fleet.recurring import MAX_KEY, normalise, pattern, unknowns, unreadable

from .frames import frame, row, typed


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("shard 17 of 1,024 gave up after 3.5 s", "shard <n> of <n> gave up after <n> s"),
        ("cannot open /data/x/part-0007.bin: no", "cannot open <path>: no"),
        ("at 0x7f33aa of deadbeef0123", "at <hex> of <hex>"),
        ("2025-06-02 10:11:12,345 to 10.0.0.7:29500", "<time> to <address>"),
        ("gpu007 lost gpu0070", "<host> lost gpu<n>"),
        ("run 123e4567-e89b-12d3-a456-426614174000 ended", "run <uuid> ended"),
        ("  two\n lines\t", "two lines"),
        ("read/write w/o a path", "read/write w/o a path"),
    ],
)
def test_what_differs_is_taken_out(text: str, normal: str) -> None:
    assert normalise(text, ["gpu007"]) == normal
    assert re.fullmatch(pattern(normal), " ".join(text.split()))


def test_long_text_is_cut() -> None:
    assert len(normalise("word " * 10_000)) == MAX_KEY


def test_jobs_that_end_alike_are_one_group() -> None:
    told = {"verdict": "unknown", "class": "unknown", "title": "The evidence does not tell"}
    rows = [
        row(f"j{n}", n, **told, notes=["a note", f"the log ends with: shard {n} gave up on n{n}"],
            hosts=[f"n{n}"], frameworks=["megatron"], gpu_hours_lost=2.0)
        for n in range(7)
    ]  # fmt: skip
    rows += [row("other", 3, **told), row("bad", 3, **told, error="cut")]
    first, second = unknowns(typed(frame(*rows)))
    assert first.text == "the log ends with: shard <n> gave up on <host>"
    assert first.example == "the log ends with: shard 6 gave up on n6"
    assert (first.jobs, first.gpu_hours_lost, first.frameworks) == (7, 14.0, ["megatron"])
    assert first.examples == ["j6", "j5", "j4", "j3", "j2"]
    assert (second.text, second.jobs) == ("The evidence does not tell", 1)
    assert [gap.text for gap in unreadable(typed(frame(*rows)))] == ["cut"]


def test_a_failed_job_without_a_cause_is_one_of_them() -> None:
    told = {"verdict": "failed", "class": "unknown", "title": "The evidence does not tell"}
    rows = frame(row("j", **told, notes=["a note"]))
    [gap] = unknowns(typed(rows, {"j.tar.gz": "frobnicator 7 gave up"}))
    assert gap.text == "frobnicator <n> gave up"


def test_errors_are_grouped_too() -> None:
    rows = [row(f"e{n}", verdict=None, error=f"e{n}.tar.gz: member {n} is cut") for n in range(3)]
    [gap] = unreadable(typed(frame(*rows, row("fine"))))
    assert (gap.text, gap.jobs) == ("e<n>.tar.gz: member <n> is cut", 3)
