"""What must hold of any input, judged without the engine's own ideas of recovery.

Each oracle gives the words of a violation, or None. They may overlook something, but must never
complain of a verdict that a careful reader of the same lines would give.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass

import zstandard
from rich.console import Console

from diagnose.parse.path import read_path
from diagnose.report import html, markdown, terminal
from diagnose.report.safe import masked
from tests.fuzz.case import Case, File, Outcome, load, said

# Words of a death that need no catalog.
_FATAL = re.compile(
    r"CUDA out of memory|OutOfMemoryError|Traceback \(most recent call last\)"
    r"|Segmentation fault|core dumped|Bus error \(|(?:^|\s)Killed\s*$|Killed by signal \d"
    r"|Out of memory: Killed process|oom-kill event"
    r"|exit(?:ed)?(?: with)?(?: (?:code|status))?:? -?[1-9]\d*\b|exitcode\s*:? -?[1-9]"
    r"|\b(?:FATAL|CRITICAL): |^panic: |Check failed: |Watchdog caught collective operation timeout"
    r"|\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED|died unexpectedly"
)
# A traceback that Python itself calls of no matter; it follows this line.
_IGNORED = "Exception ignored in"
# The author goes on, or has done all it had to.
_WORK = re.compile(
    r"(?i)\b(?:steps?|iter(?:ation)?s?|epochs?|loss|batch(?:es)?|samples)\b\W{0,4}\d|'loss'|it/s\b|s/it\b"
    r"|\d+%\||examples/s|train_runtime|\bcomplete|finished|succe(?:eded|ssful)|restart|resum|saved|saving"
    r"|exit(?:ed)? (?:with )?(?:code|status) 0\b"
)
_TAG = re.compile(
    r"\[(?:[Rr]ank ?|default)(\d+)\]|^ *(\d+): |^\((?:\w+ )?(?:[\w.]+ )?pid=(\d+)|^(\S+?): (?=\[)"
)
_ATTEMPT = re.compile(r"attempt_(\d+)")


@dataclass(frozen=True, slots=True)
class Fatal:
    """A line that tells of a death nothing survived."""

    file: str
    line: int
    text: str


def no_exception(outcome: Outcome) -> str | None:
    """The engine gives a verdict or refuses the input; it never raises."""
    error = outcome.error
    return None if error is None else f"{type(error).__name__}: {error}"


def reported(outcome: Outcome) -> str | None:
    """Every report of the verdict can be made."""
    diagnosis = outcome.diagnosis
    if diagnosis is None:
        return None
    try:
        json.loads(masked(diagnosis).to_json())
        markdown.render(diagnosis)
        terminal.render(diagnosis, Console(file=io.StringIO(), width=80))
        html.render(load(outcome.case), diagnosis)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def not_well(outcome: Outcome) -> str | None:
    """No job is called healthy over a line that tells of a death."""
    if not _well(outcome):
        return None
    found = next(fatal_lines(outcome.case), None)
    return None if found is None else f"{found.file}:{found.line}: {found.text[:150]}"


def not_well_unread(outcome: Outcome) -> str | None:
    """No job is surely healthy whose end was not read."""
    diagnosis = outcome.diagnosis
    if not outcome.case.cut or diagnosis is None or not _well(outcome):
        return None
    level = diagnosis.root_cause.confidence
    return None if level == "low" else f"healthy ({level}), though a file is cut"


def same(outcome: Outcome, before: Outcome) -> str | None:
    """However the same files are stored and read, the verdict is the same."""
    now, then = told(outcome), told(before)
    if now == then:
        return None
    pairs = zip(then, now, strict=False)
    return "; ".join(f"{old} -> {new}" for old, new in pairs if old != new) or f"{then} -> {now}"


def steady(outcome: Outcome, before: Outcome) -> str | None:
    """Lines without news never change a cause that is told with high confidence."""
    sure = any(
        found.diagnosis is not None and found.diagnosis.root_cause.confidence == "high"
        for found in (before, outcome)
    )
    return drift(outcome, before) if sure else None


def drift(outcome: Outcome, before: Outcome) -> str | None:
    """Another cause, at whatever confidence."""
    words, causes = [], []
    for found in (before, outcome):
        if found.diagnosis is None:
            words.append("refused" if found.refused else "exception")
            causes.append("")
            continue
        root = found.diagnosis.root_cause
        words.append(f"{found.diagnosis.verdict} {root.cause} ({root.confidence})")
        causes.append(root.cause)
    return None if causes[0] == causes[1] else " -> ".join(words)


def told(outcome: Outcome) -> tuple[object, ...]:
    """All of a verdict that must not depend on how the files are stored."""
    result = outcome.diagnosis
    if result is None:
        return ("refused" if outcome.refused else repr(outcome.error),)
    root, culprits = result.root_cause, result.culprits
    return (
        result.verdict, root.cause, root.signature, root.confidence, culprits.ranks,
        culprits.hosts, culprits.kind, result.phase, result.onset.time,
    )  # fmt: skip


def fatal_lines(case: Case) -> Iterator[Fatal]:
    """Lines that tell of a death, without those whose author worked on afterwards.

    An author is a file, or whom its lines name. Of several attempts only the last is looked at.
    """
    texts = {file.name: _decoded(file) for file in _unpacked(case.files)}
    last = max(map(_attempt, texts), default=0)
    for name, text in texts.items():
        if text is not None and (_attempt(name) == last or not _ATTEMPT.search(name)):
            yield from _fatal_in(name, text, case)


def _well(outcome: Outcome) -> bool:
    # "running" promises as much: no sign of trouble.
    return outcome.diagnosis is not None and outcome.diagnosis.verdict in ("healthy", "running")


def _fatal_in(name: str, text: str, case: Case) -> list[Fatal]:
    open_: dict[str, list[Fatal]] = {}
    ignored: set[str] = set()
    for number, line in enumerate(text.split("\n"), start=1):
        for message in said(line):
            author = _author(message)
            if _IGNORED in message:
                ignored.add(author)
            elif _is_fatal(message, case):
                if "Traceback" not in message or author not in ignored:
                    open_.setdefault(author, []).append(Fatal(name, number, message))
                ignored.discard(author)
            elif _WORK.search(message):
                open_.pop(author, None)
                ignored.discard(author)
    return [fatal for found in open_.values() for fatal in found]


def _is_fatal(message: str, case: Case) -> bool:
    if message in case.fatal:
        return True
    return message not in case.tame and _FATAL.search(message) is not None


def _author(message: str) -> str:
    tag = _TAG.search(message[:200])
    return next((part for part in tag.groups() if part), "") if tag else ""


def _attempt(name: str) -> int:
    found = _ATTEMPT.search(name)
    return int(found[1]) if found else read_path(name).attempt or 0


def _unpacked(files: tuple[File, ...]) -> list[File]:
    return [inner for file in files for inner in _members(file)]


def _members(file: File) -> list[File]:
    if file.name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(file.data)) as packed:
            return [File(name, packed.read(name)) for name in packed.namelist()]
    data = _plain(file.data)
    if data[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            inside = [(member.name, tar.extractfile(member)) for member in tar]
            return [File(name, stream.read()) for name, stream in inside if stream]
    return [file]


def _decoded(file: File) -> str | None:
    """The text of a log; None for what is no text."""
    data = _plain(file.data)
    for mark, codec in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            return data[2:].decode(codec, errors="replace")
    return data.removeprefix(b"\xef\xbb\xbf").decode(errors="replace")


def _plain(data: bytes) -> bytes:
    """What is packed in a file, as far as it is whole."""
    try:
        if data.startswith(b"\x1f\x8b"):
            return gzip.decompress(data)
        if data.startswith(b"BZh"):
            return bz2.decompress(data)
        if data.startswith(b"\xfd7zXZ"):
            return lzma.decompress(data)
        if data.startswith(b"\x28\xb5\x2f\xfd"):
            return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    except (OSError, EOFError, ValueError, lzma.LZMAError, zstandard.ZstdError):
        return b""
    return data
