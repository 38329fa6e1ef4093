"""A checkpoint that is one file: of Lightning (`.ckpt`), torch, safetensors or NeMo (`.nemo`).

Files lie in any folder, so only those are taken that surely hold weights or states: their content
is one of torch's (or lost), and the name or the content says what of.
"""

from __future__ import annotations

import re
from dataclasses import replace

from diagnose.checkpoint.layouts.rows import layouts, pattern
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.tree import Leaf
from diagnose.ingest.raw import reason

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
