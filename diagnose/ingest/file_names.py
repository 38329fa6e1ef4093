"""What the names of files say: which are no logs, which are archives; and how names are printed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from diagnose.lazy import expression

MAX_DEPTH = 32  # folders inside each other
# Suffixes of what lies beside logs in a job's folder: code, settings, documents, pictures, weights,
# data. A folder's other files are read, whatever their suffix: logs are called `job.o123`, `log.1`.
_NO_LOG_SUFFIXES = """
    .py .pyc .pyi .pyx .ipynb .sh .bash .c .cc .cpp .cu .cuh .h .hpp .so .js .css
    .yaml .yml .toml .ini .cfg .conf .env .jinja .j2 .lock .sbatch .slurm
    .md .rst .html .htm .pdf .tex .docx
    .png .jpg .jpeg .gif .svg .webp .mp4 .wav .flac .mp3
    .pt .pth .ckpt .bin .safetensors .gguf .onnx .distcp .npy .npz .h5 .model
    .csv .tsv .parquet .arrow .feather .db .sqlite .idx .tfrecord .lmdb
    .whl .patch .diff
"""
# JSON and text files of models and data sets, which every checkpoint folder repeats.
_NO_LOG_NAMES = """
    config.json generation_config.json tokenizer.json tokenizer_config.json vocab.json vocab.txt
    merges.txt special_tokens_map.json added_tokens.json preprocessor_config.json
    adapter_config.json trainer_state.json model.safetensors.index.json
    pytorch_model.bin.index.json dataset_info.json requirements.txt
"""
NO_LOGS = frozenset(f"{_NO_LOG_SUFFIXES} {_NO_LOG_NAMES}".split())
PACKED = (".gz", ".xz", ".bz2", ".zst")
ARCHIVE_NAME = expression(
    r"\.(?:(?:tar|cpio)(?:\.\w{1,4})?|tgz|taz|tbz2?|tb2|txz|tlz|tzst|zip|7z|rar)\Z", re.IGNORECASE
)

RESULTS = "diagnose.sqlite"  # what a folder of results of `diagnose scan` holds
_OLD_RESULTS = {"jobs.parquet", "diagnoses", "manifest.json"}
RESULTS_NOTE = "results of diagnose scan and no logs: diagnose fleet summarises them"


def is_results(names: Iterable[str]) -> bool:
    """Whether a folder with these names in it is one of results of `diagnose scan`."""
    found = {*names}
    return RESULTS in found or found >= _OLD_RESULTS


def is_no_log(name: str) -> bool:
    """Whether a file inside a folder or an archive is no log by its name."""
    name = name.lower()
    for packed in PACKED:
        name = name.removesuffix(packed)
    return bool({name, os.path.splitext(name)[1]} & NO_LOGS)  # noqa: PTH122


def printable(name: str) -> str:
    """A file name which can be printed: undecodable bytes and control characters replaced."""
    if name.isprintable():
        return name
    name = name.encode(errors="replace").decode()
    return "".join(character if character.isprintable() else "?" for character in name)
