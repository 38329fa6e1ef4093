"""Layouts of simulated jobs: groups, and the program of every rank."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.infer.dump_jobs import SYNC, WAIT, Call, Groups, of

Program = list[Call]


def _ddp(rng: random.Random) -> tuple[Groups, list[Program]]:
    world, buckets, every = rng.choice((8, 12, 16, 32, 64)), rng.randint(1, 4), rng.randint(1, 4)
    step = [Call("0", "all_reduce", 100 + b, 10 + b, later=b % 2 == 0) for b in range(buckets)]
    program: Program = [Call("0", "broadcast", 7, 5)]
    for number in range(rng.randint(6, 12)):
        program += [*step, WAIT]
        if number % every == every - 1:
            program += [Call("0", "all_reduce", 1, 30), SYNC]
    return {"0": ("default_pg", list(range(world)))}, [list(program) for _ in range(world)]


def _sharded(rng: random.Random) -> tuple[Groups, list[Program]]:
    world, layers = rng.choice((8, 16, 32)), rng.randint(2, 4)
    gather = [Call("0", "_all_gather_base", 50 + n, 10, later=n > 0) for n in range(layers)]
    scatter = [Call("0", "_reduce_scatter_base", 50 + n, 20, later=True) for n in range(layers)]
    program: Program = []
    for _ in range(rng.randint(4, 8)):
        for call in gather:
            program += [call, WAIT] if rng.random() < 0.5 else [call]
        program += [WAIT]
        for first, second in zip(reversed(gather), reversed(scatter), strict=True):
            program += [replace(first, line=15), second]
        program += [WAIT, Call("0", "all_reduce", 1, 30)]
        program += [SYNC] if rng.random() < 0.7 else []
    return {"0": ("default_pg", list(range(world)))}, [list(program) for _ in range(world)]


def _grid(world: int, kinds: dict[str, Callable[[int], int]]) -> Groups:
    """The default group, and groups of each kind of the ranks that share a number."""
    groups: Groups = {"0": ("default_pg", list(range(world)))}
    for desc, number in kinds.items():
        for value in sorted({number(rank) for rank in range(world)}):
            members = [rank for rank in range(world) if number(rank) == value]
            groups[str(len(groups))] = (desc, members)
    return groups


def _tensor(rng: random.Random) -> tuple[Groups, list[Program]]:
    width = rng.choice((2, 4, 8))
    world = width * rng.choice((2, 4, 8))
    groups = _grid(world, {"TENSOR": lambda r: r // width, "DATA": lambda r: r % width})
    layers, every = rng.randint(1, 3), rng.randint(1, 4)
    programs = []
    steps, overlap = rng.randint(4, 8), rng.random() < 0.5
    for rank in range(world):
        tensor, data = of(groups, "TENSOR", rank), of(groups, "DATA", rank)
        program: Program = [Call("0", "barrier", 1, 3), SYNC]
        for step in range(steps):
            for layer in range(layers):
                program.append(Call(tensor, "all_gather", 16 + layer, 10))
                program.append(Call(tensor, "reduce_scatter", 32 + layer, 11))
                program.append(Call(data, "all_reduce", 64 + layer, 12, later=overlap))
            program += [WAIT, Call(data, "_all_gather_base", 80, 13)]
            if step % every == every - 1:
                program += [Call(tensor, "all_reduce", 2, 20), Call("0", "all_reduce", 1, 21), SYNC]
        programs.append(program)
    return groups, programs


def _pipeline(rng: random.Random) -> tuple[Groups, list[Program]]:
    width, depth = rng.choice((1, 2, 4)), rng.choice((2, 4))
    world = width * depth * rng.choice((2, 4))
    stage = world // depth
    groups = _grid(
        world,
        {
            "TENSOR": lambda r: r // width,
            "DATA": lambda r: r // stage * width + r % width,
            "PIPE": lambda r: r % stage,
        },
    )
    batched, steps, micro = rng.random() < 0.5, rng.randint(2, 4), rng.randint(2, 5)
    ahead = not batched and rng.random() < 0.5
    programs = []
    for rank in range(world):
        tensor, data, pipe = (of(groups, kind, rank) for kind in ("TENSOR", "DATA", "PIPE"))

        def pass_on(op: str, peer: int, line: int, pipe: str = pipe) -> Call:
            return Call(pipe, op, 40, line, peer)

        def layer(line: int, tensor: str = tensor) -> Program:
            twice = [Call(tensor, "all_gather", 16, line), Call(tensor, "reduce_scatter", 16, line)]
            return twice if width > 1 else []

        build = _one_forward_one_backward if batched else _all_forward
        program: Program = [Call("0", "barrier", 1, 3), SYNC]
        for _ in range(steps):
            passed = build(rank, stage, world, micro, pass_on, layer)
            program += _posted_ahead(passed) if ahead else passed
            program += [Call(data, "all_reduce", 64, 50)]
            program += [Call("0", "all_reduce", 1, 51), SYNC]
        programs.append(program)
    return groups, programs


def _all_forward(
    rank: int,
    stage: int,
    world: int,
    micro: int,
    pass_on: Callable[[str, int, int], Call],
    layer: Callable[[int], Program],
) -> Program:
    """All micro-batches forward, then all backward; plain sends and receives."""
    program: Program = []
    before, after = rank - stage, rank + stage
    for back, source, target in ((0, before, after), (10, after, before)):
        take = [pass_on("recv", source, 20 + back)] if 0 <= source < world else []
        for _ in range(micro):
            program += take
            program += layer(22 + back)
            program += [pass_on("send", target, 24 + back)] if 0 <= target < world else []
    return program


def _posted_ahead(program: Program) -> Program:
    """The same with every receive posted before the send of the micro-batch before it."""
    changed: Program = []
    for call in program:
        if call.op != "recv":
            changed.append(call)
        elif changed and changed[-1].op == "send" and changed[-1].peer != call.peer:
            changed[-1:] = [replace(call, later=True), changed[-1], WAIT]
        else:
            changed += [replace(call, later=True), WAIT]
    return changed


def _one_forward_one_backward(
    rank: int,
    stage: int,
    world: int,
    micro: int,
    pass_on: Callable[[str, int, int], Call],
    layer: Callable[[int], Program],
) -> Program:
    """One forward, one backward in turn; sends and receives in batches."""
    before, after = rank - stage, rank + stage
    first, last = before < 0, after >= world
    warm = min(micro, (world - 1 - rank) // stage)

    def batch(line: int, *parts: tuple[str, int]) -> Program:
        calls = tuple(pass_on(op, peer, line) for op, peer in parts if 0 <= peer < world)
        return [Call(calls[0].group, "coalesced", 0, line, parts=calls)] if calls else []

    program: Program = []
    for _ in range(warm):
        program += [*batch(20, ("recv", before)), *layer(22), *batch(24, ("send", after))]
    if micro > warm:
        program += batch(20, ("recv", before))
    for number in range(micro - warm):
        program += [*layer(22), *batch(26, ("send", after), ("recv", after)), *layer(32)]
        if number == micro - warm - 1:
            program += batch(34, ("send", before))
        else:
            program += batch(36, ("send", before), ("recv", before))
    for _ in range(warm):
        program += [*batch(30, ("recv", after)), *layer(32), *batch(34, ("send", before))]
    assert first or last or program
    return program


def _experts(rng: random.Random) -> tuple[Groups, list[Program]]:
    width = rng.choice((2, 4, 8))
    world = width * rng.choice((2, 4))
    groups = _grid(world, {"EXPERT": lambda r: r // width, "EXPERT_DATA": lambda r: r % width})
    steps, layers, uneven = rng.randint(3, 6), rng.randint(1, 3), rng.randrange(1 << 30)
    untidy = rng.choice((0, 0, 0.1, 0.4))  # how often two calls that can pass each other do
    programs = []
    for rank in range(world):
        tokens = random.Random(uneven + rank)
        expert, data = of(groups, "EXPERT", rank), of(groups, "EXPERT_DATA", rank)
        program: Program = []
        for _ in range(steps):
            for _ in range(layers):
                program.append(Call(expert, "all_to_all", tokens.randint(1, 99), 10))
                program.append(Call(expert, "all_to_all", tokens.randint(1, 99), 11))
            pair = [Call(data, "all_reduce", 64, 12, later=True)]
            pair.append(Call("0", "all_reduce", 70, 13, later=True))
            program += [*(reversed(pair) if tokens.random() < untidy else pair), WAIT]
            program += [Call("0", "all_reduce", 1, 20), SYNC]
        programs.append(program)
    return groups, programs


LAYOUTS = {
    "ddp": _ddp, "sharded": _sharded, "tensor": _tensor, "pipeline": _pipeline,
    "experts": _experts,
}  # fmt: skip
