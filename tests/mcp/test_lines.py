"""Lines of a paste, as they are numbered in what was pasted."""

from __future__ import annotations

from diagnose.ingest import text_source
from diagnose.mcp.job_tools import _rows


def test_a_quoted_paste_keeps_its_numbers() -> None:
    quoted = "Hello,\n\n" + "".join(
        f"> [rank0]: 2026-06-02 08:14:{n:02d},000 step {n} loss 2.1\n" for n in range(30)
    )
    source = text_source(quoted)
    chunk = next(iter(source.chunks()))
    assert chunk.lines is not None
    rows, end = _rows(source, 5, 6)
    assert rows == {
        5: "[rank0]: 2026-06-02 08:14:02,000 step 2 loss 2.1",
        6: "[rank0]: 2026-06-02 08:14:03,000 step 3 loss 2.1",
    }
    assert end == 32
