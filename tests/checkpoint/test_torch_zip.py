"""Files of torch.save are told whole, cut off or damaged from directory and local headers."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.checkpoint.contents import DamagedError
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Flaw
from diagnose.checkpoint.torch_files import crc_of_zeros, digest_of, read_archive
from diagnose.checkpoint.tree import Leaf, read_tree
from diagnose.ingest.archive_formats import DIRECTORY_LIMIT
from diagnose.ingest.raw import BytesStore
from tests.checkpoint.leaves import look
from tests.checkpoint.make.base import Tensor, torch_file, zip_file

CUT_OFF = Flaw("partial", "ends before its table of contents, which a save writes last")
CONTENT = {"model": {"w": Tensor((40, 30)), "b": Tensor((7,), "float16")}, "lr": 0.1}
WHOLE = torch_file(content=CONTENT)


def flaw(name: str, data: bytes, *, verify: bool = False) -> Flaw | None:
    return look(name, data, verify=verify).flaw


def damage(data: bytes) -> Flaw:
    with BytesStore(data).open() as reader, pytest.raises(DamagedError) as caught:
        read_archive(reader)
    return caught.value.flaw


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize(
    "content",
    [CONTENT, {}, {"empty": Tensor((0, 4))}, {f"w{place}": Tensor((2,)) for place in range(300)}],
    ids=["model", "nothing", "empty tensor", "300 tensors"],
)
def test_a_whole_file_has_no_flaw(content: object, verify: bool) -> None:
    told = look("a.pt", torch_file(content=content), verify=verify)
    assert told.kind == "torch"
    assert told.flaw is None
    assert len(told.digest) == 32


def test_a_file_cut_off_anywhere_is_partial() -> None:
    whole = torch_file(content={"w": Tensor((9,))})
    for length in range(len(whole)):
        told = flaw("a.pt", whole[:length])
        assert told is not None, length
        assert told.state == "partial", (length, told)
        if length >= 4:
            assert told == CUT_OFF, length


def test_the_first_bytes_alone_are_partial() -> None:
    assert flaw("a.pt", b"") == Flaw("partial", "is empty")
    assert flaw("a.pt", b"P") == Flaw("partial", "has only 1 byte")
    assert flaw("a.pt", b"PK\3") == Flaw("partial", "has only 3 bytes")
    assert flaw("a.pt", b"PK\3\4") == CUT_OFF


@pytest.mark.parametrize(
    ("behind", "told"),
    [
        (b"x", Flaw("corrupt", "has 1 byte after its end")),
        (b"x" * 5000, Flaw("corrupt", "has 5,000 bytes after its end")),
        (bytes(70_000), Flaw("partial", "ends in zero bytes: its end was never written")),
        (b"x" * 70_000, CUT_OFF),
    ],
)
def test_bytes_behind_the_end(behind: bytes, told: Flaw) -> None:
    assert flaw("a.pt", WHOLE + behind) == told


def test_a_comment_belongs_to_the_file() -> None:
    assert flaw("a.pt", WHOLE[:-2] + b"\5\0hello") is None


def test_a_file_whose_start_was_never_written() -> None:
    blank = bytes(600) + WHOLE[600:]
    told = Flaw("partial", "starts with zero bytes: its start was never written")
    assert flaw("a.pt", blank) == told


def test_bytes_lost_or_added_before_the_directory() -> None:
    begin = WHOLE.index(b"PK\1\2")
    told = Flaw("corrupt", "its table of contents is not where its end says")
    assert flaw("a.pt", WHOLE[: begin - 64] + WHOLE[begin:]) == told
    assert flaw("a.pt", WHOLE[:begin] + bytes(64) + WHOLE[begin:]) == told


def test_a_wiped_directory_is_corrupt() -> None:
    begin = WHOLE.index(b"PK\1\2")
    wiped = WHOLE[: begin + 60] + bytes(200) + WHOLE[begin + 260 :]
    assert flaw("a.pt", wiped) == Flaw("corrupt", "its table of contents is damaged")


def test_a_wiped_local_header_is_corrupt() -> None:
    at = WHOLE.index(b"archive/data/0") - 30
    wiped = WHOLE[:at] + bytes(30) + WHOLE[at + 30 :]
    told = Flaw("corrupt", "its record 'archive/data/0' is not where its table of contents says")
    assert flaw("a.pt", wiped) == told


def test_a_record_may_not_be_longer_than_its_place() -> None:
    entry = WHOLE.rindex(b"archive/data/0") - 46
    size = struct.unpack_from("<I", WHOLE, entry + 20)[0]
    longer = bytearray(WHOLE)
    struct.pack_into("<2I", longer, entry + 20, size + 100, size + 100)
    told = Flaw("corrupt", "its records 'archive/data/0' and 'archive/data/1' overlap")
    assert flaw("a.pt", bytes(longer)) == told
    struct.pack_into(
        "<2I", longer, entry + 20, size + 20, size + 20
    )  # the header's padding hides it
    told = Flaw("corrupt", "its record 'archive/data/0' overlaps the next one")
    assert flaw("a.pt", bytes(longer)) == told


def test_records_of_the_same_name_are_corrupt() -> None:
    twice = WHOLE.replace(b"archive/data/1", b"archive/data/0")
    assert flaw("a.pt", twice) == Flaw("corrupt", "it has two records of the same name")


def test_a_zip_needs_the_records_of_torch() -> None:
    other = zip_file({"a/readme": b"hello", "a/version": b"3\n"})
    told = Flaw("corrupt", "is a zip file but not from torch: it has no data.pkl")
    assert flaw("a.pt", other) == told
    assert flaw("a.npz", other) is None
    no_version = zip_file({"a/data.pkl": b"\x80\2}.", "a/data/0": b"1234"})
    told = Flaw("corrupt", "has no record 'version', without which torch cannot load it")
    assert flaw("a.pt", no_version) == told
    no_pickle = torch_file(pickled=bytes(300))
    assert flaw("a.pt", no_pickle) == Flaw("corrupt", "its data.pkl is not a pickle")


def test_nothing_is_inflated() -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("a/data.pkl", b"\x80\2}.")
        bomb.writestr("a/data/0", bytes(50_000_000))
        bomb.writestr("a/version", b"3\n")
    told = Flaw("unknown", "its record 'a/data.pkl' is compressed, which torch never does")
    assert flaw("a.pt", sink.getvalue()) == told
    assert flaw("a.npz", sink.getvalue()[:-1]) == CUT_OFF


def test_code_in_files_of_torchscript_may_be_compressed() -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as script:
        script.writestr("a/data.pkl", b"\x80\2}.")
        script.writestr("a/code/net.py", b"x = 1\n" * 99, zipfile.ZIP_DEFLATED)
        script.writestr("a/version", b"3\n")
    assert flaw("a.pt", sink.getvalue()) is None
    assert flaw("a.pt", sink.getvalue(), verify=True) is None


def test_a_plain_zip_without_zip64_is_read() -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as plain:
        for name in ("data.pkl", "data/0", "version"):
            plain.writestr(f"a/{name}", b"\x80\2}.")
    assert flaw("a.pt", sink.getvalue()) is None


def test_a_directory_that_claims_too_much_is_not_read() -> None:
    def ended(count: int, length: int, begin: int) -> bytes:
        body = b"PK\3\4" + bytes(100)
        wide = (44, 0, 45, 0, 0, count, count, length, begin)
        tail = struct.pack("<4sQ2H2I4Q", b"PK\6\6", *wide)
        tail += struct.pack("<4sIQI", b"PK\6\7", 0, len(body), 1)
        tail += struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0, 0, 0)
        return body + tail

    damaged = Flaw("corrupt", "its table of contents is damaged")
    for count, length, begin in ((1 << 40, 100, 4), (1, 1 << 62, 0), (1, 104, 0), (0, 104, 0)):
        assert damage(ended(count, length, begin)) == damaged
    begin = 104 - (DIRECTORY_LIMIT + 1)
    assert damage(ended(1, DIRECTORY_LIMIT + 1, begin % (1 << 64))) == damaged


def test_a_directory_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diagnose.ingest.archive_formats.DIRECTORY_LIMIT", 200)
    assert damage(WHOLE) == Flaw("unknown", "has a table of contents of more than 200 bytes")
    monkeypatch.setattr("diagnose.checkpoint.torch_files.MAX_RECORDS", 3)
    monkeypatch.setattr("diagnose.ingest.archive_formats.DIRECTORY_LIMIT", 1 << 20)
    assert damage(WHOLE) == Flaw("unknown", "has a table of contents of more than 3 members")


def test_sizes_of_64_bits_are_read() -> None:
    """A record whose size stands in the extra field, as in files of more than 4 GiB."""
    name, extra = b"a/data/0", struct.pack("<2H2Q", 1, 16, 4, 4)
    body = (
        struct.pack("<4s5H3I2H", b"PK\3\4", 0, 0, 0, 0, 0, 0, 0, 0, len(name), 0) + name + b"data"
    )
    directory = struct.pack(
        "<4s6H3I5H2I", b"PK\1\2", 0, 45, 0, 0, 0, 0, 7, 0xFFFFFFFF, 0xFFFFFFFF, len(name),
        len(extra), 0, 0, 0, 0, 0,
    ) + name + extra  # fmt: skip
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(directory), len(body), 0)
    with BytesStore(body + directory + end).open() as reader:
        (record,) = read_archive(reader).records
    assert (record.filename, record.header_offset, record.compress_size, record.CRC) == (
        "a/data/0", 0, 4, 7,
    )  # fmt: skip
    too_long = extra[:4] + struct.pack("<2Q", 5, 5)
    with BytesStore(body + directory.replace(extra, too_long) + end).open() as reader:
        assert damage(body + directory.replace(extra, too_long) + end) == Flaw(
            "corrupt", "its record 'a/data/0' extends beyond its table of contents"
        )


def test_flipped_bits_are_found_by_reading_all() -> None:
    at = WHOLE.index(Tensor((40, 30)).raw) + 1000
    flipped = WHOLE[:at] + bytes([WHOLE[at] ^ 1]) + WHOLE[at + 1 :]
    assert flaw("a.pt", flipped) is None
    told = Flaw(
        "corrupt", "the 4,800 bytes of its record 'archive/data/0' do not match their checksum"
    )
    assert flaw("a.pt", flipped, verify=True) == told


def test_a_damaged_pickle_is_found_without_reading_all() -> None:
    told = flaw("a.pt", WHOLE.replace(b"model", b"modem"))
    assert told is not None
    assert told.state == "corrupt"
    assert told.why.endswith("its record 'archive/data.pkl' do not match their checksum")


@pytest.mark.parametrize("crc", [0, 12345])
def test_checksums_that_were_not_meant_say_nothing(crc: int) -> None:
    """torch.serialization.set_crc32_options(False) writes zeros."""
    records = {"a/data.pkl": b"\x80\2}.", "a/data/0": b"12345", "a/version": b"3\n"}
    data = zip_file(records, crc=dict.fromkeys(records, crc))
    told = look("a.pt", data, verify=True)
    assert told.flaw is None
    if crc == 0:
        assert told.digest == ""


def sparse(path: Path, data: bytes) -> Leaf:
    """The file with holes for its zero pages."""
    with path.open("wb") as sink:
        for at in range(0, len(data), 4096):
            page = data[at : at + 4096]
            if any(page):
                sink.seek(at)
                sink.write(page)
        sink.truncate(len(data))
        sink.flush()
        os.fsync(sink.fileno())
    leaf = read_tree(str(path))
    assert isinstance(leaf, Leaf)
    if leaf.on_disk is None or leaf.on_disk > leaf.size - (64 << 10):
        pytest.skip("the file system writes no holes")
    return leaf


SIZE = 1 << 20


def test_tensors_of_zeros_in_holes_are_no_flaw(tmp_path: Path) -> None:
    data = torch_file({"data/0": bytes(SIZE)})
    assert Looker()(sparse(tmp_path / "a.pt", data)).flaw is None


def test_a_record_that_lies_in_a_hole_is_corrupt(tmp_path: Path) -> None:
    weights = b"\1" * SIZE
    data = torch_file({"data/0": weights}).replace(weights, bytes(SIZE))
    told = Flaw(
        "corrupt",
        "the 1,048,576 bytes of its record 'archive/data/0' do not match their checksum",
    )
    assert Looker()(sparse(tmp_path / "a.pt", data)).flaw == told


def test_a_record_too_large_to_be_read_may_lie_in_a_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diagnose.checkpoint.torch_files.HOLE_BYTES", SIZE - 1)
    weights = b"\1" * SIZE
    data = torch_file({"data/0": weights}).replace(weights, bytes(SIZE))
    told = Looker()(sparse(tmp_path / "a.pt", data)).flaw
    assert told == Flaw(
        "unknown",
        "its record 'archive/data/0' starts and ends with zero bytes and looks like a sparse hole:"
        " use --verify",
    )


def test_holes_without_checksums_are_no_flaw(tmp_path: Path) -> None:
    """torch.serialization.skip_data() leaves holes on purpose."""
    records = {"a/data.pkl": b"\x80\2}.", "a/data/0": bytes(SIZE), "a/version": b"3\n"}
    data = zip_file(records, crc={"a/data/0": 0})
    assert Looker()(sparse(tmp_path / "a.pt", data)).flaw is None


@given(st.integers(0, 300_000))
def test_the_checksum_of_zeros(size: int) -> None:
    assert crc_of_zeros(size) == zlib.crc32(bytes(size))


def digest(data: bytes) -> str:
    with BytesStore(data).open() as reader:
        return digest_of(read_archive(reader))


def test_the_digest_is_that_of_content_not_of_names() -> None:
    one = torch_file(content=CONTENT, archive="step100")
    assert digest(one) == digest(torch_file(content=CONTENT, archive="step200"))
    other = {**CONTENT, "lr": 0.2}
    assert digest(one) != digest(torch_file(content=other))


@given(st.binary(max_size=300), st.integers(0, len(WHOLE)), st.booleans())
def test_whatever_the_bytes_are_there_is_an_answer(noise: bytes, at: int, instead: bool) -> None:
    data = WHOLE[:at] + noise + (WHOLE[at + len(noise) :] if instead else b"")
    with BytesStore(data).open() as reader, suppress(DamagedError):
        read_archive(reader)
