"""The weights of a model in one folder: whole files, numbered shards and the index of the shards.

Names as transformers' save_pretrained (modeling_utils.py), diffusers and huggingface_hub's
split_torch_state_dict_into_shards make them. Shards are written first, their index after them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from typing import Any

from diagnose.checkpoint.layouts.checks import MOST_NAMED, add_missing, holes
from diagnose.checkpoint.layouts.rows import View, pattern
from diagnose.checkpoint.look import Look
from diagnose.checkpoint.model import Found
from diagnose.lazy import dataclass

_MOST_FAMILIES = 64  # kinds of shards in one folder that are judged
_BYTE_LEVEL = ("ByT5", "Canine", "Perceiver")  # tokenizers without any vocabulary


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


def names_architecture(view: View) -> bool:
    """Whether the settings are those of a model of transformers."""
    data = view.look(view.folder.files["config.json"]).data
    return isinstance(data, dict) and isinstance(data.get("architectures"), list)


def needs_vocabulary(view: View) -> bool:
    """Whether the settings of the tokenizer are those of one with a vocabulary."""
    look = view.looks.get(view.prefix + "tokenizer_config.json")
    data: Any = look.data if look else None
    if not isinstance(data, dict) or "auto_map" in data:
        return False
    kind = data.get("tokenizer_class")
    return isinstance(kind, str) and not kind.startswith(_BYTE_LEVEL)


def check(view: View) -> None:
    """Every shard is there, and holds what the index says; `indexed` shards need one."""
    found, looks, index = view.found, view.looks, view.holds("indexed")
    weights = _Weights(
        [match.string for match in view.matches("single")],
        defaultdict(set),
        {match.string: match["end"] for match in view.matches("index")},
        pattern(view.row["facts"]["shard"]),
    )
    for match in view.matches("shard"):
        weights.series[series_of(match)].add(int(match["number"]))
    named: set[str] = set()
    readable: set[str] = set()  # ends of file names whose index tells which shards belong to it
    for name, end in weights.indexes.items():
        if (shards := _mapped(found, name, looks)) is not None:
            named |= _check_index(view, name, shards, weights)
            readable.add(end)
    broken = set(weights.indexes.values()) - readable
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


@dataclass(frozen=True, slots=True)
class _Weights:
    """The files that hold weights: whole ones, shards, indexes with the end of what they name."""

    singles: list[str]
    series: dict[Series, set[int]]
    indexes: dict[str, str]
    shard: re.Pattern[str]


def series_of(match: re.Match[str]) -> Series:
    """The series that a shard is of."""
    return Series(match["stem"], int(match["count"]), match["end"])


def _named(series: Series, numbers: set[int], named: set[str]) -> bool:
    return any(series.name(number) in named for number in numbers)


def _count(series: Series) -> int:
    return series.count


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
    view: View, name: str, shards: Mapping[str, list[str]], weights: _Weights
) -> set[str]:
    """Flaws of the files an index names; gives their names."""
    found, looks, end = view.found, view.looks, weights.indexes[name]
    there = [file for file in shards if file in view.folder.files]
    others = any(not single.endswith(end) for single in weights.singles) or any(
        not series.end.endswith(end) for series in weights.series
    )
    if not there and others:
        found.notes.append(f"none of the files that {name} names exist: the model is complete "
                           "without them if the same weights exist in another format")  # fmt: skip
        return set()
    matches = {file: weights.shard.fullmatch(file) for file in shards}
    series = {series_of(match) for match in matches.values() if match}
    for one in islice(series, _MOST_FAMILIES):
        _check_series(found, one, weights.series.get(one, set()))
    plain = sorted(file for file, match in matches.items() if not match and file not in there)
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
    some, total = holes({(one,) for one in have}, [series.count + 1], 1)  # they count from 1
    why = f"missing: {series.count - total} of {series.count} shards exist"
    add_missing(found, why, (series.name(one) for (one,) in some), total)


def _check_rival_single(found: Found, weights: _Weights, looks: Mapping[str, Look]) -> None:
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
