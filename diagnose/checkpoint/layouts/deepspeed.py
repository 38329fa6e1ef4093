"""DeepSpeed: how many ranks, layers and experts there are, as names, contents and sizes tell.

Model states are pickled with `dp_world_size` and `mp_world_size`, so the last rank is missed too.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import islice, pairwise
from statistics import median

from diagnose.checkpoint.layouts.checks import (
    MOST_NAMED,
    MOST_RANKS,
    add_missing,
    check_names,
    gaps,
    holes,
    number,
    stated,
)
from diagnose.checkpoint.layouts.rows import View, layouts, pattern
from diagnose.checkpoint.model import FlawKind, Found
from diagnose.checkpoint.tree import Folder

_OWN_TAG = re.compile(r"global_step(\d{1,15})(?:_universal)?")
_PARAM_FILES = ("fp32.pt", "exp_avg.pt", "exp_avg_sq.pt")
_KINDS = ("model", "shards", "optimizer", "experts", "expert_ranks")  # facts of DeepSpeed's rows
_ALIKE = 0.02  # share by which layers of the same kind differ in bytes at the most
_SMALL = 0.5  # of the median of all pieces of the optimizer
_KEYS = (
    "dp_world_size", "mp_world_size", "ds_config", "zero_optimization", "stage", "mics_shard_size",
)  # fmt: skip


def check_steps(view: View) -> None:
    """Content of another step than the tag's, where DeepSpeed made the tag itself."""
    found = view.found
    if view.named is None:
        if found.step is None:  # a tag of the user's own
            steps = Counter(look.step for look in view.looks.values() if look.step is not None)
            found.step = max(steps, key=lambda step: steps[step], default=None)
        return
    for name, look in view.looks.items():
        if look.step is not None and look.step != found.step:
            found.flaw("corrupt", f"says step {look.step}", name, FlawKind.STEP)


def count_ranks(view: View) -> None:
    """Every model parallel rank, pipeline stages included, and every data parallel rank of each.

    The first model states that tell it say how many the job had; copies of the shards in several
    groups (MiCS), of which one is saved, are fewer.
    """
    names = _pieces(view.found)
    says_dp, says_mp, view.numbers["staged"], mics = _claims(view.found, names.models)
    mp, dp = max(names.mp, says_mp), names.dp if mics else max(names.dp, says_dp)
    view.numbers |= {"mp_size": mp, "dp_size": dp}
    view.found.ranks = dp * mp or None


def _claims(found: Found, models: list[str]) -> tuple[int, int, int, int]:
    """Data and model parallel ranks, ZeRO's stage and the shards of MiCS, as model states say."""
    for name in models[:4]:
        items = stated(found.parts.get(name), _KEYS)
        dp, mp = (number(items, key) or 0 for key in _KEYS[:2])
        if 0 < dp <= MOST_RANKS and 0 < mp <= MOST_RANKS:
            stage, mics = (number(items, *_KEYS[2:4], key) or 0 for key in _KEYS[4:])
            return dp, mp, stage, max(0, mics)
    return 0, 0, 0, 0


def check_sizes(view: View) -> None:
    """Pieces of the optimizer are equal but for the last one, which has no padding."""
    for names in _pieces(view.found).kinds["optimizer"].values():
        sizes = {rank: view.found.parts[name].size for rank, name in names.items()}
        if len(sizes) < 3:
            continue
        usual, last = median(sizes.values()), max(sizes)
        for rank, size in sizes.items():
            if 0 < size < _SMALL * usual and rank != last and usual > 4096:
                why = f"has {size:,} bytes, those of other ranks about {usual:,.0f}"
                view.flaw("unknown", why, names[rank])


def check_layers(view: View) -> None:
    """Files of a pipeline's layers. Layers without parameters have none, so gaps are normal.

    A layer is missed where those around the gap are of one size, as the blocks of a model are, and
    where only some of the tensor parallel ranks have it.
    """
    found = view.found
    layers: dict[int, dict[str, str]] = defaultdict(dict)
    for match in view.matches("layers"):
        layers[int(match["layer"])][match["slice"]] = match.string
    slices = sorted({slice_ for there in layers.values() for slice_ in there})
    absent = (
        f"layer_{number:02d}{slice_}-model_states.pt"
        for number, there in sorted(layers.items())
        for slice_ in slices
        if slice_ not in there
    )
    total = len(layers) * len(slices) - sum(map(len, layers.values()))
    add_missing(found, "missing: other slices of the layer exist", absent, total)
    lost: list[str] = []
    total = 0
    for before, after in pairwise(sorted(layers)):
        for slice_ in layers[before] if after - before > 1 else ():
            if _blocks(found, layers[before], layers[after], slice_):
                total += after - before - 1
                lost += [
                    f"layer_{number:02d}{slice_}-model_states.pt"
                    for number in range(before + 1, min(after, before + 1 + MOST_NAMED))
                ]
    add_missing(found, "missing: the layers before and after exist", lost, total)


