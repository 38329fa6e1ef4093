"""Archives of jobs, honest and hostile, for the tests of reading and of scanning."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import zstandard

GOOD = "rank_0.log"
TEXT = b"".join(b"[rank0]: step %d loss 2.%03d\n" % (n, n * 7 % 1000) for n in range(400))
MTIME = 1_762_160_000

Files = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Hostile:
    """A bad archive: its file name and bytes, and what reading it must say.

    `says` (a pattern) is found in the notes that reading gives, with `names` in the same line;
    empty means that there is nothing to say. `good` tells whether the member GOOD is read in spite
    of all, with exactly the bytes of TEXT.
    """

    file: str
    data: bytes
    says: str
    names: str = ""
    good: bool = True


def header(
    name: bytes,
    size: int | bytes = 0,
    kind: bytes = b"0",
    link: bytes = b"",
    magic: bytes = b"ustar\x0000",
) -> bytes:
    """One tar header; `size` as bytes goes into its field as it is."""
    field = b"%011o\0" % size if isinstance(size, int) else size
    head = bytearray(512)
    for at, value in (
        (0, name[:100]),
        (100, b"0000644\0"),
        (108, b"0000000\0"),
        (116, b"0000000\0"),
        (124, field),
        (136, b"%011o\0" % MTIME),
        (148, b" " * 8),
        (156, kind),
        (157, link[:100]),
        (257, magic),
    ):
        head[at : at + len(value)] = value
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def member(name: bytes, data: bytes = b"", kind: bytes = b"0", link: bytes = b"") -> bytes:
    """A tar header with its data, padded."""
    return header(name, len(data), kind, link) + data + bytes(-len(data) % 512)


END = bytes(1024)
_GOOD = member(GOOD.encode(), TEXT)


def tar(files: Files, *, format: int = tarfile.PAX_FORMAT) -> bytes:  # noqa: A002
    """A tar archive as the standard library writes it."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=format) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), MTIME
            archive.addfile(info, io.BytesIO(data))
    return sink.getvalue()


