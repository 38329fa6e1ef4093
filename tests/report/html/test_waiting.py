from diagnose.diagnosis import Collective, Diagnosis, RootCause, WaitGraph
from diagnose.infer.collectives.parallelism import Axis, Topology
from diagnose.report.html.ranks import (
    MAX_NODES,
    Cell,
    Waiting,
    by_state,
    grid,
    joined_and_missing,
    waiting,
)
from diagnose.report.safe import scrubber

ROOT = RootCause("unknown", "", "", "low")
SCRUB = scrubber(redact=True)


def graph(state: dict[int, str], edges: list[tuple[int, int, str]]) -> Waiting:
    found = waiting(Diagnosis("hung", ROOT, graph=WaitGraph(state, edges)), state, SCRUB)
    assert found is not None
    return found


def test_ranks_that_wait_alike_are_one_node() -> None:
    state = dict.fromkeys(range(8), "waiting") | {3: "culprit"}
    found = graph(state, [(rank, 3, "ALLREDUCE seq 4") for rank in range(8) if rank != 3])
    assert [(node.label, node.state, node.level) for node in found.nodes] == [
        ("rank 3", "culprit", 0),
        ("ranks 0-2, 4-7", "waiting", 1),
    ]
    assert found.edges == [(1, 0, "ALLREDUCE seq 4")]
    assert found.sentences == ["Ranks 0-2, 4-7 wait for rank 3 in ALLREDUCE seq 4."]


def test_a_chain_over_groups_has_levels() -> None:
    # stage 0 (ranks 0, 1) sends to stage 1 (2, 3); rank 2 waits for rank 3 in their group
    state = {0: "waiting", 1: "waiting", 2: "waiting", 3: "culprit"}
    found = graph(state, [(2, 3, "ALLREDUCE"), (0, 2, "SEND to rank 2"), (1, 2, "SEND to rank 2")])
    assert [(node.label, node.level) for node in found.nodes] == [
        ("rank 3", 0),
        ("ranks 0-1", 2),
        ("rank 2", 1),
    ]


def test_pairs_that_differ_only_in_their_numbers_fold() -> None:
    state = dict.fromkeys(range(16), "waiting") | {15: "culprit"}
    edges = [(rank, rank + 8, f"send to rank {rank + 8} seq 9") for rank in range(7)]
    edges += [(rank, 15, "all_to_all seq 2") for rank in range(8, 15)]
    found = graph(state, edges)
    assert [node.label for node in found.nodes] == ["rank 15", "ranks 0-6", "ranks 8-14"]
    assert found.edges[0] == (
        1, 2, "send to rank 10 seq 9, send to rank 11 seq 9 and 5 more",
    )  # fmt: skip


def test_a_cycle_is_placed_too() -> None:
    state = {0: "waiting", 1: "waiting"}
    found = graph(state, [(0, 1, "RECV from rank 1"), (1, 0, "SEND to rank 0")])
    assert {node.label for node in found.nodes} == {"rank 0", "rank 1"}
    assert len(found.edges) == 2


def test_a_graph_that_will_not_fold_is_bounded() -> None:
    state = dict.fromkeys(range(500), "waiting")
    found = graph(state, [(rank, rank + 1, "op " + "x" * rank) for rank in range(499)])
    assert len(found.nodes) <= MAX_NODES


def test_without_a_graph_the_collective_tells() -> None:
    diagnosis = Diagnosis("hung", ROOT, collective=Collective("tp", "BROADCAST", 3, [0, 1], [2, 3]))
    found = waiting(diagnosis, {0: "waiting", 1: "waiting", 2: "missing", 3: "culprit"}, SCRUB)
    assert found is not None
    assert found.sentences == [
        "Ranks 0-1 wait for rank 3 in BROADCAST, sequence number 3.",
        "Ranks 0-1 wait for rank 2 in BROADCAST, sequence number 3.",
    ]
    assert joined_and_missing(diagnosis) == (
        "BROADCAST, sequence number 3, group tp",
        [("Joined", "ranks 0-1"), ("Missing", "ranks 2-3")],
    )


def test_no_collective_no_graph() -> None:
    diagnosis = Diagnosis("failed", ROOT)
    assert waiting(diagnosis, {0: "seen"}, SCRUB) is None
    assert joined_and_missing(diagnosis) is None


def test_grid_by_topology() -> None:
    tp = Axis("TP", 2, ((0, 1), (2, 3), (4, 5), (6, 7)))
    pp = Axis("PP", 2, ((0, 4), (1, 5), (2, 6), (3, 7)))
    coordinates = {rank: {"TP": rank % 2, "PP": rank // 4} for rank in range(8)}
    states = dict.fromkeys(range(8), "seen")
    found = grid(Topology((tp, pp), coordinates), states, {}, SCRUB)
    assert found is not None
    assert (found.across, found.down, found.columns) == ("TP", "PP", 2)
    assert found.rows == ["PP0", "PP0", "PP1", "PP1"]
    assert found.cells[5] == Cell(1, 2, 5)


def test_grid_by_host_and_without_hosts() -> None:
    states = dict.fromkeys(range(4), "seen")
    hosts = {0: "b", 1: "b", 2: "a", 3: "a"}
    by_host = grid(None, states, hosts, SCRUB)
    assert by_host is not None
    assert (by_host.across, by_host.rows, by_host.columns) == ("GPU", ["a", "b"], 2)
    assert by_host.cells == [Cell(0, 0, 2), Cell(1, 0, 3), Cell(0, 1, 0), Cell(1, 1, 1)]
    plain = grid(None, dict.fromkeys(range(200), "seen"), {}, SCRUB)
    assert plain is not None
    assert (plain.columns, plain.rows) == (64, ["0", "64", "128", "192"])
    assert plain.cells[65] == Cell(1, 1, 65)
    assert grid(None, {0: "seen"}, {}, SCRUB) is None


def test_ranks_by_state_in_the_order_of_importance() -> None:
    assert by_state({0: "seen", 1: "waiting", 2: "waiting", 3: "culprit"}) == [
        ("culprit", "rank 3", 1),
        ("waiting", "ranks 1-2", 2),
        ("seen", "rank 0", 1),
    ]
