"""What one file of a checkpoint is, and whether its structure is complete."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from threading import Lock
from typing import Any, Literal

from diagnose.checkpoint import contents, torch_files
from diagnose.checkpoint.contents import (
    MAX_JSON,
    MAX_STEP_BYTES,
    TOO_HEAVY,
    DamagedError,
    Ends,
    check_imports,
    exactly,
    parse,
    step_in,
)
from diagnose.checkpoint.model import Flaw, Found
from diagnose.checkpoint.tree import Leaf
from diagnose.ingest.chunks import is_zeros
from diagnose.ingest.place import LocalPlace
from diagnose.ingest.raw import reason
from diagnose.parse.pickles import NoPickleError, TruncatedPickleError, end_of
from diagnose.text.ranks import counted

Kind = Literal["torch", "legacy", "safetensors", "pickle", "json", "text", "other"]

_TORCH = frozenset({".pt", ".pth", ".ckpt", ".th"})
_TORCH_BIN = re.compile(
    r"(?:(?:diffusion_)?pytorch_model|adapter_model|optimizer|scheduler|sampler|training_args)"
    r".*\.bin"
)
_PICKLES = frozenset({".pkl", ".pickle"})
_TEXTS = frozenset({
    ".txt", ".md", ".py", ".yaml", ".yml", ".jinja", ".jsonl", ".log", ".sh", ".cfg", ".toml",
    ".ini", ".csv", ".tsv",
})  # fmt: skip
# What may not be empty: weights, states, and what a loader reads. Data files of DCP may be, where a
# rank has nothing to save; so may markers, locks and logs.
_NEVER_EMPTY = _TORCH | _PICKLES | {
    ".bin", ".safetensors", ".json", ".npy", ".npz", ".h5", ".gguf", ".nemo", ".tar", ".model",
    ".msgpack", ".onnx", ".jinja",
}  # fmt: skip
_NEVER_EMPTY_NAMES = frozenset({
    "latest", "latest_universal", "latest_checkpointed_iteration.txt", "vocab.txt", "merges.txt",
    "model.yaml",
})  # fmt: skip
TOKENIZERS = frozenset({"tokenizer.model", "spiece.model", "sentencepiece.bpe.model"})
CONTENT_UNUSED = frozenset({"tokenizer.json", "vocab.json"})  # large, and nobody asks for it
MAX_TEXT = 64 << 10  # bytes of a text file that is read
MAX_PICKLE = 16 << 20  # bytes of a plain pickle that is walked over
MAX_HELD = 64 << 20  # bytes, about, of what all looks that are kept tell of contents
REQUESTS = 16  # at the same time to a remote place
_LOCAL_PIECE, _REMOTE_PIECE = 4096, 128 << 10  # bytes read at either end of a file
_LOCAL_SAMPLE, _REMOTE_SAMPLE = 64, 2  # local headers of a zip that are looked at
_HEAD = 512
_LFS = b"version https://git-lfs.github.com/spec/"
_PAGES = (b"<!doctype", b"<html", b"<?xml")


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def never_empty(name: str) -> bool:
    """Whether no file of this name may be empty."""
    return _suffix(name) in _NEVER_EMPTY or name in _NEVER_EMPTY_NAMES or name.endswith(".metadata")


def kind_of(name: str) -> Kind:
    """What a file should be by its name."""
    suffix = _suffix(name)
    if suffix in _TORCH or _TORCH_BIN.fullmatch(name):
        return "torch"
    if suffix == ".safetensors":
        return "safetensors"
    if suffix in _PICKLES or name.endswith(".metadata"):
        return "pickle"
    if suffix == ".json":
        return "json"
    return "text" if suffix in _TEXTS or name in _NEVER_EMPTY_NAMES else "other"


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at the ends of one file tells.

    `flaw` is the first thing wrong with it, without a file name. `tensors` are the bytes of each
    tensor by name (safetensors), `data` the parsed content (JSON), `text` that of short text files,
    `step` the step its content claims (a key such as `global_step`, `iteration`), `digest` is the
    same for the same content and empty where only reading all of it would tell.

    `data` of a JSON file that is right is None where it would take too much memory, for large files
    of tokenizers, and for JSON lines.
    """

    kind: Kind
    flaw: Flaw | None = None
    tensors: Mapping[str, int] | None = None
    data: Any = None
    text: str = ""
    step: int | None = None
    digest: str = ""


