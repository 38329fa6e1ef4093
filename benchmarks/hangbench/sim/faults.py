"""Faults: what changes in the programs of a layout, and who is to blame for what follows.

stuck, slow        a host that is held up outside of any collective, or at work for far too long
device             a device that never ends a computation
killed, raised     a process that a signal or its own exception ended
left               a process that ended with exit status 0 before the others
skip, extra        a collective that one rank does not run, or that only one rank runs
other_op, other_size, other_dtype   the same collective with another operation, size or type
uneven             a rank whose data ends some steps early
swapped            two collectives of two groups in the other order
crossed            the same on some of those that share both groups: neither order is the right one
created            two groups created in the other order, so that each has the name of the other
node               a node that goes down with all its ranks
link, rail         nothing passes any more between two nodes, or through one network card
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmarks.hangbench.sim.machine import Call, Mark, Program, Site
from benchmarks.hangbench.sim.outcome import Group
from benchmarks.hangbench.sim.programs import EPOCH_END, STEP, Layout, site

# What holds up a host, and where it is then.
HOLDS: dict[str, Site] = {
    "loader": site(("next_batch", "data.py", 57), ("__getitem__", "data.py", 83)),
    "file": site(("next_batch", "data.py", 57), ("read_shard", "data.py", 118)),
    "lock": site(STEP, ("log_step", "metrics.py", 36), ("flush", "metrics.py", 92)),
    "sleep": site(STEP, ("wait_for_quota", "train.py", 99)),
    "compile": site(STEP, ("build_kernel", "layers.py", 41)),
    "evaluation": site(("evaluate", "evaluate.py", 28), ("generate", "evaluate.py", 63)),
    "preparation": site(("build_dataset", "data.py", 31), ("tokenize", "data.py", 44)),
    "save": site(("save_checkpoint", "checkpoint.py", 27), ("write_shard", "checkpoint.py", 71)),
}
# Exceptions that end a process, and where they are raised.
RAISES: dict[str, Site] = {
    "KeyError: 'labels'": site(("next_batch", "data.py", 57), ("collate", "data.py", 90)),
    "IndexError: list index out of range": site(STEP, ("route", "moe.py", 52)),
    "RuntimeError: shape '[8, 512, 64]' is invalid for input of size 245760": site(
        STEP, ("forward", "train.py", 112), ("split_heads", "attention.py", 66)
    ),
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.37 GiB. GPU 0 has a total "
    "capacity of 79.15 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process "
    "has 77.94 GiB memory in use.": site(
        STEP, ("forward", "train.py", 112), ("mlp", "layers.py", 97)
    ),
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/shards/00417.tar'": site(
        ("next_batch", "data.py", 57), ("read_shard", "data.py", 112)
    ),
    "RuntimeError: CUDA error: an illegal memory access was encountered": site(
        STEP, ("log_step", "metrics.py", 31)
    ),
    "ValueError: gradient norm is not finite": site(STEP, ("clip_grad_norm", "optim.py", 52)),
}  # fmt: skip
SIGNALS = ("9", "9", "9", "11", "7")

ONE_SIDED = site(STEP, ("log_step", "metrics.py", 44), ("sync_metric", "metrics.py", 77))
CHANGED = site(STEP, ("backward", "train.py", 121), ("reduce_extra", "model.py", 166))


@dataclass(slots=True)
class Struck:
    """A layout with a fault: the programs that run, and whom it struck.

    position: the index of the instruction in the first culprit's program at which it differs from
    that of the layout. severed: see `machine.Machine`. link: the nodes of a dead link or card.
    crossed: the ranks that enter two groups, some in one order and some in the other.
    """

    programs: list[Program]
    culprits: tuple[int, ...] = ()
    position: int = 0
    severed: Callable[[Sequence[int]], bool] | None = None
    link: tuple[int, int] | None = None
    crossed: tuple[int, ...] = ()


def strike(rng: random.Random, layout: Layout, fault: str, per_node: int) -> Struck | None:
    """The layout with this fault somewhere; None where it has no place for it."""
    world = len(layout.programs)
    nodes = -(-world // per_node)
    if fault in ("link", "rail"):
        return _network(rng, layout, fault, per_node) if nodes > 1 else None
    if fault == "node":
        return _node(rng, layout, per_node) if nodes > 1 else None
    culprit = rng.randrange(world)
    if fault == "crossed":
        return _crossed(rng, layout, culprit)
    changed = _FAULTS[fault](rng, layout, culprit)
    if changed is None:
        return None
    position, program = changed
    programs = list(layout.programs)
    programs[culprit] = program
    return Struck(programs, (culprit,), position)


Changed = tuple[int, Program] | None


def _held(end: str) -> Callable[[random.Random, Layout, int], Changed]:
    def strike(rng: random.Random, layout: Layout, culprit: int) -> Changed:
        program = layout.programs[culprit]
        what = rng.choice([*HOLDS])
        if what == "preparation":
            at = 0
        elif what in ("save", "evaluation"):
            at = next(n for n, one in enumerate(program) if one.site is EPOCH_END)
        else:
            at = _step_begin(rng, program) if rng.random() < 0.6 else _anywhere(rng, program)
        return _ends(program, at, Mark("end", HOLDS[what], end=end, what=what))  # type: ignore[arg-type]

    return strike


def _killed(rng: random.Random, layout: Layout, culprit: int) -> Changed:
    program = layout.programs[culprit]
    at = _anywhere(rng, program)
    return _ends(program, at, Mark("end", program[at].site, end="killed", what=rng.choice(SIGNALS)))


def _raised(rng: random.Random, layout: Layout, culprit: int) -> Changed:
    what = rng.choice([*RAISES])
    at = _anywhere(rng, layout.programs[culprit])
    mark = Mark("end", RAISES[what], end="raised", what=what)
    return _ends(layout.programs[culprit], at, mark)


def _left(rng: random.Random, layout: Layout, culprit: int) -> Changed:
    at = _step_begin(rng, layout.programs[culprit])
    return _ends(layout.programs[culprit], at, Mark("end", end="left"))


def _ends(program: Program, at: int, mark: Mark) -> Changed:
    return at, [*program[:at], mark]


def _device(rng: random.Random, layout: Layout, culprit: int) -> Changed:
    program = layout.programs[culprit]
    at = _anywhere(rng, program)
    return at, [*program[:at], Mark("device"), *program[at:]]


def _skip(rng: random.Random, layout: Layout, culprit: int) -> Changed:
    program = layout.programs[culprit]
    at = _collective(rng, layout, culprit)
    return None if at is None else (at, program[:at] + program[at + 1 :])


def _extra(rng: random.Random, layout: Layout, culprit: int) -> Changed:
    program = layout.programs[culprit]
    at = _collective(rng, layout, culprit)
    if at is None:
        return None
    like = program[at]
    assert isinstance(like, Call)
    size = rng.choice((1, 2, like.numel_in))
    call = Call(like.group, "all_reduce", size, size, ONE_SIDED, "Float")
    return at, [*program[:at], call, *program[at:]]


def _other(change: Callable[[Call], Call | None]) -> Callable[..., Changed]:
    def strike(rng: random.Random, layout: Layout, culprit: int) -> Changed:
        program = layout.programs[culprit]
        at = _collective(rng, layout, culprit)
        if at is None:
            return None
        call = program[at]
        assert isinstance(call, Call)
        other = change(call)
        return None if other is None else (at, [*program[:at], other, *program[at + 1 :]])

    return strike


def _other_op(call: Call) -> Call:
    op = "broadcast" if call.op != "broadcast" else "all_reduce"
    return replace(call, op=op, numel_out=call.numel_in, site=CHANGED)


def _other_size(call: Call) -> Call | None:
    if call.op in ("barrier", "all_to_all"):
        return None
    factor = 2 if call.numel_in % 3 else 3
    return replace(call, numel_in=call.numel_in * factor, numel_out=call.numel_out * factor)


def _other_dtype(call: Call) -> Call | None:
    if call.op in ("barrier", "all_to_all"):
        return None
    return replace(call, dtype="Half" if call.dtype != "Half" else "Float")


def _uneven(rng: random.Random, layout: Layout, culprit: int) -> Changed:
    if layout.name not in ("ddp", "fsdp", "hsdp", "expert"):
        return None  # ranks of one model read the same batches
    program = layout.programs[culprit]
    ends = [n for n, one in enumerate(program) if isinstance(one, Mark) and one.kind == "step"]
    fewer = rng.randint(1, len(ends) - 1)
    first, last = ends[-1 - fewer] + 1, ends[-1] + 1
    return first, program[:first] + program[last:]


def _swapped(rng: random.Random, layout: Layout, culprit: int) -> Changed:
    """Two calls, one right after the other, of two groups that share more than the culprit."""
    pairs = _pairs(layout, culprit)
    if not pairs:
        return None
    at = rng.choice(pairs)
    return at, _exchanged(layout.programs[culprit], at)


def _crossed(rng: random.Random, layout: Layout, one: int) -> Struck | None:
    """The same, of some of the ranks that run these two calls there, but not of all."""
    pairs = _pairs(layout, one)
    if not pairs:
        return None
    at = rng.choice(pairs)
    groups = _groups_of(layout.programs[one], at)
    sharing = [r for r, own in enumerate(layout.programs) if _groups_of(own, at) == groups]
    swapping = rng.sample(sharing, max(1, len(sharing) // rng.choice((2, 2, 3))))
    programs = list(layout.programs)
    for rank in swapping:
        programs[rank] = _exchanged(programs[rank], at)
    return Struck(programs, position=at, crossed=tuple(sharing))


def _groups_of(program: Program, at: int) -> list[str]:
    """The groups of the two calls from here on."""
    return [call.group for call in program[at : at + 2] if isinstance(call, Call)]


def _exchanged(program: Program, at: int) -> Program:
    return [*program[:at], program[at + 1], program[at], *program[at + 2 :]]


def _pairs(layout: Layout, culprit: int) -> list[int]:
    """Where a rank makes two calls of different groups that share another rank too."""
    program = layout.programs[culprit]
    members = {name: {*group.members} for name, group in layout.groups.items()}
    pairs = []
    for n in range(len(program) // 3, len(program) - 1):
        one, other = program[n], program[n + 1]
        if not isinstance(one, Call) or not isinstance(other, Call) or one.parts or other.parts:
            continue
        if one.group != other.group and len(members[one.group] & members[other.group]) > 1:
            pairs.append(n)
    return pairs


def _created(rng: random.Random, layout: Layout, culprit: int) -> Changed:
    """The culprit calls two of its groups by each other's names, from their first use on."""
    program = layout.programs[culprit]
    own = [
        group.name
        for group in layout.groups.values()
        if culprit in group.members and group.name != "0" and len(group.members) > 1
    ]
    if len(own) < 2:
        return None
    one, other = rng.sample(own, 2)
    names = {one: other, other: one}
    if any(isinstance(c, Call) and c.parts and c.group in names for c in program):
        return None  # sends to ranks that are no members
    changed: Program = [
        replace(call, group=names.get(call.group, call.group)) if isinstance(call, Call) else call
        for call in program
    ]
    at = next(n for n, (old, new) in enumerate(zip(program, changed, strict=True)) if old != new)
    return at, changed


