"""Checkpoints in what is uploaded: folders, loose files, archives, damaged and too large ones."""

from __future__ import annotations

import html
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from diagnose.errors import InputError
from diagnose.serve import spool, work
from diagnose.serve.model import Done, Task
from diagnose.serve.saves import unpack
from tests.archives import header
from tests.checkpoint.make import dcp, hf

from .running import LOG, Running

BEGIN = 1_700_000_000.0


def run_folder(root: Path) -> Path:
    """A job: a log, a whole checkpoint, and one that was cut off."""
    for number, step in enumerate((100, 200)):
        folder = root / f"run/checkpoint-{step}"
        hf.MAKERS["hf-trainer"](folder, step=step, world=2, start=BEGIN + 600 * number)
    (root / "run/checkpoint-200/trainer_state.json").unlink()
    (root / "run/rank0.log").write_text(LOG)
    return root


def tar(root: Path, mode: str = "w") -> bytes:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode=mode) as archive:  # type: ignore[call-overload]
        for path in sorted(root.iterdir()):
            archive.add(path, path.name)
    return into.getvalue()


def zipped(root: Path) -> bytes:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*")):
            archive.write(path, path.relative_to(root))
    return into.getvalue()


def text_of(folder: Path, **options: int) -> str:
    """The page of what is in a folder; what else is made of it is checked for its path, too."""
    made = Task(str(folder), "files", ("markdown", "json", "page"), **options)  # type: ignore[arg-type]
    result = work.attempt(made, lambda _: None)
    assert isinstance(result, Done), result
    unpack = zstandard.ZstdDecompressor().decompress
    texts = {name: unpack(data).decode() for name, data in result.outputs.items()}
    assert str(folder) not in "".join(texts.values())
    return html.unescape(texts["page"])


DAMAGED = "checkpoint-200 is incomplete"
CHOSEN = "--resume_from_checkpoint run/checkpoint-100"


def test_of_a_folder(tmp_path: Path) -> None:
    text = text_of(run_folder(tmp_path))
    assert DAMAGED in text
    assert CHOSEN in text


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("job.tar", tar),
        ("job.tar.gz", lambda root: tar(root, "w:gz")),
        ("job.zip", zipped),
    ],
)
def test_of_an_archive(tmp_path: Path, name: str, pack: Callable[[Path], bytes]) -> None:
    root, folder = tmp_path / "root", tmp_path / "upload"
    folder.mkdir()
    (folder / name).write_bytes(pack(run_folder(root)))
    (folder / "notes.txt").write_text("nothing\n")
    text = text_of(folder)
    assert DAMAGED in text
    assert CHOSEN in text
    assert sorted(path.name for path in folder.iterdir()) == sorted([name, "notes.txt"])


def test_an_archive_that_is_cut_is_no_reason_to_call_a_checkpoint_incomplete(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "upload"
    folder.mkdir()
    data = tar(run_folder(tmp_path / "root"))
    (folder / "job.tar").write_bytes(data[: len(data) * 2 // 3])
    (folder / "rank0.log").write_text(LOG)
    text = text_of(folder)
    assert DAMAGED not in text
    assert "job.tar: checkpoints in it were not looked for: " in text


def test_what_is_unpacked_is_bounded(tmp_path: Path) -> None:
    folder = tmp_path / "upload"
    folder.mkdir()
    (folder / "job.tar.gz").write_bytes(tar(run_folder(tmp_path / "root"), "w:gz"))
    (folder / "rank0.log").write_text(LOG)
    text = text_of(folder, upload=1 << 10)
    assert DAMAGED not in text
    assert "job.tar.gz: checkpoints in it were not looked for: more than 0 MiB" in text


def test_a_size_that_only_a_header_knows_ends_with_the_archive(tmp_path: Path) -> None:
    (tmp_path / "job.tar").write_bytes(header(b"model.pt", b"\x80" + b"\xff" * 11) + b"x" * 700)
    (tmp_path / "into").mkdir()
    with pytest.raises(InputError, match="700 of "):
        unpack(tmp_path / "job.tar", tmp_path / "into", 1 << 30)


def test_an_archive_of_logs_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, folder = tmp_path / "root", tmp_path / "upload"
    (root / "run").mkdir(parents=True)
    (root / "run/rank0.log").write_text(LOG)
    folder.mkdir()
    (folder / "job.tar.gz").write_bytes(tar(root, "w:gz"))
    monkeypatch.setattr("diagnose.serve.saves.unpack", lambda *_: pytest.fail("unpacked"))
    assert "Rank 5" in text_of(folder)


def test_names_of_an_archive_lead_nowhere(tmp_path: Path) -> None:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w") as archive:
        for name in ("../../evil.pt", "/abs.pt", "run/rank0.log", "run/model.pt"):
            entry = tarfile.TarInfo(name)
            data = LOG.encode() if name.endswith("log") else b"x"
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        link = tarfile.TarInfo("run/link.pt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    folder = tmp_path / "a/b/upload"
    folder.mkdir(parents=True)
    (folder / "job.tar").write_bytes(into.getvalue())
    assert "Rank 5" in text_of(folder)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "job.tar", "upload"]


def test_a_browsers_folder_with_a_sharded_checkpoint(tmp_path: Path, server: Running) -> None:
    root = tmp_path / "out/step-7"
    dcp.MAKERS["dcp"](root, step=7, world=2, start=BEGIN)
    (tmp_path / "out/rank0.log").write_text(LOG)
    files = [
        ("files", (path.relative_to(tmp_path).as_posix(), path.read_bytes()))
        for path in sorted(tmp_path.rglob("*"))
        if path.is_file()
    ]
    assert any(name.endswith("/.metadata") for _, (name, _) in files)
    reply = server.http.post("/api/v1/diagnoses", files=files, params={"wait": "60"})
    document = reply.json()
    assert document["state"] == "done", document
    page = server.http.get(document["links"]["page"]).text
    # In no way damaged: when a browser sent a file tells nothing.
    assert ">intact: resume from this one<" in page


@pytest.mark.parametrize(
    ("name", "path"),
    [("step-7/.metadata", "step-7/.metadata"), (".metadata.log", "metadata.log"), (".env", "env")],
)
def test_what_a_checkpoint_is_known_by_keeps_its_name(name: str, path: str) -> None:
    assert spool.below(name).as_posix() == path
