"""Checkpoints of torch.distributed.checkpoint as FileSystemWriter (torch 2.13) writes them.

The records of `.metadata` are written by Python's own pickler from classes that stand under torch's
names while it runs, so that the bytes are the same; tests/lab compares them with torch's.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any
from unittest.mock import patch

from tests.checkpoint.make.base import ITEM_SIZES, Tensor, filler, torch_file, write

_METADATA = "torch.distributed.checkpoint.metadata"
_FILESYSTEM = "torch.distributed.checkpoint.filesystem"

# What a small model has: (name, shape, cut along its first dimension).
MODEL = (
    ("model.embed.weight", (64, 16), True),
    ("model.layers.0.weight", (16, 16), True),
    ("model.norm.weight", (16,), False),
    ("optimizer.state.model.embed.weight.exp_avg", (64, 16), True),
    ("optimizer.state.model.layers.0.weight.exp_avg", (16, 16), True),
)
Tensors = tuple[tuple[str, tuple[int, ...], bool], ...]


class Size(tuple[int, ...]):
    """torch.Size."""

    def __reduce__(self) -> tuple[type, tuple[tuple[int, ...]]]:
        return Size, (tuple(self),)


class _Dtype:
    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> str:
        return self.name


class _Layout:
    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return _get_layout, ("torch.strided",)


def _get_layout(name: str) -> None:
    """torch.serialization._get_layout."""


class _MEM_FORMAT_ENCODING:  # noqa: N801
    def __init__(self, value: int) -> None:
        self.value = value

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return _MEM_FORMAT_ENCODING, (self.value,)


_STRIDED, _CONTIGUOUS = _Layout(), _MEM_FORMAT_ENCODING(0)
_DTYPES = {name: _Dtype(name) for name in ITEM_SIZES}


@dataclass
class ChunkStorageMetadata:
    offsets: Size
    sizes: Size


@dataclass
class TensorProperties:
    dtype: str = "float32"

    def __getstate__(self) -> tuple[Any, ...]:
        return _DTYPES[self.dtype], _STRIDED, False, _CONTIGUOUS, False


@dataclass
class TensorStorageMetadata:
    properties: TensorProperties
    size: Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    pass


@dataclass
class StorageMeta:
    checkpoint_id: str | PurePath | None = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    state_dict_metadata: dict[str, TensorStorageMetadata | BytesStorageMetadata]
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


class MetadataIndex:
    def __init__(self, fqn: str, offset: Size | None = None, index: int | None = None) -> None:
        self.fqn = fqn
        self.index = index
        if offset is not None:
            self.offset = offset


@dataclass
class _StorageInfo:
    relative_path: str
    offset: int
    length: int
    transform_descriptors: list[str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if value is not None}


_NAMES: dict[str, dict[str, Any]] = {
    _METADATA: {
        kind.__name__: kind
        for kind in (
            ChunkStorageMetadata, TensorProperties, TensorStorageMetadata, BytesStorageMetadata,
            StorageMeta, Metadata, MetadataIndex, _MEM_FORMAT_ENCODING,
        )
    },
    _FILESYSTEM: {"_StorageInfo": _StorageInfo},
    "torch": {"Size": Size, **_DTYPES},
    "torch.serialization": {"_get_layout": _get_layout},
}  # fmt: skip
for _module, _items in _NAMES.items():
    for _item in _items.values():
        _item.__module__ = _module
Size.__module__ = "".join(("tor", "ch"))  # another string than that of the dtypes, as in torch


@contextmanager
def _torch_names() -> Iterator[None]:
    modules = {}
    for name, items in _NAMES.items():
        modules[name] = ModuleType(name)
        vars(modules[name]).update(items)
    with patch.dict(sys.modules, modules):
        yield


def pickled(metadata: Metadata, protocol: int = 4) -> bytes:
    """The bytes of `.metadata`."""
    with _torch_names():
        return pickle.dumps(metadata, protocol=protocol)


@dataclass
class Item:
    """What is written for one chunk or blob, and by which rank."""

    rank: int
    index: MetadataIndex
    data: bytes


@dataclass
class Save:
    """One save before it is written: contents of data files, and what the metadata says."""

    files: dict[str, bytes]
    metadata: Metadata


def items_of(tensors: Tensors, blobs: Mapping[str, object], *, step: int, world: int) -> Save:
    """Cut tensors over ranks as FSDP does; what is not cut, and all else, rank 0 writes."""
    known: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    items = [Item(0, MetadataIndex(fqn), torch_file(content=value)) for fqn, value in blobs.items()]
    for fqn, shape, cut in tensors:
        per = shape[0] // world if cut else shape[0]
        chunks = []
        for rank in range(world if cut else 1):
            offset = Size((rank * per, *[0] * (len(shape) - 1)))
            size = Size((per, *shape[1:]))
            chunks.append(ChunkStorageMetadata(offset, size))
            raw = filler(Tensor(tuple(size)).numel * 4, f"{fqn} {rank} {step}")
            data = torch_file(content=Tensor(tuple(size), data=raw))
            items.append(Item(rank, MetadataIndex(fqn, offset, rank), data))
        known[fqn] = TensorStorageMetadata(TensorProperties(), Size(shape), chunks)
    known |= {fqn: BytesStorageMetadata() for fqn in blobs}
    files = {f"__{rank}_0.distcp": b"" for rank in range(world)}
    where = {}
    for item in items:
        name = f"__{item.rank}_0.distcp"
        where[item.index] = _StorageInfo(name, len(files[name]), len(item.data))
        files[name] += item.data
    planner = {fqn: tuple(fqn.split(".")) for fqn in known}
    return Save(files, Metadata(known, planner, where))


def make(
    folder: Path,
    *,
    step: int,
    world: int,
    start: float,
    tensors: Tensors = MODEL,
    blobs: Mapping[str, object] | None = None,
    coordinated: bool = True,
    version: str = "2.13",
) -> None:
    """One whole checkpoint. `coordinated=False`: each rank has metadata of its own."""
    blobs = {"step": step, "lr_scheduler.last_epoch": step} if blobs is None else blobs
    save = items_of(tensors, blobs, step=step, world=world)
    for number, (name, data) in enumerate(save.files.items()):
        write(folder / name, data, start + 2 + 0.5 * number)
    done = start + 3 + 0.5 * world
    metadata = save.metadata
    if version != "2.0":
        metadata.storage_meta = StorageMeta(folder, f"00000000-0000-4000-8000-{step:012}")
        metadata.version = "1.0.0"
    if version == "2.0":
        del metadata.storage_meta, metadata.version
    if coordinated:
        write(folder / ".metadata", pickled(metadata), done)
        return
    everything, known = dict(metadata.storage_data), metadata.state_dict_metadata
    for rank in range(world):
        name = f"__{rank}_0.distcp"
        mine = {index: info for index, info in everything.items() if info.relative_path == name}
        metadata.storage_data = mine
        metadata.state_dict_metadata = {index.fqn: _own(known[index.fqn], index) for index in mine}
        write(folder / f"__{rank}.metadata", pickled(metadata), done)


def _own(
    known: TensorStorageMetadata | BytesStorageMetadata, index: MetadataIndex
) -> TensorStorageMetadata | BytesStorageMetadata:
    if isinstance(known, BytesStorageMetadata):
        return known
    mine = [chunk for chunk in known.chunks if chunk.offsets == index.offset]
    return TensorStorageMetadata(known.properties, known.size, mine)


def _variant(**options: Any) -> Callable[..., None]:
    def maker(folder: Path, *, step: int, world: int, start: float) -> None:
        make(folder, step=step, world=world, start=start, **options)

    return maker


# By name: what the folder of a step is called, too.
FOLDERS = {
    "dcp": "checkpoint_{step}",
    "torchtitan": "step-{step}",
    "dcp-uncoordinated": "step_{step}",
    "dcp-torch-2.0": "global_step_{step}",
}
MAKERS: dict[str, Callable[..., None]] = {
    "dcp": _variant(),
    "torchtitan": _variant(),
    "dcp-uncoordinated": _variant(coordinated=False),
    "dcp-torch-2.0": _variant(version="2.0"),
}
