from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.ingest import paste
from diagnose.ingest.paste import normalise

LOG = """[rank0]:[E220 10:40:35.441597707 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught it
[rank0]: Traceback (most recent call last):
[rank0]:   File "/a/b_c.py", line 3, in <module>

    frame #0: c10::Error + 0x1 <a && b>
RuntimeError: it "failed"
"""
ROWS = LOG.splitlines()


def undone(text: str) -> str:
    normal = normalise(text.encode())
    return text if normal is None else normal.data.decode()


@pytest.mark.parametrize("mark", ["> ", ">", "> > ", ">> ", "| ", " > "])
def test_quote_marks(mark: str) -> None:
    assert undone("".join(f"{mark}{row}".rstrip() + "\n" for row in ROWS)) == LOG


def test_quotes_below_a_sentence() -> None:
    text = "my job hangs:\n\n" + "".join(f"> {row}\n" for row in ROWS)
    assert undone(text) == "my job hangs:\n\n" + LOG


def test_code_fences_go_and_numbers_stay() -> None:
    normal = normalise(f"it hangs\n\n```text\n{LOG}```\nany idea?\n".encode())
    assert normal is not None
    assert normal.data.decode() == f"it hangs\n\n{LOG}any idea?\n"
    assert normal.lines == [1, 2, 4, 5, 6, 7, 8, 9, 11]


def test_fence_marks_glued_to_the_lines() -> None:
    assert undone("```[rank0]: one\n[rank0]: two```\n") == "[rank0]: one\n[rank0]: two\n"


@pytest.mark.parametrize(
    "form", ["[{}] {}", "{}: {}", "{}| {}", "{} | {}", "{:>6}\t{}", "  {}  {}"]
)
@pytest.mark.parametrize("first", [1, 998, 1824])
def test_line_numbers(form: str, first: int) -> None:
    text = "".join(form.format(n, row).rstrip() + "\n" for n, row in enumerate(ROWS, first))
    assert undone(text) == LOG


def test_line_numbers_of_a_few_equal_messages() -> None:
    rows = [f"[rank{n}]:[E ProcessGroupNCCL.cpp:563] caught timeout" for n in range(4)]
    text = "".join(f"[{n}] {row}\n" for n, row in enumerate(rows, 1867))
    assert undone(text) == "".join(f"{row}\n" for row in rows)


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{rank}: Watchdog caught collective operation timeout\n" for rank in range(8)),
        "".join(f"{rank}: Watchdog caught collective operation timeout\n" for rank in range(1, 8)),
        "".join(f"{rank:>2}: rank {rank} of 16 started\n" for rank in range(16)),
        "".join(f"[{rank}] Watchdog caught collective operation timeout\n" for rank in range(1, 8)),
        "".join(f"[{step}] loss 0.{step} lr 0.1\n" for step in range(1824, 1900)),
        "".join(f"{epoch}  0.{epoch}\n" for epoch in range(1, 30)),
        "0: one thing\n1: something else\n2: a third message\n3: and more\n",
    ],
)
def test_ranks_and_steps_are_not_line_numbers(text: str) -> None:
    assert normalise(text.encode()) is None


def test_html_entities() -> None:
    text = (
        LOG.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    )
    assert undone(text) == LOG
    quoted = "".join(f"&gt; {row}".rstrip() + "\n" for row in text.splitlines())
    assert undone(quoted) == LOG, "as a chat's API gives a quote"
    assert undone(LOG + "http://x/?a=1&amp;b=2 &lt;\n") == LOG + "http://x/?a=1&amp;b=2 &lt;\n"
    assert normalise(b"[rank0]: http://x/?a=1&amp;b=2\n") is None


def test_line_ends_that_are_spelled_out() -> None:
    """As who copies the value of a JSON field has them."""
    for text in (LOG, "> " + LOG.replace("\n", "\n> ").removesuffix("> ")):
        spelled = text.replace('"', '\\"').replace("\n", "\\n")
        normal = normalise(spelled.encode())
        assert normal is not None
        assert normal.data.decode() == LOG
        assert set(normal.lines) == {1}
    record = '{"log": "' + LOG.replace('"', "'").replace("\n", "\\n") + '"}\n'
    assert normalise(record.encode()) is None, "of a record its reader knows"
    assert normalise(rb"x\ny\nz" + b"\n") is None


def test_markdown_escapes() -> None:
    text = LOG
    for character in "_[]#*":
        text = text.replace(character, f"\\{character}")
    assert undone(text) == LOG
    assert undone(LOG.replace("frame #0", "frame \\#0")) == LOG
    assert normalise(b"[rank0]: C:\\_work\\[x] a_b [y]\n") is None


def test_common_indentation() -> None:
    assert undone("".join(f"    {row}".rstrip() + "\n" for row in ROWS)) == LOG
    assert undone("".join(f"\t{row}\n" for row in ROWS)) == LOG
    assert normalise(b'  File "/a.py", line 1, in f\n    g()\n  File "/b.py", line 2\n') is None


