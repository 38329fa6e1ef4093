"""What rows cannot say: of weights, the Trainer, accelerate, torchtune, verl and NeMo.

The weights of a model in one folder: whole files, numbered shards and the index of the shards.

Names as transformers' save_pretrained (modeling_utils.py), diffusers and huggingface_hub's
split_torch_state_dict_into_shards make them. Shards are written first, their index after them.

A checkpoint may be one file: of Lightning (`.ckpt`), torch, safetensors or NeMo (`.nemo`). Files
lie in any folder, so only those are taken that surely hold weights or states: their content is one
of torch's (or lost), and the name or the content says what of.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from diagnose.checkpoint.layouts.checks import (
    MOST_NAMED,
    add_missing,
    check_ranks,
    holes,
    numbers,
    pickled,
)
from diagnose.checkpoint.layouts.deepspeed import check_pieces
from diagnose.checkpoint.layouts.rows import View, layouts, pattern
from diagnose.checkpoint.look import Look, Looker
from diagnose.checkpoint.model import Flaw, Found
from diagnose.checkpoint.tree import Folder, Leaf
from diagnose.ingest.raw import reason

_RNG = "rng_state.pth"
_RNG_OF = "rng_state_{}.pth"
_SHARD_RANK = re.compile(r".*/(?:\w*zero_pp_rank_|__)(\d{1,7})_.*")  # DeepSpeed, DCP
_TRAINER = re.compile(r"(tmp-)?checkpoint-(\d{1,15})")
_UNSURE_CONFIG = Flaw("unknown", "missing: from_pretrained needs it", "config.json")
# A key of a pickled dict, put into the memo or not, and the integer behind it.
_PROCESSES = re.compile(
    rb"(?:X\x0d\0\0\0|\x8c\x0d)num_processes(?:q.|r....|\x94)?(?:K(.)|M(..)|J(....))", re.DOTALL
)
_COPY = re.compile(r"(?:\.nemo|\.ckpt)?(?:-EMA)?$")
_NEMO_STEP = re.compile(r"(?:^|[^a-z])step=(\d{1,15})(?!\d)")


def check_random_states(view: View) -> None:
    """Those of every rank of the Trainer; a single process calls its file otherwise."""
    found = view.found
    have = {int(match["rank"]) for match in view.matches("rng_ranks")}
    world = max(
        view.numbers.get("inner", 0), _processes(view.folder.files.get("training_args.bin"))
    )
    if have:
        world = max(world, 2, 1 + max(have))
        check_ranks(found, have, world, _RNG_OF.format)
        found.ranks = view.numbers["ranks"] = world
        check_pieces(view)
        if 1 < len(have) < world and world % len(have) == 0:
            found.notes.append("hosts that save to a local disk keep their own ranks' files")
    elif view.holds("rng"):
        found.ranks = max(world, 1)
    elif world > 1:
        check_ranks(found, set(), world, _RNG_OF.format)
        found.ranks = world
    else:
        found.flaw("partial", "missing: no rank has written its random state", _RNG)


def _processes(leaf: Leaf | None) -> int:
    """The world size in a file of torch.save that has a state of accelerate pickled in it, or 0."""
    match = _PROCESSES.search(pickled(leaf))
    return int.from_bytes(match[1] or match[2] or match[3], "little") if match else 0


def restarted(before: Found, found: Found) -> bool:
    """Whether a Trainer's checkpoint shows that its job runs on fewer ranks on purpose."""
    sharded = max(numbers(found.parts, _SHARD_RANK), default=-1) + 1
    if found.ranks in (_processes(found.parts.get("training_args.bin")) or None, sharded):
        return True
    steps = {_state(one).get("max_steps") for one in (before, found)}
    return len(steps - {None}) > 1  # counted from epochs, these depend on how many ranks share one


def restarted_sharded(before: Found, found: Found) -> bool:
    """The same of accelerate's."""
    return max(numbers(found.parts, _SHARD_RANK), default=-1) + 1 == found.ranks