@dataclass(slots=True)
class Looker:
    """Looks at files, each once. `verify`: read all bytes and check the checksums they carry.

    What takes much memory is given back when MAX_HELD is reached: such a file is read once more
    when it is asked for again.
    """

    verify: bool = False
    seen: dict[str, Look] = field(default_factory=dict)
    _heavy: deque[tuple[str, int]] = field(default_factory=deque, repr=False)
    _held: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def __call__(self, leaf: Leaf) -> Look:
        """What the file is; an error of reading is a flaw of state `unknown`."""
        known = self.seen.get(leaf.path)
        if known is not None:
            return known
        look = _look(leaf, verify=self.verify)
        self._keep(leaf, look)
        return look

    def check(self, found: Found, names: Iterable[str] | None = None) -> dict[str, Look]:
        """Look at the parts of a checkpoint (default: all) and add their flaws to it.

        Names that are no parts are passed over.
        """
        wanted = found.parts if names is None else dict.fromkeys(names)
        chosen = [name for name in wanted if name in found.parts]
        leaves = [found.parts[name] for name in chosen]
        if all(isinstance(leaf.place, LocalPlace) for leaf in leaves):
            looks = list(map(self, leaves))
        else:
            with ThreadPoolExecutor(REQUESTS) as pool:
                looks = list(pool.map(self, leaves))
        for name, look in zip(chosen, looks, strict=True):
            if look.flaw is not None:
                found.flaws.append(replace(look.flaw, file=name))
        return dict(zip(chosen, looks, strict=True))

    def _keep(self, leaf: Leaf, look: Look) -> None:
        weight = 200 * len(look.tensors or ()) + len(look.text)
        if look.data is not None:
            weight += 5 * leaf.size
        with self._lock:
            self.seen[leaf.path] = look
            if weight < 1024:
                return
            self._heavy.append((leaf.path, weight))
            self._held += weight
            while self._held > MAX_HELD:
                path, given_back = self._heavy.popleft()
                self.seen.pop(path, None)
                self._held -= given_back


def _look(leaf: Leaf, *, verify: bool) -> Look:
    kind = kind_of(leaf.name)
    if leaf.size < 0:
        return Look(kind, Flaw("partial", "is a dangling link"))
    if leaf.size == 0:
        return Look(kind, Flaw("partial", "is empty") if never_empty(leaf.name) else None)
    local = isinstance(leaf.place, LocalPlace)
    try:
        with (
            leaf.open() as reader,
            closing(Ends(reader, _LOCAL_PIECE if local else _REMOTE_PIECE)) as ends,
        ):
            return _File(leaf, ends, kind, verify).look()
    except DamagedError as error:
        return Look(kind, error.flaw)
    except OSError as error:
        return Look(kind, Flaw("unknown", f"not read: {reason(error)}"))


