"""What the names of DeepSpeed's files say of ranks, layers and experts."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

PIECE = "zero_pp_rank_{dp}_mp_rank_{mp:02d}_optim_states.pt"
SHARD = "zero_pp_rank_{dp}_mp_rank_{mp:02d}_model_states.pt"
WHOLE = "mp_rank_{mp:02d}_model_states.pt"

_MODEL = re.compile(r"(?:zero_pp_rank_(\d{1,7})_)?mp_rank_(\d{1,5})_model_states\.pt")
# An earlier pattern, which the engine still reads, has no `_` before `optim`.
_OPTIM = re.compile(r"((?:bf16_|fp16_)?)zero_pp_rank_(\d{1,7})_mp_rank_(\d{1,5})_?optim_states\.pt")
_LAYER = re.compile(r"layer_(\d{1,6})((?:-[a-z]+_\d{1,6})*)-model_states\.pt")
_EXPERT = re.compile(r"layer_(\d{1,6})_expert_(\d{1,6})_mp_rank_(\d{1,5})_model_states\.pt")
_EXPERT_OPTIM = re.compile(r"expp_rank_(\d{1,6})_mp_rank_(\d{1,5})_optim_states\.pt")


@dataclass(slots=True)
class Names:
    """What the names of a folder's files say: ranks and numbers by kind."""

    model: dict[int, str] = field(default_factory=dict)  # by mp, ZeRO 0–2
    sharded: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))  # dp by mp
    optim: dict[int, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    layers: dict[int, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    experts: dict[int, dict[int, set[int]]] = field(default_factory=dict)  # by mp, layer
    expert_optim: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    prefix: str = ""  # of the optimizer's pieces

    @property
    def dp(self) -> int:
        """Data parallel ranks, as far as the names tell."""
        pieces = [*self.optim.values(), *self.sharded.values()]
        return 1 + max((rank for ranks in pieces for rank in ranks), default=-1)

    @property
    def mp(self) -> int:
        """Model parallel ranks, pipeline stages included."""
        kinds = (self.model, self.sharded, self.optim, self.experts, self.expert_optim)
        return 1 + max((rank for kind in kinds for rank in kind), default=-1)

    def __bool__(self) -> bool:
        return bool(
            self.model or self.sharded or self.optim or self.layers or self.experts
            or self.expert_optim
        )  # fmt: skip


def names_of(files: Iterable[str]) -> Names:
    """What the names of files right inside a checkpoint's folder say."""
    names = Names()
    for name in files:
        if m := _MODEL.fullmatch(name):
            if m[1] is None:
                names.model[int(m[2])] = name
            else:
                names.sharded[int(m[2])].add(int(m[1]))
        elif m := _OPTIM.fullmatch(name):
            names.optim[int(m[3])][int(m[2])] = name
            names.prefix = m[1]
        elif m := _EXPERT.fullmatch(name):
            layers = names.experts.setdefault(int(m[3]), {})
            layers.setdefault(int(m[1]), set()).add(int(m[2]))
        elif m := _LAYER.fullmatch(name):
            names.layers[int(m[1])][m[2]] = name
        elif m := _EXPERT_OPTIM.fullmatch(name):
            names.expert_optim[int(m[2])].add(int(m[1]))
    return names
