"""The grid of a job by its groups, and the part of it that suspects share."""

from __future__ import annotations

import random

import pytest

from diagnose.infer.collectives.parallelism import Axis, Group, Topology, smallest_unit, topology

Sets = list[list[int]]


def made(*kinds: tuple[str, Sets]) -> list[Group]:
    """Groups named by a running number, in an order of no meaning."""
    groups: list[Group] = []
    for desc, sets in kinds:
        for members in sets:
            key = str(len(groups))
            groups.append(Group(key, key, desc, tuple(members), True))
    random.Random(1).shuffle(groups)
    return groups


def strided(world: int, size: int, stride: int) -> Sets:
    """Groups of `size` ranks `stride` apart."""
    block = size * stride
    return [
        [*range(first, first + block, stride)]
        for begin in range(0, world, block)
        for first in range(begin, begin + stride)
    ]


def told(groups: list[Group], world: int) -> dict[str, tuple[int, tuple[tuple[int, ...], ...]]]:
    return {axis.name: (axis.size, axis.groups) for axis in topology(groups, world).axes}


# All groups of a real Megatron job of 16 ranks: TP 4, PP 2, DP 2, EP 8, no context parallelism.
MEGATRON = made(
    ("default_pg", [[*range(16)]]),
    ("DATA_PARALLEL_GROUP_WITH_CP", strided(16, 2, 4)),
    ("MODEL_PARALLEL_GROUP", [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]]),
    ("TENSOR_MODEL_PARALLEL_GROUP", strided(16, 4, 1)),
    ("PIPELINE_MODEL_PARALLEL_GROUP", strided(16, 2, 8)),
    ("EMBEDDING_GROUP", strided(16, 2, 8)),
    ("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", strided(16, 8, 1)),
    ("TENSOR_AND_CONTEXT_PARALLEL_GROUP", strided(16, 4, 1)),
    ("EXPERT_MODEL_PARALLEL_GROUP", strided(16, 8, 1)),
    ("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", strided(16, 8, 1)),
    ("EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", [[*range(16)]]),
    ("EXPERT_DATA_PARALLEL_GROUP", [[rank] for rank in range(16)]),
    ("INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", [[*range(16)]]),
)
# TP 2, PP 4, DP 2 with the stages outermost, as Megatron lays them out.
GRID = topology(
    made(
        ("TENSOR_MODEL_PARALLEL_GROUP", strided(16, 2, 1)),
        ("DATA_PARALLEL_GROUP", strided(16, 2, 2)),
        ("PIPELINE_MODEL_PARALLEL_GROUP", strided(16, 4, 4)),
    ),
    16,
)


def test_a_real_megatron_job() -> None:
    found = topology(MEGATRON, 16)
    assert found.axes == (
        Axis("TP", 4, ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15))),
        Axis("EP", 8, (tuple(range(8)), tuple(range(8, 16)))),
        Axis(
            "DP",
            2,
            ((0, 4), (1, 5), (2, 6), (3, 7), (8, 12), (9, 13), (10, 14), (11, 15)),
        ),
        Axis(
            "PP",
            2,
            ((0, 8), (1, 9), (2, 10), (3, 11), (4, 12), (5, 13), (6, 14), (7, 15)),
        ),
    )
    assert found.coordinates[0] == {"TP": 0, "EP": 0, "DP": 0, "PP": 0}
    assert found.coordinates[13] == {"TP": 1, "EP": 5, "DP": 1, "PP": 1}


def test_coordinates_of_a_grid() -> None:
    assert [(axis.name, axis.size) for axis in GRID.axes] == [("TP", 2), ("DP", 2), ("PP", 4)]
    assert GRID.axes[2].groups == ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
    assert sorted(GRID.coordinates) == [*range(16)]
    for rank, place in GRID.coordinates.items():
        assert rank == place["TP"] + 2 * (place["DP"] + 2 * place["PP"])


def test_the_order_of_groups_does_not_matter() -> None:
    want = topology(MEGATRON, 16)
    for seed in range(5):
        shuffled = random.Random(seed).sample(MEGATRON, len(MEGATRON))
        assert topology(shuffled, 16) == want


