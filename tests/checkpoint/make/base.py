"""The file formats that checkpoints consist of, written as the real writers do (torch 2.13)."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from struct import pack
from typing import Any

ALIGNMENT = 64
SERIALIZATION_ID = b"0561108523619670619529416344962246499538"
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
ITEM_SIZES = {
    "float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "int64": 8, "int32": 4, "uint8": 1,
    "bool": 1,
}  # fmt: skip
_STORAGES = {
    "float32": "FloatStorage", "float16": "HalfStorage", "bfloat16": "BFloat16Storage",
    "float64": "DoubleStorage", "int64": "LongStorage", "int32": "IntStorage",
    "uint8": "ByteStorage", "bool": "BoolStorage",
}  # fmt: skip
_SAFE = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2,
    "U16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "U8": 1, "I8": 1, "BOOL": 1,
}  # fmt: skip


def write(path: Path, data: bytes, mtime: float) -> None:
    """Write a file, with its folders, as if it had been written at `mtime` (s since 1970)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (mtime, mtime))


def json_bytes(data: object) -> bytes:
    """JSON as Hugging Face writes it."""
    return json.dumps(data, indent=2, sort_keys=True).encode() + b"\n"


def filler(size: int, seed: str = "") -> bytes:
    """Bytes that look like weights: no run of zeros, the same for the same seed."""
    state = zlib.crc32(seed.encode()) | 1
    piece = bytes((state * (place + 7) >> (place % 23)) & 0xFF | 1 for place in range(509))
    return (piece * (size // 509 + 1))[:size]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor inside the content of a torch file; `data` is made up where it is None."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    data: bytes | None = None

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def raw(self) -> bytes:
        if self.data is not None:
            return self.data
        return filler(self.numel * ITEM_SIZES[self.dtype], f"{self.dtype}{self.shape}")

    @property
    def stride(self) -> tuple[int, ...]:
        return tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))


@dataclass(frozen=True)
class Global:
    """A name that a pickle imports, such as Global("collections", "OrderedDict")."""

    module: str
    name: str

    def __call__(self, *args: object) -> None:
        """Callable, as the first part of what a reducer gives has to be."""


_REBUILD = Global("torch._utils", "_rebuild_tensor_v2")
_ORDERED = Global("collections", "OrderedDict")
_GLOBALS = {name: Global("torch", storage) for name, storage in _STORAGES.items()}


class _Call:
    """Pickled as a call of a Global."""

    def __init__(self, call: Global, *args: object) -> None:
        self.reduced = call, args

    def __reduce__(self) -> tuple[Global, tuple[object, ...]]:
        return self.reduced


class _Pickler(pickle._Pickler):  # type: ignore[name-defined, misc]
    """Writes tensors as torch does: their storages as persistent ids.

    It is the one in Python because that lets globals be written which this process cannot import.
    """

    dispatch: dict[type, Callable[..., None]] = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]  # noqa: RUF012

    def __init__(self, sink: io.BytesIO, *, legacy: bool = False) -> None:
        super().__init__(sink, protocol=2)
        self.legacy = legacy
        self.storages: list[Tensor] = []

    def persistent_id(self, item: object) -> tuple[object, ...] | None:
        if not isinstance(item, _Storage):
            return None
        tensor = item.tensor
        if tensor not in self.storages:
            self.storages.append(tensor)
        key = str(self.storages.index(tensor))
        kind = _GLOBALS[tensor.dtype]
        last: tuple[object, ...] = (None,) if self.legacy else ()
        return ("storage", kind, key, "cpu", tensor.numel, *last)

    def save_tensor(self, tensor: Tensor) -> None:
        hooks = _Call(_ORDERED)
        self.save_reduce(
            _REBUILD,
            (_Storage(tensor), 0, tensor.shape, tensor.stride, False, hooks),
            obj=tensor,
        )

    def save_named(self, item: Global) -> None:
        self.write(f"c{item.module}\n{item.name}\n".encode())
        self.memoize(item)

    dispatch[Tensor] = save_tensor
    dispatch[Global] = save_named


@dataclass(frozen=True, eq=False)
class _Storage:
    tensor: Tensor


def _pickled(content: object, *, legacy: bool = False) -> tuple[bytes, list[Tensor]]:
    sink = io.BytesIO()
    pickler = _Pickler(sink, legacy=legacy)
    pickler.dump(content)
    return sink.getvalue(), pickler.storages


