"""However a log was copied and pasted, the diagnosis is that of the bare text."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import diagnose
from tests.sizes import few

FIXTURES = Path(__file__).parents[2] / "fixtures"
LOGS = [
    "torchrun-missing-rank/console.log",  # [default2]:[rank2]:, 8 ranks, many lines alike
    "ddp-uneven-batches/console.log",  # [rank2]:, progress bars
    "llama2-accessory-first-save/slurm-81922.out",  # Slurm
    "dataloader-worker-aborted/console.log",  # a traceback
    "deepspeed-pdsh-killed/launch.log",  # host names in front
    "hf-evaluation-on-main/run.log",  # no rank in front of the lines
]
Rows = list[str]


def numbered(form: str) -> Callable[[Rows, int], Rows]:
    return lambda rows, first: [form.format(n, row) for n, row in enumerate(rows, first)]


def quoted(rows: Rows, _: int) -> Rows:
    return [f"> {row}".rstrip() for row in rows]


def indented(rows: Rows, _: int) -> Rows:
    return [f"    {row}" for row in rows]


# A form takes the rows and a number to start from. These keep every line in its place.
IN_PLACE = {
    "cat -n": numbered("{:>6}\t{}"),
    "grep -n": numbered("{}:{}"),
    "grep -n, spaced": numbered("{}: {}"),
    "12 | ": numbered("{} | {}"),
    "less -N": numbered("{:>7} {}"),
    "quoted": quoted,
    "indented": indented,
}


def with_heading(rows: Rows, _: int) -> Rows:
    return ["### Bug", "", "It hangs:", "", "```", "$ torchrun train.py", *rows, "```", "Why?"]


def in_a_chat(rows: Rows, _: int) -> Rows:
    marked = "```" + "\n".join(rows) + "```"
    return ["Jane  10:42 AM", "\u200bdied again :cry:", *marked.split("\n"), "Bob  10:43 AM", "hm"]


def in_a_notebook(rows: Rows, _: int) -> Rows:
    return ["In [3]:", "!torchrun train.py", "", *(f"\x1b[0m{row}\x1b[0m" for row in rows)]


def answered(rows: Rows, first: int) -> Rows:
    return ["On Monday Bob wrote:", *quoted(["```", *rows, "```"], first), "", "same here"]


FORMS = {
    **IN_PLACE,
    "issue": with_heading,
    "chat": in_a_chat,
    "notebook": in_a_notebook,
    "answer": answered,
}


def rows_of(log: str) -> Rows:
    return (FIXTURES / log).read_text(encoding="utf-8").removesuffix("\n").split("\n")


Answer = tuple[str, str, list[int], list[str]]


def answer(rows: Rows) -> tuple[Answer, list[tuple[int, str]]]:
    found = diagnose.diagnose(diagnose.load_text("\n".join(rows) + "\n"))
    cause, culprits = found.root_cause.cause, found.culprits
    said = (found.verdict, cause, culprits.ranks, culprits.hosts)
    return said, [(item.line, item.why) for item in found.evidence]


@cache
def bare(log: str) -> tuple[Answer, list[tuple[int, str]]]:
    return answer(rows_of(log))


def test_the_bare_logs_name_somebody() -> None:
    for log in LOGS:
        verdict, _, ranks, hosts = bare(log)[0]
        assert verdict in ("hung", "failed")
        assert ranks or hosts


@pytest.mark.parametrize(
    ("form", "log"), few([(form, log) for form in FORMS for log in LOGS], len(FORMS) + 1)
)
def test_one_form(log: str, form: str) -> None:
    said, evidence = answer(FORMS[form](rows_of(log), 1))
    assert said == bare(log)[0]
    if form in IN_PLACE:
        assert evidence == bare(log)[1]


@given(
    st.sampled_from(LOGS),
    st.sampled_from(sorted(IN_PLACE)),
    st.sampled_from(["quoted", "issue", "chat", "answer", "indented"]),
    st.integers(1, 99_000),
)
@pytest.mark.slow
def test_a_form_inside_a_form(log: str, inner: str, outer: str, first: int) -> None:
    rows = FORMS[outer](IN_PLACE[inner](rows_of(log), first), first)
    assert answer(rows)[0] == bare(log)[0]
