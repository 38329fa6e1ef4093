"""Stacks, and tracebacks as CPython prints them: frames with their code, the exception itself.

Format: https://docs.python.org/3/library/traceback.html, `TracebackException.format`: a frame is
`  File "<file>", line <n>, in <function>`, its code below it four blanks in, since 3.11 followed by
a line of carets and tildes. The exception is `<qualified name>: <text>`, or the name alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Literal, NamedTuple

from diagnose.lazy import expression

TRACEBACK = "Traceback (most recent call last)"
MAX_FRAMES = 100
STACK_FRAMES = 512  # of a thread of a dump

_FRAME = expression(r'\s*(?:\| ?)*\s*File "([^"]{1,1000})", line (\d{1,9}),? in (\S.{0,300}?)\s*\Z')
_MARKS = expression(r"[\s|]*[~^]+[\s~^]*\Z")
_RAISED = expression(r"((?:[A-Za-z_]\w*\.){0,8}[A-Za-z_]\w*)(?::(?:\s+(.*))?)?\s*\Z", re.DOTALL)
_NESTED = expression(r"\s*(?:[+|] ?)+-*\s*")  # of exception groups

# Top folders of packages, for tools that print paths from there on (py-spy).
_LIBRARIES = frozenset(
    {"torch", "torchvision", "torchaudio", "torchdata", "transformers", "accelerate", "deepspeed",
     "datasets", "multiprocess", "numpy", "pandas", "pyarrow", "scipy", "sklearn", "PIL", "cv2",
     "lightning", "pytorch_lightning", "lightning_fabric", "megatron", "nemo", "trl", "peft",
     "axolotl", "swift", "llamafactory", "verl", "vllm", "sglang", "ray", "horovod", "mpi4py",
     "apex", "transformer_engine", "flash_attn", "triton", "xformers", "bitsandbytes",
     "huggingface_hub", "safetensors", "tokenizers", "sentencepiece", "requests", "urllib3",
     "httpx", "httpcore", "aiohttp", "botocore", "boto3", "fsspec", "s3fs", "gcsfs", "filelock",
     "wandb", "tensorboard", "mlflow", "webdataset", "streaming", "ffcv", "nvidia", "click",
     "typer", "fire", "hydra", "omegaconf", "tqdm", "psutil", "zmq", "grpc", "jax", "numba"}
)  # fmt: skip
_PACKAGED = expression(r".*(?:site-packages|dist-packages)/|.*/lib(?:64)?/python\d[.\d]*/")
_CHECKOUT = expression(
    r".*/(?=torch/(?:distributed|nn|utils|autograd|cuda|optim|_\w+|serialization\.py|_tensor\.py))"
)
_GENERATED = expression(r"<(?!ipython)|.*/torchinductor_|.*\.(?:pyx|pxd|pxi)\Z|\Z")


Kind = Literal[
    "py-spy", "faulthandler", "gdb", "eu-stack", "debug-server", "kernel", "traceback", "interrupt"
]


class Frame(NamedTuple):
    """One frame; `native` for C and C++.

    `file` is as the tool prints it: a path, py-spy's shortened path, for native frames the library
    or source file, "" where it does not tell.
    """

    func: str
    file: str
    line: int | None
    native: bool


class Stack(NamedTuple):
    """One thread of one process, innermost frame first.

    `line` is the 1-based line of its header in `source`. `thread` is the thread's name, else its
    id. `main`: the main thread of its process. `status` is the tool's word (`idle`, `active+gil`,
    faulthandler's `current`); `error 503` with no frames: the debug server got no answer from
    this rank. `dump` counts the processes in the source, from 0: threads with the same number
    were seen together. `parent` is the process that started this one, where told. A `traceback` is
    of an exception, an `interrupt` of one that somebody else ended the process with.
    """

    source: str
    line: int
    rank: int | None
    host: str | None
    pid: int | None
    thread: str
    main: bool
    status: str
    owns_gil: bool
    frames: tuple[Frame, ...]
    kind: Kind
    local_rank: int | None = None
    dump: int = 0
    parent: int | None = None


class PythonFrame(NamedTuple):
    """One frame; `code` is the line of the program there, "" where it is not printed."""

    file: str
    line: int
    function: str
    code: str = ""


class RaisedText(NamedTuple):
    """An exception as printed: its type as qualified as it is, and the first line of its text."""

    type: str
    message: str

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


def frames_in(lines: Iterable[str]) -> list[PythonFrame]:
    """The frames among lines without their prefixes, outermost first; the last ones of very many.

    Of tracebacks that follow each other ("During handling of the above exception …") the last.
    """
    frames: list[PythonFrame] = []
    for line in lines:
        found = _FRAME.match(line)
        if found is not None:
            frames.append(PythonFrame(found[1], int(found[2]), found[3]))
        elif TRACEBACK in line:
            frames = []
        elif frames and not frames[-1].code and line[:1].isspace() and not _MARKS.match(line):
            frames[-1] = frames[-1]._replace(code=line.strip())
    return frames[-MAX_FRAMES:]


def raised_in(message: str) -> RaisedText | None:
    """The exception that a line without its prefix tells; None where it tells none."""
    nested = _NESTED.match(message)
    first = message[nested.end() if nested else 0 :].strip("`* ").partition("\n")[0]
    first = first.removesuffix(f"{TRACEBACK}:")  # of the next one, where no line break was written
    found = _RAISED.match(first)
    return RaisedText(found[1], (found[2] or "").strip()) if found else None


def is_generated(file: str) -> bool:
    """Whether no file of a person: made by Python or a compiler, or unknown."""
    return _GENERATED.match(file) is not None


def library_path(file: str) -> str | None:
    """The path of an installed module from its package on; None for what may be the user's own."""
    if is_generated(file):
        return file
    file = file.replace("\\", "/")
    packaged = _PACKAGED.match(file) or _CHECKOUT.match(file)
    path = file[packaged.end() :] if packaged else file
    top = path.partition("/")[0].removesuffix(".py")
    known = top in _LIBRARIES or top in sys.stdlib_module_names
    return path if packaged or known else None


def package_of(file: str) -> str | None:
    """The top folder of the installed package that a file is of; None for others, Python's own."""
    path = library_path(file)
    if path is None or is_generated(file):
        return None
    top = path.replace("\\", "/").partition("/")[0].removesuffix(".py")
    return None if top in sys.stdlib_module_names else top