def _blocks(found: Found, before: dict[str, str], after: dict[str, str], slice_: str) -> bool:
    if slice_ not in after:
        return False
    one, other = (found.parts[names[slice_]].size for names in (before, after))
    return min(one, other) > 0 and abs(one - other) <= _ALIKE * max(one, other)


def check_experts(view: View) -> None:
    """Every expert of every layer."""
    lost: list[str] = []
    total = 0
    every: dict[int, dict[int, set[int]]] = {}
    for match in view.matches("experts"):
        of = every.setdefault(int(match["mp"]), {})
        of.setdefault(int(match["layer"]), set()).add(int(match["expert"]))
    ranks = 1 + max((int(match["rank"]) for match in view.matches("expert_ranks")), default=-1)
    count = 1 + max((n for layers in every.values() for n in layers), default=-1)
    for mp, layers in sorted(every.items()):
        most = 1 + max(n for there in layers.values() for n in there)
        for layer in range(min(count, len(layers) + MOST_NAMED)):
            there = layers.get(layer, set())
            size = 1 + max(there, default=-1)
            if not size or most % size or size % max(1, ranks):
                size = most  # unlike pyramids of experts, with half or a quarter as many below
            some, missing = gaps(there, size)
            total += missing
            form = f"layer_{layer}_expert_{{}}_mp_rank_{mp:02d}_model_states.pt"
            lost += map(form.format, islice(some, MOST_NAMED))
    add_missing(view.found, "missing: the other experts exist", lost, total)


def check_universal(view: View) -> None:
    """Every parameter has the same files; common states and the model's lie beside."""
    zero = view.folder.folders["zero"]
    params = {name: inside for name, inside in zero.folders.items() if not name.startswith(".")}
    if "optimizer_state.pt" not in zero.files:
        view.flaw("partial", "missing: the conversion ended before it", "zero/optimizer_state.pt")
    kinds = Counter(name for inside in params.values() for name in inside.files)
    needed = {*_PARAM_FILES} | {
        kind for kind, number in kinds.items() if kind.endswith(".pt") and number * 2 > len(params)
    }
    lost = [
        f"zero/{param}/{kind}"
        for param, inside in params.items()
        for kind in sorted(needed - inside.files.keys())
    ]
    there = sum(needed <= inside.files.keys() for inside in params.values())
    why = f"missing: {there} of {len(params)} parameters are complete"
    add_missing(view.found, why, lost, len(lost))
    view.numbers["mp_size"] = max(1, _pieces(view.found).mp)
    if not view.holds("shards"):
        view.check(view.row["groups"]["models"])


def check_latest(view: View) -> None:
    """The marker beside tags, of frameworks that keep both in a checkpoint of their own."""
    name, flaw = check_names(view.folder, {"marker": "latest", "names": "[^/]+"})
    if flaw:
        view.found.flaws.append(flaw)
        return
    named = _OWN_TAG.fullmatch(name)
    tags = [match.string for match in view.matches("tags")]
    steps = [int(m[1]) for tag in tags if (m := _OWN_TAG.fullmatch(tag))]
    if named and steps and max(steps) > int(named[1]):
        why = f"names {name}, and global_step{max(steps)} exists: it was never committed"
        view.flaw("partial", why, "latest")


def compare_steps(run: Folder, found: list[Found]) -> None:
    """Tags that never equal the engine's step are the user's, and no sign of damage.

    Megatron-DeepSpeed and GPT-NeoX tag by iterations, which start anew in a fine-tuning.
    """
    wrong = [[flaw for flaw in one.flaws if flaw.kind is FlawKind.STEP] for one in found]
    if len(found) < 2 or not all(wrong):
        return
    for one, flaws in zip(found, wrong, strict=True):
        one.notes.append(f"its content {flaws[0].why}, as in all checkpoints here")
        one.flaws = [flaw for flaw in one.flaws if flaw not in flaws]


