"""What is collected: the plain data of a bundle and its nodes, their documents, folders, archives.

`manifest.json` is at the top, `nodes/HOST/node.json` and the files of a node's probes below: these
are written through a `Sink`, masked, so much and no more.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from diagnose.redact.redactor import Redactor
from diagnose.report.safe import clean
from diagnose.runtime.files import private_file, private_folder, replacing, unwritable

SCHEMA = "diagnose-bundle/1"
NODE_SCHEMA = "node/1"
MANIFEST = "manifest.json"

Status = Literal["ok", "failed", "timed out", "not available"]
Role = Literal["rank", "launcher", "loader", "child"]


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """What one node is asked for.

    pids: The job's processes, with all that they started; empty: they are found by their
        environment.
    job: A job's id in its environment (SLURM_JOB_ID, TORCHELASTIC_RUN_ID …), where several run
        here; None: the one with most ranks.
    host: The name of the node in the bundle; None: what it calls itself.
    apart_s: Seconds between the two samples of CPU time, context switches and I/O.
    pause_s: How long at most a process may be paused for its native stacks; 0: none is paused, and
        there are only Python stacks.
    dump: Ask torch for dumps of its Flight Recorder where it listens for that.
    probe_s: Seconds that one probe may take.
    probe_bytes: What one probe may write.
    """

    pids: tuple[int, ...] = ()
    job: str | None = None
    host: str | None = None
    apart_s: float = 5.0
    pause_s: float = 0.8
    dump: bool = True
    probe_s: float = 8.0
    probe_bytes: int = 64 << 20


@dataclass(slots=True)
class Probe:
    """What one probe came to; `problem` is one line, and says why where it did not do well."""

    name: str
    status: Status = "ok"
    seconds: float = 0.0
    bytes: int = 0
    problem: str = ""


@dataclass(slots=True)
class Process:
    """A process of the job; `folder` is where its files are, below the folder of the node.

    `rank` is None where it is unknown, as of processes that are none; `loader` is a worker process
    of a DataLoader, `child` anything else that a rank started. `world` is the number of ranks,
    `local_world` that of its node.
    """

    pid: int
    role: Role
    rank: int | None = None
    local_rank: int | None = None
    world: int | None = None
    local_world: int | None = None
    parent: int | None = None
    command: str = ""
    folder: str = ""


@dataclass(slots=True)
class Node:
    """One node of a bundle. Times are ISO 8601 in UTC; `clock` says what is known of its error."""

    host: str
    tool: str
    started: str = ""
    ended: str = ""
    clock: dict[str, Any] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def folder(self) -> str:
        """Where it is in a bundle."""
        return f"nodes/{self.host}"

    def to_dict(self) -> dict[str, Any]:
        """The document `node.json`, and an entry of the manifest."""
        return {"diagnose": NODE_SCHEMA, **asdict(self)}


@dataclass(slots=True)
class Manifest:
    """The document `manifest.json`.

    `via` says how the nodes were reached: `here`, `slurm`, `kubernetes`, `ssh`, or the launcher's
    command. A node that could not be reached is a line of `problems` and has no entry in `nodes`.
    """

    tool: str
    started: str
    ended: str
    via: str = "here"
    nodes: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    schema: str = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        """In the order in which people read it."""
        found = asdict(self)
        for node in found["nodes"]:
            node.pop("diagnose", None)
        return {"schema": found.pop("schema"), **found}


_LINE = 20_000  # characters of a line that are kept
_CUT = "[cut here: the probe's limit is reached]"
ARCHIVES = (".tar.zst", ".tar.gz", ".tgz", ".tar")
_RESERVED = 64 << 10  # bytes kept free for a document that is only known at the end


def is_archive(target: Path) -> bool:
    """Whether a bundle at this path is one file."""
    return target.name.endswith(ARCHIVES)


def name_of(target: Path) -> str:
    """The one folder at the top of an archive."""
    suffix = next((suffix for suffix in ARCHIVES if target.name.endswith(suffix)), "")
    return target.name.removesuffix(suffix) or "bundle"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `manifest.json`, which is over what `reserve` kept free. Raises OSError."""
    overwrite(folder / MANIFEST, manifest.to_dict())


def reserve(path: Path, document: dict[str, Any] | None = None) -> None:
    """Keep room on the disk for a small document, so that a full one still says what happened.

    What is known of it already stands there, for whoever ends before it is whole. Raises OSError.
    """
    private_folder(path.parent)
    with private_file(path, os.O_TRUNC) as file:
        file.write((b"" if document is None else _encoded(document)) + b" " * _RESERVED)