def name_random_states(run: Folder, found: list[Found]) -> None:
    """Name the random states that are missing as the others of the run are named."""
    worlds = {one.ranks for one in found if one.ranks}
    for one in found:
        if one.ranks is None and len(worlds) == 1 and (world := max(worlds)) > 1:
            none = [flaw for flaw in one.flaws if flaw.file == _RNG]
            one.flaws = [flaw for flaw in one.flaws if flaw not in none]
            if none:
                check_ranks(one, set(), world, _RNG_OF.format)


def compare_settings(run: Folder, found: list[Found]) -> None:
    """Settings that no checkpoint of the Trainer has, and the best one being gone."""
    if len(found) > 1 and all(_UNSURE_CONFIG in one.flaws for one in found):
        for one in found:
            one.flaws.remove(_UNSURE_CONFIG)
            one.notes.append("no config.json: this is not a transformers model")
    best = _state(found[-1]).get("best_model_checkpoint")
    name = best.rstrip("/").rpartition("/")[2] if isinstance(best, str) else ""
    if name and _TRAINER.fullmatch(name) and name not in run.folders:
        found[-1].notes.append(f"the best checkpoint was {name}, which is gone")


def _state(found: Found) -> dict[str, Any]:
    leaf = found.parts.get("trainer_state.json")
    try:
        data = json.loads(leaf.text()) if leaf and leaf.size >= 0 else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def check_pickles(view: View) -> None:
    """What accelerate calls `.pkl` was written by torch.save, too."""
    for name, look in view.looks.items():
        leaf = view.found.parts[name]
        if not name.endswith(".pkl") or look.flaw is not None:
            continue
        try:
            with leaf.open() as reader:
                genuine = reader.read_at(0, 4).startswith((b"PK\3\4", b"\x80"))
        except OSError:
            continue  # told of already
        if not genuine:
            short = leaf.size < 4
            why = "is truncated within its first bytes" if short else "is not a torch.save file"
            view.flaw("partial" if short else "corrupt", why, name)


def has_epochs(view: View) -> bool:
    """Whether a folder has the files of several epochs."""
    return len({match["step"] for match in view.matches("old")}) > 1


def last_step(view: View) -> None:
    """The step is the last one that files name."""
    view.found.step = max(int(match["step"]) for match in view.matches("old"))


def compare_recipe(run: Folder, found: list[Found]) -> None:
    """The recipe's state of torchtune, which belongs to the last epoch but the final one."""
    numbered = [one for one in found if re.fullmatch(r"(?:epoch|step)_\d{1,9}", one.name)]
    if not numbered:
        return
    last, path = numbered[-1], "../recipe_state/recipe_state.pt"
    inside = run.folders.get("recipe_state")
    recipe = inside.files.get("recipe_state.pt") if inside else None
    if recipe is None:
        if inside is not None:
            last.flaw("partial", "missing: without it training restarts from scratch", path)
        elif len(numbered) > 1:
            last.notes.append(
                "no recipe_state.pt beside it: the optimizer would start from scratch"
            )
        return
    if flaw := Looker()(recipe).flaw:
        last.flaw(flaw.state, flaw.why, path)
    written = max((leaf.mtime for leaf in last.parts.values()), default=0.0)
    if 0 < recipe.mtime < written and len(numbered) > 1:
        last.notes.append(
            "recipe_state.pt is from an earlier epoch, as is normal after the final one"
        )


def check_manifest(view: View) -> None:
    """What verl's table of contents lists is there."""
    look = view.looks.get(f"{view.prefix}ckpt_contents.json")
    contents = look.data.get("contents") if look and isinstance(look.data, dict) else None
    for entry in list(contents.values())[:64] if isinstance(contents, dict) else ():
        place = entry.get("path") if isinstance(entry, dict) else None
        if isinstance(place, str) and not _there(view.folder, place):
            view.flaw("partial", "missing: ckpt_contents.json lists it", place[:200])


