"""The marks: of each text that announces something, a few characters that a whole log is read for.

Hyperscan looks at eight characters at most, and has eight groups for its literals: each length
takes one, the others are left to the longest ones, by their last character. What may be any of a
group is looked at twice, and that takes longer than all the rest. So few lengths are used, and of a
text the characters that most other texts have: half as many literals find hardly more lines.

(It looks at each byte where a literal has two characters, as one has, or where there are 5,000.
Else it looks at every second byte, and finds so much that it is slower.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import cache

from diagnose.match.prefilter import BULK

_LONGEST = 8
_SIZES = {7: 6}  # characters that are searched of texts not as long as that, but for all of them
# What a job may log at each step: of a text another part is better.
_PROGRESS = """
2025-01-01 00:00:00,000 INFO trainer: train_loss validation accuracy perplexity eval step epoch
[INFO] [logging.py:96:log_dist] [Rank 0] deepspeed step=10, skipped=0, lr=[1e-05], mom=[(0.9, 0.9)]
 iteration 100/ 5000 | consumed samples: 1024 | elapsed time per iteration (ms): 100.0 | throughput
 per gpu (tflop/s/gpu): 100.0 | learning rate: 1.0e-04 | global batch size: 1024 | lm loss: 1.0e+00
 | loss scale: 1.0 | grad norm: 1.0 | number of skipped iterations: 0 | number of nan iterations: 0
{'loss': 1.0, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.1} global_step micro_batch tokens
memory allocated reserved max_memory samples/sec tokens per second checkpoint dataset processed
10%|# | 10/100 [00:10<00:10, 1.00it/s] accelerate transformers tensorflow generation evaluation
"""

Literal = tuple[str, bool]  # and whether its case is ignored


def marks_of(texts: Collection[Literal]) -> set[Literal]:
    """Literals one of which is in whatever holds one of these texts."""
    holders = Counter(part for text, _ in texts for part in set(_parts(text)))

    def told(text: str) -> str:
        parts = _uncommon(text)
        most = max(map(holders.__getitem__, parts))
        return max((part for part in parts if holders[part] == most), key=_rarity)

    return fewest({(told(text), ignored) for text, ignored in texts})


def rarest(text: str) -> str:
    """The part of a text that says most by itself."""
    return max(_uncommon(text), key=_rarity)


def fewest(literals: Collection[Literal]) -> set[Literal]:
    """Those that hold no other one: it says enough."""
    exact = {literal for literal, ignored in literals if not ignored}
    caseless = {literal.lower() for literal, ignored in literals if ignored}
    lengths = {len(literal) for literal in exact | caseless}

    def told(literal: str, ignored: bool) -> bool:
        within = {
            literal[at : at + size] for size in lengths for at in range(len(literal) - size + 1)
        }
        if not ignored and any(part in exact for part in within - {literal}):
            return True
        lower = {part.lower() for part in within if part.isascii()}
        return bool(caseless & (lower - {literal.lower()} if ignored else lower))

    return {(literal, ignored) for literal, ignored in literals if not told(literal, ignored)}


def _parts(text: str) -> list[str]:
    """The parts of a text that may be searched for it."""
    size = min(_SIZES.get(len(text), len(text)), _LONGEST)
    return [text[at : at + size] for at in range(len(text) - size + 1)]


@cache
def _common() -> frozenset[str]:
    """What may stand in lines of which a log holds millions."""
    return frozenset(
        lines[at : at + size]
        for lines in (BULK, _PROGRESS.lower())
        for size in range(2, _LONGEST + 1)
        for at in range(len(lines) - size + 1)
    )


def _uncommon(text: str) -> list[str]:
    """Its parts that are not common; all if there are none."""
    parts, common = _parts(text), _common()
    return [part for part in parts if part.lower() not in common] or parts


def _rarity(part: str) -> tuple[int, int]:
    """Small letters and blanks are in all lines."""
    return sum(not (one.islower() or one == " ") for one in part), len(set(part))
