"""Files of torch.save since 1.6: a zip whose records are stored as they are, its directory last.

Records are `<archive>/data.pkl`, `<archive>/data/<number>` for each storage, `<archive>/version`
and a few small ones (caffe2/serialize/inline_container.cc in PyTorch). Sizes and checksums stand
in the directory, so that the end of the file tells of all of it. Nothing is inflated.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple
from zipfile import ZIP_STORED, ZipInfo

from diagnose.checkpoint.damaged import DamagedError, exactly, is_blank
from diagnose.ingest import archive_zip
from diagnose.ingest.archive_zip import MAGIC, LargeDirectoryError, NoDirectoryError, ZipError
from diagnose.ingest.budget import Budget
from diagnose.ingest.raw import Reader
from diagnose.text.ranks import counted

__all__ = ["MAGIC", "Archive", "Record", "check_headers", "check_torch", "data_at", "digest_of"]

MAX_RECORDS = 300_000
_END_SIZE = 22
_TAIL = (64 << 10) + _END_SIZE  # the longest comment there can be, and the end record
_CUT_OFF = "ends before its table of contents, which a save writes last"


class Record(NamedTuple):
    """One entry of the directory; `crc` is 0 where it has none."""

    name: str
    info: ZipInfo

    @property
    def offset(self) -> int:
        """That of its local header."""
        return self.info.header_offset

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self.info.compress_size

    @property
    def crc(self) -> int:
        """The CRC-32 of its bytes."""
        return self.info.CRC

    @property
    def stored(self) -> bool:
        """Whether its bytes are as they are in memory."""
        return self.info.compress_type == ZIP_STORED

    @property
    def shown(self) -> str:
        """Its name for a sentence, which may be anything up to 64 KiB."""
        return repr(self.name[:80])


class Archive(NamedTuple):
    """The directory of a zip: its records in order of their place, and where it begins."""

    records: list[Record]
    begin: int

    def find(self, name: str) -> Record | None:
        """The record of this name inside the archive's folder."""
        inside = (record for record in self.records if record.name.partition("/")[2] == name)
        return next(inside, None)


def read_archive(reader: Reader) -> Archive:
    """The directory, with all that it says about places and sizes checked.

    Raises DamagedError: `partial` where the end is missing, `corrupt` where places and sizes do not
    fit each other, `unknown` for more than is looked at. Raises OSError.
    """
    _check_end(reader)
    try:
        infos, begin = archive_zip.directory(reader, Budget(headers=MAX_RECORDS))
    except LargeDirectoryError as error:
        raise DamagedError("unknown", f"has a table of contents of {error}") from None
    except NoDirectoryError:
        raise DamagedError("partial", _CUT_OFF) from None
    except ZipError:
        raise DamagedError("corrupt", "its table of contents is damaged") from None
    if infos and infos[0].header_offset:  # all are as far off
        raise DamagedError("corrupt", "its table of contents is not where its end says")
    records = [Record(archive_zip.name_of(info), info) for info in infos]
    _check_places(records, begin)
    return Archive(records, begin)


def _check_end(reader: Reader) -> None:
    """Whether the end record is the last there is, with its comment."""
    size = reader.size
    for length in (_END_SIZE, _TAIL):
        begin = max(0, size - length)
        tail = exactly(reader, begin, size - begin)
        at = tail.rfind(b"PK\5\6")
        comment = int.from_bytes(tail[at + _END_SIZE - 2 : at + _END_SIZE], "little")
        more = len(tail) - at - _END_SIZE - comment
        if at >= 0 and more == 0:
            return
    if is_blank(tail):
        raise DamagedError("partial", "ends in zero bytes: its end was never written")
    if at < 0 or more < 0:
        raise DamagedError("partial", _CUT_OFF)
    raise DamagedError("corrupt", f"has {counted(more, 'byte')} after its end")


def _check_places(records: list[Record], begin: int) -> None:
    last, end = "", 0
    for record in records:
        info = record.info
        if record.stored and info.file_size != info.compress_size:
            raise DamagedError("corrupt", "its table of contents has contradictory sizes")
        if record.offset < end:
            raise DamagedError("corrupt", f"its records {last} and {record.shown} overlap")
        # At the earliest: its local header may be longer than the directory says.
        end = record.offset + archive_zip.header_size(info) + record.size
        if end > begin:
            raise DamagedError(
                "corrupt", f"its record {record.shown} extends beyond its table of contents"
            )
        last = record.shown
    if len({record.name for record in records}) < len(records):
        raise DamagedError("corrupt", "it has two records of the same name")


def check_torch(archive: Archive) -> None:
    """Whether it has what torch.load needs. Raises DamagedError."""
    folders = {record.name.partition("/")[0] for record in archive.records}
    if len(folders) > 1 or archive.find("data.pkl") is None:
        raise DamagedError("corrupt", "is a zip file but not from torch: it has no data.pkl")
    if archive.find("version") is None and archive.find(".data/version") is None:
        raise DamagedError("corrupt", "has no record 'version', without which torch cannot load it")
    for record in archive.records:
        # The code in files of TorchScript is compressed, which is no concern of anyone here.
        if not record.stored and record.name.partition("/")[2].startswith("data"):
            raise DamagedError(
                "unknown", f"its record {record.shown} is compressed, which torch never does"
            )


def check_headers(reader: Reader, archive: Archive, sample: int) -> None:
    """Whether local headers stand where the directory says, on about so many records.

    The first and the last are among them. Raises DamagedError, OSError.
    """
    records = archive.records
    step = max(1, -(-(len(records) - 1) // max(1, sample - 1)))
    for place in sorted({*range(0, len(records), step), len(records) - 1} if records else ()):
        record = records[place]
        limit = records[place + 1].offset if place + 1 < len(records) else archive.begin
        if data_at(reader, record) + record.size > limit:
            raise DamagedError("corrupt", f"its record {record.shown} overlaps the next one")


def data_at(reader: Reader, record: Record) -> int:
    """Where the bytes of a record begin. Raises DamagedError, OSError."""
    start = archive_zip.data_at(reader, record.info)
    if isinstance(start, int):
        return start
    raise DamagedError(
        "corrupt", f"its record {record.shown} is not where its table of contents says"
    )


def digest_of(archive: Archive) -> str:
    """The same for the same data.pkl and storages; empty where records carry no checksums."""
    digest = hashlib.blake2b(digest_size=16)
    for record in sorted(archive.records, key=lambda record: record.name):
        name = record.name.partition("/")[2]
        if name == "data.pkl" or name.startswith("data/"):
            if record.size and not record.crc:
                return ""
            digest.update(f"{name} {record.size} {record.crc}\n".encode("utf-8", "replace"))
    return digest.hexdigest()