def _there(folder: Folder, path: str) -> bool:
    *above, last = path.strip("/").split("/")
    for name in above[:8]:
        if name not in folder.folders:
            return False
        folder = folder.folders[name]
    return last in folder.folders or last in folder.files


def compare_unfinished(run: Folder, found: list[Found]) -> None:
    """The markers of NeMo's checkpoints that were begun."""
    for one in found:
        for name in dict.fromkeys((one.name, _COPY.sub("", one.name))):
            if f"{name}-unfinished" in run.files:
                why = "exists: the save did not finish, and NeMo removes it at its next start"
                one.flaw("partial", why, f"../{name}-unfinished")
                break


def check_nemo_ranks(view: View) -> None:
    """NeMo 1 without distributed checkpoints: all checkpoints of a run share the rank folders."""
    found = view.found
    ranks = {
        match.string: tuple(int(number) for number in match.groups() if number is not None)
        for match in view.matches("nemo_ranks")
    }
    every = {
        name: {file for file in view.folder.folders[name].files if file.endswith(".ckpt")}
        for name in ranks
    }
    names = sorted(set().union(*every.values()))
    steps = [int(match[1]) for name in names if (match := _NEMO_STEP.search(name))]
    found.step = max(steps, default=None)
    for length, form in ((1, "mp_rank_{:02d}"), (2, "tp_rank_{:02d}_pp_rank_{:03d}")):
        have = {place for place in ranks.values() if len(place) == length}
        some, count = holes(have, [max(axis) + 1 for axis in zip(*have, strict=True)])
        every |= {form.format(*place): set() for place in islice(some, min(8, count))}
    lost = [
        f"{rank}/{name}" for rank, have_ in sorted(every.items()) for name in names
        if name not in have_
    ]  # fmt: skip
    add_missing(found, "missing: other model parallel ranks have it", lost, len(lost))
    for name in names:
        marker = f"{_COPY.sub('', name)}-unfinished"
        if marker in view.folder.files:
            found.flaw("partial", "exists: its save did not finish", marker)


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


def check_weights(view: View) -> None:
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
        loose = {one for one in family if named.isdisjoint(map(one.name, weights.series[one]))}
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
            counts = " and ".join(map(str, sorted(one.count for one in loose)[:MOST_NAMED]))
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


RECIPE = "recipe_state.pt"  # of torchtune: judged with its epochs

_SUFFIX = re.compile(r".+\.(ckpt|pt|pth|bin|safetensors|nemo)", re.IGNORECASE)
# Words in names of files of weights and states, as training code calls them.
_WORD = re.compile(
    r"(?<![a-z])(?:check_?points?|ckpt|models?|weights?|optim(?:izer)?s?|state(?:_?dict)?s?|epoch|"
    r"step|iter(?:ation)?|global_?step|last|latest|best|final|snapshot|ema|lora|adapter|consolidated|"
    r"pytorch_model|net(?:work)?|generator|discriminator|encoder|decoder|unet|vae|sched(?:uler)?)"
    r"(?![a-z])",
    re.IGNORECASE,
)
# Keys in pickled states: one of them lies near the start of a file of torch.save.
_KEY = re.compile(
    rb"state_dict|optimizer|\.weight|\.bias|global_step|pytorch-lightning_version|param_groups"
)
_STEP = re.compile(
    r"(?:.*[^a-z])?(?:checkpoint|ckpt|global_?step|step|iter|iteration|epoch)[-_=]?(\d{1,15})"
    r"(?:-v\d+)?|(?:.*[^a-z])?(?:model|weights?|state|net|lora)[-_](\d{3,15})",
    re.IGNORECASE,
)
_OF_LIGHTNING = re.compile(r"step=(\d{1,15})")
_TORCH = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_INSTEAD = (b"version https://git-lfs.github.com/spec/", b"<!DOCTYPE", b"<!doctype", b"<html")
_PEEK = 256 << 10
_BLOCK = 512
_GZIP = b"\x1f\x8b"


