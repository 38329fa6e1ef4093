"""py-spy's `--json`: lists of threads, several of them one after the other if need be."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from diagnose.lazy import expression
from diagnose.parse.stack_blocks import MAX_FRAMES, Blocks, Frame, Where
from diagnose.parse.stack_frames import make
from diagnose.parse.stack_headings import Heading, of_command

_START = expression(rb"\s{0,100}\[\s{0,100}\{\s{0,100}\"pid\"\s{0,10}:\s{0,10}\d")
_LIST = expression(r"(?m)^[ \t]{0,20}\[\s{0,100}(?=\{)")
_BETWEEN = expression(r"[\s,]{0,1000}")
_FAILURES = 8  # lists that may be damaged; each costs a pass over what it holds
_DECODER = json.JSONDecoder()


def looks_like_json(head: bytes) -> bool:
    """Does a source begin as py-spy's JSON does? Headings above it are allowed."""
    if _START.match(head.removeprefix(b"\xef\xbb\xbf")):
        return True
    lines = head[:2000].split(b"\n")
    starts = (at for at, line in enumerate(lines[:8]) if line.lstrip().startswith(b"["))
    at = next(starts, None)
    return at is not None and bool(_START.match(b"\n".join(lines[at:])))


def json_stacks(text: str, blocks: Blocks, heading: Callable[[str], Heading | None]) -> None:
    """Read every list of threads in `text`; a damaged one gives the threads before the damage."""
    at, line, failures = 0, 1, 0
    while failures < _FAILURES and (found := _LIST.search(text, at)) and not blocks.full:
        for title in text[at : found.start()].splitlines()[-100:]:
            parsed = heading(title)
            if parsed is not None and parsed.where != Where():
                blocks.section(parsed.where)
        line += text.count("\n", at, found.end())
        at = found.end()
        began: set[int] = set()
        while text.startswith("{", at) and not blocks.full:
            try:
                item, end = _DECODER.raw_decode(text, at)
            except (ValueError, RecursionError):
                failures += 1
                break
            _thread(item, line, blocks, began)
            separator = _BETWEEN.match(text, end)
            end = separator.end() if separator else end
            line += text.count("\n", at, end)
            at = end


def _thread(item: dict[str, Any], line: int, blocks: Blocks, began: set[int]) -> None:
    pid, frames = _number(item.get("pid")), item.get("frames")
    if pid is None or not isinstance(frames, list):
        return
    if pid not in began:
        began.add(pid)
        info = item.get("process_info")
        info = info if isinstance(info, dict) else {}
        where = of_command(_text(info.get("command_line")))
        blocks.process(Where(where.rank, pid=pid, local_rank=where.local_rank))
        above = info.get("parent")
        parent = _number(above.get("pid")) if isinstance(above, dict) else None
        if parent is not None:
            blocks.parent(parent)
    tid = _number(item.get("os_thread_id")) or _number(item.get("thread_id")) or 0
    status = "active" if item.get("active") is True else "idle"
    status += "+gil" if item.get("owns_gil") is True else ""
    blocks.thread("py-spy", line, str(tid), _text(item.get("thread_name"))[:200], status)
    for entry in frames[: 4 * MAX_FRAMES]:
        if isinstance(entry, dict) and (frame := _frame(entry)):
            blocks.add(frame)


def _frame(entry: dict[str, Any]) -> Frame | None:
    name = _text(entry.get("name"))
    file = _text(entry.get("filename")) or _text(entry.get("module"))
    return make(name, file, _number(entry.get("line")) or None) if name else None


def _number(value: object) -> int | None:
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
    return value if usable and isinstance(value, int) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
