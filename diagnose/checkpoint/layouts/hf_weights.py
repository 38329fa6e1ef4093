"""The weights of a model in one folder: whole files, numbered shards and the index of the shards.

Names as transformers' save_pretrained (modeling_utils.py), diffusers and huggingface_hub's
split_torch_state_dict_into_shards make them. Shards are written first, their index after them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from diagnose.checkpoint.layouts.numbered import MOST_NAMED, add_missing, gaps
from diagnose.checkpoint.look import Look
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.tree import Folder, Leaf

SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})((?:\.\w{1,32})?\.(?:safetensors|bin))")
INDEX = re.compile(r"(.+)(\.safetensors|\.bin)\.index(?:\.\w{1,32})?\.json")
SINGLE = re.compile(
    r"(?:(?:pytorch_model|diffusion_pytorch_model|open_clip_model|open_clip_pytorch_model)"
    r"(?:\.\w{1,32})?\.(?:safetensors|bin)|model(?:\.\w{1,32})?\.safetensors)"
)
ADAPTER = re.compile(r"adapter_model\.(?:safetensors|bin)")
_MOST_FAMILIES = 64  # kinds of shards in one folder that are judged
TEMPORARY = re.compile(r"(.+)\.(?:tmp|incomplete|partial|part)")


@dataclass(frozen=True, slots=True)
class Series:
    """What the shards of one save have in common: `model`, 4, `.safetensors`."""

    stem: str
    count: int
    end: str

    def name(self, number: int) -> str:
        """The file of one shard."""
        return f"{self.stem}-{number:05d}-of-{self.count:05d}{self.end}"

    @property
    def index(self) -> str:
        """The file that their index has, as transformers names it."""
        stem, _, variant = f"{self.stem}{self.end.rpartition('.')[0]}".partition(".")
        kind = self.end.rpartition(".")[2]
        return f"{stem}.{kind}.index.{variant + '.' if variant else ''}json"


@dataclass(slots=True)
class Weights:
    """The files of a folder that hold weights, by what their names say."""

    singles: list[str] = field(default_factory=list)
    series: dict[Series, set[int]] = field(default_factory=lambda: defaultdict(set))
    indexes: list[str] = field(default_factory=list)
    adapters: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.singles or self.series or self.indexes or self.adapters)

    @property
    def full(self) -> bool:
        """Whether there are, or were to be, weights of a model and not only of an adapter."""
        return bool(self.singles or self.series or self.indexes)

    @property
    def sharded(self) -> bool:
        """Whether the model was saved in shards."""
        return bool(self.series or self.indexes)


def weights_of(names: Iterable[str]) -> Weights:
    """Which of a folder's files hold weights."""
    weights = Weights()
    for name in names:
        if shard := SHARD.fullmatch(name):
            weights.series[Series(shard[1], int(shard[3]), shard[4])].add(int(shard[2]))
        elif INDEX.fullmatch(name):
            weights.indexes.append(name)
        elif SINGLE.fullmatch(name):
            weights.singles.append(name)
        elif ADAPTER.fullmatch(name):
            weights.adapters.append(name)
    return weights


def weight_files(folder: Folder) -> dict[str, Leaf]:
    """The files of weights, their indexes, and any other safetensors beside them."""
    return {
        name: leaf
        for name, leaf in folder.files.items()
        if name.endswith(".safetensors") or weights_of([name])
    }


def left_overs(found: Found, folder: Folder, known: Iterable[str]) -> None:
    """Files that were being written under a temporary name; `known` are the names they were for."""
    known = set(known)
    for name, leaf in folder.files.items():
        if (temporary := TEMPORARY.fullmatch(name)) and (
            temporary[1] in known or weights_of([temporary[1]])
        ):
            found.parts[name] = leaf
            found.flaw("partial", "a temporary file of an unfinished write", name)


def check_weights(
    found: Found, folder: Folder, looks: Mapping[str, Look], *, index: bool = True
) -> None:
    """Every shard is there, and holds what the index says. `index`: shards need one."""
    weights = weights_of(folder.files)
    named: set[str] = set()
    readable: set[str] = set()  # ends of file names whose index tells which shards belong to it
    for name in weights.indexes:
        if (shards := _mapped(found, name, looks)) is not None:
            named |= _check_index(found, folder, name, shards, looks, weights)
            readable.add(_kind(name))
    broken = {_kind(name) for name in weights.indexes} - readable
    families: dict[tuple[str, str], list[Series]] = defaultdict(list)
    for series in weights.series:
        families[series.stem, series.end].append(series)
    for family in islice(families.values(), _MOST_FAMILIES):
        loose = {one for one in family if not _named(one, weights.series[one], named)}
        for one in islice((one for one in family if one not in loose), _MOST_FAMILIES):
            names = map(one.name, sorted(weights.series[one]))
            for name in islice((name for name in names if name not in named), MOST_NAMED):
                found.flaw("corrupt", "the index lists no tensor in it", name)
        if not loose:
            continue
        first = min(loose, key=lambda one: (len(weights.series[one]), one.count))
        shard = first.name(min(weights.series[first]))
        if len(loose) < len(family):
            found.notes.append(
                f"no index names {shard} and similar shards: left over from another save"
            )
        elif len(loose) > 1:
            counts = " and ".join(str(one.count) for one in sorted(loose, key=_count)[:MOST_NAMED])
            found.flaw("corrupt", f"shards of different saves, of {counts} files, are mixed", shard)
        else:
            _check_series(found, first, weights.series[first])
            if index and not broken & {"." + first.end.rpartition(".")[2]}:
                why = "missing: it is written when all shards exist"
                found.flaw("partial", why, first.index)
    _check_rival_single(found, weights, looks)