_FAULTS: dict[str, Callable[[random.Random, Layout, int], Changed]] = {
    "stuck": _held("stuck"), "slow": _held("slow"), "device": _device, "killed": _killed,
    "raised": _raised, "left": _left, "skip": _skip, "extra": _extra,
    "other_op": _other(_other_op), "other_size": _other(_other_size),
    "other_dtype": _other(_other_dtype), "uneven": _uneven, "swapped": _swapped,
    "created": _created,
}  # fmt: skip
FAULTS = (*_FAULTS, "node", "link", "rail")
# Of those above another form, which is drawn half of the time.
ALSO = {"swapped": "crossed"}


def _node(rng: random.Random, layout: Layout, per_node: int) -> Struck:
    world = len(layout.programs)
    node = rng.randrange(-(-world // per_node))
    culprits = tuple(range(node * per_node, min((node + 1) * per_node, world)))
    programs, step, position = list(layout.programs), rng.randrange(1, layout.steps), 0
    for culprit in culprits:
        program = programs[culprit]
        first, last = _span(program, step)
        at = rng.randrange(first, last)
        position = position or at
        programs[culprit] = [*program[:at], Mark("end", program[at].site, end="lost")]
    return Struck(programs, culprits, position)


def _network(rng: random.Random, layout: Layout, fault: str, per_node: int) -> Struck | None:
    nodes = -(-len(layout.programs) // per_node)
    one, other = rng.sample(range(nodes), 2)
    card = rng.randrange(per_node)

    def severed(ranks: Sequence[int]) -> bool:
        where = {rank // per_node for rank in ranks}
        if fault == "link":
            return {one, other} <= where
        return len(where) > 1 and one * per_node + card in ranks

    if not any(severed(group.members) for group in _used(layout)):
        return None
    return Struck(list(layout.programs), (), 0, severed, (one, other))


def _used(layout: Layout) -> list[Group]:
    names = {one.group for one in layout.programs[0] if isinstance(one, Call)}
    return [group for name, group in layout.groups.items() if name in names]


def _step_begin(rng: random.Random, program: Program) -> int:
    """The index right behind a step that was printed, but the last."""
    marks = [n for n, one in enumerate(program) if isinstance(one, Mark) and one.kind == "step"]
    return rng.choice(marks[:-1] or marks) + 1


def _anywhere(rng: random.Random, program: Program) -> int:
    """The index of a call behind the first step."""
    first = next(n for n, one in enumerate(program) if isinstance(one, Mark) and one.kind == "step")
    calls = [n for n in range(first, len(program)) if isinstance(program[n], Call)]
    return rng.choice(calls)


def _collective(rng: random.Random, layout: Layout, culprit: int) -> int | None:
    """The index of a collective of at least two ranks, in a step but the first."""
    program = layout.programs[culprit]
    first, _ = _span(program, 1)
    calls = [
        n
        for n in range(first, len(program))
        if isinstance(one := program[n], Call)
        and not one.parts
        and len(layout.groups[one.group].members) > 1
    ]
    return rng.choice(calls) if calls else None


def _span(program: Program, step: int) -> tuple[int, int]:
    """The indices of the instructions of one step, from 0, its own mark included."""
    ends = [n for n, one in enumerate(program) if isinstance(one, Mark) and one.kind == "step"]
    return (ends[step - 1] + 1 if step else 0), ends[step] + 1
