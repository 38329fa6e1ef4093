"""Files of torch.save before 1.6: a walk over their pickles tells where they end."""

from __future__ import annotations

import io
import pickle
import tarfile
from struct import pack

import pytest

from diagnose.checkpoint import torch_files
from diagnose.checkpoint.model import Flaw
from tests.checkpoint.leaves import look
from tests.checkpoint.make.base import LEGACY_MAGIC, Tensor, torch_legacy_file

SHARED = Tensor((5,), "int64")
CONTENT = {
    "w": Tensor((3, 4)),
    "b": Tensor((3,), "bfloat16"),
    "same": [SHARED, SHARED],
    "empty": Tensor((0,)),
}
WHOLE = torch_legacy_file(CONTENT)


def flaw(name: str, data: bytes) -> Flaw | None:
    told = look(name, data)
    assert told.flaw is not None or told.kind == "legacy"
    return told.flaw


def headed(content: bytes, keys: object) -> bytes:
    """A file whose last two pickles are these."""
    parts = [pickle.dumps(part, 2) for part in (LEGACY_MAGIC, 1001, {})]
    return b"".join([*parts, content, pickle.dumps(keys, 2)])


def storage(kind: str, key: str, numel: int) -> bytes:
    """A pickle that is one persistent id."""
    name = pack("<I", len(key)) + key.encode()
    start = b"\x80\2(X\7\0\0\0storagectorch\n" + kind.encode() + b"\nX" + name
    return start + b"X\3\0\0\0cpuJ" + pack("<i", numel) + b"NtQ."


@pytest.mark.parametrize("content", [CONTENT, {}, None, [Tensor((2,))] * 3])
def test_a_whole_file_has_no_flaw(content: object) -> None:
    assert flaw("a.pt", torch_legacy_file(content)) is None


def test_a_file_cut_off_anywhere_is_partial() -> None:
    for length in range(len(WHOLE)):
        told = flaw("a.pt", WHOLE[:length])
        assert told is not None, length
        assert told.state == "partial", (length, told)


def test_the_reasons_say_how_much_is_there() -> None:
    told = Flaw("partial", "ends inside its pickles, before its tensors")
    assert flaw("a.pt", WHOLE[:200]) == told
    size = len(WHOLE)
    told = Flaw("partial", f"ends before its last storage: {size - 5} of {size} bytes are there")
    assert flaw("a.pt", WHOLE[:-5]) == told


def test_bytes_behind_the_end_are_corrupt() -> None:
    told = Flaw("corrupt", "has 3 bytes after its last storage")
    assert flaw("a.pt", WHOLE + b"abc") == told


def test_several_saves_into_one_file() -> None:
    assert flaw("a.pt", WHOLE + torch_legacy_file({}) + WHOLE) is None
    told = flaw("a.pt", WHOLE + WHOLE[:-1])
    assert told is not None
    assert told.state == "partial"


def test_pickles_of_all_saves_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_files, "MAX_PICKLES", 5 * len(WHOLE))
    assert flaw("several.pt", WHOLE * 3) is None
    assert flaw("many.pt", WHOLE * 30) == Flaw("unknown", "its pickles are too long to check")


def test_storages_that_moved_are_corrupt() -> None:
    raw = Tensor((3, 4)).raw
    moved = WHOLE.replace(raw, b"") + bytes(len(raw))
    told = Flaw("corrupt", "its storages are not where its content places them")
    assert flaw("a.pt", moved) == told


@pytest.mark.parametrize(
    ("kind", "size"),
    [("FloatStorage", 4), ("ComplexDoubleStorage", 16), ("UntypedStorage", 1), ("BoolStorage", 1)],
)
def test_sizes_of_elements(kind: str, size: int) -> None:
    head = headed(storage(kind, "94", 3), ["94"])
    assert flaw("a.pt", head + pack("<q", 3) + bytes(3 * size)) is None
    told = flaw("a.pt", head + pack("<q", 3) + bytes(3 * size - 1))
    assert told is not None
    assert told.state == "partial"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            headed(storage("StrangeStorage", "94", 3), ["94"]),
            Flaw("unknown", "holds storages of type 'StrangeStorage': its end was not checked"),
        ),
        (
            headed(storage("FloatStorage", "94", 3), ["95"]),
            Flaw("corrupt", "its list of storages and its content disagree"),
        ),
        (
            headed(storage("FloatStorage", "94", -3), ["94"]),
            Flaw("corrupt", "its list of storages and its content disagree"),
        ),
        (
            headed(storage("FloatStorage", "94", 3), ["94", "94"]),
            Flaw("corrupt", "its list of storages has a duplicate"),
        ),
        (headed(b"\x80\2}.", {}), Flaw("corrupt", "it has no list of its storages")),
        (headed(b"\x80\2}.", [5]), Flaw("corrupt", "it has no list of its storages")),
        (headed(b"\x80\2\xff", []), Flaw("corrupt", "its pickles are damaged")),
        (headed(b"\x80\2s.", []), Flaw("corrupt", "its pickles are damaged")),
        (
            headed(b"\x80\2" + b"]" * 500_000 + b".", []),
            Flaw("unknown", "its pickles are too long to check"),
        ),
    ],
)
@pytest.mark.slow
def test_pickles_that_contradict_the_file(data: bytes, told: Flaw) -> None:
    assert flaw("a.pt", data) == told


def test_pickles_of_several_megabytes_are_read() -> None:
    text = "x" * 3_000_000
    assert flaw("a.pt", torch_legacy_file([text, Tensor((4,))])) is None


def tar(members: dict[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return sink.getvalue()


def test_the_oldest_files_are_tars() -> None:
    members = {"sys_info": b"1", "pickle": b"\x80\2}.", "tensors": b"", "storages": bytes(700)}
    whole = tar(members)
    assert flaw("a.pt", whole) is None
    end = 4 * 512 + 2 * 512 + 1024 + 1024  # headers, one block, one block, two blocks, the end
    assert flaw("a.pt", whole[:end]) is None
    told = Flaw("partial", "ends before the end of its tar archive")
    for length in range(300, end, 7):
        assert flaw("a.pt", whole[:length]) == told, length
    told = Flaw("corrupt", "its tar archive has a damaged header")
    assert flaw("a.pt", whole[:1024] + b"x" * 512 + whole[1536:]) == told
    huge = whole[:124] + b"\xff" * 12 + whole[136:]
    assert flaw("a.pt", huge) == told


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_protocols_of_the_pickles(protocol: int) -> None:
    parts = [pickle.dumps(part, protocol) for part in (LEGACY_MAGIC, 1001, {}, {"a": 1}, [])]
    whole = b"".join(parts)
    assert flaw("a.pt", whole) is None
    assert flaw("a.pt", whole + whole) is None
    for length in range(len(whole)):
        told = look("a.pt", whole[:length]).flaw
        assert told is not None, length
        assert told.state == "partial", (length, told)
