"""What a file of a checkpoint should be by its name."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Literal

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


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _is_torch(name: str) -> bool:
    return _suffix(name) in _TORCH or _TORCH_BIN.fullmatch(name) is not None


def never_empty(name: str) -> bool:
    """Whether no file of this name may be empty."""
    return _suffix(name) in _NEVER_EMPTY or name in _NEVER_EMPTY_NAMES or name.endswith(".metadata")


def kind_of(name: str) -> Kind:
    """What a file should be by its name."""
    suffix = _suffix(name)
    if _is_torch(name):
        return "torch"
    if suffix == ".safetensors":
        return "safetensors"
    if suffix in _PICKLES or name.endswith(".metadata"):
        return "pickle"
    if suffix == ".json":
        return "json"
    return "text" if suffix in _TEXTS or name in _NEVER_EMPTY_NAMES else "other"
