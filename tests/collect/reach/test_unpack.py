"""Streams of nodes, intact, truncated and hostile."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from diagnose.collect import bundle
from diagnose.collect.reach import gather as module
from diagnose.collect.reach.gather import Unpacked, unpack

MIB = 1 << 20


def member(name: str, data: bytes = b"x", **about: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in about.items():
        setattr(info, key, value)
    return info, data


def stream(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data) if info.isreg() else None)
    return out.getvalue()


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


GOOD = (member("nodes/n1/node.json", b"{}"), member("nodes/n1/rank-0/stack.txt", b"main\n" * 900))


@pytest.mark.parametrize("packed", [False, True])
def test_an_intact_stream(packed: bool, tmp_path: Path) -> None:
    data = stream(*GOOD)
    found = unpack(io.BytesIO(gzip.compress(data) if packed else data), tmp_path, MIB)
    assert found == Unpacked(["n1"], 2, 4502, [], complete=True)
    assert files(tmp_path) == {
        "nodes/n1/node.json": b"{}", "nodes/n1/rank-0/stack.txt": b"main\n" * 900
    }  # fmt: skip


def test_a_greeting_before_the_stream(tmp_path: Path) -> None:
    """As from a .bashrc that prints something."""
    data = b"Welcome to node1!\nModules loaded: cuda/12\n" + gzip.compress(stream(*GOOD))
    found = unpack(io.BytesIO(data), tmp_path, MIB)
    assert found == Unpacked(["n1"], 2, 4502, [], complete=True)


def test_the_stream_that_a_bundle_makes(tmp_path: Path) -> None:
    source = tmp_path / "source" / "nodes"
    (source / "n1" / "rank-0").mkdir(parents=True)
    (source / "n1" / "rank-0" / "nccl_trace_rank_0").write_bytes(b"\x80\x04K\x01.")
    out = io.BytesIO()
    bundle.add_folder(out, source, "nodes")
    out.seek(0)
    found = unpack(out, tmp_path / "target", MIB)
    assert (found.hosts, found.files, found.complete) == (["n1"], 1, True)


@pytest.mark.parametrize("packed", [False, True])
def test_a_truncated_stream_is_kept_as_far_as_it_goes(packed: bool, tmp_path: Path) -> None:
    import random

    noise = random.Random(1).randbytes(40_000)
    data = stream(GOOD[0], member("nodes/n1/a", b"a"), member("nodes/n1/noise", noise))
    data = gzip.compress(data) if packed else data
    found = unpack(io.BytesIO(data[:20_000]), tmp_path, MIB)
    assert (found.hosts, found.files, found.complete) == (["n1"], 3, False)
    assert found.problems == ["its answer is incomplete: it ends inside of nodes/n1/noise"]
    kept = files(tmp_path)
    assert noise.startswith(kept["nodes/n1/noise"])
    assert len(kept["nodes/n1/noise"]) > 15_000


def test_a_stream_that_ends_between_two_files_is_not_complete(tmp_path: Path) -> None:
    found = unpack(io.BytesIO(stream(*GOOD)[:1024]), tmp_path, MIB)
    assert (found.files, found.complete) == (1, False)
    assert found.problems == [
        "its answer is incomplete: the archive's end mark is missing, members may be too"
    ]


def test_damage_is_noted(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(stream(*GOOD)))
    data[-40] ^= 0xFF
    found = unpack(io.BytesIO(bytes(data)), tmp_path, MIB)
    assert not found.complete
    plain = bytearray(stream(*GOOD))
    plain[1024:1536] = b"\xff" * 512
    found = unpack(io.BytesIO(bytes(plain)), tmp_path / "plain", MIB)
    assert found.problems == [
        "its answer is incomplete: damaged header at byte 1024: members may be missing"
    ]


@pytest.mark.parametrize("data", [b"", b"bash: python3: command not found\n" * 40, b"\x1f\x8b"])
def test_what_is_no_stream(data: bytes, tmp_path: Path) -> None:
    found = unpack(io.BytesIO(data), tmp_path, MIB)
    assert found == Unpacked()
    assert files(tmp_path) == {}


HOSTILE = [
    (member("../../etc/cron.d/x"), "not below nodes/HOST: left out"),
    (member("/etc/passwd"), "not below nodes/HOST: left out"),
    (member("nodes/../../x"), "not the name of a host: left out"),
    (member("nodes/n1/../../../x"), "not a name for a file here: left out"),
    (member("nodes/n1/./x"), "not a name for a file here: left out"),
    (member("nodes/n1//x"), "not a name for a file here: left out"),
    (member("nodes/n1/a\nb"), "not a name for a file here: left out"),
    (member("nodes/n1/a\x1b[31m"), "not a name for a file here: left out"),
    (member("nodes/n1/a\u202eb"), "not a name for a file here: left out"),
    (member("nodes/n1/" + "a" * 300), "not a name for a file here: left out"),
    (member("nodes/n1/" + "a/" * 20 + "x"), "not below nodes/HOST: left out"),
    (member("nodes/.hidden/x"), "not the name of a host: left out"),
    (member("nodes/n 1/x"), "not the name of a host: left out"),
    (member("nodes/x"), "not below nodes/HOST: left out"),
    (member("nodes/n1/node.json/x"), "not a folder: left out"),
    (member("manifest.json", b"{}"), "not below nodes/HOST: left out"),
    (
        member("nodes/n1/link", b"", type=tarfile.SYMTYPE, linkname="/etc"),
        "symbolic link to /etc: not followed",
    ),
    (
        member("nodes/n1/hard", b"", type=tarfile.LNKTYPE, linkname="/etc/shadow"),
        "hard link to /etc/shadow: not followed",
    ),
    (member("nodes/n1/sda", b"", type=tarfile.BLKTYPE), "device: not read"),
    (member("nodes/n1/tty", b"", type=tarfile.CHRTYPE), "device: not read"),
    (member("nodes/n1/pipe", b"", type=tarfile.FIFOTYPE), "named pipe: not read"),
]


@pytest.mark.parametrize(
    ("bad", "why"), HOSTILE, ids=[why + str(n) for n, (_, why) in enumerate(HOSTILE)]
)
def test_a_hostile_member_is_left_out_and_the_rest_is_kept(
    bad: tuple[tarfile.TarInfo, bytes], why: str, tmp_path: Path
) -> None:
    found = unpack(io.BytesIO(stream(bad, *GOOD)), tmp_path / "in", MIB)
    assert (found.files, found.complete) == (2, True)
    (problem,) = found.problems
    assert problem.endswith(f": {why}")
    assert problem.isprintable()
    assert set(files(tmp_path)) == {"in/nodes/n1/node.json", "in/nodes/n1/rank-0/stack.txt"}
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


def test_a_link_cannot_lead_a_later_file_out(tmp_path: Path) -> None:
    link = member("nodes/n1/out", b"", type=tarfile.SYMTYPE, linkname=str(tmp_path))
    found = unpack(
        io.BytesIO(stream(link, member("nodes/n1/out/x", b"evil"))), tmp_path / "in", MIB
    )
    assert set(files(tmp_path)) == {"in/nodes/n1/out/x"}
    assert found.files == 1


def test_the_first_of_two_files_with_one_name_counts(tmp_path: Path) -> None:
    data = stream(
        member("nodes/n1/a", b"first"), member("nodes/n1/a", b"second"),
        member("nodes/n1/a/b", b"a file is no folder"), *GOOD,
    )  # fmt: skip
    found = unpack(io.BytesIO(data), tmp_path, MIB)
    assert files(tmp_path)["nodes/n1/a"] == b"first"
    assert found.problems == ["nodes/n1/a: there twice", "nodes/n1/a/b: there twice"]
    assert (found.files, found.complete) == (3, True)


def test_many_members_left_out_are_counted(tmp_path: Path) -> None:
    found = unpack(io.BytesIO(stream(*[member(f"x{n}") for n in range(9)], *GOOD)), tmp_path, MIB)
    assert found.problems[-1] == "6 more members left out"
    assert len(found.problems) == 4


def test_a_bomb_is_cut(tmp_path: Path) -> None:
    zeros = gzip.compress(stream(GOOD[0], member("nodes/n1/zeros", bytes(8 * MIB))))
    assert len(zeros) < 20_000
    found = unpack(io.BytesIO(zeros), tmp_path, MIB)
    assert found.problems == [f"its answer is incomplete: more than {MIB} bytes of files"]
    assert set(files(tmp_path)) == {"nodes/n1/node.json"}


def test_so_many_files_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 5)
    data = stream(*[member(f"nodes/n1/{n}") for n in range(9)])
    found = unpack(io.BytesIO(data), tmp_path, MIB)
    assert found.files == 5
    assert found.problems == [
        "its answer is incomplete: more than 5 headers: the archive was read up to there"
    ]