@dataclass(frozen=True, slots=True)
class _File:
    """One file with something in it, opened. Its methods raise DamagedError, OSError."""

    leaf: Leaf
    reader: Ends
    kind: Kind
    verify: bool

    def look(self) -> Look:
        """By its first bytes, and by its name where these are not those of a format."""
        head = self.reader.read_at(0, _HEAD)
        if head.startswith(_LFS):
            raise DamagedError("partial", "is a Git LFS pointer: its content was never downloaded")
        if self.leaf.name.endswith(".distcp"):  # one file of torch.save behind the other
            return Look("other")
        if self.kind == "safetensors":
            return self.safetensors(head)
        if head.startswith(torch_files.MAGIC):
            return self.zip()
        if torch_files.is_legacy(head):
            torch_files.check_legacy(self.reader)
            return Look("legacy")
        if head[torch_files.TAR_MAGIC_AT :].startswith(torch_files.TAR_MAGIC):
            torch_files.check_tar(self.reader)
            return Look("legacy" if self.kind == "torch" else "other")
        if self.kind == "json":
            return self.json()
        if self.kind in ("pickle", "torch") and head[0] == 0x80 and head[1:2] <= b"\5":
            return self.pickle()
        if self.kind == "torch":
            self.no_torch(head)
        return self.text(head)

    def safetensors(self, head: bytes) -> Look:
        if head.startswith(torch_files.MAGIC):
            raise DamagedError("corrupt", "is a torch.save file, not safetensors")
        _no_page(head)
        header = contents.read_header(self.reader)
        flaw = contents.holes(self.reader, header, self.leaf.on_disk)
        return Look("safetensors", flaw, header.tensors, digest=self.digest())

    def zip(self) -> Look:
        reader = self.reader
        archive = torch_files.read_archive(reader)
        if self.kind != "torch" and archive.find("data.pkl") is None:
            return Look("other")
        torch_files.check_torch(archive)
        local = isinstance(self.leaf.place, LocalPlace)
        sample = _LOCAL_SAMPLE if local else _REMOTE_SAMPLE
        torch_files.check_headers(reader, archive, len(archive.records) if self.verify else sample)
        if self.verify:
            flaw = torch_files.wrong_checksum(reader, archive)
        else:
            flaw = torch_files.holes(reader, archive, self.leaf.on_disk)
        data = torch_files.read_pickle(reader, archive, MAX_STEP_BYTES)
        check_imports(data)
        step = step_in(data, self.leaf.name)
        return Look("torch", flaw, step=step, digest=torch_files.digest_of(archive))

    def pickle(self) -> Look:
        size = self.reader.size
        cut_off = DamagedError("partial", "ends before the end of its pickle")
        closed = self.reader.read_at(size - 1, 1) == b"."  # STOP
        if size > MAX_PICKLE:
            if not closed:
                raise cut_off
            data = self.reader.read_at(0, MAX_STEP_BYTES)
            check_imports(data)
            return Look("pickle", step=step_in(data, self.leaf.name))
        data = exactly(self.reader, 0, size)
        try:
            at = end_of(data)
            while data[at : at + 1] == b"\x80":  # pickle.dump may be called several times
                at = end_of(data, at)
        except TruncatedPickleError:
            raise cut_off from None
        except NoPickleError:
            if b"joblib" not in data:  # which puts arrays between the opcodes
                raise DamagedError("corrupt", "is a malformed pickle") from None
            if not closed:
                raise cut_off from None
            at = size
        if at < size:
            raise DamagedError(
                "corrupt", f"has {counted(size - at, 'byte')} after the end of its pickle"
            )
        check_imports(data)
        return Look("pickle", step=step_in(data, self.leaf.name), digest=_digest(data))

    def no_torch(self, head: bytes) -> None:
        """A file under a name of torch.save that begins like none. Raises DamagedError."""
        if is_zeros(head):
            raise DamagedError("partial", "starts with zero bytes: its start was never written")
        if torch_files.MAGIC.startswith(head):
            raise DamagedError("partial", f"has only {counted(len(head), 'byte')}")
        _no_page(head)
        ckpt = self.leaf.name.endswith(".ckpt")  # a name that other frameworks use, too
        raise DamagedError(
            "unknown" if ckpt else "corrupt",
            "starts like neither a zip nor a pickle, so torch.load cannot read it",
        )

    def json(self) -> Look:
        if self.reader.size > MAX_JSON:
            raise DamagedError(
                "unknown", f"has {counted(self.reader.size, 'byte')}: too many to check"
            )
        raw = exactly(self.reader, 0, self.reader.size)
        data = parse(raw)
        if data is TOO_HEAVY or self.leaf.name in CONTENT_UNUSED:
            data = None
        return Look("json", data=data, step=_step(data), digest=_digest(raw))

    def text(self, head: bytes) -> Look:
        if (self.kind != "other" or self.leaf.name in TOKENIZERS) and is_zeros(head):
            raise DamagedError("partial", "starts with zero bytes: it was never written")
        if self.leaf.name in TOKENIZERS:
            _no_page(head)
        if self.reader.size > MAX_TEXT:
            return Look(self.kind)
        raw = exactly(self.reader, 0, self.reader.size)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            text = raw.decode("utf-8", "replace") if self.kind == "text" else ""
        if b"\0" in raw or not text:
            return Look(self.kind, digest=_digest(raw))
        return Look("text", text=text, digest=_digest(raw))

    def digest(self) -> str:
        """That of a file so small that reading all of it costs nothing."""
        size = self.reader.size
        return _digest(exactly(self.reader, 0, size)) if size <= MAX_TEXT else ""


def _no_page(head: bytes) -> None:
    if head.lstrip().lower().startswith(_PAGES):
        raise DamagedError("corrupt", "is a web page or a server message")


def _step(data: Any) -> int | None:
    """The step that a JSON object claims."""
    if not isinstance(data, dict):
        return None
    steps = {data[key] for key in ("global_step", "iteration") if type(data.get(key)) is int}
    return steps.pop() if len(steps) == 1 else None


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
