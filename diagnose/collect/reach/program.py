"""The node's side as one file, and the command that starts it over there.

A node, a container or a pod need not have `diagnose`: its side of `collect` is sent through
standard input as a zip of modules that needs Python 3.10 and nothing else, with py-spy beside it
where it is installed here. A shell over there looks for a Python and gives it what comes.
"""

from __future__ import annotations

import ast
import io
import json
import platform
import shlex
import shutil
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from diagnose.collect.reach.older import OLDEST

PACKAGE = Path(__file__).parents[2]
FORMATS = PACKAGE / "formats"
SPY = "bin/py-spy"
ABOUT = "bin/about.json"
_ENTRY = "diagnose.collect.reach.remote"
_MAIN = f"""\
import sys
from diagnose.collect.reach import older
older.adapt()
from {_ENTRY} import main
sys.exit(main())
"""
_DATE = (2020, 1, 1, 0, 0, 0)  # the same program at any time

# The first of these that is a Python new enough: the one with which we run, and those in PATH.
# It is no rank of the job, whatever the launcher says.
# No line ends in it: a login shell may be a csh, in whose quotes there are none.
_FIND = (
    "here=$1; shift; "
    "unset RANK SLURM_PROCID PMI_RANK PMIX_RANK OMPI_COMM_WORLD_RANK; "
    'for python in "$here" python3 python PROCESSES; do '
    "case $python in /proc/*) "
    '[ -O "${python%/exe}" ] || continue; '
    'python=$(readlink "$python" 2>/dev/null) || continue; '
    "case ${python##*/} in "
    "python|python3|python3.[0-9]|python3.[0-9][0-9]) ;; *) continue ;; esac ;; "
    "esac; "
    'command -v "$python" >/dev/null 2>&1 || continue; '
    '"$python" -c "import sys; sys.exit(sys.version_info < (MAJOR, MINOR))" '
    "</dev/null >/dev/null 2>&1 || continue; "
    'exec "$python" -I -c "$@"; '
    "done; "
    'echo "no Python MAJOR.MINOR or newer was found there" >&2; exit 127'
)
# Inside of a container also that of a process which runs there: an image may keep its own anywhere.
# On a node shared with others it could be a trap for whoever may do more than its owner.
_PROCESSES = "/proc/[0-9]*/exe"
# What is sent begins with this, which reads the rest of it and runs that with the other arguments.
_FIRST = "import sys; exec(sys.stdin.buffer.read(int(sys.argv.pop(1))))"
_LOAD = b"""\
import os, runpy, tempfile
size = int(sys.argv[1])
data = sys.stdin.buffer.read(size)
if len(data) < size:
    sys.exit("the program did not arrive: %d of %d bytes" % (len(data), size))
for folder in (None, "/dev/shm", "/var/tmp", "."):
    try:
        fd, path = tempfile.mkstemp(".pyz", "diagnose-", folder)
        with open(fd, "wb") as out:
            out.write(data)
        break
    except OSError as error:
        problem = error
else:
    sys.exit("no room for the program: %s" % problem)
del data
sys.argv[:2] = [path]
try:
    runpy.run_path(path, run_name="__main__")
finally:
    if os.path.exists(path):
        os.unlink(path)
"""


@dataclass(frozen=True, slots=True)
class Start:
    """What is run on a node: its words, the last of which are arguments, and its input."""

    words: tuple[str, ...]
    stdin: bytes = b""

    def also(self, *arguments: str) -> Start:
        """The same with more arguments."""
        return Start((*self.words, *arguments), self.stdin)


def sent(arguments: Sequence[str], program: bytes, *, contained: bool = False) -> Start:
    """The program is sent: for launchers that pass on standard input.

    contained: It runs in a container, all of whose processes belong to the job.
    """
    find = _FIND.replace("MAJOR", str(OLDEST[0])).replace("MINOR", str(OLDEST[1]))
    find = find.replace("PROCESSES", _PROCESSES if contained else "")
    sizes = (str(len(_LOAD)), str(len(program)))
    words = ("sh", "-c", find, "sh", sys.executable or "python3", _FIRST, *sizes)
    return Start((*words, *arguments), _LOAD + program)


def installed(arguments: Sequence[str], command: str | None = None) -> Start:
    """What is installed over there is run: `command`, or this Python with this package.

    Raises ValueError where the quotes in `command` are not closed.
    """
    words = shlex.split(command) if command else [sys.executable, "-P", "-m", "diagnose"]
    return Start((*words, *arguments))


@cache
def program() -> bytes:
    """The zip that is sent."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name: str, content: bytes) -> None:
            info = zipfile.ZipInfo(name, _DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)

        add("__main__.py", _MAIN.encode())
        for name, path in sorted(modules(_ENTRY).items()):
            end = "/__init__.py" if path.name == "__init__.py" else ".py"
            add(name.replace(".", "/") + end, path.read_bytes())
        for path in (FORMATS / "nodes.json", *sorted((FORMATS / "secrets").glob("*.json"))):
            add(path.relative_to(PACKAGE.parent).as_posix(), path.read_bytes())
        # The py-spy that is installed here: one file without libraries of its own.
        beside = str(Path(sys.executable).parent)
        spy = shutil.which("py-spy", path=beside) or shutil.which("py-spy")
        add(ABOUT, json.dumps({"machine": platform.machine() if spy else None}).encode())
        if spy:
            add(SPY, Path(spy).read_bytes())
    return data.getvalue()


def modules(entry: str) -> dict[str, Path]:
    """The modules of this package that `entry` needs, by name, with the packages above them."""
    found: dict[str, Path] = {}
    todo = [entry, "diagnose.collect.reach.older"]
    while todo:
        name = todo.pop()
        path = _path(name)
        if name in found or path is None:
            continue
        found[name] = path
        if "." in name:
            todo.append(name.rpartition(".")[0])
        todo += _imports(ast.parse(path.read_bytes()))
    return found


def _path(name: str) -> Path | None:
    """The file of a module of this package."""
    first, *rest = name.split(".")
    if first != "diagnose":
        return None
    path = PACKAGE.joinpath(*rest)
    return next(
        (one for one in (path / "__init__.py", path.with_suffix(".py")) if one.is_file()), None
    )


def _imports(node: ast.AST) -> Iterator[str]:
    """What a module imports, also inside of functions, but not for types alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield child.module
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        else:
            yield from _imports(child)
