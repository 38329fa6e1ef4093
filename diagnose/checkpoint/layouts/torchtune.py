"""torchtune: `<run>/epoch_<n>` with the model, and `<run>/recipe_state/recipe_state.pt`.

Order of writing (torchtune 0.6.1, training/checkpointing/_checkpointer.py): shards, always numbered
(`model-00001-of-00004.safetensors`; 0.4 and 0.5 `ft-model-…`), and their index; the adapter as
`adapter_model.pt` and again for PEFT; copies of the other files of the model that training began
with. The recipe's state (optimizer, epochs) comes last; it is one file for the run, and the last
epoch writes none. Before 0.4 all epochs lay in one folder: `hf_model_0001_0.pt` (shard, epoch),
`meta_model_0.pt`, `torchtune_model_0.pt`, `adapter_0.pt` and `recipe_state.pt`.
"""

from __future__ import annotations

import re
from collections import defaultdict

from diagnose.checkpoint.layouts import Layout
from diagnose.checkpoint.layouts.hf_model import (
    ADAPTER_CONFIG,
    CONFIG,
    NO_CONFIG,
    SIDE,
    TRAINER_STATE,
    TRAINING_ARGS,
    check_tokenizer,
    model_files,
)
from diagnose.checkpoint.layouts.hf_weights import check_weights, left_overs, weights_of
from diagnose.checkpoint.layouts.numbered import add_missing, gaps
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.tree import Folder

ADAPTER = "adapter_model.pt"
RECIPE = "recipe_state.pt"
RECIPE_FOLDER = "recipe_state"

_MOST_EPOCHS = 1000  # that are judged in one folder, from the last one on
_NAME = re.compile(r"(epoch|step)_(\d{1,9})")
_OLD_SHARD = re.compile(r"hf_model_(\d{4})_(\d{1,6})\.pt")
_OLD = re.compile(r"(?:hf_model_\d{4}|meta_model|torchtune_model|adapter)_(\d{1,6})\.pt")


def read(folder: Folder, look: Looker) -> Found | None:
    """The checkpoint of one epoch, or of all epochs of a run before 0.4."""
    if any(_OLD.fullmatch(name) for name in folder.files):
        return _read_old(folder, look)
    weights = weights_of(folder.files)
    name = _NAME.fullmatch(folder.name)
    fine_tuned = any(series.stem == "ft-model" for series in weights.series)
    numbered = bool(weights.series) and not weights.singles
    # Others who call folders so rarely number the only shard.
    known = fine_tuned or ADAPTER in folder.files or (numbered and name and name[1] == "epoch")
    if not known or folder.files.keys() & {TRAINER_STATE, TRAINING_ARGS}:
        return None
    parts = model_files(folder)
    if ADAPTER in folder.files:
        parts[ADAPTER] = folder.files[ADAPTER]
    found = Found(
        folder.path, "torchtune", parts, step=int(name[2]) if name else None, framework="torchtune"
    )
    looks = look.check(found)
    # Only models of Hugging Face get an index; a single .bin file is of torchtune's or Meta's kind.
    several = [one for one in weights.series if one.count > 1 or one.end == ".safetensors"]
    check_weights(found, folder, looks, index=bool(several))
    if weights.adapters and ADAPTER not in folder.files:
        found.flaw("partial", "missing: torchtune itself loads this one", ADAPTER)
    if ADAPTER_CONFIG in folder.files and not weights.adapters:
        why = f"missing: its {ADAPTER_CONFIG} exists"
        found.flaw("partial", why, "adapter_model.safetensors")
    if weights.adapters and ADAPTER_CONFIG not in folder.files:
        why = "missing: it is written after the adapter's weights"
        found.flaw("partial", why, ADAPTER_CONFIG)
    check_tokenizer(found, folder, looks)
    if several and CONFIG not in folder.files:
        found.flaw("partial", NO_CONFIG, CONFIG)
    left_overs(found, folder, SIDE | {ADAPTER})
    return found


def _read_old(folder: Folder, look: Looker) -> Found:
    parts = model_files(folder)
    parts |= {n: leaf for n, leaf in folder.files.items() if _OLD.fullmatch(n) or n == RECIPE}
    epochs = {int(match[1]) for name in parts if (match := _OLD.fullmatch(name))}
    found = Found(folder.path, "torchtune", parts, step=max(epochs), framework="torchtune")
    look.check(found)
    shards: dict[int, set[int]] = defaultdict(set)
    for name in parts:
        if match := _OLD_SHARD.fullmatch(name):
            shards[int(match[2])].add(int(match[1]))
    count = max((max(have) for have in shards.values()), default=0)
    for epoch, have in sorted(shards.items())[-_MOST_EPOCHS:]:
        some, total = gaps(have | {0}, count + 1)
        why = f"missing: {count - total} of {count} shards of epoch {epoch} exist"
        add_missing(found, why, (f"hf_model_{n:04d}_{epoch}.pt" for n in some), total)
    if len(epochs) > 1 and RECIPE not in parts:
        found.flaw("partial", "missing: without it training restarts from scratch", RECIPE)
    left_overs(found, folder, parts)
    return found


def compare(run: Folder, found: list[Found]) -> None:
    """The recipe's state, which belongs to the last epoch but the final one."""
    numbered = [one for one in found if _NAME.fullmatch(one.name)]
    if not numbered:
        return
    last = numbered[-1]
    path = f"../{RECIPE_FOLDER}/{RECIPE}"
    inside = run.folders.get(RECIPE_FOLDER)
    recipe = inside.files.get(RECIPE) if inside else None
    if recipe is None:
        if inside is not None:
            last.flaw("partial", "missing: without it training restarts from scratch", path)
        elif len(numbered) > 1:
            last.notes.append(f"no {RECIPE} beside it: the optimizer would start from scratch")
        return
    flaw = Looker()(recipe).flaw
    if flaw is not None:
        last.flaw(flaw.state, flaw.why, path)
    written = max((leaf.mtime for leaf in last.parts.values()), default=0.0)
    if 0 < recipe.mtime < written and len(numbered) > 1:
        last.notes.append(f"{RECIPE} is from an earlier epoch, as is normal after the final one")


TORCHTUNE = Layout("torchtune", read, compare)
