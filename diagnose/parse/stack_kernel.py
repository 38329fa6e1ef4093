"""The kernel's table of blocked tasks (sysrq-w, `dmesg`), as stacks of processes."""

from __future__ import annotations

from diagnose.lazy import expression
from diagnose.parse.stack_blocks import Blocks, Frame, Where

TASK = expression(r"\s{0,8}task:(\S{1,100})\s{1,40}state:([A-Z])\s.{0,80}?\bpid:\s{0,8}(\d{1,9})\b")
_BEGINS = expression(r"\s{0,8}(?:task:|\[<0>\] |sysrq: )")
# `/proc/<pid>/stack`, which says nothing of the task.
_BARE = expression(r"\s{0,8}\[<0>\] \S")
_FRAME = expression(
    r"\s{0,8}(?:\[\s{0,8}[\d.]{1,20}\]\s{1,8})?(?:\[<[\da-f]{1,16}>\] )?(\? )?"
    r"([A-Za-z_][\w.$]{0,200})\+0x[\da-f]{1,8}(?:/0x[\da-f]{1,8})?"
    r"(?: \[(\w{1,60})[^\]]{0,60}\])?\s*\Z"
)
_BETWEEN = expression(
    r"\s{0,8}(?:Call [Tt]race:|</?(?:TASK|IRQ|NMI)>|R[A-Z\d]{1,2} ?:|RSP:|ORIG_RAX|Not tainted"
    r"|Tainted:|Workqueue:|Code: |\"echo 0 > )"
)
_SHOWS = expression(r"sysrq: (?:Show Blocked State|SysRq : Show Blocked)")


def take(line: str, number: int, blocks: Blocks) -> bool:
    """Take a line of such a table in; False when it is none.

    Tasks in other states than D (uninterruptible sleep) wait for what anybody waits for.
    """
    if blocks.open_kind != "kernel" and not _BEGINS.match(line):
        return False
    if found := TASK.match(line):
        blocks.end_of_process("")
        if found[2] == "D":
            blocks.process(Where(pid=int(found[3])))
            blocks.thread("kernel", number, found[3], found[1], "D")
        return True
    if blocks.open_kind != "kernel" and _BARE.match(line):
        blocks.thread("kernel", number, "0", "", "")
    if blocks.open_kind != "kernel":
        return _SHOWS.match(line) is not None
    if found := _FRAME.match(line):
        if not found[1]:  # with a question mark: left over on the stack
            file = f"[{found[3]}]" if found[3] else ""
            blocks.add(Frame(found[2].partition(".")[0], file, None, native=True))
        return True
    return _BETWEEN.match(line) is not None
