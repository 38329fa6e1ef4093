"""Who wrote a line, and what people call them."""

from __future__ import annotations

from diagnose.parse.path import read_path
from diagnose.parse.prefix import peel
from diagnose.watch.notice import Who, name, ranks, who_of


def who(line: str, path: str = "job.log") -> Who:
    return who_of(peel(line), read_path(path), path)


def test_the_line_comes_before_its_file() -> None:
    assert who("[rank3]: hello", "rank_1.log") == Who(rank=3)
    assert who("hello", "rank_1.log") == Who(rank=1)
    assert who("hello", "node_rank_2/attempt_0/1/stdout.log") == Who(local_rank=1, host="node 2")
    assert who("[default5]:hello") == Who(local_rank=5)
    assert who("7: hello") == Who(task=7)
    assert who("hello", "node01.log") == Who(host="node01")
    assert who("hello") == Who(source="job.log")


def test_on_one_node_a_local_rank_is_the_rank() -> None:
    one, other = Who(local_rank=1), Who(local_rank=1, host="node01")
    assert ranks([one, Who(rank=2)]) == {one: 1, Who(rank=2): 2}
    assert ranks([one, other]) == {}
    assert ranks([Who(task=3)]) == {Who(task=3): 3}


def test_names() -> None:
    assert name(Who(rank=3), {Who(rank=3): 3}) == "rank 3"
    assert name(Who(local_rank=1, host="node01"), {}) == "local rank 1 of node01"
    assert name(Who(local_rank=1, task=4), {}) == "local rank 1 of task 4"
    assert name(Who(local_rank=1), {}) == "local rank 1"
    assert name(Who(host="node01"), {}) == "node01"
    assert name(Who(source="job.log"), {}) == "job.log"