def zipped(files: Files, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive as the standard library writes it."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (2025, 11, 3, 8, 53, 20))
            info.compress_type = method
            archive.writestr(info, data)
    return sink.getvalue()


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


PACK: dict[str, Callable[[Files], bytes]] = {
    "job.tar": tar,
    "job.tar.gz": lambda files: gzip.compress(tar(files), mtime=0),
    "job.tgz": lambda files: gzip.compress(tar(files, format=tarfile.GNU_FORMAT), mtime=0),
    "job.tar.bz2": lambda files: bz2.compress(tar(files)),
    "job.tar.xz": lambda files: lzma.compress(tar(files)),
    "job.tar.zst": lambda files: zstd(tar(files)),
    "job.zip": zipped,
    "stored.zip": lambda files: zipped(files, zipfile.ZIP_STORED),
    "bzip2.zip": lambda files: zipped(files, zipfile.ZIP_BZIP2),
}


def _pax(**records: str) -> bytes:
    lines = b""
    for key, value in records.items():
        body = f" {key.replace('__', '.')}={value}\n".encode()
        size = len(body) + 1
        while size != len(str(size)) + len(body):
            size = len(str(size)) + len(body)
        lines += str(size).encode() + body
    return member(b"PaxHeaders/x", lines, b"x")


def _zip(files: Files, change: Callable[[bytearray], None] | None = None, **infos: int) -> bytes:
    """A zip archive with an attribute of its first member's info set, then changed as bytes."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, (name, data) in enumerate(files.items()):
            info = zipfile.ZipInfo(name, (2025, 11, 3, 8, 53, 20))
            info.compress_type = zipfile.ZIP_DEFLATED
            if number == 0:
                for key, value in infos.items():
                    setattr(info, key, value)
            archive.writestr(info, data)
    data = bytearray(sink.getvalue())
    if change:
        change(data)
    return bytes(data)


def _set(at: int, form: str, value: int) -> Callable[[bytearray], None]:
    """Set a field of the first member's entry in the directory."""

    def change(data: bytearray) -> None:
        struct.pack_into(form, data, data.index(b"PK\x01\x02") + at, value)

    return change


def _set_both(local: int, central: int, form: str, value: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        struct.pack_into(form, data, local, value)
        _set(central, form, value)(data)

    return change


def _overlapping() -> bytes:
    """Two entries of the directory that share one member's bytes, as in a zip bomb."""
    data = bytearray(zipped({GOOD: TEXT}))
    at = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    entry = bytes(data[at:end])
    tail = bytearray(data[end:])
    struct.pack_into("<2H2L", tail, 8, 2, 2, 2 * len(entry), at)
    return bytes(data[:at]) + entry + entry + bytes(tail)


def _zip64_bomb() -> bytes:
    """A directory that claims 2^60 bytes of its first member, by a zip64 field."""
    data = bytearray(zipped({"big.log": bytes(100_000) + TEXT, GOOD: TEXT}))
    at = data.index(b"PK\x01\x02")
    struct.pack_into("<L", data, at + 24, 0xFFFFFFFF)
    extra = struct.pack("<2HQ", 1, 8, 1 << 60)
    struct.pack_into("<H", data, at + 30, len(extra))
    place = at + 46 + len("big.log")
    data[place:place] = extra
    end = data.index(b"PK\x05\x06")
    struct.pack_into("<L", data, end + 12, end - at)
    return bytes(data)


def _xz_dictionary() -> bytes:
    """An xz stream whose header asks for a dictionary of 3 GiB."""
    data = bytearray(lzma.compress(tar({GOOD: TEXT}), preset=0))
    at = 12  # the block header: size, flags, filter id, size of its properties, dictionary size
    size = (data[at] + 1) * 4
    assert data[at + 2 : at + 4] == b"\x21\x01"
    data[at + 4] = 39
    struct.pack_into("<L", data, at + size - 4, zlib.crc32(bytes(data[at : at + size - 4])))
    return bytes(data)


def _zstd_window() -> bytes:
    """A zstd frame whose window is 2 GiB."""
    options = zstandard.ZstdCompressionParameters.from_level(1, window_log=31, enable_ldm=False)
    return (
        zstandard.ZstdCompressor(compression_params=options).compressobj().compress(bytes(1 << 20))
        + b"\x28\xb5\x2f\xfd\x00\xa8"
        + bytes(8)
    )


def _no_text(size: int) -> bytes:
    return random.Random(0).randbytes(size)


def hostile() -> dict[str, Hostile]:
    """Bad archives by the kind of their badness."""
    good_tar = tar({GOOD: TEXT})
    good_gz = gzip.compress(good_tar, mtime=0)
    good_zip = zipped({GOOD: TEXT})
    evil = "job.tar"
    link, bomb = "not followed", gzip.compress(bytes(1 << 20), mtime=0)
    long = b"x" * 5000
    deep = gzip.compress(tar({"c.log": TEXT}), mtime=0)
    deeper = tar({"b.tgz": deep})
    many = b"".join(member(b"%d.log" % n) for n in range(300))
    return {
        "parent path": Hostile(
            evil, member(b"../../etc/cron.d/x", b"x\n") + _GOOD + END, "leads out", "../../etc"
        ),
        "parent path inside": Hostile(
            evil, member(b"a/../../x.log", b"x\n") + _GOOD + END, "leads out", "a/../../x.log"
        ),
        "absolute path": Hostile(
            evil, member(b"/etc/passwd", b"x\n") + _GOOD + END, "absolute path", "!/etc/passwd"
        ),
        "windows drive": Hostile(
            "job.zip",
            zipped({"C:\\x.log": b"x\n", GOOD: TEXT}),
            "absolute path",
            "!C:/x.log",
        ),
        "backslash parent": Hostile(
            "job.zip", zipped({"a\\..\\..\\x.log": b"x\n", GOOD: TEXT}), "leads out", "a/../../x"
        ),
        "symbolic link": Hostile(
            evil, member(b"l.log", kind=b"2", link=b"/etc/shadow") + _GOOD + END, link, "/etc/shad"
        ),
        "hard link": Hostile(
            evil, member(b"l.log", kind=b"1", link=b"/etc/shadow") + _GOOD + END, link, "!l.log"
        ),
        "link, then a member through it": Hostile(
            evil,
            member(b"d", kind=b"2", link=b"/tmp") + member(b"d/x.log", b"x\n") + _GOOD + END,
            link,
            "!d: symbolic",
        ),
        "character device": Hostile(
            evil, member(b"null.log", kind=b"3") + _GOOD + END, "device", "!null.log"
        ),
        "block device": Hostile(
            evil, member(b"sda.log", kind=b"4") + _GOOD + END, "device", "!sda.log"
        ),
        "named pipe": Hostile(evil, member(b"p.log", kind=b"6") + _GOOD + END, "pipe", "!p.log"),
        "unknown type": Hostile(
            evil, member(b"z.log", b"z\n", kind=b"Z") + _GOOD + END, "unknown type 'Z'", "!z.log"
        ),
        "old sparse file": Hostile(
            evil, member(b"s.log", b"s" * 600, kind=b"S") + _GOOD + END, "sparse", "!s.log"
        ),
        "pax sparse file": Hostile(
            evil,
            _pax(GNU__sparse__major="1", GNU__sparse__minor="0")
            + member(b"s.log", b"1\n")
            + _GOOD
            + END,
            "sparse",
            "!s.log",
        ),
        "negative size": Hostile(
            evil,
            _GOOD + header(b"n.log", b"\xff" + b"\xff" * 11) + END,
            "damaged header at byte",
        ),
        "huge size": Hostile(
            evil,
            _GOOD + header(b"h.log", b"\x80" + bytes(3) + b"\x10" + bytes(7)) + TEXT,
            "cut short",
            "h.log",
        ),
        "huge pax size": Hostile(
            evil, _GOOD + _pax(size="9" * 18) + member(b"h.log", TEXT) + END, "cut short", "h.log"
        ),
        "no number in the size": Hostile(
            evil, _GOOD + header(b"n.log", b"-0000000012\0") + END, "damaged header at byte"
        ),
        "wrong checksum": Hostile(
            evil, _GOOD + b"\x01" + member(b"x.log", b"x\n")[1:] + END, "damaged header at byte"
        ),
        "huge GNU name": Hostile(
            evil,
            header(b"././@LongLink", 2 << 20, b"L")
            + b"x" * (2 << 20)
            + member(b"x", b"x\n")
            + _GOOD
            + END,
            "extended header of more than",
        ),
        "long name": Hostile(
            evil,
            member(b"././@LongLink", long, b"L") + member(b"x", b"x\n") + _GOOD + END,
            "name of more than 4096 characters",
            "!xxxx",
        ),
        "damaged pax header": Hostile(
            evil,
            member(b"P", b"99999 path=../x\nnot a record", b"x")
            + member(b"x.log", b"x")
            + _GOOD
            + END,
            "damaged extended header",
            "!x.log",
        ),
        "pax parent path": Hostile(
            evil, _pax(path="../../x.log") + member(b"x.log", b"x") + _GOOD + END, "leads out"
        ),
        "deep folders": Hostile(
            evil,
            _pax(path="d/" * 200 + "x.log") + member(b"x", b"x") + _GOOD + END,
            "folders deep",
            "!d/d/",
        ),
        "same name twice": Hostile(
            evil,
            member(GOOD.encode(), b"old\n") + _GOOD + END,
            "several members have the same name",
            GOOD,
        ),
        "many refused members": Hostile(
            evil,
            b"".join(member(b"l%d.log" % n, kind=b"2", link=b"x") for n in range(500))
            + _GOOD
            + END,
            "480 more members not read",
        ),
        "truncated tar": Hostile(
            evil, _GOOD + member(b"x.log", TEXT)[:2000], "cut short: 1488 of", "x.log"
        ),
        "truncated in a header": Hostile(
            evil, _GOOD + header(b"x.log")[:300], "ends inside a header"
        ),
        "truncated in its first header": Hostile(
            "job.tar", good_tar[:200], "ends inside a header", good=False
        ),
        "truncated gzip": Hostile(
            "job.tar.gz",
            good_gz[: len(good_gz) // 2],
            "truncated gzip data",
            "job.tar.gz",
            good=False,
        ),
        "gzip cut at its start": Hostile("job.tar.gz", good_gz[:12], "truncated gzip", good=False),
        "damaged gzip": Hostile(
            "job.tar.gz",
            good_gz[:300] + b"\xff" * 300 + good_gz[600:],
            "damaged gzip data",
            "job.tar.gz",
            good=False,
        ),
        "wrong gzip checksum": Hostile(
            "job.tar.gz",
            good_gz[:-8] + bytes(8),
            "damaged gzip data",
            "job.tar.gz",
            good=False,
        ),
        "garbage behind gzip": Hostile(
            "job.tar.gz", good_gz + _no_text(2000), "bytes after the end", "job.tar.gz"
        ),
        "truncated bzip2": Hostile(
            "job.tar.bz2", bz2.compress(good_tar)[:-40], "truncated bzip2", good=False
        ),
        "truncated xz": Hostile(
            "job.tar.xz", lzma.compress(good_tar)[:-200], "truncated xz", good=False
        ),
        "truncated zstd": Hostile(
            "job.tar.zst", zstd(good_tar)[:-200], "truncated zstd", good=False
        ),
        "huge xz dictionary": Hostile("job.tar.xz", _xz_dictionary(), "emory", good=False),
        "huge zstd window": Hostile("job.tar.zst", _zstd_window(), "memory", good=False),
        "zip named tar.gz": Hostile("job.tar.gz", good_zip, ""),
        "tar named zip": Hostile("job.zip", good_tar, ""),
        "text named tar.gz": Hostile(
            "job.tar.gz", TEXT, "named like an archive", "job.tar.gz", good=False
        ),
        "text named zip, compressed": Hostile(
            "job.zip", gzip.compress(TEXT), "named like an archive", "job.zip", good=False
        ),
        "noise named zip": Hostile("job.zip", _no_text(5000), "binary data", good=False),
        "7z": Hostile("job.7z", b"7z\xbc\xaf\x27\x1c" + _no_text(500), "7z archive", good=False),
        "nothing named tar": Hostile("job.tar", b"", "", good=False),
        "zeros named tar": Hostile("job.tar", bytes(10240), "no files", "job.tar", good=False),
        "empty tar.gz": Hostile("job.tar.gz", gzip.compress(END), "no files", good=False),
        "empty zip": Hostile("job.zip", zipped({}), "no files", good=False),
        "empty member": Hostile(evil, member(b"e.log") + _GOOD + END, ""),
        "many empty members": Hostile("job.tar.gz", gzip.compress(many + _GOOD + END), ""),
        "name that is not UTF-8": Hostile(evil, member(b"\xff\xfe.log", TEXT) + _GOOD + END, ""),
        "terminal escapes in a name": Hostile(
            evil, member(b"..\x1b[2J\n/../x", b"x") + _GOOD + END, "leads out", "!..?[2J?/../x"
        ),
        "gzip in gzip": Hostile(
            evil,
            member(b"x.log.gz", gzip.compress(gzip.compress(TEXT))) + _GOOD + END,
            "gzip data inside gzip data",
            "x.log.gz",
        ),
        "archive in archive in archive": Hostile(
            evil,
            member(b"a.tar", deeper) + _GOOD + END,
            "archive inside an archive inside",
            "job.tar!a.tar!b.tgz",
        ),
        "damaged archive inside": Hostile(
            evil, member(b"a.tgz", good_gz[:400]) + _GOOD + END, "truncated gzip", "job.tar!a.tgz"
        ),
        "zeros that compress well": Hostile(evil, member(b"z.log.gz", bomb) + _GOOD + END, ""),
        "encrypted member": Hostile(
            "job.zip",
            _zip({"secret.log": b"x\n", GOOD: TEXT}, _set_both(6, 8, "<H", 1)),
            "encrypted",
            "!secret.log",
        ),
        "encrypted by AES": Hostile(
            "job.zip",
            _zip({"secret.log": b"x\n", GOOD: TEXT}, _set_both(8, 10, "<H", 99)),
            "AES",
            "!secret.log",
        ),
        "unknown method": Hostile(
            "job.zip",
            _zip({"x.log": b"x\n", GOOD: TEXT}, _set_both(8, 10, "<H", 77)),
            "method 77",
            "!x.log",
        ),
        "link in a zip": Hostile(
            "job.zip",
            _zip(
                {"l.log": b"/etc/shadow", GOOD: TEXT},
                create_system=3,
                external_attr=(stat.S_IFLNK | 0o777) << 16,
            ),
            link,
            "!l.log",
        ),
        "pipe in a zip": Hostile(
            "job.zip",
            _zip({"p.log": b"", GOOD: TEXT}, create_system=3, external_attr=stat.S_IFIFO << 16),
            "pipe",
            "!p.log",
        ),
        "size that lies, too small": Hostile(
            "job.zip",
            _zip({"x.log": TEXT, GOOD: TEXT}, _set(24, "<L", 50)),
            "damaged gzip data|cut at 50 bytes",
            "x.log",
        ),
        "size that lies, zero": Hostile(
            "job.zip",
            _zip({"x.log": TEXT, GOOD: TEXT}, _set(24, "<L", 0)),
            "listed as empty",
            "x.log",
        ),
        "size that lies, 2^60": Hostile("job.zip", _zip64_bomb(), "damaged gzip data", "big.log"),
        "packed size beyond the end": Hostile(
            "job.zip",
            _zip({"x.log": TEXT, GOOD: TEXT}, _set(20, "<L", 1 << 30)),
            "beyond the archive",
            "!x.log",
        ),
        "members that share bytes": Hostile(
            "job.zip", _overlapping(), "shares its bytes", f"!{GOOD}"
        ),
        "place that lies": Hostile(
            "job.zip",
            _zip({"x.log": TEXT, GOOD: TEXT}, _set(42, "<L", 7)),
            "wrong position",
            "!x.log",
        ),
        "two names for one member": Hostile(
            "job.zip",
            _zip({"x.log": TEXT, GOOD: TEXT}, _set(46, "<B", ord("y"))),
            "different name",
            "!y.log",
        ),
        "zip without its directory": Hostile(
            "job.zip",
            zipped({GOOD: TEXT, "x.log": _no_text(3000).hex().encode()})[:-1500],
            "truncated zip",
            "job.zip",
        ),
        "zip with a damaged directory": Hostile(
            "job.zip", good_zip.replace(b"PK\x01\x02", b"PK\x01\x03"), "damaged zip dir"
        ),
        "zip directory of 4 GiB": Hostile(
            "job.zip",
            good_zip[:-10] + struct.pack("<2LH", 0xF0000000, 0, 0),
            "damaged zip directory",
        ),
        "numbers of disks in a zip": Hostile(
            "job.zip",
            good_zip[:-18] + struct.pack("<2H", 3, 3) + good_zip[-14:],
            "",
        ),
        "damaged member of a zip": Hostile(
            "job.zip",
            _zip({"x.log": TEXT, GOOD: TEXT}, _set(16, "<L", 12345)),
            "damaged gzip data",
            "x.log",
        ),
        "torch.save file": Hostile(
            "model.zip", zipped({"m/data.pkl": b"x"}, zipfile.ZIP_STORED), "torch.save", good=False
        ),
    }
