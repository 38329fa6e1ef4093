"""What names say: of files which are no logs or archives; and what somebody named who asks."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from diagnose.errors import InputError
from diagnose.ingest.raw import reason
from diagnose.lazy import expression
from diagnose.text.ranks import plural

_SPECIAL = [
    (stat.S_ISLNK, "symbolic link: not followed"),
    (stat.S_ISFIFO, "named pipe: not read"),
    (stat.S_ISSOCK, "socket: not read"),
    (stat.S_ISCHR, "device: not read"),
    (stat.S_ISBLK, "device: not read"),
]
MAX_DEPTH = 32  # folders inside each other
MAX_ENTRIES = 200_000  # of one folder
_URL = expression(r"[A-Za-z][A-Za-z0-9+.\-]*(?:::[A-Za-z][A-Za-z0-9+.\-]*)*://")
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
_OF_GPUS = expression(r"gpu|smi|dcgm|clock")  # tables with the clocks of GPUs beside logs
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
    stem, suffix = os.path.splitext(name)  # noqa: PTH122
    if suffix == ".csv" and _OF_GPUS.search(stem):
        return False
    return bool({name, suffix} & NO_LOGS)


def why_special(mode: int) -> str:
    """Why a file of this mode is not read, if it is none of bytes."""
    return next((why for is_special, why in _SPECIAL if is_special(mode)), "")


def left_out(no_logs: Sequence[str], hidden: Sequence[str]) -> Iterator[str]:
    """What is not read on purpose, a line for each kind: `5 hidden entries left out: .a, .b, …`."""
    for names, one, several in (
        (no_logs, "file that is not a log", "files that are not logs"),
        (hidden, "hidden entry", "hidden entries"),
    ):
        if names:
            what = plural(len(names), one, several)
            yield f"{len(names)} {what} left out: {some_of(names)}"


def some_of(names: Sequence[str]) -> str:
    """The first names of a list."""
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def printable(name: str) -> str:
    """A file name which can be printed: undecodable bytes and control characters replaced."""
    if name.isprintable():
        return name
    name = name.encode(errors="replace").decode()
    return "".join(character if character.isprintable() else "?" for character in name)


def is_url(path: str) -> bool:
    """Whether a path is for fsspec."""
    return _URL.match(path) is not None


_MAX_NAMES = 2000  # of a folder, among which a typo is looked for
_ALIKE = 0.75  # a.log is not like gone.log


def expanded(texts: Iterable[str]) -> list[str]:
    """Paths and URLs; a pattern that the shell left as it is stands for what it matches.

    Raises InputError for an empty path, which as a path would be the current folder.
    """
    found: list[str] = []
    for text in texts:
        if not text:  # an unset variable of a script
            raise InputError("one of the paths is empty")
        if is_url(text) or os.path.lexists(text) or not glob.has_magic(text):
            found.append(text)
        else:
            found += sorted(glob.glob(text, recursive=True)) or [text]  # noqa: PTH207
    return found


def local(texts: Iterable[str]) -> list[Path]:
    """The same as paths of this machine. Raises InputError for a URL, too."""
    found = expanded(texts)
    for text in filter(is_url, found):
        raise InputError(
            f"{text}: URLs are not read here; fetch it first, or give it to diagnose scan"
        )
    return [Path(text) for text in found]


def why_unreadable(given: str | Path, error: OSError) -> str:
    """What an error says of a path that somebody named, and of one that is not there what is."""
    text = str(given)
    if not isinstance(error, FileNotFoundError) or is_url(text):
        return reason(error)
    if glob.has_magic(text):
        return "nothing matches this pattern"
    near = _nearest(Path(text))
    return reason(error) + (f"; did you mean {near}?" if near else "")


def _nearest(path: Path) -> Path | None:
    """The path with its first wrong part as it is spelt on the disk, if the rest is there then."""
    parents = [parent for parent in path.parents if parent.is_dir()]
    if not parents:
        return None
    wrong, *rest = path.relative_to(parents[0]).parts
    try:
        names = sorted(os.listdir(parents[0]))[:_MAX_NAMES]  # noqa: PTH208
    except OSError:
        return None
    from difflib import get_close_matches  # noqa: PLC0415  seldom needed

    for name in get_close_matches(wrong, names, n=3, cutoff=_ALIKE):
        there = parents[0] / name
        if not rest or (there.is_dir() and os.path.lexists(there.joinpath(*rest))):
            return there.joinpath(*rest)
    return None
