"""The tools that HangBench asks, an adapter each: a module of at most 50 lines.

An adapter has `GIVES`, what the tool can say: of `verdict`, `class` (a word of ours, or one that a
small table maps to ours), `confidence`, `ranks`, `onset`; no figure is made of the rest. It has
`version(environment)`, the version of the tool or None where it is not there, and
`answer(case, commands)`, which runs the tool as a command over the folder of one case and gives
what it found. It may have `batch()`, a command that reads folders from its standard input, a line
each, and prints a line for each, and `parse(line)`, which says what such a line tells.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from benchmarks.hangbench.commands import Commands

PICKLE = b"\x80"  # the first byte of each pickle of protocol 2 and above
TOOLS = ("diagnose", "baseline", "torchfrtrace", "nvrx", "gpualert", "ascend-fd")


@dataclass(frozen=True, slots=True)
class Found:
    """What a tool says of a case, in the words of `Answer`; None and empty: it does not say."""

    verdict: str | None = None
    cause: str | None = None
    confidence: str | None = None
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    onset: str | None = None


class Adapter(Protocol):
    """What a module in this folder offers."""

    GIVES: frozenset[str]

    def version(self, environment: Path) -> str | None:
        """Version of the tool, None where it is not installed."""

    def answer(self, case: Path, commands: Commands) -> Found:
        """Ask the tool. Raises CommandError or ValueError where it gives no answer."""


class BatchAdapter(Adapter, Protocol):
    """An adapter whose tool answers many cases in one process."""

    def batch(self) -> list[str]:
        """The command."""

    def parse(self, line: str) -> Found:
        """What a line of its output says. Raises ValueError where it is no answer."""


def adapter(tool: str) -> Adapter:
    """The adapter of a tool of `TOOLS`."""
    return cast(Adapter, importlib.import_module(f"{__name__}.{tool.replace('-', '_')}"))


def installed(environment: Path, package: str) -> str | None:
    """Version of a package in the environment with the tools, from its folder of metadata."""
    name = package.replace("-", "_")
    for folder in sorted(environment.glob(f"lib/python*/site-packages/{name}-*.dist-info")):
        return folder.name.removeprefix(f"{name}-").removesuffix(".dist-info")
    return None


def source_version(package: str) -> str | None:
    """Version of a package of this interpreter with a digest of its sources and its `patterns`.

    So that what other code has answered is asked for anew.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    start = Path(spec.origin)
    number = re.findall(r'__version__ = "(.+)"', start.read_text(encoding="utf-8"))
    digest = hashlib.sha256()
    for folder in (start.parent, start.parents[1] / "patterns"):
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".yaml"):
                digest.update(path.read_bytes())
    return f"{number[0] if number else '?'}+{digest.hexdigest()[:8]}"


def dumps(case: Path) -> list[Path]:
    """The Flight Recorder dumps of a case that are pickles."""
    return [path for path in _files(case) if path.read_bytes()[:1] == PICKLE]


def json_dumps(case: Path) -> list[Path]:
    """The Flight Recorder dumps of a case that are JSON."""
    return [
        path
        for path in _files(case)
        if (content := path.read_bytes())[:1] == b"{" and b'"entries"' in content
    ]


def logs(case: Path) -> list[Path]:
    """The files of a case that are text."""
    return [path for path in _files(case) if path.read_bytes()[:1] != PICKLE]


def link_dumps(paths: Sequence[Path], folder: str, prefix: str) -> None:
    """Links to dumps in an empty folder, named by their ranks: `PREFIX` and the rank.

    For tools that want a folder with dumps alone under such names. The rank is the last number of a
    dump's name, as torch writes it.
    """
    for path in paths:
        numbers = re.findall(r"\d+", path.name)
        Path(folder, f"{prefix}{numbers[-1] if numbers else 0}").symlink_to(path.resolve())


def one_log(case: Path, target: Path) -> None:
    """All text of a case in one file, for tools that read one: file after file, by name."""
    with target.open("wb") as out:
        out.writelines(_ended(path.read_bytes()) for path in logs(case))


def _files(case: Path) -> Sequence[Path]:
    return sorted(path for path in case.rglob("*") if path.is_file())


def _ended(text: bytes) -> bytes:
    return text if text.endswith(b"\n") else text + b"\n"