def _named(series: Series, numbers: set[int], named: set[str]) -> bool:
    return any(series.name(number) in named for number in numbers)


def _count(series: Series) -> int:
    return series.count


def _kind(index: str) -> str:
    return ".safetensors" if ".safetensors.index" in index else ".bin"


def _mapped(found: Found, name: str, looks: Mapping[str, Look]) -> dict[str, list[str]] | None:
    """The tensors by file that an index names; None where it is not readable."""
    look = looks.get(name)
    if look is None or look.flaw is not None or look.data is None:
        return None
    mapping = look.data.get("weight_map") if isinstance(look.data, dict) else None
    if not isinstance(mapping, dict) or not mapping:
        found.flaw(
            "corrupt", "has no weight_map: it does not say which file contains a tensor", name
        )
        return None
    shards: dict[str, list[str]] = defaultdict(list)
    for tensor, file in mapping.items():
        if not isinstance(file, str) or not file:
            found.flaw("corrupt", "its weight_map names something that is not a file", name)
            return None
        shards[file].append(tensor)
    return shards


def _check_index(
    found: Found,
    folder: Folder,
    name: str,
    shards: Mapping[str, list[str]],
    looks: Mapping[str, Look],
    weights: Weights,
) -> set[str]:
    """Flaws of the files an index names; gives their names."""
    there = [file for file in shards if file in folder.files]
    others = any(not single.endswith(_kind(name)) for single in weights.singles) or any(
        not series.end.endswith(_kind(name)) for series in weights.series
    )
    if not there and others:
        found.notes.append(f"none of the files that {name} names exist: the model is complete "
                           "without them if the same weights exist in another format")  # fmt: skip
        return set()
    series = {Series(m[1], int(m[3]), m[4]) for file in shards if (m := SHARD.fullmatch(file))}
    for one in islice(series, _MOST_FAMILIES):
        _check_series(found, one, weights.series.get(one, set()))
    plain = sorted(file for file in shards if not SHARD.fullmatch(file) and file not in there)
    add_missing(found, "missing: the index names it", map(_short, plain), len(plain))
    total, complete = 0, len(there) == len(shards)
    for file in there:
        held = looks[file].tensors if file in looks and looks[file].flaw is None else None
        if held is None:
            complete = False
            continue
        total += sum(held.values())
        if lost := [tensor for tensor in shards[file] if tensor not in held]:
            why = f"lacks {len(lost)} of {len(shards[file])} tensors that the index places in it"
            found.flaw("corrupt", f"{why}, such as {_short(lost[0])}", file)
    claimed = _claimed_size(looks[name])
    if complete and claimed is not None and claimed != total:
        # Tied and quantized weights are counted in different ways: this proves nothing.
        found.notes.append(f"the tensors take {total:,} bytes, and {name} says {claimed:,}")
    return set(shards)


def _claimed_size(look: Look) -> int | None:
    metadata = look.data.get("metadata") if isinstance(look.data, dict) else None
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    return int(size) if isinstance(size, int | float) and abs(size) < 1 << 60 else None


def _check_series(found: Found, series: Series, have: set[int]) -> None:
    some, total = gaps(have - {0}, series.count + 1)
    names = (series.name(number) for number in islice(some, 1, None))  # they count from 1
    why = f"missing: {series.count + 1 - total} of {series.count} shards exist"
    add_missing(found, why, names, total - 1)


def _check_rival_single(found: Found, weights: Weights, looks: Mapping[str, Look]) -> None:
    """One file with the weights beside shards: loaders take the file, whatever is newer."""
    for single in weights.singles[:_MOST_FAMILIES]:
        stem, _, end = single.rpartition(".")
        rivals = [one for one in weights.series if (one.stem, one.end) == (stem, f".{end}")]
        if len(rivals) != 1 or single not in looks:
            continue
        mine = looks[single].tensors
        shards = [looks.get(rivals[0].name(number)) for number in weights.series[rivals[0]]]
        theirs = {
            name: size for look in shards if look for name, size in (look.tensors or {}).items()
        }
        if mine is None or not theirs or len(shards) != rivals[0].count:
            continue
        if dict(mine) == theirs:
            found.notes.append(f"{single} has the same tensors as the shards beside it")
        else:
            why = "has other tensors than the shards beside it, and loaders prefer it"
            found.flaw("corrupt", why, single)


def _short(text: str) -> str:
    return text if len(text) <= 120 else text[:119] + "…"
