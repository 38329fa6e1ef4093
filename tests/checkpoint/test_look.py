"""One file at a time: what it is, whether it is whole, and what it tells."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from diagnose.checkpoint import look as look_module
from diagnose.checkpoint.look import Look, Looker
from diagnose.checkpoint.model import Flaw, Found
from diagnose.checkpoint.tree import Folder, Leaf, read_tree
from diagnose.ingest.place import File, LocalPlace
from tests.checkpoint.leaves import leaf, look
from tests.checkpoint.make.base import (
    Tensor,
    json_bytes,
    pickle_file,
    safetensors_file,
    torch_file,
    torch_legacy_file,
)

TORCH = torch_file(content={"global_step": 500, "w": Tensor((5, 5))})
SAFE = safetensors_file({"w": ("F32", (5, 5))})


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.pt", TORCH, "torch"),
        ("optimizer.bin", TORCH, "torch"),
        ("whatever", TORCH, "torch"),
        ("model.pth.tar", TORCH, "torch"),
        ("a.pt", torch_legacy_file({}), "legacy"),
        ("pytorch_model.bin", torch_legacy_file({"w": Tensor((3,))}), "legacy"),
        ("model.safetensors", SAFE, "safetensors"),
        ("random_states_0.pkl", pickle_file({"a": 1}), "pickle"),
        (".metadata", pickle_file([1]), "pickle"),
        ("old.pt", pickle_file([1]), "pickle"),
        ("config.json", b"{}", "json"),
        ("latest", b"global_step500", "text"),
        ("vocab.txt", b"a\nb\n", "text"),
        ("log.txt", b"\xff\xfe", "text"),
        ("README.md", b"x" * 100_000, "text"),
        ("anything", b"words\n", "text"),
        ("anything", b"\0\1\2\3", "other"),
        ("anything", b"\xff\xfe\xfd", "other"),
        ("train.bin", bytes(4000), "other"),
        ("train.bin", b"\x80\2" + b"x" * 100, "other"),
        ("model.bin", b"ctranslate" * 100, "text"),
        ("__0_0.distcp", TORCH[:-1], "other"),
        ("packed.pkl", b"\x1f\x8b\x08packed", "pickle"),
    ],
)
def test_a_file_is_what_its_first_bytes_say(name: str, data: bytes, kind: str) -> None:
    told = look(name, data)
    assert told.flaw is None
    assert told.kind == kind


def test_what_whole_files_tell() -> None:
    told = look("a.pt", TORCH)
    assert (told.step, told.tensors, told.data, told.text) == (500, None, None, "")
    assert look("model.safetensors", SAFE).tensors == {"w": 100}
    assert look("latest", b"global_step500\n").text == "global_step500\n"
    state = {"global_step": 500, "epoch": 1.5}
    told = look("trainer_state.json", json_bytes(state))
    assert (told.data, told.step) == (state, 500)
    assert look("tokenizer.json", json_bytes({"version": "1.0"})).data is None
    assert look("a.json", b'{"global_step": true, "iteration": 3}').step == 3
    assert look("a.json", b'{"global_step": 2, "iteration": 3}').step is None
    assert look("a.json", b"[1]").step is None


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors", "a.pt", "a.pth", "epoch=1.ckpt", "anything.bin", "rng.pkl", "x.npy",
        "config.json", "tokenizer.model", "vocab.txt", "latest", ".metadata", "__0.metadata",
        "latest_checkpointed_iteration.txt", "chat_template.jinja", "x.gguf",
    ],
)  # fmt: skip
def test_files_that_may_not_be_empty(name: str) -> None:
    assert look(name, b"").flaw == Flaw("partial", "is empty")


@pytest.mark.parametrize(
    "name",
    [
        "__init__.py", ".gitkeep", ".lock", "model.safetensors.lock", "step=5-unfinished",
        "SUCCESS", "_COMMITTED", "x.done", "console.log", "notes.txt", "hparams.yaml",
        "__1_0.distcp", "added.jsonl", "README.md", "common",
    ],
)  # fmt: skip
def test_files_that_may_be_empty(name: str) -> None:
    assert look(name, b"").flaw is None


def test_a_link_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("../../blobs/abc")
    tree = read_tree(str(tmp_path))
    assert isinstance(tree, Folder)
    told = Looker()(tree.files["model.safetensors"])
    assert told.flaw == Flaw("partial", "is a dangling link")


@pytest.mark.parametrize(
    ("name", "data", "flaw"),
    [
        ("a.pt", b"\x80", Flaw("partial", "ends before the end of its pickle")),
        ("a.pt", b"hello", Flaw("corrupt", "starts like neither a zip nor a pickle, so"
                                " torch.load cannot read it")),
        ("a.ckpt", b"hello", Flaw("unknown", "starts like neither a zip nor a pickle, so"
                                  " torch.load cannot read it")),
        ("a.pt", bytes(9), Flaw("partial", "starts with zero bytes: its start was never written")),
        ("optimizer.bin", b"<html><title>403</title>",
         Flaw("corrupt", "is a web page or a server message")),
        ("a.pt", b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n",
         Flaw("partial", "is a Git LFS pointer: its content was never downloaded")),
        ("latest", bytes(14), Flaw("partial", "starts with zero bytes: it was never written")),
        ("rng.pkl", bytes(99), Flaw("partial", "starts with zero bytes: it was never written")),
        ("config.json", bytes(99),
         Flaw("partial", "ends in 99 zero bytes: its end was never written")),
    ],
)  # fmt: skip
def test_files_that_are_none(name: str, data: bytes, flaw: Flaw) -> None:
    assert look(name, data).flaw == flaw


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_cut_off_anywhere_is_partial(protocol: int) -> None:
    whole = pickle.dumps({"numpy": b".." * 50, "random": [1.5, "x." * 40, 2**70]}, protocol)
    assert look("rng.pkl", whole).flaw is None
    for length in range(1, len(whole)):
        told = look("rng.pkl", whole[:length])
        assert told.flaw == Flaw("partial", "ends before the end of its pickle"), length


def test_damaged_pickles() -> None:
    whole = pickle_file(["state", 5])
    assert look("a.pkl", whole + whole).flaw is None
    told = look("a.pkl", whole + b"ab").flaw
    assert told == Flaw("corrupt", "has 2 bytes after the end of its pickle")
    told = look("a.pkl", whole[:-4] + b"\xff" * 4).flaw
    assert told == Flaw("corrupt", "is a malformed pickle")
    joblib = pickle_file({"joblib.numpy_pickle": 1})[:-2] + b"\xff\xferaw array"
    assert look("a.pkl", joblib + b".").flaw is None
    assert look("a.pkl", joblib).flaw == Flaw("partial", "ends before the end of its pickle")


def test_only_the_end_of_a_large_pickle_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_module, "MAX_PICKLE", 50)
    whole = pickle_file({"global_step": 500, "more": "x" * 60})
    told = look("a.pkl", whole)
    assert (told.flaw, told.step, told.digest) == (None, 500, "")
    assert look("a.pkl", whole[:-1]).flaw == Flaw("partial", "ends before the end of its pickle")


def test_digests_tell_content() -> None:
    for name, data in (("a.pkl", pickle_file([1])), ("a.json", b"{}"), ("latest", b"a"),
                       ("model.safetensors", SAFE), ("a.pt", TORCH)):  # fmt: skip
        first, again = look(name, data).digest, look(f"x/{name}", data).digest
        assert first == again != ""
    assert look("a.json", b"{}").digest != look("a.json", b"{} ").digest
    large = safetensors_file({"w": ("F32", (200, 200))})
    assert look("model.safetensors", large).digest == ""


class Broken(LocalPlace):
    def __init__(self, error: OSError) -> None:
        self.error = error

    def ranges(self, file: File) -> Any:
        raise self.error


def test_errors_of_reading_are_unknown() -> None:
    told = Looker()(Leaf("/a.pt", 5, 0.0, place=Broken(PermissionError(13, "Permission denied"))))
    assert told == Look("torch", Flaw("unknown", "not read: permission denied"))


def test_a_file_that_shrinks_is_unknown() -> None:
    class Shrinking:
        size = 5000

        def read_at(self, offset: int, length: int) -> bytes:
            return TORCH[:100][offset : offset + length]

    class Place(LocalPlace):
        def ranges(self, file: File) -> Any:
            from contextlib import nullcontext
            from types import SimpleNamespace

            return SimpleNamespace(open=lambda: nullcontext(Shrinking()))

    told = Looker()(Leaf("/a.pt", 5000, 0.0, place=Place())).flaw
    assert told == Flaw("unknown", "not read: it shrank while being read")


def found(files: dict[str, bytes]) -> Found:
    parts = {name: leaf(name, data) for name, data in files.items()}
    return Found("/out/checkpoint-500", "made up", parts)


def test_check_adds_flaws_with_their_files() -> None:
    checkpoint = found({"a.pt": TORCH, "sub/b.pt": TORCH[:-1], "sub/c.json": b"", "d.json": b"{"})
    looks = Looker().check(checkpoint)
    assert list(looks) == ["a.pt", "sub/b.pt", "sub/c.json", "d.json"]
    assert looks["a.pt"].step == 500
    assert [str(flaw) for flaw in checkpoint.flaws] == [
        "sub/b.pt: ends before its table of contents, which a save writes last",
        "sub/c.json: is empty",
        "d.json: ends in the middle of its JSON text",
    ]


def test_check_looks_at_what_it_is_asked_for() -> None:
    checkpoint = found({"a.pt": TORCH[:-1], "b.pt": TORCH[:-1]})
    assert list(Looker().check(checkpoint, ["b.pt", "missing.pt", "b.pt"])) == ["b.pt"]
    assert [flaw.file for flaw in checkpoint.flaws] == ["b.pt"]
    assert Looker().check(found({})) == {}


def test_each_file_is_looked_at_once() -> None:
    looker = Looker()
    one = leaf("a.pt", TORCH)
    assert looker(one) is looker(one)


def test_looks_that_take_much_memory_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_module, "MAX_HELD", 20_000)
    looker = Looker()
    large = [leaf(f"{place}.json", json_bytes({"x": "y" * 1500})) for place in range(5)]
    small = leaf("a.pt", TORCH)
    looker(small)
    for one in large:
        assert looker(one).data == {"x": "y" * 1500}
    assert set(looker.seen) == {"/out/a.pt", "/out/3.json", "/out/4.json"}
    assert looker(large[0]).data == {"x": "y" * 1500}


class Counting(MemoryFileSystem):  # type: ignore[misc]
    """Counts how often bytes are asked for."""

    protocol = "counted"
    asked: list[tuple[str, int, int]] = []  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("counted://", "memory://")))

    def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
        self.asked.append((path.rsplit("/", 1)[-1], start, end))
        return bytes(super().cat_file(path, start, end, **options))


@pytest.fixture
def remote() -> Callable[[dict[str, bytes]], Found]:
    fsspec.register_implementation("counted", Counting, clobber=True)
    Counting.asked.clear()
    Counting.store.clear()

    def place(files: dict[str, bytes]) -> Found:
        store = fsspec.filesystem("counted")
        for name, data in files.items():
            store.pipe_file(f"/run/{name}", data)
        tree = read_tree("counted:///run")
        assert isinstance(tree, Folder)
        return Found("counted:///run", "made up", dict(tree.leaves()))

    return place


def test_remote_files_are_asked_for_their_ends(remote: Callable[..., Found]) -> None:
    weights = b"\1" * 1_000_000
    large = torch_file({"data/0": weights}, content={"global_step": 7})
    checkpoint = remote({
        "a.pt": large,
        "b.pt": large[:-1],
        "c.safetensors": safetensors_file({"w": ("F32", (1000, 1000))}),
        "d.json": b'{"global_step": 5}',
        "e.pt": TORCH,
    })  # fmt: skip
    looks = Looker().check(checkpoint)
    assert looks["a.pt"].step == 7
    assert looks["c.safetensors"].tensors == {"w": 4_000_000}
    assert looks["d.json"].step == 5
    assert [str(flaw) for flaw in checkpoint.flaws] == [
        "b.pt: ends before its table of contents, which a save writes last"
    ]
    piece = 128 << 10
    size = len(large)
    assert sorted(Counting.asked) == [
        ("a.pt", 0, piece),
        ("a.pt", size - piece, size),
        ("b.pt", 0, piece),
        ("b.pt", size - 1 - piece, size - 1),
        ("c.safetensors", 0, piece),
        ("d.json", 0, 18),
        ("e.pt", 0, len(TORCH)),
    ]


@pytest.mark.slow
def test_large_reads_come_one_after_the_other(remote: Callable[..., Found]) -> None:
    text = json_bytes({"a": "x" * 2_000_000})
    checkpoint = remote({f"{place}.json": text[: len(text) - place % 2] for place in range(40)})
    looks = Looker().check(checkpoint)
    assert all(look.data for look in looks.values())
    assert checkpoint.flaws == []
    cut = remote({f"{place}.json": text[:-9] for place in range(40)})
    Looker().check(cut)
    assert {flaw.why for flaw in cut.flaws} == {"ends in the middle of its JSON text"}


def test_many_large_files_take_no_time(tmp_path: Path) -> None:
    """Two thousand of these take about a second: nothing is read but header and tail."""
    head = safetensors_file({"w": ("U8", (0,))})
    size = 5_000_000_000
    text = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (size, size)
    head = len(text).to_bytes(8, "little") + text
    path = tmp_path / "model.safetensors"
    with path.open("wb") as sink:
        sink.write(head)
        sink.truncate(len(head) + size)
    one = read_tree(str(path))
    assert isinstance(one, Leaf)
    reads: list[int] = []

    class Reader:
        def __init__(self, reader: Any) -> None:
            self.reader, self.size = reader, reader.size

        def read_at(self, offset: int, length: int) -> bytes:
            reads.append(length)
            return bytes(self.reader.read_at(offset, length))

    class Place(LocalPlace):
        def ranges(self, file: File) -> Any:
            from contextlib import contextmanager
            from types import SimpleNamespace

            @contextmanager
            def opened() -> Any:
                with LocalPlace.ranges(self, file).open() as reader:
                    yield Reader(reader)

            return SimpleNamespace(open=opened)

    Looker()(replace(one, place=Place()))
    assert sum(reads) < 20_000
