"""torch.distributed.checkpoint (DCP): data files of all ranks, and `.metadata` that commits them.

Every rank writes `__<rank>_<n>.distcp`, item behind item, each as torch.save does; when all are
done the coordinator writes `.metadata.tmp` and renames it (torch/distributed/checkpoint/
filesystem.py). Without coordination each rank commits its own files by `__<rank>.metadata`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from itertools import islice

from diagnose.checkpoint.contents import span
from diagnose.checkpoint.dcp_metadata import (
    DataFile,
    Metadata,
    check_items,
    names_in,
    read_metadata,
)
from diagnose.checkpoint.layouts.checks import (
    MOST_NAMED,
    SLOW_WRITE,
    add_missing,
    gaps,
    out_of_time,
)
from diagnose.checkpoint.layouts.rows import View
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import FlawKind, Found
from diagnose.checkpoint.tree import Leaf
from diagnose.ingest.raw import Reader, reason
from diagnose.parse.pickles import TruncatedPickleError, UnsafePickleError
from diagnose.text.ranks import counted, plural

METADATA = ".metadata"
TEMPORARY = ".metadata.tmp"

DATA = re.compile(r"__(\d{1,7})_(\d{1,7})\.distcp")
_RANK_METADATA = re.compile(r"__(\d{1,7})\.metadata")
_RANK_TEMPORARY = re.compile(r"__\d{1,7}\.metadata\.tmp")
_STEP = re.compile(
    r"(?:^|[^a-z])(?:global[-_]?step|train[-_]?step|step|iteration|iter|checkpoint|ckpt)[-_=]?"
    r"(\d{1,15})(?!\d)",
    re.IGNORECASE,
)
_OF_DCP = b"torch.distributed.checkpoint"

_ALIKE = "{} with the same problem"
_SLACK = 60.0  # seconds that a data file may be younger than `.metadata`, besides its writing
_SLOW_ALL = 200e6  # bytes a second of a slow copy of all files together


def step_of(name: str) -> int | None:
    """The step that the name of a checkpoint's folder tells."""
    if name.isdecimal() and len(name) <= 15:
        return int(name)
    numbers = _STEP.findall(name)
    return int(numbers[-1]) if numbers else None


def has_step(view: View) -> bool:
    """Whether the name of a folder tells a step."""
    return step_of(view.folder.name) is not None


def is_dcp(view: View) -> bool:
    """Whether a folder holds a checkpoint of DCP, or what is left of one."""
    folder = view.folder
    if any(DATA.fullmatch(name) for name in folder.files):
        return True
    metadata = [name for name in folder.files if _commits(name)]
    if not metadata:
        return False
    return step_of(folder.name) is not None or any(
        _OF_DCP in _start(folder.files[name]) for name in metadata[:4]
    )


def check(view: View) -> None:
    """Add what `.metadata` and the data files tell, and how many ranks there were."""
    found = view.found
    parts = found.parts
    data = {path: leaf for path, leaf in parts.items() if DATA.fullmatch(path)}
    alone = sorted(path for path in parts if _RANK_METADATA.fullmatch(path))
    for path in parts:
        if path == TEMPORARY or _RANK_TEMPORARY.fullmatch(path):
            why = "a temporary file of a save that was killed before committing its files"
            found.flaw("partial", why, path)
    metadata_files: dict[str, Metadata] = {}
    if METADATA in parts or not alone:
        if METADATA in parts:
            metadata_files = _metadata_of(found, METADATA)
        else:
            _never_finished(found, data)
    else:
        for path in alone:
            metadata_files |= _metadata_of(found, path)
        _each_rank(found, data, alone)
    named = {name: path for path, metadata in metadata_files.items() for name in metadata.files}
    found.ranks = _ranks(named if METADATA in metadata_files else [*data, *named]) or _ranks(data)
    if metadata_files:
        _overwritten(found, data, {path: parts[path] for path in metadata_files})
        _stale(found, {path: leaf for path, leaf in data.items() if path in named})
    for metadata in metadata_files.values():
        _check_sizes(found, metadata)
    _check_items(found, metadata_files, view.look)
    surplus = [p for p, leaf in data.items() if named and p not in named and leaf.size > 0]
    if surplus and not any(flaw.file in surplus for flaw in found.flaws):
        verb = plural(len(surplus), "is", "are")
        found.notes.append(
            f"{counted(len(surplus), 'data file')} {verb} not in the metadata ({surplus[0]}): "
            "left from another save"
        )