def torch_file(
    records: Mapping[str, bytes] | None = None,
    *,
    content: object = None,
    pickled: bytes | None = None,
    archive: str = "archive",
) -> bytes:
    """A file of torch.save.

    `content` is plain data, in which Tensor stands for tensors: their storages become the records
    `data/0`, `data/1` … `records` adds more of them under their names without the archive's, or
    replaces some. `pickled` is the record data.pkl where it is not to be made from `content`.
    `archive` is the name of the file that was saved to, without its suffix.
    """
    data_pkl, tensors = _pickled(content)
    data = {f"data/{number}": tensor.raw for number, tensor in enumerate(tensors)}
    head = {
        "data.pkl": data_pkl if pickled is None else pickled,
        ".format_version": b"1",
        ".storage_alignment": str(ALIGNMENT).encode(),
        "byteorder": b"little",
    }
    tail = {"version": b"3\n", ".data/serialization_id": SERIALIZATION_ID}
    everything = {**head, **data, **tail, **(records or {})}
    for name in tail:  # last, whatever else there is
        everything[name] = everything.pop(name)
    return zip_file({f"{archive}/{name}": piece for name, piece in everything.items()})


def zip_file(records: Mapping[str, bytes], *, crc: Mapping[str, int] | None = None) -> bytes:
    """A zip as torch's writer lays it out: nothing compressed, data aligned, sizes after the data.

    `crc` replaces the checksums of the records it names.
    """
    body, directory = bytearray(), bytearray()
    for name, data in records.items():
        raw, offset, size = name.encode(), len(body), len(data)
        check = (crc or {}).get(name, zlib.crc32(data))
        flags = 0x808 if data else 0x800  # an empty record has nothing written behind it
        padding = -(offset + 30 + len(raw) + 4) % ALIGNMENT
        extra = b"FB" + pack("<H", padding) + b"Z" * padding
        body += pack("<4s5H3I2H", b"PK\3\4", 0, flags, 0, 0, 0, 0, 0, 0, len(raw), len(extra))
        body += raw + extra + data
        if data:
            body += pack("<4s3I", b"PK\7\x08", check, size, size)
        directory += pack(
            "<4s6H3I5H2I", b"PK\1\2", 0, 0, flags, 0, 0, 0, check, size, size, len(raw),
            0, 0, 0, 0, 0, offset,
        )  # fmt: skip
        directory += raw
    count, start, end = len(records), len(body), len(body) + len(directory)
    wide = (44, 0x031E, 45, 0, 0, count, count, len(directory), start)
    directory += pack("<4sQ2H2I4Q", b"PK\6\6", *wide)
    directory += pack("<4sIQI", b"PK\6\7", 0, end, 1)
    directory += pack("<4s4H2IH", b"PK\5\6", 0, 0, *[min(count, 0xFFFF)] * 2, end - start, start, 0)
    return bytes(body + directory)


def torch_legacy_file(content: object = None) -> bytes:
    """A file of torch.save before 1.6, and of later ones with _use_new_zipfile_serialization=False.

    Five pickles (magic number, protocol, system, content, keys of the storages), then the storages.
    """
    system = {
        "protocol_version": 1001,
        "little_endian": True,
        "type_sizes": {"short": 2, "int": 4, "long": 4},
    }
    pickled, tensors = _pickled(content, legacy=True)
    keys = [str(number) for number in range(len(tensors))]
    parts = [pickle.dumps(part, protocol=2) for part in (LEGACY_MAGIC, 1001, system)]
    parts += [pickled, pickle.dumps(keys, protocol=2)]
    parts += [pack("<q", tensor.numel) + tensor.raw for tensor in tensors]
    return b"".join(parts)


def pickle_file(content: object) -> bytes:
    """A file of pickle.dump: plain data only."""
    return pickle.dumps(content, protocol=4)


def safetensors_file(
    tensors: Mapping[str, tuple[str, tuple[int, ...]]],
    *,
    metadata: Mapping[str, str] | None = None,
    seed: str = "",
) -> bytes:
    """A file of safetensors: dtype (`F32`, `BF16` …) and shape by name.

    Another `seed` gives other values. The largest items come first, as the real writer does it.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata or {"format": "pt"})}
    offset = 0
    for name in sorted(tensors, key=lambda name: (-_SAFE[tensors[name][0]], name)):
        dtype, shape = tensors[name]
        end = offset + math.prod(shape) * _SAFE[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return pack("<Q", len(text)) + text + filler(offset, f"safetensors {seed}")