def test_quoted_fenced_indented_and_numbered_at_once() -> None:
    rows = ["```", *(f"    {n:>4}: {row}" for n, row in enumerate(ROWS, 9)), "```"]
    assert undone("".join(f"> {row}".rstrip() + "\n" for row in rows)) == LOG


def test_characters_of_chats() -> None:
    assert undone("\ufeff[rank0]:\u00a0one\u200b \u201cquoted\u201d\n") == (
        "[rank0]: one \u201cquoted\u201d\n"
    )


def test_colour_codes_without_their_escape() -> None:
    text = "[36m(WorkerDict pid=1)[0m [rank0]: one\n^[[36m(WorkerDict pid=2)^[[0m two\n"
    assert undone(text) == "(WorkerDict pid=1) [rank0]: one\n(WorkerDict pid=2) two\n"


def test_hard_wrapped_lines_map_to_their_first_line() -> None:
    text = (
        "> [rank2]: WorkNCCL(SeqNum=532451, OpType=BROADCAST, NumelIn=5164000, NumelOut=5\n"
        "> 164000, Timeout(ms)=1800000) ran for 1800101 milliseconds before timing out.\n"
        "> [rank1]: next\n"
    )
    normal = normalise(text.encode())
    assert normal is not None
    assert normal.data.decode() == (
        "[rank2]: WorkNCCL(SeqNum=532451, OpType=BROADCAST, NumelIn=5164000, NumelOut=5164000, "
        "Timeout(ms)=1800000) ran for 1800101 milliseconds before timing out.\n[rank1]: next\n"
    )
    assert normal.lines == [1, 3]


def test_bytes_that_are_not_utf_8_stay() -> None:
    normal = normalise(b"> [rank0]: caf\xe9\n> [rank1]: x\n")
    assert normal is not None
    assert normal.data == b"[rank0]: caf\xe9\n[rank1]: x\n"


ORDINARY = [
    "[rank3]:[E220 10:40:35.44 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=5, OpType=BARRIER, Timeout(ms)=9) ran for 9 milliseconds",
    "> initialized tensor model parallel with size 4",
    "> setting random seeds to 1234 ...",
    ">>> done with dataset index builder. Compilation time: 0.080 seconds",
    " [2024-05-01 10:00:00.123456] iteration        3/     100 | consumed samples: 24 |",
    "+-----------------------------------------------------------------------------+",
    "| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2     |",
    "|===============================+======================+======================|",
    "Traceback (most recent call last):",
    '  File "/a/b.py", line 3, in f',
    "    return x[i] & 0xff  # frame #3",
    "                ^^^^^^^^",
    "  45%|████▌     | 45000/100000 [01:23<01:41, 541.2 examples/s]",
    " 3: node-1:12:34 [0] NCCL INFO comm 0x1 rank 3 nranks 4 cudaDev 0 busId 1000",
    "11: {'loss': 0.5, 'grad_norm': 1.2, 'epoch': 0.1}",
    '{"log":"a \\"b\\" \\\\[INST\\\\]","stream":"stderr"}',
    "1, 0.5, 0.25",
    "<|im_start|>user what is 3 > 2 && 1 < 2?<|im_end|> 训练",
    "https://example.org/?a=1&amp;b=2",
    "",
    "***",
]


@given(st.lists(st.sampled_from(ORDINARY), min_size=4, max_size=40), st.booleans())
def test_ordinary_logs_come_through_byte_for_byte(rows: list[str], ends: bool) -> None:
    rows = ["Namespace(lr=2e-05, seed=42)", "INFO: Using fused AdamW optimizer", *rows]
    assert normalise(("\n".join(rows) + ("\n" if ends else "")).encode()) is None


@given(st.integers(0, 3), st.integers(1, 9), st.integers(1, 400))
def test_regular_logs_come_through_byte_for_byte(form: int, ranks: int, steps: int) -> None:
    row = (
        "[rank{r}]: step {s} loss 0.{s:05d}",
        "2024-05-01 10:00:00,123 INFO rank {r} finished step {s} and goes on",
        "{r}: step {s:06d} is done, the learning rate is 0.001, throughput is 12 samples/s",
        "step {s:06d} of the run on rank {r}: {s} tokens were read, {s} tokens were dropped",
    )[form]
    rows = [row.format(r=rank, s=step) for step in range(steps) for rank in range(ranks)]
    assert normalise(("\n".join(rows) + "\n").encode()) is None


FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.mark.parametrize("folder", sorted(path.name for path in FIXTURES.glob("healthy*")))
def test_logs_of_the_healthy_fixtures_come_through(folder: str) -> None:
    for path in (FIXTURES / folder).rglob("*.log"):
        data = path.read_bytes()
        assert b"\x1b" in data or normalise(data) is None, path


@given(st.text(" \t>|[]17:a\r\n", max_size=60))
def test_the_quick_look_misses_no_line_that_is_set_off(text: str) -> None:
    forms = (paste._QUOTE_BYTES, paste._NUMBER_BYTES, paste._INDENT_BYTES)
    lines = [line for line in text.encode().split(b"\n") if line.strip()]
    if any(form.match(line) for line in lines for form in forms):
        assert paste._ANY_OF_THREE.search(b"\n%b\n" % text.encode())
