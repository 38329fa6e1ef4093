"""What lines state of a run by name: versions, environment, arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from diagnose.compare.model import Kind
from diagnose.lazy import expression
from diagnose.parse.path import node_like

_LINE = 32 << 10  # characters of a line that are looked at; one may hold all arguments
_LONG = 200  # characters of a value

# Names whose last word is one of these belong to one run.
_OF_ONE_RUN = frozenset(
    "pid ppid tid port ports addr address ip hostname nodelist host hosts node nodes uuid guid id ids jobid hash digest "
    "fd date datetime timestamp started rank local_rank device dev busid comm commid tmpdir stream opcount nonce cookie "
    "session tty pwd oldpwd ptr pgid pg seqnum seq version endpoint count procid nodeid localid gtids pids".split()
)  # fmt: skip
# The same of what is measured or said of a moment, where the name is no variable and no option.
_MEASURED = frozenset(
    "loss losses time times elapsed took duration seconds sec secs ms us ns speed throughput tflops flops mfu mem memory "
    "used free allocated reserved cached rss start begin end ended eta norm gnorm temp power util step iter iteration "
    "epoch token tokens sendbuff recvbuff load runtime ppl perplexity accuracy acc score metric queue progress percent "
    "root numelin numelout members member exitcode error message msg reason warning info debug line file lineno "
    "traceback state status name".split()
)  # fmt: skip

_VALUE = r"(?:\"[^\"\n]{0,200}\"|'[^'\n]{0,200}'|\[[^\]\n]{0,200}\]|[^\s,;'\"(){}\[\]|]{1,200})"
_LISTS = _VALUE.replace("[^\\s,;", "(?:,(?=\\S)|[^\\s,;").replace("|]{1,200})", "|]){1,200})")
_FORMS: tuple[tuple[Kind, str, str], ...] = (
    # numpy==1.26.4
    ("version", "==", rf"(?<![\w\-.])(?P<name>[A-Za-z][\w.\-]{{0,60}})==(?P<value>\d[\w.+\-]{{0,60}})"),
    # NCCL version 2.26.2+cuda12.6, Driver Version: 550.54, PyTorch version: 2.6.0
    ("version", "ersion",
     r"(?<![\w\-.])(?P<name>[A-Za-z][\w.+\-]{0,40}(?: (?:Runtime|Driver|driver|runtime|library))?) [Vv]ersion"
     r"\s?[:=]?\s?v?(?P<value>\d+\.\d[\w.+\-]{0,60})"),
    # transformers 4.44.0, torch-2.6.0
    ("version", ".",
     r"(?<![\w\-./])(?P<name>[A-Za-z][A-Za-z_\-]{1,30})[ /:=\-]{1,2}v?(?P<value>\d{1,4}\.\d{1,4}\.\d{1,4}(?!\.\d)[\w.+\-]{0,40})"),
    # NCCL_IB_HCA=mlx5_0, NCCL_IB_HCA set by environment to mlx5_0, 'NCCL_DEBUG': 'INFO'
    ("environment", "_",
     rf"(?<![\w.$\-])(?P<name>[A-Z][A-Z0-9]{{0,40}}_[A-Z0-9_]{{1,60}})"
     rf"(?:['\"]?\s?[=:]\s?| set (?:by environment )?to )(?P<value>{_LISTS})"),
    # --lr 0.1, --lr=0.1, --bf16
    ("argument", "--", rf"(?<![\w\-])(?P<name>--[A-Za-z][\w.\-]{{0,60}})(?:(?:=| (?!-[\D]))(?P<value>{_LISTS}))?"),
    # lr=0.1, lr ...... 0.1
    ("argument", "", rf"(?<![\w.$\-])(?P<name>[A-Za-z_][\w.\-]{{1,60}}?)(?: ?= ?| \.{{2,80}} ?)(?P<value>{_VALUE})"),
    # 'lr': 0.1, lr: 0.1 at the end of a line
    ("argument", ":",
     rf"(?<![\w.$\-])['\"]?(?P<name>[A-Za-z_][\w.\-]{{1,60}})['\"]?: {{1,8}}(?P<value>{_VALUE})(?=\s*[,;}}\])]|\s*$)"),
)  # fmt: skip
_COMPILED = [(kind, holds, expression(form)) for kind, holds, form in _FORMS]


_HOST = expression(
    r"(?i)(?:\bon|\bhosts?|\bnodes?|hostname|nodelist)(?: ?[=:] ?|[ \[])['\"]?(?P<name>[a-z][\w.\-]{1,80}\d[\w.\-]{0,40})"
)


class Stated(NamedTuple):
    """What a line says of its run; the value is "" where a name alone is there."""

    kind: Kind
    name: str
    value: str


def statements(message: str) -> Iterator[Stated]:
    """What a message states, each name once."""
    text = message[:_LINE]
    seen = set()
    for kind, holds, form in _COMPILED:
        if holds not in text:
            continue
        for found in form.finditer(text):
            name, value = found["name"].rstrip("-."), (found["value"] or "").strip("'\"")
            name = name.lower() if kind == "version" else name
            if name not in seen and not _passing(name):
                seen.add(name)
                yield Stated(kind, name, value.rstrip(".:")[:_LONG])


def hosts_in(message: str) -> Iterator[str]:
    """The machines that a message names where it says that they are some."""
    for found in _HOST.finditer(message[:_LINE]):
        name = found["name"].rstrip(".-")
        if node_like(name):
            yield name


def may_state(message: str) -> bool:
    """Whether a message may state anything, whatever its numbers."""
    return any(mark in message for mark in ("=", ": ", "--", " ..", "ersion", " to ", " on ")) or (
        message.count(".") > 1
    )


def _passing(name: str) -> bool:
    """Whether it is a measurement, or says what belongs to one run."""
    *ahead, last = name.lower().replace("-", "_").replace(".", "_").split("_")
    if last in _OF_ONE_RUN:
        return ahead[-1:] != ["per"]
    return last in _MEASURED and not (name.startswith("--") or name.isupper())
