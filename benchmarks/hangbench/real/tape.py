"""The recorded tape: cases of the real track with their truths, in one small archive.

`about.json` says when and with which versions it was recorded, `cases.jsonl` has a case a line,
`cases/ID/…` the files that a tool sees.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.hangbench.case import Case, Files, case_of

TAPE = Path(__file__).with_name("recorded.tar.gz")
_MEMBER_BYTES = 16 << 20


def write_tape(path: Path, about: dict[str, Any], cases: Iterable[tuple[Case, Files]]) -> None:
    """Write an archive that is the same for the same cases: no times, no owners."""
    kept = sorted(cases, key=lambda one: one[0].id)
    lines = "".join(json.dumps(asdict(case)) + "\n" for case, _ in kept)
    members = {"about.json": json.dumps(about, indent=1).encode(), "cases.jsonl": lines.encode()}
    for case, files in kept:
        members |= {f"cases/{case.id}/{name}": files[name] for name in sorted(files)}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    path.write_bytes(gzip.compress(packed.getvalue(), 9, mtime=0))


def read_tape(path: Path = TAPE) -> Iterator[tuple[Case, Files]]:
    """The cases of a tape, by id. Raises OSError, tarfile.TarError, ValueError."""
    members = _members(path)
    files: dict[str, Files] = {}
    for name, content in members.items():
        if name.startswith("cases/"):
            _, id_, inner = name.split("/", 2)
            files.setdefault(id_, {})[inner] = content
    for line in members["cases.jsonl"].decode().splitlines():
        case = case_of(json.loads(line))
        yield case, files.get(case.id, {})


def about(path: Path = TAPE) -> dict[str, Any]:
    """When a tape was recorded, and with which versions."""
    found: dict[str, Any] = json.loads(_members(path)["about.json"])
    return found


def _members(path: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is None or member.size > _MEMBER_BYTES or member.name.startswith(("/", "..")):
                raise ValueError(f"{path}: {member.name} is not of a tape")
            found[member.name] = file.read()
    return found
