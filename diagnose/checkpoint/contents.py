"""How files are read, and what is wrong with them: their ends, JSON, pickles, safetensors.

Files of safetensors are 8 bytes for the length of a JSON header, the header, the data. The header
gives dtype, shape and place of every tensor, so that header and size tell whether the file is whole
(the README of safetensors).
"""

from __future__ import annotations

import heapq
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

from diagnose.checkpoint.model import Flaw, State
from diagnose.ingest.chunks import is_zeros
from diagnose.ingest.raw import Reader
from diagnose.lazy import compiled
from diagnose.parse.pickles import PickleError, walk
from diagnose.text.ranks import counted

LARGE = 1 << 20  # bytes of one read; what is made of it may take a hundred times as much memory
_ALONE = Lock()


class DamagedError(ValueError):
    """A file is not what it should be; `flaw` says how, without naming the file."""

    def __init__(self, state: State, why: str) -> None:
        super().__init__(why)
        self.flaw = Flaw(state, why)


def exactly(reader: Reader, offset: int, length: int) -> bytes:
    """`length` bytes from `offset` on. Raises OSError where there are fewer: the file shrank."""
    data = reader.read_at(offset, length)
    if len(data) != length:
        raise OSError("it shrank while being read")
    return data


def span(seconds: float) -> str:
    """A time that has passed, in words."""
    for unit, length in (("days", 86400.0), ("h", 3600.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


@dataclass(slots=True)
class Ends:
    """A reader that asks for the ends of a file once, each `piece` bytes long: requests cost.

    After a LARGE read it is the only one of this process that reads so much, until it is closed.
    """

    reader: Reader
    piece: int
    kept: dict[int, bytes] = field(default_factory=dict)
    alone: bool = False

    @property
    def size(self) -> int:
        """See Reader."""
        return self.reader.size

    def read_at(self, offset: int, length: int) -> bytes:
        """See Reader."""
        if length > LARGE and not self.alone:
            self.alone = _ALONE.acquire()
        last = max(0, self.size - self.piece)
        end = min(offset + length, self.size)
        for begin in (0, last):
            if begin <= offset and end <= begin + self.piece:
                if begin not in self.kept:
                    self.kept[begin] = exactly(self.reader, begin, min(self.piece, self.size))
                return self.kept[begin][offset - begin : end - begin]
        return self.reader.read_at(offset, length)

    def close(self) -> None:
        """Let others read."""
        if self.alone:
            self.alone = False
            _ALONE.release()


MAX_JSON = 64 << 20
MAX_WEIGHT = 150 << 20  # bytes that the parsed content may take, estimated from above
SMALL = 1 << 20  # bytes whose content cannot take too much, whatever it is
_BACKSLASHES = re.compile(rb"\\++.?", re.DOTALL)
_ESCAPES = re.compile(rb"(?:\\.)+", re.DOTALL)
_STRING = re.compile(rb'"[^"]*+"?+')  # the last one of a piece may go on in the next
_CUT_OFF = "ends in the middle of its JSON text"
_PIECE = 1 << 20
_ESCAPE = len(r'"\uD83D\uDE0')  # characters from which on an escape is not cut off
# What of a literal or number can be left behind the last character that makes sense.
_CUT_OFF_WORD = re.compile(
    r"|-|t|tr|tru|f|fa|fal|fals|n|nu|nul|N|Na|-?I(?:n|nf|nfi|nfin|nfini|nfinit)?|\.|[eE][+-]?"
)


class _TooHeavy:
    """Stands for content that was checked but not kept."""


TOO_HEAVY = _TooHeavy()


def parse(data: bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The content of a JSON file; TOO_HEAVY where only its shape has been checked.

    `pairs` makes of an object what json's object_pairs_hook does. JSON lines under the name of a
    JSON file give TOO_HEAVY, too. Raises DamagedError: `partial` where the text was cut off.
    """
    if len(data) > MAX_JSON:
        raise DamagedError("unknown", f"has {counted(len(data), 'byte')}: too many to check")
    whole = data.rstrip(b"\0")
    if len(whole) < len(data):
        zeros = counted(len(data) - len(whole), "zero byte")
        raise DamagedError("partial", f"ends in {zeros}: its end was never written")
    if len(data) > SMALL and _check_shape(data) > MAX_WEIGHT:
        return TOO_HEAVY
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.end == len(data) and error.reason == "unexpected end of data":
            raise DamagedError("partial", _CUT_OFF) from None
        raise DamagedError(
            "corrupt", f"is not valid JSON: {error.reason} at byte {error.start:,}"
        ) from None
    if not text.strip():
        raise DamagedError("partial", "is blank where JSON should be")
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        if _is_lines(text, error):
            return TOO_HEAVY
        raise _damage(text, error) from None
    except RecursionError:
        raise DamagedError("unknown", "is nested too deeply to check") from None
    except DamagedError:
        raise
    except ValueError:  # a number of thousands of digits
        raise DamagedError("corrupt", "has an unreadable number") from None


def _damage(text: str, error: json.JSONDecodeError) -> DamagedError:
    rest = text[error.pos :].rstrip()
    escape = error.msg.startswith("Invalid \\") and len(rest) < _ESCAPE
    if error.msg.startswith("Unterminated") or escape or _CUT_OFF_WORD.fullmatch(rest):
        return DamagedError("partial", _CUT_OFF)
    what = error.msg[0].lower() + error.msg[1:]
    return DamagedError("corrupt", f"is not valid JSON: {what} (line {error.lineno:,})")


def _is_lines(text: str, error: json.JSONDecodeError) -> bool:
    """Whether it is one JSON value a line, as some loggers write into files named .json."""
    first, _, rest = text.partition("\n")
    if error.msg != "Extra data" or error.pos <= len(first) or not rest.startswith(("{", "[")):
        return False
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return False
    return True


def _check_shape(data: bytes) -> int:
    """Bytes that the parsed content takes at most, about (CPython 3.11 to 3.13).

    Raises DamagedError where strings or brackets do not close.
    """
    counts = dict.fromkeys((b"{", b"[", b"}", b"]", b",", b":"), 0)
    for bare in _without_strings(data):
        for mark in counts:
            counts[mark] += bare.count(mark)
    opened, closed = counts[b"{"] + counts[b"["], counts[b"}"] + counts[b"]"]
    if opened > closed:
        raise DamagedError("partial", _CUT_OFF)
    if closed > opened:
        raise DamagedError("corrupt", "is not valid JSON: it closes more brackets than it opens")
    width = 1 if data.isascii() else 4 if max(data) >= 0xF0 else 2
    containers = 240 * counts[b"{"] + 96 * counts[b"["]
    return containers + 80 * counts[b","] + 100 * counts[b":"] + 2 * width * len(data)


def _without_strings(data: bytes) -> Iterator[bytes]:
    """The text without its strings, in pieces. Raises DamagedError where a string does not end."""
    at, inside = 0, False
    while at < len(data):
        cut = _BACKSLASHES.match(data, min(at + _PIECE, len(data)) - 1)
        end = cut.end() if cut else min(at + _PIECE, len(data))
        plain = _ESCAPES.sub(b"", data[at:end])
        if inside:
            plain = b'"' + plain
        inside = plain.count(b'"') % 2 == 1
        yield _STRING.sub(b"", plain)
        at = end
    if inside:
        raise DamagedError("partial", _CUT_OFF)


MAX_STEP_BYTES = 2 << 20  # of a pickle that are looked at
MAX_STEP = 1 << 53
_CLEAR = frozenset({"global_step", "global_steps"})  # whatever it stands in
_KEYS = _CLEAR | {"iteration"}  # Megatron-LM's args have one, too: only the outermost counts
_SCHEDULER = _KEYS | {"last_epoch"}  # counts calls of step(), which trainers do once per step
_MANY = 8  # pairs; a file that has more of them wants to be slow
# A key, its place in the memo, and the small integer behind it, if there is one.
_PAIR = compiled(
    rb"(?:X[\x09-\x0c]\0\0\0|[\x8cU][\x09-\x0c])(?P<key>global_steps?|iteration|last_epoch)"
    rb"(?:q(?P<near>.)|r(?P<far>....)|\x94)?+(?:K(?P<one>.)|M(?P<two>..)|J(?P<four>....))?+",
    re.DOTALL,
)
# What starts a process or runs code; no state of a training needs one. Others (getattr, open) stand
# in honest pickles, too.
_HARMFUL = (
    rb"(?P<module%d>(?:posix|nt|os)(?=[\n\x8c\x94].{0,2}(?:system|popen|exec|spawn|startfile))"
    rb"|subprocess|_posixsubprocess|runpy|pty|commands|platform(?=[\n\x8c\x94].{0,2}popen)"
    rb"|(?:__builtin__|builtins)(?=[\n\x8c\x94].{0,2}(?:eval|exec|compile|__import__|breakpoint)\b))"
)
_IMPORT = re.compile(
    rb"c" + _HARMFUL % 1 + rb"\n(?P<name1>\w{1,64})\n"
    rb"|\x8c." + _HARMFUL % 2 + rb"\x94?\x8c.(?P<name2>\w{1,64}?)\x94?\x93",
    re.DOTALL,
)


def step_in(data: bytes, name: str) -> int | None:
    """The step that the beginning of a pickle claims; None where it claims none, or several.

    `name` is that of its file: in those of schedulers `last_epoch` is a step, too. Never raises.
    """
    keys = _SCHEDULER if name.startswith("scheduler") else _KEYS
    data = data[:MAX_STEP_BYTES]
    pairs = [pair for pair in _PAIR.finditer(data) if pair["key"].decode() in keys]
    if not pairs:
        return None
    # Walking takes a hundred times as long: it is for what is not clear at once.
    steps = {_clear_step(data, pair) for pair in pairs} if len(pairs) < _MANY else {None}
    step = steps.pop()
    return _walked(data, keys) if steps or step is None else _plausible(step)


def _clear_step(data: bytes, pair: re.Match[bytes]) -> int | None:
    """The step behind a key that means one wherever it stands, and does not stand there twice."""
    number = pair["one"] or pair["two"] or pair["four"]
    if pair["key"].decode() not in _CLEAR or number is None:
        return None
    if pair["near"] is not None:
        repeated = b"h" + pair["near"]
    elif pair["far"] is not None:
        repeated = b"j" + pair["far"]
    else:
        return None
    if repeated in data:
        return None
    return int.from_bytes(number, "little", signed=pair["four"] is not None)


def _walked(data: bytes, keys: frozenset[str]) -> int | None:
    """The step among the items of the outermost dict; if there is none, that in all dicts."""
    try:
        found = walk(data, 0, keys)
    except PickleError:
        return None
    outer = found.value.items() if isinstance(found.value, dict) else ()
    inner = [(key, number) for key, number in found.items if key in _CLEAR]
    for items in (outer, inner):
        steps = {number for _, number in items if type(number) is int}
        if steps:
            return _plausible(steps.pop()) if len(steps) == 1 else None
    return None


def _plausible(step: int) -> int | None:
    return step if 0 <= step < MAX_STEP else None


def check_imports(data: bytes) -> None:
    """Raises DamagedError where a pickle imports what runs code."""
    found = _IMPORT.search(data)
    if found is None:
        return
    module, name = (found["module1"], found["name1"]) if found["module1"] else (
        found["module2"], found["name2"]
    )  # fmt: skip
    full = f"{module.decode()}.{name.decode()}"
    raise DamagedError(
        "corrupt", f"names {full}, which no checkpoint needs: loading it may run code"
    )


MAX_HEADER = 100_000_000  # bytes; what the library refuses
MAX_PARSED = 16 << 20  # bytes of a header that is looked at; a hundred thousand tensors take 10 MB
HOLE = 1 << 20  # a file that takes so many bytes less than its size is looked at for holes
HOLE_TENSORS = 4
_PAGE = 4096
_MAX_AXES = 64  # each of them below _MAX_NUMBER: so their product is soon computed
_MAX_NUMBER = 1 << 62
_BITS = {  # a dtype that is not here is no flaw: there will be new ones
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


class Header(NamedTuple):
    """Bytes of each tensor by name, their places in the file, and where the header ends."""

    tensors: Mapping[str, int]
    places: list[tuple[int, int]]
    begin: int


def read_header(reader: Reader) -> Header:
    """The header, checked against itself and the file's size. Raises DamagedError, OSError.

    `partial` for a file that is shorter than it says, `corrupt` for one that contradicts itself.
    """
    size = reader.size
    if size < 8:
        raise DamagedError("partial", f"has only {counted(size, 'byte')}, too few for a header")
    start = exactly(reader, 0, min(16, size))
    length = int.from_bytes(start[:8], "little")
    if is_zeros(start):
        raise DamagedError("partial", "starts with zero bytes: its start was never written")
    if length > MAX_HEADER or length < 2:
        raise DamagedError("corrupt", f"claims a header of {counted(length, 'byte')}")
    if size > 8 and start[8:9] != b"{":
        raise DamagedError("corrupt", "its header is not a JSON object")
    if size < 8 + length:
        raise DamagedError(
            "partial",
            f"ends inside its header: {size - 8:,} of {counted(length, 'byte')} are there",
        )
    if length > MAX_PARSED:
        raise DamagedError(
            "unknown", f"has a header of {counted(length, 'byte')}: too long to check"
        )
    return _checked(_parsed(exactly(reader, 8, length)), 8 + length, size)


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        header = parse(raw, _unique)
    except DamagedError as error:
        # The header is all there: text that is cut off inside it was never right.
        raise DamagedError("corrupt", f"its header {error.flaw.why}") from None
    if header is TOO_HEAVY or not isinstance(header, dict):
        raise DamagedError("corrupt", "its header is not a list of tensors")
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DamagedError("corrupt", "names the same tensor twice")
    return found


def _checked(header: dict[str, Any], begin: int, size: int) -> Header:
    header.pop("__metadata__", None)
    tensors: dict[str, int] = {}
    places: list[tuple[int, int]] = []
    for name, entry in header.items():
        first, last = _place(name, entry)
        tensors[name] = last - first
        places.append((first, last))
    places.sort()
    end = 0
    for first, last in places:
        if first != end:
            what = "overlap" if first < end else "leave a gap"
            raise DamagedError("corrupt", f"its tensors {what} at byte {min(first, end):,}")
        end = last
    have = size - begin
    if have < end:
        raise DamagedError(
            "partial", f"ends inside its tensors: {have:,} of {counted(end, 'byte')} are there"
        )
    if have > end:
        raise DamagedError("corrupt", f"has {counted(have - end, 'byte')} after its last tensor")
    return Header(tensors, places, begin)


def _place(name: str, entry: Any) -> tuple[int, int]:
    """Where a tensor begins and ends behind the header. Raises DamagedError."""
    match entry:
        case {"dtype": str() as dtype, "shape": list() as shape, "data_offsets": [first, last]}:
            numbers = [*shape, first, last]
            fine = len(shape) <= _MAX_AXES and all(map(_is_size, numbers)) and first <= last
        case _:
            fine = False
    if not fine:
        raise DamagedError("corrupt", f"its header is malformed for tensor {name[:80]!r}")
    count = math.prod(shape)
    bits = _BITS.get(dtype)
    if bits is not None and count * bits != 8 * (last - first):
        raise DamagedError(
            "corrupt",
            f"tensor {name[:80]!r} of shape {shape} and type {dtype} cannot have"
            f" {counted(last - first, 'byte')}",
        )
    return first, last


def _is_size(number: Any) -> bool:
    return type(number) is int and 0 <= number <= _MAX_NUMBER


def holes(reader: Reader, header: Header, on_disk: int | None) -> Flaw | None:
    """Whether a file whose blocks are far fewer than its bytes seems never to have been written.

    There are no checksums, and fewer blocks are normal where a file system compresses. So this
    asks for at least half of the largest tensors to begin and end in zeros. Raises OSError.
    """
    if on_disk is None or on_disk > reader.size - HOLE:
        return None
    large = heapq.nlargest(HOLE_TENSORS, header.places, key=lambda place: place[1] - place[0])
    blank = 0
    for first, last in large:
        near = reader.read_at(header.begin + first, min(_PAGE, last - first))
        far = reader.read_at(header.begin + max(first, last - _PAGE), min(_PAGE, last - first))
        blank += is_zeros(near) and is_zeros(far)
    if 2 * blank < len(large):
        return None
    return Flaw(
        "unknown",
        f"its largest tensors start and end with zero bytes, and only {on_disk:,} of its"
        f" {counted(reader.size, 'byte')} are on disk: it looks like a sparse hole",
    )
