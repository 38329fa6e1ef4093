"""What lines say to a watch: by the real catalog."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.watch.follow import Lines
from diagnose.watch.notice import AUTHORS, TEMPLATES, Notice, Says, Who
from tests.watch.simulated import memory, notices, reader

SAID = {
    "[rank3]: step 12 loss 3.4": (Says.PROGRESS, "training", 12),
    "***** Running training *****": (Says.BEGIN, "training", None),
    "Saving model checkpoint to out/x": (Says.BEGIN, "checkpoint", None),
    "***** Running Evaluation *****": (Says.BEGIN, "evaluation", None),
    "Map:  50%|#####     | 50/100 [00:30<00:30,  1.66 examples/s]": (
        Says.PROGRESS, "preprocessing", 50,
    ),
    "[rank1]: ValueError: bad batch": (Says.TROUBLE, None, None),
    "something new": (Says.LIFE, None, None),
}  # fmt: skip


@pytest.mark.parametrize("line", SAID)
def test_lines(line: str) -> None:
    found = notices(f"{line}\n")
    assert SAID[line] in [(one.says, one.phase, one.counter) for one in found]


def test_who_says_so() -> None:
    assert notices("[rank3]: step 12 loss 3.4\n")[0].who == Who(rank=3)
    of = memory("attempt_0/2/stdout.log")
    assert notices("step 12 loss 3.4\n", of)[0].who == Who(local_rank=2)
    assert notices("step 12 loss 3.4\n")[0].who == Who(source="console.log")


def test_a_full_bar_is_done() -> None:
    bar = "Map: {0}%|#####     | {0}/100 [00:30<00:30,  1.66 examples/s]\n"
    assert [notices(bar.format(n))[0].done for n in (99, 100)] == [False, True]


def test_only_a_template_whose_counter_grows_is_progress() -> None:
    of = memory()
    says = [
        [one.says for one in notices(f"{line}\n", of)]
        for line in (
            "my minibatch 1 has loss 0.5", "my minibatch 2 has loss 0.4",
            "my minibatch 2 has loss 0.4", "still waiting 1 s", "still waiting 2 s",
        )
    ]  # fmt: skip
    assert says == [[Says.LIFE], [Says.PROGRESS], [], [Says.LIFE], []]


def test_where_a_signature_sees_progress_templates_are_left_alone() -> None:
    of = memory()
    text = "step 1 loss 1\nmy minibatch 1 has loss 0.5\nmy minibatch 2 has loss 0.4\n"
    assert [one.says for one in notices(text, of)] == [Says.PROGRESS, Says.LIFE]


def test_of_a_flood_the_newest_lines_of_each_author_count() -> None:
    text = "".join(f"[rank{n % 3}]: step {n} loss 1\n" for n in range(3000))
    found = notices(text)
    assert {one.who.rank: one.counter for one in found} == {0: 2997, 1: 2998, 2: 2999}
    assert len(found) == 12


@pytest.mark.slow
def test_memory_is_bounded() -> None:
    of = memory()
    for number in range(4 * AUTHORS):
        letters = "".join(chr(97 + int(digit)) for digit in str(number))
        notices(f"[rank{number}]: step 1 loss 1 of {letters} {'x' * 5000}\nnew {letters}\n", of)
    assert len(of.last) == AUTHORS
    assert len(of.templates) == TEMPLATES
    assert max(len(line) for line, _ in of.last.values()) <= 600


def test_the_last_lines_are_known() -> None:
    of = memory()
    notices("[rank0]: step 1 loss 2\n[rank1]: loading\n[rank0]: bye\n", of)
    assert [line for line, _ in of.last.values()] == [b"[rank1]: loading", b"[rank0]: bye"]


LINES = st.lists(
    st.sampled_from([
        "[rank0]: step 1 loss 2", "[rank1]: step 2 loss 2", "my minibatch 4 has loss 1",
        "my minibatch 5 has loss 1", "Saving model checkpoint to out", "words", "more words",
        "[rank1]: ValueError: x", "***** Running Evaluation *****", "ä" * 20,
    ]),
    max_size=12,
)  # fmt: skip


def told(data: bytes, places: list[int]) -> list[Notice]:
    """What is said of data that comes cut at these places."""
    of, lines = memory(), Lines()
    found = []
    for low, high in pairwise([0, *sorted(places), len(data)]):
        found += reader().read(of, lines.feed(data[low:high]), 1 << 16, 0.0)
    return found


def rid(found: list[Notice]) -> list[tuple[object, ...]]:
    return [(n.says, n.who, n.kind, n.phase, n.counter, n.text) for n in found]


@settings(max_examples=80, deadline=None)
@given(LINES, st.lists(st.integers(0, 400), max_size=6))
def test_cuts_change_nothing(lines: list[str], cuts: list[int]) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    inside = [cut for cut in cuts if cut < len(data)]
    # Of one pattern the newest four lines of a block count; so few are in none.
    if max([lines.count(line) for line in lines], default=0) <= 4:
        assert rid(told(data, inside)) == rid(told(data, []))


def test_lines_that_only_look_like_one_do_not_hide_it() -> None:
    """What the matcher finds may be simpler than a pattern: here it is a part of other words."""
    words = "All random states loaded successfully"
    found = notices(f"{words}\n" + "".join(f"not{words} {n}\n" for n in range(6)))
    assert [one.says for one in found if one.says is not Says.LIFE] == [Says.END]
