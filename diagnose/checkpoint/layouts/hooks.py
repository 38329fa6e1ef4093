"""What rows of the Trainer, accelerate, torchtune, verl and NeMo cannot say."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any

from diagnose.checkpoint.layouts.checks import add_missing, holes, pickled
from diagnose.checkpoint.layouts.deepspeed import check_pieces
from diagnose.checkpoint.layouts.rows import View
from diagnose.checkpoint.layouts.runs import check_ranks, numbers
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Flaw, Found
from diagnose.checkpoint.tree import Folder, Leaf

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
