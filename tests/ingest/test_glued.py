"""Lines that lost the line end between them."""

from __future__ import annotations

import pytest

import diagnose
from diagnose.ingest.paste import GLUED_EACH, GLUED_ONCE, may_be_glued, part
from diagnose.search import places

DEATH = (
    "[rank1]: step 5/12 loss 2.4[rank0]: Traceback (most recent call last):"
    '[rank0]:   File "/home/user/train.py", line 148, in midway[rank0]:     print(batch["labels"])'
    "[rank0]:           ~~~~~^^^^^^^^^^[rank0]: KeyError: 'labels'"
)
FOLDED = (
    'Traceback (most recent call last):   File "/a/train.py", line 3, in <module>     main()'
    '   File "/a/b.py", line 4, in main     x = pick(4) acme.errors.BatchError: no such batch'
)


def closely(data: bytes) -> bool:
    """Whether a source is looked at closely."""
    return may_be_glued(data, places(data, GLUED_ONCE, GLUED_EACH))


def texts(line: str) -> list[str]:
    return [text for _, text in part([(7, line)])]


def test_lines_of_ranks_are_parted_before_each_tag() -> None:
    assert closely(DEATH.encode())
    assert texts(DEATH) == [
        "[rank1]: step 5/12 loss 2.4",
        "[rank0]: Traceback (most recent call last):",
        '[rank0]:   File "/home/user/train.py", line 148, in midway',
        '[rank0]:     print(batch["labels"])',
        "[rank0]:           ~~~~~^^^^^^^^^^",
        "[rank0]: KeyError: 'labels'",
    ]


@pytest.mark.parametrize("tag", ["{{trainer-{}}} ", "(worker{0}, rank={0}, pid=4711) "])
def test_lines_of_every_row_with_a_glued_tag_are_parted(tag: str) -> None:
    lines = [tag.format(1) + "step 7 loss=2.4", tag.format(2) + "step 7 loss=2.5"]
    assert closely("".join(lines).encode())
    assert texts("".join(lines)) == lines


def test_lines_of_pythons_loggers_are_parted_where_each_begins() -> None:
    torn = "INFO:root:[rank1] step=40 loss=1.08INFO:root:[rank0] step=40 loss=1.10"
    assert closely(torn.encode())
    assert texts(torn) == [
        "INFO:root:[rank1] step=40 loss=1.08",
        "INFO:root:[rank0] step=40 loss=1.10",
    ]
    quoted = "INFO:root:the peer wrote WARNING:root:slow"
    assert texts(quoted) == [quoted]


def test_the_parts_keep_the_number_of_their_line() -> None:
    assert {number for number, _ in part([(7, DEATH)])} == {7}


def test_a_traceback_in_one_line_is_parted_at_frames_and_exception() -> None:
    assert closely(FOLDED.encode())
    assert texts(FOLDED) == [
        "Traceback (most recent call last):",
        'File "/a/train.py", line 3, in <module>     main()',
        'File "/a/b.py", line 4, in main     x = pick(4) ',
        "acme.errors.BatchError: no such batch",
    ]


@pytest.mark.parametrize(
    "behind",
    [
        "Traceback (most recent call last):",
        "[E ProcessGroupNCCL.cpp:475] [Rank 1] Watchdog",
        "[rank1]: x",
        '  File "/a/train.py", line 3, in <module>',
    ],
)
@pytest.mark.parametrize("shown", ["", ", v_num=3, loss=2.1", ", lr=1e-5"])
def test_what_stands_behind_a_bar_is_a_line(shown: str, behind: str) -> None:
    bar = f"Evaluation:  88%|####8| 383/433 [29:55<03:25, 2.70s/it{shown}]"
    assert closely((bar + behind).encode())
    assert texts(bar + behind) == [bar, behind]


def test_lines_of_nccl_are_parted_where_a_known_host_speaks() -> None:
    first = "node-a:11:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via"
    second = "node-b:21:22 [1] misc/socket.cc:558 NCCL WARN connect returned Connection refused"
    rows = [(1, "node-b:21:22 [1] NCCL INFO Using network Socket"), (2, first + second)]
    assert closely("\n".join(text for _, text in rows).encode())
    assert part(rows) == [rows[0], (2, first), (2, second)]


def test_the_rest_of_a_line_that_another_rank_wrote_into_is_put_back() -> None:
    begun = (
        "[rank1]:[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught collective operation time"
    )
    inside = "[rank0]:[E ProcessGroupNCCL.cpp:563] [Rank 0] Watchdog is about to end"
    rest = "out: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)"
    rows = [(4, begun + inside), (5, rest), (6, "[rank1]: next")]
    assert part(rows) == [(4, begun + rest), (4, inside), (6, "[rank1]: next")]


@pytest.mark.parametrize("following", ["[rank1]: out", '  File "a.py", line 3', "", "- out"])
def test_what_begins_no_rest_stays_where_it_is(following: str) -> None:
    rows = [(4, "[rank1]: time[rank0]: an error"), (5, following)]
    assert part(rows) == [(4, "[rank1]: time"), (4, "[rank0]: an error"), (5, following)]


@pytest.mark.parametrize(
    "line",
    [
        "[rank0]:[rank0]: step 1",
        "[default3]:[rank3]: Traceback (most recent call last):",
        "3: [rank3]: text",
        "a message about [rank0]: and [rank1]: far behind its own beginning, and no tag of its own",
        "Traceback (most recent call last):",
        '  File "/a/b.py", line 4, in main',
    ],
)
def test_whole_lines_stay(line: str) -> None:
    assert texts(line) == [line]


@pytest.mark.parametrize("log", [DEATH, f"step 3 loss 2.0\n{FOLDED}\n"])
def test_a_death_in_a_line_of_many_is_seen(log: str) -> None:
    assert diagnose.diagnose(diagnose.load_text(log)).verdict == "failed"