def test_context_groups_are_taken_out_of_the_data_axis() -> None:
    groups = made(
        ("CONTEXT_PARALLEL_GROUP", strided(8, 2, 1)),
        ("DATA_PARALLEL_GROUP_WITH_CP", [[*range(8)]]),
        ("INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", strided(8, 4, 1)),
    )
    assert told(groups, 8) == {
        "CP": (2, ((0, 1), (2, 3), (4, 5), (6, 7))),
        "DP": (4, ((0, 2, 4, 6), (1, 3, 5, 7))),
    }


@pytest.mark.parametrize(
    ("desc", "name"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "TP"),
        ("mesh_tp", "TP"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "PP"),
        ("mesh_pp", "PP"),
        ("pipe_parallel", "PP"),
        ("DATA_PARALLEL_GROUP", "DP"),
        ("DATA_PARALLEL_GROUP_GLOO", "DP"),
        ("mesh_dp_shard", "DP"),
        ("fsdp:root", "DP"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "EP"),
        ("mesh_ep", "EP"),
        ("CONTEXT_PARALLEL_GROUP", "CP"),
        ("mesh_cp", "CP"),
        ("undefined", "stride 2"),
        ("", "stride 2"),
        ("my_group", "stride 2"),
    ],
)
def test_what_descriptions_name(desc: str, name: str) -> None:
    assert told(made((desc, strided(8, 2, 2))), 8) == {name: (2, ((0, 2), (1, 3), (4, 6), (5, 7)))}


@pytest.mark.parametrize(
    "desc",
    [
        "MODEL_PARALLEL_GROUP",
        "EMBEDDING_GROUP",
        "POSITION_EMBEDDING_GROUP",
        "TENSOR_AND_DATA_PARALLEL_GROUP",
        "TENSOR_AND_CONTEXT_PARALLEL_GROUP",
        "EXPERT_DATA_PARALLEL_GROUP",
        "EXPERT_TENSOR_PARALLEL_GROUP",
        "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP",
        "HIERARCHICAL_CONTEXT_PARALLEL_GROUP_0",
        "mesh_dp_shard_cp",
        "mesh_default",
        "default_pg",
    ],
)
def test_groups_that_combine_axes_are_none(desc: str) -> None:
    assert topology(made((desc, strided(8, 2, 2))), 8) == Topology((), {})


def test_replicas_before_shards() -> None:
    groups = made(
        ("mesh_dp_shard", strided(8, 4, 1)),
        ("mesh_dp_replicate", strided(8, 2, 4)),
    )
    assert told(groups, 8) == {
        "stride 1": (4, ((0, 1, 2, 3), (4, 5, 6, 7))),
        "DP": (2, ((0, 4), (1, 5), (2, 6), (3, 7))),
    }


def test_groups_that_say_nothing_are_told_by_stride() -> None:
    groups = made(
        ("undefined", strided(16, 2, 1)),
        ("undefined", strided(16, 4, 1)),
        ("", strided(16, 4, 4)),
        ("undefined", [[0, 1, 8, 9], [2, 3, 10, 11], [4, 5, 12, 13], [6, 7, 14, 15]]),
        ("undefined", [[*range(16)]]),
    )
    assert told(groups, 16) == {
        "stride 1": (2, tuple((n, n + 1) for n in range(0, 16, 2))),
        "stride 1 of 4": (4, tuple((n, n + 1, n + 2, n + 3) for n in range(0, 16, 4))),
        "stride 4": (4, tuple((n, n + 4, n + 8, n + 12) for n in range(4))),
        "?": (4, ((0, 1, 8, 9), (2, 3, 10, 11), (4, 5, 12, 13), (6, 7, 14, 15))),
    }


@pytest.mark.parametrize(
    "sets",
    [
        [[0, 1], [2, 3], [4, 5]],  # ranks 6 and 7 are in none
        [[0, 1], [2, 3], [4, 5, 6, 7]],  # unequal
        [[0, 1], [1, 2], [3, 4], [5, 6]],  # not disjoint
        [[0, 1], [2, 3], [4, 5], [6, 8]],  # beyond the world
        [[rank] for rank in range(8)],  # of one rank
    ],
)
def test_what_is_no_partition_is_no_axis(sets: Sets) -> None:
    assert topology(made(("mesh_tp", sets)), 8).axes == ()
    assert topology(made(("undefined", sets)), 8).axes == ()


