"""Makes the files of a run neutral: paths, names of host and user, and words of the recording.

Nothing that a tool sees may tell where a run was recorded, or that something was made to go wrong.
"""

from __future__ import annotations

import getpass
import io
import pickle
import re
import socket
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.hangbench.case import Files

WORKSPACE = "/workspace/regression"
HOST = "node-0"
ADDRESS = "10.0.0.11"

# "fault" is part of the system's own words, "hang" of warnings of the libraries.
_MARKER = re.compile(
    r"inject|culprit|hangbench|chaos|victim|sabotage|tests/lab"
    r"|(?<!de)(?<!segmentation )(?<!page )(?<!bus )(?<!not-)fault(?!handler|y|-?toler|[- ]?inst)",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"general protection fault|(?:major|minor|maj|min)_?fl?t?_?faults?|fault[- ]tolerance"
    r"|injection|Segfault encountered",
    re.IGNORECASE,
)

# The workers of tests/lab choose what goes wrong by options and names that say so: their sources
# are rewritten before they run, so that nothing they print or show in stacks does.
_SOURCE_WORDS = (
    ("culprits", "members"), ("culprit", "member"), ("faults", "modes"), ("fault", "mode"),
    ("injected", "set"), ("strike", "substep"), ("deadly", "strict"), ("hit(", "uses("),
    ("loader_killed", "loader_b"), ("sigkill", "mode_k"), ("sigsegv", "mode_v"),
    ("silent", "quiet"), ("gil_held_by_thread", "start_native_io"), ("gil_held", "native_io"),
    ("two_locks", "flush_metrics"), ("stuck", "train"), ("sleepy", "decode"),
    ("board_dumps", "board"), ("busy_tokenizer", "tokenize_corpus"),
    ("def stop(", "def after_step("), ("stop(options)", "after_step(options)"),
    ("class Slow(", "class Images("), ("Slow()", "Images()"),
    ("FAULTS", "STAGES"), ("MODES", "STAGES"),
)  # fmt: skip


def neutral_source(text: str) -> str:
    """The source of a worker without words that tell what it is for, and without comments."""
    for old, new in _SOURCE_WORDS:
        text = re.sub(rf"(?<!de){re.escape(old)}", new, text)  # not in "default"
    return re.sub(r'"""(?:.|\n)*?"""', '"""..."""', text)


class Scrubber:
    """Rewrites what the files of one run say of this machine, the same way everywhere."""

    def __init__(self, folder: Path, interpreter: Interpreter) -> None:
        host = socket.gethostname()
        pairs = [
            (str(folder), WORKSPACE),
            (interpreter.prefix, "/opt/venv"),
            (sys.prefix, "/opt/tools"),
            (interpreter.base, "/usr/local"),
            (sys.base_prefix, "/usr/local"),
            (str(Path(__file__).resolve().parents[3]), "/opt/tools"),
            (str(Path.home()), "/home/user"),
        ]
        replaced = [(re.escape(old.rstrip("/")) + r"(?![\w-])", new) for old, new in pairs if old]
        replaced += [(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", HOST) for name in _names(host)]
        replaced += [(rf"(?<![\d.]){re.escape(one)}(?![\d.])", ADDRESS) for one in _addresses(host)]
        user = getpass.getuser()
        if user != "root":
            replaced.append((rf"\b{re.escape(user)}\b", "user"))
        self._rules = [(re.compile(pattern), new) for pattern, new in replaced]

    def text(self, text: str) -> str:
        """A text made neutral."""
        for pattern, new in self._rules:
            text = pattern.sub(new, text)
        return text

    def files(self, files: Files) -> Files:
        """All files of a run made neutral, their names included."""
        return {self.text(name): self.content(content) for name, content in files.items()}

    def content(self, content: bytes) -> bytes:
        """A text, or a dump of the Flight Recorder (a pickle)."""
        if content[:1] == b"\x80":
            return pickle.dumps(self._value(_Plain(io.BytesIO(content)).load()), protocol=2)
        return self.text(content.decode("utf-8", "surrogateescape")).encode(
            "utf-8", "surrogateescape"
        )

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._value(key): self._value(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._value(one) for one in value)
        return value


class Interpreter:
    """Where the Python that runs the jobs lies. prefix: of its environment; base: of its parent."""

    def __init__(self, executable: str) -> None:
        self.executable = executable
        self.prefix = str(Path(executable).parent.parent)
        self.base = sysconfig.get_config_var("base") or sys.base_prefix
        settings = Path(self.prefix, "pyvenv.cfg")
        if settings.exists():
            home = re.search(r"^home = (.+)/bin$", settings.read_text(encoding="utf-8"), re.M)
            self.base = home.group(1) if home else self.base


class _Plain(pickle.Unpickler):
    """Reads plain values only."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} in a dump")


def markers(text: str) -> list[str]:
    """Words in a text that tell of the recording, for tests: there must be none."""
    return _MARKER.findall(_HARMLESS.sub("", text))


def _names(host: str) -> Iterable[str]:
    return {host, socket.getfqdn()} - {"localhost"}


def _addresses(host: str) -> set[str]:
    found: set[str] = set()
    with suppress(OSError):
        found |= {str(info[4][0]) for info in socket.getaddrinfo(host, None, socket.AF_INET)}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing; tells which address would be used
        found.add(str(probe.getsockname()[0]))
    return {one for one in found if not one.startswith("127.")}
