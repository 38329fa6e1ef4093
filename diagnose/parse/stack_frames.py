"""Single lines of stack dumps: headers of threads, frames, and what the tools say besides."""

from __future__ import annotations

from diagnose.lazy import expression
from diagnose.parse.stack_blocks import Frame

# py-spy; the name may itself hold brackets: `Thread 19018 (idle): "Thread-1 (bg)"`. Who shows it to
# others may leave out the number.
PYSPY_THREAD = expression(
    r"Thread (?:(0x[\da-fA-F]{1,16}|\d{1,20}) (?=\()|(?=\((?:idle|active)))"
    r'\(([a-z+ ]{1,24})\)(?:: "(.{0,200})")?\s*\Z'
)
PROCESS = expression(r"(Parent )?Process (\d{1,9}): ?(.*)")
# faulthandler; Python 3.14 prints names, `Stack` stands for the one thread asked for.
FAULT_THREAD = expression(
    r"(?:(Current thread|Thread) (0x[\da-fA-F]{1,16})(?: \[(.{0,100}?)\])?|Stack)"
    r" \(most recent call first\):"
)
# gdb and pstack: `Thread 5 (Thread 0x7fa56a6276c0 (LWP 25522) "pt_gloo_runloop"):`
GDB_THREAD = expression(r"Thread (\d{1,7}) \(((?:Thread|LWP|process) .{1,300})\):?\s*\Z")
# The first frame of a thread: two blanks, as no sanitizer and no other backtrace writes it.
GDB_FIRST = expression(r"#0  (?:0x[\da-f]{1,16} in )?[^\s(][^(]{0,500}\(")
EU_PID = expression(r"PID (\d{1,9}) - (?:process|core)")
EU_THREAD = expression(r"TID (\d{1,9}):\s*\Z")
NOISE = expression(
    r"Python v\d|Timeout \(\d+:|Fatal Python error|Extension modules: |PARTIAL DATA: "
    r"|  Rank \d{1,7}: |\[New LWP |\[New Thread |\[Thread debugging|\[Inferior |\[Switching to "
    r"|Using host libthread_db|Attaching to |Reading symbols |Loaded symbols|warning: |\(gdb\)"
    r"|0x[\da-f]{6,16} in |\d{1,7}\t|\$\d+ = |To (?:enable execution|completely disable)"
    r"|\tadd-auto-load|\tset auto-load|line to your conf|For more information about this sec"
    r"|\"Auto-loading safe path|\tinfo \"\(gdb\)|\S{1,300}: No such file or directory"
    r"|\(most recent call first\)|Traceback \(most recent call first\)|Script (?:started|done) on "
    r"|Error: |Permission Denied|Defaulted container |-{20,}\Z"
)

_PYSPY = expression(r"\s{1,20}(\S.*?) \(([^()]{1,1000})\)\s*\Z")
_PLACE = expression(r"(.*?):(\d{1,9})\Z")
_FAULT = expression(r'\s{1,20}File "(.{0,1000})", line (\d{1,9}|\?\?\?) in (.{1,1000}?)\s*\Z')
_PY_BT = expression(r'\s{1,20}File "(.{0,1000})", line (\d{1,9}), in (.{1,1000}?)\s*\Z')
_NUMBERED = expression(r"#\d{1,6}\s+(?:0x[\da-f]{1,16}\s+(?:in )?)?(?:- 1\s+)?(\S.*)\Z")
_PLACE_BELOW = expression(
    r"\s{1,40}(?:\S.{0,400}\) )?(?:at (\S{1,500}?)(?::(\d{1,9}))?|from (\S{1,500}))\s*\Z"
)
_SCROLLED = expression(r"\[\d{1,9}/\d{1,9}\]\Z")  # tmux shows how far it is scrolled
_AT = expression(r" (?:at (\S.{0,500}?)(?::(\d{1,9}))?|from (\S.{0,500})|- (/\S{1,500}))\Z")
_SOURCE = expression(r"\.(?:so[\d.]*|c|cc|cpp|cxx|cu|h|hpp|inl|rs|S|dylib)(?::|\Z)")
# A native name ends before its arguments and template parameters.
_NAME = expression(r"(?:\(anonymous\)|operator\(\)|operator<+|<signal handler called>|[^<(])*")
_LENGTH = 300


def pyspy_frame(line: str) -> Frame | None:
    """`    wait (threading.py:327)`; of --native also `    poll (libc.so.6)`."""
    found = _PYSPY.match(line)
    if found is None:
        return None
    place = _PLACE.match(found[2])
    file, number = (place[1], int(place[2])) if place else (found[2], None)
    return make(found[1], file, number)


def make(func: str, file: str, line: int | None) -> Frame:
    """A frame of py-spy, which tells native frames only by their file."""
    native = line is None or _SOURCE.search(file) is not None
    return Frame(
        native_name(func) if native else func[:_LENGTH], file[-_LENGTH:], line or None, native
    )


def fault_frame(line: str, *, traceback: bool = False) -> Frame | None:
    """`  File "a.py", line 3 in f`; gdb's py-bt writes a comma behind the number."""
    found = (_PY_BT if traceback else _FAULT).match(line)
    if found is None:
        return None
    number = int(found[2]) if found[2].isdecimal() else None
    return Frame(found[3][:_LENGTH], found[1][-_LENGTH:], number, native=False)


def gdb_frame(line: str) -> Frame | None:
    """`#1  0x7f… in wait (arg=1) at a.c:3`, `… from libc.so`, eu-stack's `#1  0x7f… wait`."""
    line = line.rstrip()
    if scrolled := _SCROLLED.search(line[-24:]):
        line = line[: len(line) - len(scrolled[0])].rstrip()
    found = _NUMBERED.match(line)
    if found is None:
        return None
    text, file, number = found[1], "", None
    place = _AT.search(text[-700:])
    if place:
        file = place[1] or place[3] or place[4]
        number = int(place[2]) if place[2] else None
        text = text[: len(text) - len(place[0])]
    return Frame(native_name(text), file[-_LENGTH:], number, native=True)


def place_below(line: str) -> tuple[str, int | None] | None:
    """File and line of the frame above, which gdb writes below it where the frame is long."""
    found = _PLACE_BELOW.match(line)
    if found is None:
        return None
    return (found[1] or found[3])[-_LENGTH:], int(found[2]) if found[2] else None


def native_name(text: str) -> str:
    """A C or C++ function without return type, arguments, template parameters and version."""
    if text.startswith("0x"):
        return "??"
    text = text.replace("(anonymous namespace)", "(anonymous)").partition(" [clone")[0]
    found = _NAME.match(text)
    name = (found[0] if found else text).strip()
    if not name.startswith("<"):
        name = name.rpartition(" ")[2].partition("@")[0]
    return name[:_LENGTH] or "??"
