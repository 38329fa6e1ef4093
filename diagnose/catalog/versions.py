"""Versions of packages against the conditions of known issues."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne

from diagnose.lazy import expression

# "torch >=2.1,<2.3": a package and what its version must be, all of it.
_CLAUSE = r"(<=|>=|==|!=|<|>)\s*([\w.]+)"
_CONDITION = expression(rf"\s*([\w.-]+?)\s*({_CLAUSE}(?:\s*,\s*{_CLAUSE})*)\s*")
_COMPARE = {"<": lt, "<=": le, "==": eq, "!=": ne, ">=": ge, ">": gt}
_EARLY = expression(r"\d\.?-?(?:dev|alpha|beta|rc|a|b|c|pre)", re.IGNORECASE)
_POST = expression(r"\.?-?post\.?(\d+)", re.IGNORECASE)
_NUMBERS = 4

# How to read the version of what `pip show` does not know.
_ASK = {
    "aws-ofi-nccl": "NCCL_DEBUG=INFO <command> | grep 'Initializing aws-ofi-nccl'",
    "cuda": "nvcc --version",
    "driver": "nvidia-smi --query-gpu=driver_version --format=csv",
    "libfabric": "fi_info --version",
    "mpich": "mpichversion",
    "nccl": 'python -c "import torch; print(torch.cuda.nccl.version())"',
    "openmpi": "ompi_info --version",
    "python": "python --version",
    "rccl": 'python -c "import torch; print(torch.cuda.nccl.version())"',
    "rocm": "cat /opt/rocm/.info/version",
    "slurm": "sinfo --version",
    "ucx": "ucx_info -v",
}


@lru_cache(maxsize=1024)
def parsed(condition: str) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """The package and the clauses of a condition; None where it is not of that form."""
    match = _CONDITION.fullmatch(condition)
    return (match[1], tuple(re.findall(_CLAUSE, match[2]))) if match else None


def meets(versions: Mapping[str, str], condition: str) -> bool | None:
    """Whether one of these versions by package meets the condition; None if it is unknown.

    A pre-release of the version that a clause names may be from before or after the change.
    """
    found = parsed(condition)
    if found is None:
        return False
    package, clauses = found
    have = versions.get(package)
    return None if have is None else _all(have, clauses)


@lru_cache(
    maxsize=4096
)  # jobs of one site run a few versions, and all conditions are asked of each
def _all(have: str, clauses: tuple[tuple[str, str], ...]) -> bool | None:
    answers = [_clause(have, operator, wanted) for operator, wanted in clauses]
    return None if None in answers and False not in answers else all(answers)


def how_to_check(condition: str) -> str:
    """The command that prints the version a condition is about."""
    package = (parsed(condition) or ("", ()))[0]
    return _ASK.get(package, f"pip show {package}")


def _clause(have: str, operator: str, wanted: str) -> bool | None:
    left, right = _key(have), _key(wanted)
    if left == right and _EARLY.search(_public(have)) and not _EARLY.search(wanted):
        return None
    return bool(_COMPARE[operator](left, right))


def _public(version: str) -> str:
    """Without the build: 2.3.0 of 2.3.0+cu121."""
    return version.partition("+")[0]


def _key(version: str) -> tuple[int, ...]:
    """The numbers of a release and which post-release of it this is."""
    release = re.match(r"[vV]?(\d+(?:\.\d+)*)", _public(version))
    numbers = [int(number) for number in (release[1] if release else "0").split(".")]
    post = _POST.search(_public(version))
    numbers = [*numbers[:_NUMBERS], *[0] * (_NUMBERS - len(numbers))]
    return (*numbers, int(post[1]) if post else 0)
