"""Reads what a `.metadata` file of torch.distributed.checkpoint says, without unpickling it.

The file is a pickle of records (torch/distributed/checkpoint/metadata.py, filesystem.py): which
tensors there are, cut into which chunks, and for every chunk the data file, the offset and the
length it was written to. torch itself loads it with pickle.load, which runs whatever it says.

`dcp_opcodes` follows the opcodes instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.checkpoint.dcp_opcodes import follow
from diagnose.checkpoint.dcp_records import BLOB, CHUNK, MAX_NAMES, TENSOR, Records
from diagnose.ingest.raw import Reader
from diagnose.parse.opcodes import UnsafePickleError

MAX_BYTES = 64 << 20
MAX_SCAN = 1 << 30  # bytes that are looked through for the names of data files
_NAME = re.compile(rb"(?:\x8c.|X...\0)([^\0-\x1f\x7f]{1,240}?\.distcp)(?=[\x94qr\x95])", re.DOTALL)
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a checkpoint consists of.

    `files`: for every data file the items written to it as rows (offset, length) in bytes, in order
    of offset; no rows where that is unknown. `tensors` and `chunks` count the tensors and the
    pieces they were cut into, `blobs` what else there is. `saved_as` is the folder it was written
    to, empty where it does not say (torch < 2.3). `transformed`: the items were compressed or the
    like. `ranged`: offsets and lengths are known. `foreign`: globals that such a file never needs.
    `genuine`: the pickle is such a record, and nothing else.
    """

    files: dict[str, npt.NDArray[np.int64]]
    tensors: int = 0
    chunks: int = 0
    blobs: int = 0
    saved_as: str = ""
    transformed: bool = False
    ranged: bool = True
    foreign: tuple[str, ...] = ()
    genuine: bool = True

    @property
    def items(self) -> int:
        """How many items there are in all files."""
        return sum(len(rows) for rows in self.files.values())


def read_metadata(reader: Reader) -> Metadata:
    """What a `.metadata` file says.

    Raises TruncatedPickleError when it ends too early, UnsafePickleError when it is larger than
    allowed or uses opcodes that torch does not write, ValueError when it makes no sense, OSError.
    """
    if reader.size > MAX_BYTES:
        raise UnsafePickleError(f"pickle of {reader.size:,} bytes, more than {MAX_BYTES:,}")
    data = reader.read_at(0, reader.size)
    if data[:1] != b"\x80" or (len(data) > 1 and not 2 <= data[1] <= 5):
        raise ValueError("not a pickle of protocol 2 to 5")
    try:
        records = follow(data)
    except (IndexError, KeyError, TypeError, UnicodeDecodeError):
        raise ValueError("damaged pickle") from None
    return _metadata(records)


def names_in(reader: Reader) -> Metadata:
    """The data files a `.metadata` names, found without following it; raises OSError.

    For those that `read_metadata` cannot read: no ranges, and a name may be missing.
    """
    names: dict[str, None] = {}
    tail = b""
    for at in range(0, min(reader.size, MAX_SCAN), _PIECE):
        piece = tail + reader.read_at(at, _PIECE)
        for match in _NAME.finditer(piece):
            if len(names) < MAX_NAMES:
                names[match[1].decode("utf-8", "replace")] = None
        tail = piece[-256:]
    nothing = np.empty((0, 2), np.int64)
    return Metadata(dict.fromkeys(names, nothing), ranged=False)


def _metadata(records: Records) -> Metadata:
    """What the records say, the items sorted."""
    where = np.frombuffer(records.where, np.uint32) if records.where else np.empty(0, np.uint32)
    rows = np.empty((len(where), 2), np.int64)
    rows[:, 0], rows[:, 1] = records.offsets, records.lengths
    order = np.lexsort((rows[:, 0], where))
    rows = rows[order]
    edges = np.searchsorted(where[order], np.arange(len(records.names) + 1))
    return Metadata(
        files={
            name.decode("utf-8", "replace"): rows[edges[number] : edges[number + 1]]
            for name, number in records.names.items()
        },
        tensors=records.counts.get(TENSOR, 0),
        chunks=records.counts.get(CHUNK, 0),
        blobs=records.counts.get(BLOB, 0),
        saved_as=records.saved_as.decode("utf-8", "replace"),
        transformed=records.transformed,
        foreign=tuple(records.foreign),
        genuine=records.genuine,
    )
