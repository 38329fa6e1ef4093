"""What a source is, told from its first bytes; the name only decides where they leave it open."""

from __future__ import annotations

import codecs
import json
import re
from enum import Enum, auto
from typing import NamedTuple

from diagnose import plugins
from diagnose.ingest import log_drivers
from diagnose.lazy import expression
from diagnose.search import held

HEAD = 64 << 10  # bytes of a source that sniffing wants to see


class Container(Enum):
    """What is no text itself but may hold logs."""

    ARCHIVE = auto()  # zip and tar: read member by member
    OTHER_ARCHIVE = auto()  # not read
    OTHER_CODEC = auto()  # not read
    TWICE = auto()  # compressed data inside compressed data
    CONCATENATED = auto()  # text files one after the other, each under its name
    NOTEBOOK = auto()  # of Jupyter: what its cells printed
    EXCERPTS = auto()  # a document that keeps lines of logs


class Described(NamedTuple):
    """The kind of a source as in `sniff`; of what is not text, what it seems to be and may hold."""

    kind: str
    what: str = ""
    container: Container | None = None


# Enough of the common ones to name what lies about in a job's folder; the rest is told by its
# bytes.
_MAGIC: list[tuple[bytes, str, Container | None]] = [
    (rb"\x7fELF", "ELF program, library or core dump", None),
    (rb"PK\x03\x04[\s\S]{26}[^\0]{0,256}?/(?:data\.pkl|\.format_version)", "torch.save file", None),
    (rb"PK\x03\x04|PK\x05\x06", "zip archive", Container.ARCHIVE),
    (rb"7z\xbc\xaf\x27\x1c", "7z archive", Container.OTHER_ARCHIVE),
    (rb"Rar!\x1a\x07", "rar archive", Container.OTHER_ARCHIVE),
    (rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a", "image", None),
    (rb"%PDF-", "PDF", None),
    (rb"SQLite format 3\0", "SQLite database", None),
    (rb"\x89HDF\r\n\x1a\n", "HDF5 file", None),
    (rb"PAR1|ARROW1", "Parquet or Arrow data", None),
    (rb"\x93NUMPY", "NumPy array", None),
    (
        rb'[\s\S]{4}\0{4}\{\s*"(?:__metadata__"|[^"]{1,512}"\s*:\s*\{\s*"dtype")',
        "safetensors", None,
    ),
    (rb"\x04\x22\x4d\x18", "lz4 data", Container.OTHER_CODEC),
    (rb"[\s\S]{257}ustar", "tar archive", Container.ARCHIVE),
]  # fmt: skip
_FORMS = [
    (expression(magic), Described("binary", what, container)) for magic, what, container in _MAGIC
]
_PICKLE = expression(rb"\x80[\x02-\x05]")
_RAS = expression(rb"CUDA runtime version \d|PEER_[A-Z]|\"nccl_version\"")
_STACKS = expression(
    rb"Thread (?:0x)?[0-9a-fA-F]+ \(|PID \d+ - process|=== Rank \d+:|\"owns_gil\"|#0  \w"
    rb"|Thread \((?:idle|active)|state:D |\[<0>\] |Traceback \(most recent call first"
)
_PROBE = expression(rb'\s*\{\s*"(?:diagnose|schema)"')
_RAS_WORDS = (b"CUDA runtime version ", b"PEER_", b'"nccl_version"')
_STACK_WORDS = (
    b"Thread ", b"PID ", b"=== Rank ", b'"owns_gil"', b"#0  ", b"state:D ", b"[<0>] ",
    b"(most recent call first",
)  # fmt: skip
_CLOG = b"V|"  # torchcomms' clog, which is no JSON
_INSPECTOR_WORD = b'"inspector_output_format_version"'
_WORDS = (*_RAS_WORDS, *_STACK_WORDS, _INSPECTOR_WORD)
# A JSON document, which a log that begins with `[rank0]:` is not.
_JSON = expression(rb"\s*(?:\{\s*\"|\[\s*\{\s*\")")
_NOTEBOOK = expression(rb"\s*\{\s*\"(?:cells\"\s*:\s*\[|metadata\"\s*:\s*\{|nbformat(?:_minor)?\")")
_ERROR_JSON = expression(rb"\s*\{\s*\"message\"\s*:\s*(?:\{\s*\"(?:message|extraInfo)\"|\")")
# What `tail` and `head`, or `more`, print above each of several files. Names hold no blanks, as
# conda prints `==> WARNING: A newer version of conda exists. <==`.
HEADING = expression(
    rb"(?m)^(?:==> (?P<tail>\S{1,1024}) <==|:{14}\r?\n(?P<more>\S{1,1024})\r?\n:{14})\r?\n"
)
_FIRST_HEADING = 1 << 10  # bytes in which the first one stands, below a shell's prompt at most
# A log stays one when a program has written bytes into it.
_LOG_NAME = expression(
    r"\.(?:log|out|err)(?:[.-]\d{1,8})?(?:\.(?:gz|xz|bz2|zst))?\Z", re.IGNORECASE
)
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
# Control characters that logs do contain: BEL BS TAB LF VT FF CR ESC (and NUL, judged apart).
_CONTROLS = bytes(set(range(1, 32)) - {7, 8, 9, 10, 11, 12, 13, 27}) + b"\x7f"


def is_log_name(name: str) -> bool:
    """Whether a file's name says that it is a log."""
    return _LOG_NAME.search(name) is not None


def sniff(head: bytes, name: str) -> str:
    """`text`, `error_json`, `fr_dump`, `binary` or `empty`, from the first bytes of a source.

    `head` is decompressed and best HEAD bytes long; `name` is its file name.
    """
    return describe(head, name).kind


def describe(head: bytes, name: str) -> Described:
    """What a source is by its first bytes; see Described."""
    if not head:
        return Described("empty")
    plain = without_mark(head)
    special = _special(plain, name) or _plugged(plain, name)
    if not special and plain is not head and _JSON.match(plain) and _is_dump(plain):
        special = "fr_dump"
    if special:
        return Described(special, "", _kept_by(special, plain))
    if _PICKLE.match(head) and _is_dump(head):
        return Described("fr_dump")
    for magic, described in _FORMS:
        if magic.match(head):
            return described
    if _PICKLE.match(head):
        return Described("binary", "pickle")
    encoding, bom = encoding_of(head)
    if encoding != "utf-8":
        return Described("text")
    if _is_binary(head) and not is_log_name(name):
        return Described("binary", "binary data")
    if _JSON.match(head) and _is_dump(head):
        return Described("fr_dump")
    if _is_error_json(head[bom:], name):
        return Described("error_json")
    return Described("text", "", _of_several(head, bom))


def _kept_by(kind: str, head: bytes) -> Container | None:
    """What a document of a kind holds of logs."""
    if kind != "detector":
        return None
    from diagnose.parse.detectors import keeps_logs  # noqa: PLC0415

    return Container.EXCERPTS if keeps_logs(head) else None


def _of_several(head: bytes, bom: int) -> Container | None:
    """What text holds that several processes or cells wrote; None of one log."""
    if _NOTEBOOK.match(head, bom):
        return Container.NOTEBOOK
    return Container.CONCATENATED if HEADING.search(head, bom, _FIRST_HEADING) else None


def without_mark(data: bytes) -> bytes:
    """A text that begins with a byte order mark, in UTF-8 without it; others as they are.

    Where lines end with carriage returns alone, these are line feeds.
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    if _ends_lines_with_returns(data):
        return data.replace(b"\r", b"\n")
    encoding = _UTF16.get(data[:2])
    return data[2:].decode(encoding, "replace").encode() if encoding else data


_SEVERAL = 2  # line ends
RETURNS = "returns"  # text whose lines end with a carriage return alone


def encoding_of(head: bytes) -> tuple[str, int]:
    """`utf-8`, `utf-16-le`, `utf-16-be`, RETURNS or a form of `journal`; the length of the mark.

    Legacy encodings count as utf-8: their bytes pass through. UTF-16 without a byte order mark is
    told by its NULs: every other byte of ASCII text.
    """
    if head.startswith(codecs.BOM_UTF8):
        return (RETURNS if _ends_lines_with_returns(head) else "utf-8"), 3
    if head[:2] in _UTF16:
        return _UTF16[head[:2]], 2
    if form := log_drivers.journal_form(head):
        return form, 0
    if _ends_lines_with_returns(head):
        return RETURNS, 0
    pairs = len(head) // 2
    if pairs >= 2 and b"\0" in head:
        even = head[0 : 2 * pairs : 2].count(0)
        odd = head[1 : 2 * pairs : 2].count(0)
        if _is_binary(head.replace(b"\0", b"")):
            return "utf-8", 0
        if odd >= 0.7 * pairs and even <= 0.05 * pairs:
            return "utf-16-le", 0
        if even >= 0.7 * pairs and odd <= 0.05 * pairs:
            return "utf-16-be", 0
    return "utf-8", 0


def _ends_lines_with_returns(head: bytes) -> bool:
    """Whether carriage returns are all line ends that there are, and no bar is drawn with them."""
    returns = head.count(b"\r")
    if returns < _SEVERAL or b"\n" in head or b"\0" in head:
        return False
    return 2 * head.count(b"%") < returns


def _is_binary(head: bytes) -> bool:
    text = head.replace(b"\0", b"") if b"\0" in head else head
    if not text:
        # Only NULs: a log whose start was never written to disk, or was truncated by logrotate
        # while the writer kept its position, looks like this as well.
        return False
    strange = len(text) - len(text.translate(None, _CONTROLS))
    # NULs of a hole come in one run; those of binary data lie between other bytes.
    scattered = len(re.findall(rb"\0+", head)) if len(text) != len(head) else 0
    return strange > 0.02 * len(text) + 1 or scattered > 0.02 * len(head) + 4


def _special(head: bytes, name: str) -> str:
    """The kind of a document in text form, "" for anything else.

    The readers themselves decide, but are only imported and asked where a word of theirs stands.
    """
    words = held(head, _WORDS)
    if not words.isdisjoint(_RAS_WORDS) and _RAS.search(head):
        from diagnose.parse.ras import is_ras  # noqa: PLC0415

        if is_ras(head):
            return "ras"
    if _PROBE.match(head):
        from diagnose.parse.probes import is_probe  # noqa: PLC0415

        if is_probe(head):
            return "probe"
    if _INSPECTOR_WORD in words:
        from diagnose.parse.inspector import is_inspector  # noqa: PLC0415

        if is_inspector(head):
            return "inspector"
    if _JSON.match(head) or head.startswith(_CLOG):
        from diagnose.parse.detectors import kind_of, recorder_of  # noqa: PLC0415

        if kind_of(head):
            return "recorder" if recorder_of(head) else "detector"
    if not words.isdisjoint(_STACK_WORDS) and _STACKS.search(head):
        from diagnose.parse.stacks import is_stacks  # noqa: PLC0415

        if is_stacks(head, name):
            return "stacks"
    return ""


def _plugged(head: bytes, name: str) -> str:
    """The plug-in whose document this is, "" for none."""
    readers = plugins.loaded(plugins.READERS)
    for kind, reader in [*readers.found.items()]:
        try:
            if reader.recognises(head, name):
                return kind
        except Exception as error:
            readers.drop(kind, error)
    return ""


def _is_dump(head: bytes) -> bool:
    from diagnose.parse.flight_recorder import is_dump  # noqa: PLC0415  imports numpy

    return is_dump(head)


def _is_error_json(head: bytes, name: str) -> bool:
    """Torch elastic's error file, not a log of JSON lines."""
    if not _ERROR_JSON.match(head):
        return False
    try:
        document = json.loads(head)
    except (ValueError, RecursionError):
        # Longer than the head, or cut short when its writer died; JSON lines go on after line 1.
        named = name.rsplit("/", 1)[-1].startswith("error") and b"\n{" not in head
        return named or (b'"extraInfo"' in head and b'"py_callstack"' in head)
    if not isinstance(document, dict):
        return False
    message = document.get("message")
    if isinstance(message, dict):
        return "message" in message or "extraInfo" in message
    return set(document) <= {"message", "timestamp", "errorCode"} and len(document) > 1