def _commits(name: str) -> bool:
    """Whether a file commits data files, or was to."""
    name = name.removesuffix(".tmp")
    return name == METADATA or _RANK_METADATA.fullmatch(name) is not None


def _start(leaf: Leaf) -> bytes:
    try:
        with leaf.open() as reader:
            return reader.read_at(0, 512)
    except OSError:
        return b""


def _ranks(names: Iterable[str]) -> int | None:
    ranks = [int(match[1]) for name in names if (match := DATA.fullmatch(name))]
    return max(ranks) + 1 if ranks else None


def _never_finished(found: Found, data: Mapping[str, Leaf]) -> None:
    found.flaw("partial", "missing: it is written last, so this save never finished", METADATA)
    ranks = {int(match[1]) for name in data if (match := DATA.fullmatch(name))}
    missing, count = gaps(ranks, max(ranks, default=-1) + 1)
    if count:
        shown = ", ".join(str(rank) for rank in islice(missing, MOST_NAMED))
        more = f" and {count - MOST_NAMED:,} more" if count > MOST_NAMED else ""
        found.notes.append(f"no data file of {plural(count, 'rank', 'ranks')} {shown}{more}")


def _each_rank(found: Found, data: Mapping[str, Leaf], alone: list[str]) -> None:
    """Without coordination: every rank that wrote data has to commit it."""
    committed = {int(match[1]) for name in alone if (match := _RANK_METADATA.fullmatch(name))}
    wrote = {int(match[1]) for name in data if (match := DATA.fullmatch(name))}
    missing, count = gaps(committed, max(committed | wrote) + 1)
    names = (f"__{rank}.metadata" for rank in missing)
    add_missing(found, "missing: this rank never finished its part of the save", names, count)


def _metadata_of(found: Found, path: str) -> dict[str, Metadata]:
    """What a metadata file says, by its path; nothing where it cannot be read."""
    leaf = found.parts[path]
    if leaf.size <= 0:
        found.flaw("partial", "is empty" if leaf.size == 0 else "is a dangling link", path)
        return {}
    try:
        with leaf.open() as reader:
            metadata = _read(found, path, reader)
    except OSError as error:
        found.flaw("unknown", f"not read: {reason(error)}", path)
        return {}
    except TruncatedPickleError:
        found.flaw("partial", "ends too early: it is truncated", path)
        return {}
    except ValueError as error:
        found.flaw("corrupt", f"is malformed: {error}", path)
        return {}
    pieces = metadata.chunks + metadata.blobs
    if metadata.ranged and metadata.items < pieces:
        why = f"locates only {metadata.items:,} of {pieces:,} pieces"
        found.flaw("corrupt", why, path)
    for name in metadata.foreign:
        if name.partition(".")[0] in sys.stdlib_module_names:
            why = f"names {name}, which torch never does: loading the checkpoint may run code"
            found.flaw("corrupt", why, path)
        else:
            found.notes.append(f"{path} names {name}, which torch itself does not")
    if not metadata.genuine:
        found.flaw("corrupt", "does not contain checkpoint metadata", path)
    elif not metadata.files and any(
        DATA.fullmatch(name) and leaf.size > 0 for name, leaf in found.parts.items()
    ):
        found.flaw("corrupt", "names no data file, but there are some", path)
    _check_origin(found, path, metadata.saved_as)
    return {path: metadata}


def _read(found: Found, path: str, reader: Reader) -> Metadata:
    try:
        metadata = read_metadata(reader)
    except UnsafePickleError as error:
        found.notes.append(f"{path}: only the file names were read: {error}")
        return names_in(reader)
    if metadata.chunks and not metadata.items:
        found.notes.append(f"{path}: only the file names were read: its items have an unknown type")
        return names_in(reader)
    return metadata