@dataclass(slots=True)
class _Pieces:
    """Ranks by kind of file and model parallel rank; `prefix` is that of optimizer states."""

    kinds: dict[str, dict[int, dict[int, str]]]
    prefix: str = ""

    @property
    def dp(self) -> int:
        """Data parallel ranks."""
        ranks = [rank for kind in self.kinds.values() for names in kind.values() for rank in names]
        return 1 + max(ranks, default=-1)

    @property
    def models(self) -> list[str]:
        """Model states, in order of ranks."""
        kinds = (self.kinds["model"], self.kinds["shards"])
        return [
            ranks[dp] for kind in kinds for _, ranks in sorted(kind.items()) for dp in sorted(ranks)
        ]

    @property
    def mp(self) -> int:
        """Model parallel ranks."""
        return 1 + max((mp for by_mp in self.kinds.values() for mp in by_mp), default=-1)


def _pieces(found: Found) -> _Pieces:
    facts = layouts("DeepSpeed")[0].row["facts"]
    pieces = _Pieces({fact: {} for fact in _KINDS})
    for path in found.parts:
        for fact, kind in pieces.kinds.items():
            if match := pattern(facts[fact]).fullmatch(path):
                groups = match.groupdict()
                kind.setdefault(int(match["mp"]), {})[int(groups.get("dp", -1))] = path
                pieces.prefix = groups.get("prefix", pieces.prefix)
    return pieces


def check_pieces(view: View) -> None:
    """The last pieces of folders inside, where more ranks saved random states than these tell.

    Pieces for a part of the ranks are normal where groups of ranks hold copies: these divide them.
    """
    world = view.numbers.get("ranks", 0)
    for folder, one in view.inner.items():
        names = _pieces(one)
        ranks = names.dp
        if one.flaws or names.mp > 1 or ranks <= 0 or world % ranks == 0 or ranks > world:
            continue
        for kind, form in _FORMS.items():
            if not names.kinds[kind]:
                continue
            have = set(names.kinds[kind].get(0, ()))
            some, total = gaps(have | set(range(ranks)), world)
            why = f"missing: {world} ranks wrote their random states, and {len(have)} wrote theirs"
            files = (f"{folder}/{form.format(prefix=names.prefix, dp=dp, mp=0)}" for dp in some)
            add_missing(view.found, why, files, total)


_FORMS = {
    "shards": "zero_pp_rank_{dp}_mp_rank_{mp:02d}_model_states.pt",
    "optimizer": "{prefix}zero_pp_rank_{dp}_mp_rank_{mp:02d}_optim_states.pt",
}


def compare_pieces(run: Folder, found: list[Found]) -> None:
    """The last pieces of the optimizer, where only other checkpoints tell that there were more.

    A job that went on with fewer ranks has fewer pieces, but larger ones: the same optimizer is cut
    into less. So pieces of the same size, and fewer of them, are not all.
    """
    read = [(_pieces(one), one) for one in found]
    reference, full = max(read, key=lambda pair: pair[0].dp)
    for place, (names, one) in enumerate(read):
        dp, most = names.dp, reference.dp
        optimizer = names.kinds["optimizer"]
        if not optimizer or dp >= most or names.mp != reference.mp:
            continue
        beside = read[max(0, place - 1) : place] + read[place + 1 : place + 2]
        if any(other.dp == dp for other, _ in beside):
            continue  # the job went on with fewer ranks
        grown = _usual(one, names) / max(1.0, _usual(full, reference))
        if grown**2 < most / dp and not any(_claims(one, names.models)):
            have: set[tuple[int, ...]] = {
                (mp, rank) for mp, ranks in optimizer.items() for rank in ranks
            }
            some, total = holes(have, [names.mp, most])
            count = names.mp * most
            why = f"missing: {count - total:,} of {count:,} optimizer states exist, "
            why += f"of the size they have in {full.name}"
            files = (
                _FORMS["optimizer"].format(prefix=names.prefix, dp=rank, mp=mp) for mp, rank in some
            )
            add_missing(one, why, files, total)


def _usual(found: Found, names: _Pieces) -> float:
    """Bytes of a usual piece of the optimizer."""
    return median(
        found.parts[name].size
        for ranks in names.kinds["optimizer"].values()
        for name in ranks.values()
    )
