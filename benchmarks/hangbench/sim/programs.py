"""What the ranks of a job run: data, sharded, tensor, pipeline, expert and context parallelism.

A layout is drawn from a seed; all of it is what the frameworks do, made short: a few steps of a few
layers. Files and lines of the program stay the same over all ranks, as they do in a real one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from benchmarks.hangbench.sim.machine import WAIT, Call, Instruction, Mark, Program, Site
from benchmarks.hangbench.sim.outcome import Frame, Group

ROOT = "/workspace/train/"


def site(*frames: tuple[str, str, int]) -> Site:
    """The stack of a call in the program: (function, file below ROOT, line), outermost first."""
    outer = (Frame("<module>", f"{ROOT}train.py", 241), Frame("main", f"{ROOT}train.py", 208))
    return outer + tuple(Frame(name, ROOT + file, line) for name, file, line in frames)


STEP = ("train_step", "train.py", 131)
SETUP = site(("setup_model", "train.py", 74), ("broadcast_parameters", "model.py", 58))
READY = site(("setup_model", "train.py", 79))
LOSS = site(STEP, ("reduce_loss", "metrics.py", 22))
READ_LOSS = site(STEP, ("log_step", "metrics.py", 31))
NORM = site(STEP, ("clip_grad_norm", "optim.py", 47))
BACKWARD = site(STEP, ("backward", "train.py", 117), ("reduce_bucket", "model.py", 143))
FORWARD = site(STEP, ("forward", "train.py", 112), ("forward", "layers.py", 88))
BACKWARD_LAYER = site(STEP, ("backward", "train.py", 117), ("backward", "layers.py", 129))
EPOCH_END = site(("end_of_epoch", "train.py", 171), ("gather_metrics", "metrics.py", 64))
SAVE = site(("save_checkpoint", "checkpoint.py", 39))


@dataclass(slots=True)
class Layout:
    """Groups by name, the program of every rank, and what the evidence is printed with.

    name: that of the kind of parallelism. created: names of the groups in the order in which every
    rank creates them. step_s: about how long a step takes. steps: how many the programs hold.
    """

    name: str
    groups: dict[str, Group]
    programs: list[Program]
    created: list[str]
    step_s: float
    steps: int
    grid: str = ""
    first_step: int = 1
    sizes: dict[str, int] = field(default_factory=dict)


def grid(world: int, kinds: dict[str, Callable[[int], object]]) -> dict[str, Group]:
    """The default group, and for each kind groups of the ranks of one value."""
    groups = {"0": Group("0", "default_pg", tuple(range(world)))}
    for desc, value in kinds.items():
        members: dict[object, list[int]] = {}
        for rank in range(world):
            members.setdefault(value(rank), []).append(rank)
        for ranks in members.values():
            name = str(len(groups))
            groups[name] = Group(name, desc, tuple(ranks))
    return groups


def of_kind(groups: dict[str, Group], desc: str, world: int) -> list[str]:
    """By rank the name of its group of one kind."""
    names = [""] * world
    for group in groups.values():
        if group.desc == desc:
            for member in group.members:
                names[member] = group.name
    return names


def draw(rng: random.Random, name: str, world: int, steps: int) -> Layout:
    """A layout of `world` ranks (the nearest that its grid allows) and `steps` steps."""
    layout = _BUILDERS[name](rng, world, steps)
    layout.first_step = rng.choice((1, 1, rng.randrange(2, 90_000)))
    return layout


def _step_end(rng: random.Random, number: int, *, loss: bool = True) -> list[Instruction]:
    """What ends a step: the loss is reduced and read, which waits for the device, and printed."""
    calls: list[Instruction] = [Call("0", "all_reduce", 1, 1, LOSS, "Float")] if loss else []
    return [*calls, Mark("sync", READ_LOSS), Mark("step", number=number)]


def _rest(steps: int, bodies: Callable[[int], Iterable[Instruction]]) -> Program:
    """All steps, then the end of the epoch: metrics are gathered, and the ranks meet."""
    program: Program = []
    for number in range(steps):
        program += bodies(number)
    program += [Call("0", "all_gather", 4, 4, EPOCH_END, "Float"), Mark("sync", EPOCH_END)]
    program += [Call("0", "barrier", 1, 1, SAVE, "Float"), Mark("sync", SAVE)]
    return program


def _ddp(rng: random.Random, world: int, steps: int) -> Layout:
    buckets = [rng.randrange(1, 400) * 65_536 for _ in range(rng.randint(2, 5))]
    step_s = rng.choice((0.4, 1.1, 3.5))
    data = rng.random() < 0.3  # some frameworks name a group of their own for it
    groups = grid(world, {"DATA_PARALLEL_GROUP": lambda _: 0} if data else {})
    where = "1" if data else "0"
    norm = rng.random() < 0.5
    start: Program = [Call(where, "broadcast", 7_077_888, 7_077_888, SETUP), Mark("sync", READY)]

    def body(number: int) -> Program:
        part = step_s / len(buckets)
        calls: Program = [
            Call(where, "all_reduce", size, size, BACKWARD, "Float", (), part, later=True)
            for size in buckets
        ]
        calls.append(WAIT)
        if norm:
            calls.append(Call(where, "all_reduce", 1, 1, NORM, "Float"))
        return [*calls, *_step_end(rng, number)]

    program = start + _rest(steps, body)
    return Layout("ddp", groups, [list(program) for _ in range(world)], [*groups], step_s, steps)


def _sharded_step(
    gather: str, shards: int, layers: list[int], part: float, reduce: str | None = None
) -> Program:
    """Forward and backward of fully sharded layers; with `reduce` gradients go on to that group."""
    calls: Program = []
    for size in layers:
        calls += [
            Call(gather, "_allgather_base", size // shards, size, FORWARD, later=True), WAIT,
        ]  # fmt: skip
    for size in reversed(layers):
        own = size // shards
        calls += [Call(gather, "_allgather_base", own, size, BACKWARD_LAYER, "BFloat16", (), part)]
        calls += [
            Call(gather, "_reduce_scatter_base", size, own, BACKWARD, "Float", (), part, later=True)
        ]
        if reduce:
            calls += [WAIT, Call(reduce, "all_reduce", own, own, BACKWARD, "Float", later=True)]
    return [*calls, WAIT]


def _layers(rng: random.Random, shards: int) -> list[int]:
    return [rng.randrange(1, 60) * 4_096 * shards for _ in range(rng.randint(2, 5))]


def _fsdp(rng: random.Random, world: int, steps: int) -> Layout:
    layers, step_s = _layers(rng, world), rng.choice((0.8, 2.4, 6.0))
    groups = grid(world, {"mesh_dp": lambda _: 0} if rng.random() < 0.4 else {})
    where = "1" if len(groups) > 1 else "0"
    part, norm = step_s / (2 * len(layers)), rng.random() < 0.7

    def body(number: int) -> Program:
        calls = _sharded_step(where, world, layers, part)
        if norm:
            calls.append(Call(where, "all_reduce", 1, 1, NORM, "Float"))
        return [*calls, *_step_end(rng, number)]

    program = [Mark("sync", READY), *_rest(steps, body)]
    return Layout("fsdp", groups, [list(program) for _ in range(world)], [*groups], step_s, steps)


def _hsdp(rng: random.Random, world: int, steps: int) -> Layout:
    shards = rng.choice([size for size in (2, 4, 8, 16) if world // size >= 2] or [2])
    world = max(world // shards, 2) * shards
    layers, step_s = _layers(rng, shards), rng.choice((0.8, 2.4, 6.0))
    groups = grid(
        world, {"mesh_shard": lambda r: r // shards, "mesh_replicate": lambda r: r % shards}
    )
    shard, replica = (of_kind(groups, f"mesh_{kind}", world) for kind in ("shard", "replicate"))
    part, every = step_s / (2 * len(layers)), rng.choice((1, 1, 2))
    programs = []
    for rank in range(world):

        def body(number: int, rank: int = rank) -> Program:
            calls = _sharded_step(shard[rank], shards, layers, part, replica[rank])
            if number % every == 0:
                calls.append(Call("0", "all_reduce", 1, 1, NORM, "Float"))
            return [*calls, *_step_end(rng, number, loss=number % every == 0)]

        programs.append([Mark("sync", READY), *_rest(steps, body)])
    sizes = {"shard": shards, "replicate": world // shards}
    return Layout(
        "hsdp", groups, programs, [*groups], step_s, steps, f"{world // shards}x{shards}", 1, sizes
    )


def _tp_pp_dp(rng: random.Random, world: int, steps: int) -> Layout:
    tensor = rng.choice([t for t in (1, 2, 2, 4, 8) if t <= max(world // 4, 2)])
    pipe = rng.choice([p for p in (1, 2, 2, 4, 8) if tensor * p * 2 <= max(world, 8)])
    if tensor == pipe == 1:
        tensor = 2
    world = max(world // (tensor * pipe), 2) * tensor * pipe
    stage = world // pipe
    groups = grid(
        world,
        {
            "DATA_PARALLEL_GROUP": lambda r: (r // stage, r % tensor),
            "MODEL_PARALLEL_GROUP": lambda r: r % stage // tensor,
            "TENSOR_MODEL_PARALLEL_GROUP": lambda r: r // tensor,
            "PIPELINE_MODEL_PARALLEL_GROUP": lambda r: r % stage,
        },
    )
    names = {
        kind: of_kind(groups, desc, world)
        for kind, desc in (
            ("dp", "DATA_PARALLEL_GROUP"), ("mp", "MODEL_PARALLEL_GROUP"),
            ("tp", "TENSOR_MODEL_PARALLEL_GROUP"), ("pp", "PIPELINE_MODEL_PARALLEL_GROUP"),
        )
    }  # fmt: skip
    micro, step_s = max(pipe, rng.randint(2, 5)), rng.choice((1.0, 4.0, 12.0))
    shape = _Pipeline(
        stage, world, micro, step_s, rng.random() < 0.6, rng.randrange(1, 9) * 65_536, tensor > 1
    )
    shard, layers = rng.randrange(1, 99) * 65_536, rng.randint(1, 2)
    whole = shard * (world // (tensor * pipe))
    programs = []
    for rank in range(world):
        tp = [
            Call(names["tp"][rank], op, size, size, where)
            for where in (FORWARD, BACKWARD_LAYER)
            for op, size in (("all_reduce", shape.hidden), ("all_reduce", shape.hidden))
        ] * layers if tensor > 1 else []  # fmt: skip

        def body(number: int, rank: int = rank, tp: list[Call] = tp) -> Program:
            calls: Program = shape.schedule(rank, names["pp"][rank], tp)
            calls += [
                Call(names["dp"][rank], "_reduce_scatter_base", whole, shard, BACKWARD),
                Call(names["dp"][rank], "_allgather_base", shard, whole, NORM),
                Call(names["mp"][rank], "all_reduce", 1, 1, NORM, "Float"),
            ]
            return [*calls, *_step_end(rng, number, loss=number % 2 == 1)]

        programs.append([Call("0", "barrier", 1, 1, READY, "Float"), *_rest(steps, body)])
    sizes = {"tp": tensor, "pp": pipe, "dp": world // (tensor * pipe)}
    text = f"tp{tensor}xpp{pipe}xdp{sizes['dp']}"
    programs = [_no_lonely(program, groups) for program in programs]
    return Layout("tp_pp_dp", groups, programs, [*groups], step_s, steps, text, 1, sizes)


def _no_lonely(program: Program, groups: dict[str, Group]) -> Program:
    """Without calls in groups of one rank, which frameworks skip."""
    return [
        one for one in program if not isinstance(one, Call) or len(groups[one.group].members) > 1
    ]


@dataclass(frozen=True, slots=True)
class _Pipeline:
    """One forward, one backward in turn (1F1B): micro-batches pass through `world / stage` stages.

    batched: sends and receives of one point are one batch; else single ones, receives first.
    """

    stage: int
    world: int
    micro: int
    step_s: float
    batched: bool
    hidden: int
    tensor: bool

    def schedule(self, rank: int, group: str, tp: list[Call]) -> Program:
        """The micro-batches of one step on one rank."""
        before, after = rank - self.stage, rank + self.stage
        half, part = len(tp) // 2, self.step_s / (3 * self.micro)
        forward, backward = self._layer(tp[:half], part), self._layer(tp[half:], 2 * part)
        warm = min(self.micro, (self.world - 1 - rank) // self.stage)
        program: Program = []
        for _ in range(warm):
            program += [*self._pass(rank, group, 20, ("recv", before)), *forward]
            program += self._pass(rank, group, 24, ("send", after))
        if self.micro > warm:
            program += self._pass(rank, group, 20, ("recv", before))
        for number in range(self.micro - warm):
            last = number == self.micro - warm - 1
            program += [*forward, *self._pass(rank, group, 26, ("send", after), ("recv", after))]
            program += backward
            both = (("send", before),) if last else (("send", before), ("recv", before))
            program += self._pass(rank, group, 36, *both)
        for _ in range(warm):
            program += [*self._pass(rank, group, 30, ("recv", after)), *backward]
            program += self._pass(rank, group, 34, ("send", before))
        return program

    def _layer(self, tp: list[Call], seconds: float) -> Program:
        if not tp:
            return []
        return [replace(call, compute_s=seconds / len(tp)) for call in tp]

    def _pass(self, rank: int, group: str, line: int, *parts: tuple[str, int]) -> Program:
        there = tuple(part for part in parts if 0 <= part[1] < self.world)
        compute_s = 0.001 if self.tensor else self.step_s / (4 * self.micro)
        where = site(STEP, ("forward_backward", "pipeline.py", 160 + line))
        if not there:
            return []
        if self.batched:
            size = self.hidden
            return [Call(group, "coalesced", size, size, where, "BFloat16", there, compute_s)]
        # Both sides name the message to the later stage first: a single send waits for its receive.
        ordered = sorted(there, key=lambda part: (part[0] == "send") != (part[1] > rank))
        size = self.hidden
        return [
            *(
                Call(group, op, size, size, where, "BFloat16", ((op, peer),), compute_s, later=True)
                for op, peer in ordered
            ),
            WAIT,
        ]


def _expert(rng: random.Random, world: int, steps: int) -> Layout:
    width = rng.choice([w for w in (2, 4, 8) if world // w >= 2] or [2])
    world = max(world // width, 2) * width
    groups = grid(
        world,
        {
            "EXPERT_MODEL_PARALLEL_GROUP": lambda r: r // width,
            "EXPERT_DATA_PARALLEL_GROUP": lambda r: r % width,
        },
    )
    expert = of_kind(groups, "EXPERT_MODEL_PARALLEL_GROUP", world)
    data = of_kind(groups, "EXPERT_DATA_PARALLEL_GROUP", world)
    layers, step_s, tokens = rng.randint(1, 3), rng.choice((1.5, 5.0)), rng.randrange(1 << 30)
    shared, own = rng.randrange(1, 99) * 65_536, rng.randrange(1, 99) * 65_536
    forward = (STEP, ("forward", "train.py", 112))
    dispatch = site(*forward, ("dispatch", "moe.py", 71))
    combine = site(*forward, ("combine", "moe.py", 96))
    programs = []
    for rank in range(world):
        routed = random.Random(tokens + rank)

        def body(number: int, rank: int = rank, routed: random.Random = routed) -> Program:
            calls: Program = []
            for _ in range(layers):
                there, back = routed.randint(900, 4_000) * 512, routed.randint(900, 4_000) * 512
                calls += [
                    Call(expert[rank], "all_to_all", there, back, dispatch, compute_s=step_s / 3),
                    Call(expert[rank], "all_to_all", back, there, combine, compute_s=step_s / 6),
                ]
            calls += [
                Call(data[rank], "all_reduce", own, own, BACKWARD, "Float", later=True),
                Call("0", "all_reduce", shared, shared, BACKWARD, "Float", later=True),
                WAIT,
            ]
            return [*calls, *_step_end(rng, number)]

        programs.append([Mark("sync", READY), *_rest(steps, body)])
    sizes = {"ep": width, "edp": world // width}
    return Layout("expert", groups, programs, [*groups], step_s, steps, f"ep{width}", 1, sizes)


def _context(rng: random.Random, world: int, steps: int) -> Layout:
    ring = rng.choice([w for w in (2, 4, 8) if world // w >= 2] or [2])
    world = max(world // ring, 2) * ring
    groups = grid(
        world,
        {"CONTEXT_PARALLEL_GROUP": lambda r: r // ring, "DATA_PARALLEL_GROUP": lambda r: r % ring},
    )
    context = of_kind(groups, "CONTEXT_PARALLEL_GROUP", world)
    data = of_kind(groups, "DATA_PARALLEL_GROUP", world)
    layers, step_s = rng.randint(1, 2), rng.choice((2.0, 7.0))
    size, shard = rng.randrange(1, 40) * 131_072, rng.randrange(1, 99) * 65_536
    where = site(STEP, ("forward", "train.py", 112), ("ring_attention", "attention.py", 133))
    gradients = Call(
        "", "_reduce_scatter_base", shard * (world // ring), shard, BACKWARD, compute_s=step_s / 2
    )
    programs = []
    for rank in range(world):
        first = rank // ring * ring
        after, before = first + (rank + 1) % ring, first + (rank - 1) % ring
        parts = (("send", after), ("recv", before))
        turn = Call(context[rank], "coalesced", size, size, where, "BFloat16", parts, step_s / 20)

        def body(number: int, rank: int = rank, turn: Call = turn) -> Program:
            calls: Program = [turn] * (layers * (ring - 1))
            calls += [
                replace(gradients, group=data[rank]),
                Call(context[rank], "all_reduce", shard, shard, BACKWARD, "Float"),
            ]
            return [*calls, *_step_end(rng, number)]

        programs.append([Mark("sync", READY), *_rest(steps, body)])
    sizes = {"cp": ring, "dp": world // ring}
    return Layout("context", groups, programs, [*groups], step_s, steps, f"cp{ring}", 1, sizes)


_BUILDERS: dict[str, Callable[[random.Random, int, int], Layout]] = {
    "ddp": _ddp, "fsdp": _fsdp, "hsdp": _hsdp, "tp_pp_dp": _tp_pp_dp, "expert": _expert,
    "context": _context,
}  # fmt: skip
NAMES = tuple(_BUILDERS)