def overwrite(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON document into the room of its file first. Raises OSError."""
    with private_file(path, 0) as file:
        file.write(_encoded(document))
        file.truncate()


def _encoded(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def pack(folder: Path, target: Path) -> None:
    """An archive of a bundle's folder, by the target's suffix: whole or not at all.

    Raises InputError.
    """
    try:
        with replacing(target, private=True) as out, compressed(out, target.name) as stream:
            add_folder(stream, folder, name_of(target))
    except OSError as error:
        raise unwritable(target, error) from error


def add_folder(stream: IO[bytes], folder: Path, name: str) -> None:
    """Write the regular files of a folder as a tar stream below `name`, without their owners."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            if not path.is_file() or path.is_symlink():
                continue
            info = tarfile.TarInfo(f"{name}/{path.relative_to(folder).as_posix()}")
            data = path.read_bytes()
            info.size, info.mtime, info.mode = len(data), int(path.stat().st_mtime), 0o600
            archive.addfile(info, io.BytesIO(data))


@contextmanager
def compressed(out: IO[bytes], name: str) -> Iterator[Any]:
    """A stream into `out`, compressed as the suffix of a name says."""
    if name.endswith(".zst"):
        import zstandard  # noqa: PLC0415  not on a compute node

        with zstandard.ZstdCompressor(level=9).stream_writer(out, closefd=False) as stream:
            yield stream
    elif name.endswith("gz"):
        import gzip  # noqa: PLC0415

        with gzip.GzipFile("", "wb", 6, out, 0) as stream:
            yield stream
    else:
        yield out


class Sink:
    """Files of one folder of the bundle.

    Secrets are masked before anything is written, those that `redactor` knows wherever they stand.
    Escape codes go: one inside a token hides it. At `limit` bytes a text is cut.
    """

    def __init__(self, folder: Path, redactor: Redactor, limit: int) -> None:
        self.folder = folder
        self.left = limit
        self.written = 0
        self._redactor = redactor

    def below(self, name: str) -> Sink:
        """A sink for a folder in this one, with what is left of the limit."""
        return Sink(self.folder / name, self._redactor, self.left)

    def masked(self, text: str) -> str:
        """`text`, of any number of lines, without secrets."""
        return self._redactor.text(self._cleaned(text))

    def secret(self, text: str) -> bool:
        """Whether anything of `text` would be masked."""
        cleaned = self._cleaned(text)
        return self._redactor.text(cleaned) != cleaned

    def _cleaned(self, text: str) -> str:
        return clean(text, limit=max(_LINE, self.left), lines=True)

    def one_line(self, text: str, limit: int = 300) -> str:
        """A masked text for a message."""
        shown = " ".join(self.masked(text[: 8 * limit]).split())
        return shown if len(shown) <= limit else shown[: limit - 1] + "…"

    def text(self, name: str, text: str) -> None:
        """Write a text. Raises OSError."""
        room = max(0, self.left - len(_CUT) - 2)
        # Whole lines: half a secret may not look like one any more.
        kept = text if len(text) <= room else text[: text.rfind("\n", 0, room) + 1]
        data = self.masked(kept).encode("utf-8", "replace")
        if len(data) > room:
            data = data[: data.rfind(b"\n", 0, room) + 1]
        data = data.rstrip(b"\n") + b"\n"
        if data.count(b"\n") < text.rstrip("\n").count("\n") + 1:
            data += f"{_CUT}\n".encode()
        self.data(name, data)

    def json(self, name: str, value: Any) -> None:
        """Write a document. Raises OSError, ValueError where it is over the limit."""
        text = json.dumps(self.tree(value), indent=1, ensure_ascii=False)
        data = text.encode("utf-8", "replace")
        if len(data) > self.left:
            raise ValueError(f"{name} would have {len(data)} bytes, over the limit")
        self.data(name, data + b"\n")

    def tree(self, value: Any) -> Any:
        """A copy of a document whose strings are masked."""
        if isinstance(value, str):
            return self.masked(value)
        if isinstance(value, dict):
            return {self.masked(str(key)): self.tree(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(item) for item in value]
        return value

    def data(self, name: str, data: bytes) -> None:
        """Write bytes that hold no secret: the whole file or none. Raises OSError."""
        private_folder(self.folder)
        path = self.folder / name
        try:
            with private_file(path, os.O_TRUNC) as file:
                file.write(data)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, name) from error
        self.left -= len(data)
        self.written += len(data)