def test_no_groups() -> None:
    assert topology([], 0) == Topology((), {})


def test_data_parallel_only() -> None:
    found = topology(made(("fsdp:root", [[0, 1, 2, 3]])), 4)
    assert found.axes == (Axis("DP", 4, ((0, 1, 2, 3),)),)
    assert smallest_unit([0, 1, 2, 3], found) is None


@pytest.mark.parametrize(
    ("suspects", "kind", "text"),
    [
        ([6, 7], "TP group", "all suspects are in TP group 3 (ranks 6-7)"),
        ([8, 9, 10, 11], "PP stage", "all suspects are in pipeline stage 2 (ranks 8-11)"),
        (
            [8, 9, 11],
            "PP stage",
            "all suspects are in pipeline stage 2 (ranks 8-11), 3 of its 4 ranks",
        ),
        (
            [2, 3, 6, 7, 10, 11, 14, 15],
            "DP replica",
            "all suspects are in DP replica 1 (ranks 2-3, 6-7, 10-11, 14-15)",
        ),
    ],
)
def test_the_smallest_unit_of_a_grid(suspects: list[int], kind: str, text: str) -> None:
    unit = smallest_unit(suspects, GRID)
    assert unit is not None
    assert (unit.kind, unit.text) == (kind, text)
    assert set(suspects) <= set(unit.ranks)
    assert unit.label in text


@pytest.mark.parametrize(
    "suspects",
    [
        [],
        [5],  # one rank is its own unit
        [0, 15],
        [8, 10],  # half of a stage
        [6, 7, 8],
        list(range(16)),
    ],
)
def test_suspects_that_share_no_unit(suspects: list[int]) -> None:
    hosts = {rank: f"node{rank // 8}" for rank in range(16)}
    assert smallest_unit(suspects, GRID, hosts) is None


def test_hosts_and_gpus() -> None:
    hosts = {rank: f"node{rank // 4}" for rank in range(16)}
    halves = {rank: str(rank % 4 // 2) for rank in range(16)}  # two ranks share a GPU

    # Host and stage are the same ranks here: what can be replaced is named.
    unit = smallest_unit([8, 9, 10, 11], GRID, hosts)
    assert unit is not None
    assert (unit.kind, unit.label, unit.ranks) == ("host", "host node2", (8, 9, 10, 11))
    assert unit.text == "all suspects are on host node2"
    unit = smallest_unit([8, 9, 10], GRID, hosts)
    assert unit is not None
    assert unit.text == "all suspects are on host node2, 3 of its 4 ranks"
    unit = smallest_unit([10, 11], GRID, hosts, halves)
    assert unit is not None
    assert (unit.kind, unit.text) == ("gpu", "all suspects are on GPU 1 of host node2")
    # The same GPU number on two hosts is not one GPU.
    assert smallest_unit([2, 6], Topology(), hosts, halves) is None


def test_the_only_host_explains_nothing() -> None:
    assert smallest_unit([0, 1, 2, 3], Topology(), dict.fromkeys(range(4), "node0")) is None


def test_units_of_axes_without_a_name() -> None:
    found = topology(made(("undefined", strided(8, 4, 2))), 8)
    unit = smallest_unit([0, 2, 4, 6], found)
    assert unit is not None
    assert (unit.kind, unit.label) == ("group", "stride 2 group 0 (ranks 0, 2, 4, 6)")
    unit = smallest_unit([2, 3], found)
    assert unit is not None
    assert (unit.kind, unit.label) == ("slice", "stride 2 place 1 (ranks 2-3)")


def test_equal_parts_are_told_as_the_stage() -> None:
    unit = smallest_unit(range(8, 16), topology(MEGATRON, 16))
    assert unit is not None
    assert (unit.kind, unit.label) == ("PP stage", "pipeline stage 1 (ranks 8-15)")
