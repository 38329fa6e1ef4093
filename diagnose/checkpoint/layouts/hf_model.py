"""A model as save_pretrained of transformers, PEFT, diffusers and others leaves it in a folder.

`config.json` is written first, then the weights (one file, or shards and after them
their index), then the tokenizer: its settings before its vocabulary. PEFT writes the
weights of an adapter before `adapter_config.json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from diagnose.checkpoint.layouts import Layout
from diagnose.checkpoint.layouts.hf_weights import (
    check_weights,
    left_overs,
    weight_files,
    weights_of,
)
from diagnose.checkpoint.look import Look, Looker
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.tree import Folder, Leaf

CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
GENERATION = "generation_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
TRAINING_ARGS = "training_args.bin"
TRAINER_STATE = "trainer_state.json"

# Files beside the weights that belong to a saved model; whatever else lies there is the user's.
SIDE = frozenset((
    CONFIG, ADAPTER_CONFIG, GENERATION, TOKENIZER, TOKENIZER_CONFIG, TRAINING_ARGS, TRAINER_STATE,
    "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt",
    "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "preprocessor_config.json",
    "processor_config.json", "video_preprocessor_config.json", "quantize_config.json",
    "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json",
))  # fmt: skip
NO_CONFIG = "missing: from_pretrained needs it"

_STEP = re.compile(
    r"(?:.*[^a-z])?(?:checkpoint|ckpt|global_?step|step|iter|epoch)[-_=]?(\d{1,15})", re.IGNORECASE
)
_VOCABULARY = re.compile(
    r"vocab|merges|spiece|sentencepiece|\.model$|\.tiktoken$|\.bpe$|\.spm$|\.txt$"
)
_BYTE_LEVEL = ("ByT5", "Canine", "Perceiver")  # tokenizers without any vocabulary
_OTHER_WEIGHTS = (
    ".h5", ".msgpack", ".gguf", ".onnx", ".pt", ".pth", ".npz", ".ot", ".tflite", ".bin", ".ckpt",
    ".distcp", ".incomplete",
)  # fmt: skip


def step_named(name: str) -> int | None:
    """The step (or epoch) that the name of a folder ends with."""
    match = _STEP.fullmatch(name)
    return int(match[1]) if match else None


def model_files(folder: Folder) -> dict[str, Leaf]:
    """The files right inside a folder that belong to a saved model."""
    side = {name: leaf for name, leaf in folder.files.items() if name in SIDE}
    return dict(sorted((side | weight_files(folder)).items()))


def check_adapters(found: Found, folder: Folder, look: Looker) -> int:
    """Take over the further adapters, in folders called as those are; gives how many."""
    count = 0
    for name, inside in folder.folders.items():
        weights = weights_of(inside.files)
        if (ADAPTER_CONFIG not in inside.files and not weights.adapters) or weights.full:
            continue
        if inside.files.keys() & {TRAINER_STATE, TRAINING_ARGS}:
            continue  # a checkpoint of its own
        one = Found(inside.path, "PEFT adapter", model_files(inside))
        check_model(one, inside, look.check(one))
        found.absorb(name, one)
        count += 1
    return count


def read(folder: Folder, look: Looker) -> Found | None:
    """The model, or the adapter, that a folder holds."""
    weights = weights_of(folder.files)
    adapter = ADAPTER_CONFIG in folder.files or bool(weights.adapters)
    if not weights and not adapter and not _begun(folder, look):
        return None
    peft = adapter and not weights.full
    found = Found(
        folder.path,
        "PEFT adapter" if peft else "Hugging Face model",
        model_files(folder),
        step=step_named(folder.name),
        framework="peft" if peft else "",
    )
    looks = look.check(found)
    found.step = says(looks, TRAINER_STATE, "global_step") or found.step
    check_model(found, folder, looks)
    if not weights.full and not adapter:
        found.flaw("partial", "missing: there are no weights", "model.safetensors")
    check_adapters(found, folder, look)
    return found


def _begun(folder: Folder, look: Looker) -> bool:
    """Whether save_pretrained stopped between the settings and the weights of a model.

    Caches and downloads of settings alone look similar, so it takes what training leaves.
    """
    files = folder.files
    if CONFIG not in files or not files.keys() & {TRAINING_ARGS, GENERATION} or folder.folders:
        return False
    if any(name.endswith(_OTHER_WEIGHTS) and name != TRAINING_ARGS for name in files):
        return False
    if "/snapshots/" in folder.path:
        return False
    data = look(files[CONFIG]).data
    return isinstance(data, dict) and isinstance(data.get("architectures"), list)


def without_weights(folder: Folder, look: Looker) -> Found | None:
    """The model of a folder that somebody says is one, and that has its settings only."""
    names = {CONFIG: "Hugging Face model", ADAPTER_CONFIG: "PEFT adapter"}
    layout = next((layout for name, layout in names.items() if name in folder.files), None)
    if layout is None:
        return None
    found = Found(folder.path, layout, model_files(folder), step=step_named(folder.name))
    check_model(found, folder, look.check(found))
    found.flaw("partial", "missing: there are no weights", "model.safetensors")
    return found


def says(looks: Mapping[str, Look], name: str, key: str) -> int | None:
    """An integer of a JSON file; None where it is not there."""
    look = looks.get(name)
    value: Any = look.data.get(key) if look and isinstance(look.data, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def check_model(
    found: Found, folder: Folder, looks: Mapping[str, Look], *, trained: bool = False
) -> None:
    """Add what is wrong with the model, or the adapter, in a folder, as far as there is one.

    `trained`: the Trainer saved it, which saves all of a tokenizer.
    """
    files = folder.files
    weights = weights_of(files)
    check_weights(found, folder, looks)
    if weights.adapters and ADAPTER_CONFIG not in files:
        found.flaw("partial", "missing: it is written after the adapter's weights", ADAPTER_CONFIG)
    if ADAPTER_CONFIG in files and not weights.adapters:
        found.flaw("partial", "missing: its adapter_config.json exists",
                   "adapter_model.safetensors")  # fmt: skip
    if CONFIG not in files and (GENERATION in files or (trained and weights.full)):
        # Weights of a model that is none of transformers are saved without settings.
        sure = GENERATION in files or weights.sharded
        found.flaw("partial" if sure else "unknown", NO_CONFIG, CONFIG)
    check_tokenizer(found, folder, looks, trained=trained)
    left_overs(found, folder, SIDE)


def check_tokenizer(
    found: Found, folder: Folder, looks: Mapping[str, Look], *, trained: bool = False
) -> None:
    """Settings of a tokenizer without its vocabulary, which is written after them."""
    files = folder.files
    if TOKENIZER_CONFIG not in files:
        if trained and TOKENIZER in files:
            found.flaw("partial", "missing: it is saved with tokenizer.json", TOKENIZER_CONFIG)
        return
    data = looks[TOKENIZER_CONFIG].data if TOKENIZER_CONFIG in looks else None
    if TOKENIZER in files or not isinstance(data, dict) or "auto_map" in data:
        return
    kind = data.get("tokenizer_class")
    if not isinstance(kind, str) or kind.startswith(_BYTE_LEVEL):
        return
    if not any(_VOCABULARY.search(name) for name in files):
        why = "missing: the tokenizer's settings exist, but no vocabulary"
        found.flaw("partial", why, TOKENIZER)


HF_MODEL = Layout("Hugging Face model", read)