def read_file(leaf: Leaf, look: Looker, *, meant: bool = False) -> Found | None:
    """The checkpoint that a file is, judged; None when it is none.

    `meant`: somebody says that it is one, so that its suffix is enough.
    """
    name = leaf.name
    unfinished = pattern(_facts()["temporary"]).fullmatch(name)
    suffix = _SUFFIX.fullmatch(unfinished[1] if unfinished else name)
    if suffix is None or name == RECIPE:
        return None
    kind = suffix[1].lower()
    if not meant and not _sure(leaf, kind, unfinished is not None):
        return None
    found = Found(
        leaf.path, _LAYOUTS.get(kind, "torch file"), {name: leaf}, step=_step(name),
        framework="lightning" if kind == "ckpt" else "nemo" if kind == "nemo" else "",
    )  # fmt: skip
    if unfinished:
        found.flaw("partial", "a temporary file of an unfinished write", name)
        return found
    looked = look.check(found)[name]
    if looked.flaw is not None:
        if (
            _OF_LIGHTNING.search(name) and "torch.load" in looked.flaw.why
        ):  # no other framework's `.ckpt`
            found.flaws = [replace(flaw, state="corrupt") for flaw in found.flaws]
        return found
    if kind == "nemo":
        _check_archive(found, leaf)
    elif looked.step is not None:
        if found.step is None:
            found.step = looked.step
        elif _OF_LIGHTNING.search(name) and looked.step - found.step not in (0, 1):
            found.flaw("corrupt", f"says step {looked.step}", name)
    return found


_LAYOUTS = {"ckpt": "Lightning", "safetensors": "safetensors file", "nemo": "NeMo archive"}


def _facts() -> dict[str, str]:
    facts: dict[str, str] = layouts("Hugging Face model")[0].row["facts"]
    return facts


def _step(name: str) -> int | None:
    if match := _OF_LIGHTNING.search(name):
        return int(match[1])
    match = _STEP.fullmatch(name.rpartition(".")[0])
    return int(match[1] or match[2]) if match else None


def _sure(leaf: Leaf, kind: str, unfinished: bool) -> bool:
    """Whether a file holds, or was to hold, weights or states."""
    if kind in ("safetensors", "nemo"):
        return True
    stem = re.split(rf"\.{kind}", leaf.name, maxsplit=1, flags=re.IGNORECASE)[0]
    named = _WORD.search(stem) is not None or any(
        pattern(_facts()[fact]).fullmatch(leaf.name) for fact in ("shard", "single")
    )
    if unfinished or leaf.size <= 0 or (kind != "bin" and _step(leaf.name) is not None):
        return named
    try:
        with leaf.open() as reader:
            start = reader.read_at(0, _PEEK)
    except OSError:
        return named
    if kind == "ckpt" and start[:2] == b"PK":
        return True
    if start.startswith(_TORCH) or any(magic.startswith(start[:4]) for magic in _TORCH):
        return named or _KEY.search(start) is not None
    # Zeros where the header was: lost in a crash; or what came instead of it. Anything else is a
    # file of another program.
    return named and (start.startswith(_INSTEAD) or not any(start[:_BLOCK]))


def _check_archive(found: Found, leaf: Leaf) -> None:
    """A `.nemo` is a tar, packed or not; the look at it has gone through its members."""
    try:
        with leaf.open() as reader:
            start = reader.read_at(0, _BLOCK)
    except OSError as error:
        found.flaw("unknown", f"not read: {reason(error)}", leaf.name)
        return
    if start.startswith(_GZIP):
        found.notes.append("compressed: unpack it to check whether it is complete")
    elif start[257:262] != b"ustar":
        short = len(start) < _BLOCK
        why = "is truncated within its first bytes" if short else "is not a tar archive"
        found.flaw("partial" if short else "corrupt", why, leaf.name)
