"""Logs of systemd's journal in its own forms, as the lines that `journalctl` prints of them.

`-o export` (systemd.io/JOURNAL_EXPORT_FORMATS): records of fields, an empty line below each; a
field is `NAME=text`, or `NAME`, the length in eight bytes, little end first, and the bytes. Of
`-o verbose` records begin with a time, below which their fields stand indented. What comes out is
`-o short-iso-precise`, each line of a message with its prefix, with the priority in front of it
where that says more than that something was printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta

from diagnose.lazy import dataclass, expression

EXPORT, VERBOSE = "journal-export", "journal-verbose"

_LIMIT = 1 << 20  # bytes of a value or a line that are kept
_LONGEST = 768 << 20  # bytes of a value that journald takes; a length above it is damage
_TIME = "__REALTIME_TIMESTAMP"
_HOST = ("_HOSTNAME",)
_PROGRAM = ("SYSLOG_IDENTIFIER", "_COMM")
_PID = ("_PID", "SYSLOG_PID")
_WANTED = frozenset({_TIME, "MESSAGE", "PRIORITY", *_HOST, *_PROGRAM, *_PID})
_WARNING = 4  # and what is more urgent: 3 is an error, 6 is what programs print
_EXPORTED = expression(rb"(?:[A-Z_][A-Z0-9_]{0,63}=[^\n]*\n){0,40}?__REALTIME_TIMESTAMP=\d{1,17}\n")
_HEADING = expression(
    rb"[A-Z][a-z]{2} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?)"
    rb"(?: (\S{1,6}))? \[s=[0-9a-f]{4,40};"
)
_NAME = expression(rb"[A-Z_][A-Z0-9_]{0,63}\Z")
_UNPRINTED = expression(r"[^\w./\-()@]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def form_of(head: bytes) -> str | None:
    """Which of the two forms a source that begins so has; None for neither."""
    if _EXPORTED.match(head):
        return EXPORT
    return VERBOSE if _HEADING.match(head) else None


def printed(blocks: Iterable[bytes], form: str) -> Iterator[bytes]:
    """The lines of the records, in blocks."""
    stream = _Stream(iter(blocks))
    records = _exported(stream) if form == EXPORT else _verbose(stream)
    for record in records:
        text = _printed(record)
        if text:
            yield text


@dataclass(slots=True)
class _Stream:
    """Bytes that come in blocks, taken line by line or by their number."""

    blocks: Iterator[bytes]
    held: bytes = field(default=b"", repr=False)
    at: int = 0

    def line(self) -> bytes | None:
        """The next line, without its end; None behind the last. Of a long one a piece."""
        searched = self.at
        while (end := self.held.find(b"\n", searched)) < 0:
            searched = len(self.held) - self.at
            if searched > _LIMIT or not self._more():
                return self.take(searched) if searched else None
        line, self.at = self.held[self.at : end], end + 1
        return line

    def take(self, size: int) -> bytes:
        """The next bytes; of many only the first are kept."""
        kept = bytearray()
        while size > 0:
            piece = self.held[self.at : self.at + size]
            if not piece and not self._more():
                break
            kept += piece[: _LIMIT - len(kept)]
            self.at += len(piece)
            size -= len(piece)
        return bytes(kept)

    def _more(self) -> bool:
        block = next(self.blocks, b"")
        self.held, self.at = self.held[self.at :] + block, 0
        return bool(block)


def _exported(stream: _Stream) -> Iterator[dict[str, bytes]]:
    record: dict[str, bytes] = {}
    while (line := stream.line()) is not None:
        if not line:
            yield record
            record = {}
            continue
        name, equals, value = line.partition(b"=")
        if not equals and _NAME.match(name):
            size = int.from_bytes(stream.take(8), "little")
            value = stream.take(size if size <= _LONGEST else 0)
            stream.line()
        _keep(record, name, value)
    yield record


def _verbose(stream: _Stream) -> Iterator[dict[str, bytes]]:
    record: dict[str, bytes] = {}
    while (line := stream.line()) is not None:
        heading = _HEADING.match(line)
        if heading:
            yield record
            record = {_TIME: heading[1] + (b"Z" if heading[2] in (b"UTC", b"GMT") else b"")}
            continue
        name, _, value = line.strip().partition(b"=")
        _keep(record, name, value)
    yield record


def _keep(record: dict[str, bytes], name: bytes, value: bytes) -> None:
    text = name.decode(errors="replace")
    if text in _WANTED:
        record.setdefault(text, value)


def _printed(record: Mapping[str, bytes]) -> bytes:
    texts = {name: value.decode(errors="replace") for name, value in record.items()}
    if not texts.get("MESSAGE") or _TIME not in texts:
        return b""
    host, program, pid = (
        next((texts[name] for name in names if texts.get(name)), "")
        for names in (_HOST, _PROGRAM, _PID)
    )
    program = _UNPRINTED.sub("_", program)[:80] or "unknown"
    process = f"{program}[{pid}]" if pid.isdecimal() else program
    urgency = texts.get("PRIORITY", "")
    mark = f"<{urgency}>" if len(urgency) == 1 and "0" <= urgency <= str(_WARNING) else ""
    head = f"{mark}{_time(texts[_TIME])} {_UNPRINTED.sub('_', host)[:128] or '-'} {process}: "
    lines = texts["MESSAGE"].removesuffix("\n").split("\n")
    return "".join(f"{head}{line}\n" for line in lines).encode()


def _time(text: str) -> str:
    """Microseconds since 1970, or a time that was printed already, as ISO 8601 has it."""
    if not text.isdecimal():
        return text.replace(" ", "T")
    return (_EPOCH + timedelta(microseconds=int(text[:17]))).isoformat(timespec="microseconds")