def _check_origin(found: Found, path: str, saved_as: str) -> None:
    """Newer torch keeps the folder that was saved to: it may be that of another step."""
    theirs = [part for part in re.split(r"[/\\]", saved_as) if part][-2:]
    ours = found.path.rstrip("/").split("/")[-2:]
    if len(theirs) == len(ours) == 2 and theirs[1] == ours[1] and step_of(ours[1]) is None:
        theirs, ours = theirs[:1], ours[:1]
    if not theirs or not ours:
        return
    then, now = step_of(theirs[-1]), step_of(ours[-1])
    if then is None or now is None or then == now:
        return
    why = f"was written for step {then}, not {now}"
    if now == 0:  # what training shall begin with is renamed to that
        found.notes.append(f"{path} {why}")
    else:
        found.flaw("corrupt", f"{why}: left from another save, or the folder was renamed", path)


def _check_sizes(found: Found, metadata: Metadata) -> None:
    """Every file that is named has to be there, as long as its items need."""
    missing, short = [], 0
    for name, rows in metadata.files.items():
        leaf = found.parts.get(name)
        if leaf is None:
            missing.append(name if name.isprintable() and len(name) < 256 else ascii(name)[:256])
            continue
        end = int(rows.sum(axis=1).max()) if len(rows) else 1
        if leaf.size < 0:
            found.flaw("partial", "is a dangling link", name)
        elif leaf.size < end:
            short += 1
            if short <= MOST_NAMED:
                why = f"has {leaf.size:,} of {end:,} bytes" if metadata.ranged else "is empty"
                found.flaw("partial", why, name)
        elif leaf.size > end and metadata.ranged and name.endswith(".distcp"):
            found.notes.append(f"{name}: {leaf.size - end:,} bytes more than the metadata says")
    if short > MOST_NAMED:
        found.flaw("partial", f"{short - MOST_NAMED:,} more data files are too short")
    add_missing(found, "missing: the metadata names it", missing, len(missing))


def _check_items(found: Found, metadata_files: Mapping[str, Metadata], look: Looker) -> None:
    """Whether the items of files that are long enough are where the metadata has them."""
    damaged = {flaw.file for flaw in found.flaws}
    files = [
        DataFile(name, found.parts[name], rows, metadata.transformed)
        for metadata in metadata_files.values()
        for name, rows in metadata.files.items()
        if len(rows) and name in found.parts and name not in damaged
    ]
    flaws = list(check_items(files, verify=look.verify))
    found.flaws += flaws[:MOST_NAMED]
    if len(flaws) > MOST_NAMED:
        found.flaw("corrupt", f"{len(flaws) - MOST_NAMED:,} more data files have the same problem")


def _overwritten(found: Found, data: Mapping[str, Leaf], commits: Mapping[str, Leaf]) -> None:
    """Data files changed after they were committed.

    Copying changes times too, but then each file comes right behind another one.
    """
    commit = max(leaf.mtime for leaf in commits.values())
    timed = _timed(data)
    after = [(time, path) for time, path in timed if time > commit > 0]
    if not after:
        return
    apart, first = after[0][0] - commit, data[after[0][1]]
    copying = first.size / SLOW_WRITE + sum(leaf.size for leaf in data.values()) / _SLOW_ALL
    if apart <= _SLACK + copying:
        return
    if len(after) == len(timed):
        why = f"is {span(apart)} older than all data files: the save that wrote them did not finish"
        older = [path for path, leaf in commits.items() if leaf.mtime < after[0][0]]
        add_missing(found, why, older, len(older), _ALIKE, FlawKind.OLDER)
    else:
        why = f"changed {span(apart)} after the metadata: by a later save that did not finish"
        later = (path for _, path in after)
        add_missing(found, why, later, len(after), _ALIKE, FlawKind.TIME)


def _stale(found: Found, data: Mapping[str, Leaf]) -> None:
    """Few data files written long before the others: ranks write at the same time."""
    apart_by = out_of_time({path: data[path] for _, path in _timed(data)})
    early = [path for path, apart in apart_by.items() if apart < 0]
    if early:
        apart = span(-apart_by[early[0]])
        why = f"was written {apart} before all others: left over from an earlier save"
        add_missing(found, why, early, len(early), _ALIKE, FlawKind.OLDER)


def _timed(data: Mapping[str, Leaf]) -> list[tuple[float, str]]:
    """Files that hold something by the time they were changed."""
    return sorted((leaf.mtime, path) for path, leaf in data.items() if leaf.size > 0 < leaf.mtime)
