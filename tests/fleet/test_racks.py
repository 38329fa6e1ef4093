"""The map of nodes by rack on the page of a fleet."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.make_fleet import SHAPES, plant, write
from diagnose.catalog.load import load_catalog
from diagnose.fleet import read, summarise
from diagnose.fleet.nodes import Node, Nodes
from diagnose.fleet.summary import Fleet
from diagnose.job.topology import read_topology
from diagnose.report.fleet import html

EMPTY = Nodes([], [], [], "rack", 0, 0, 0)


def test_racks_and_nodes_by_the_numbers_in_their_names() -> None:
    nodes = [Node(f"n{n}", 10, n == 10, 0, f"r{n // 10}") for n in (10, 2, 31, 100, 1, 101)]
    found = html.racks(replace(EMPTY, nodes=[*nodes, Node("lost", 10, 5, 0)]))
    assert [(rack.name, [cell.tip for cell in rack.cells]) for rack in found] == [
        ("r0", ["n1: 0 of 10", "n2: 0 of 10"]),
        ("r1", ["n10: 1 of 10"]),
        ("r3", ["n31: 0 of 10"]),
        ("r10", ["n100: 0 of 10", "n101: 0 of 10"]),
    ]


def test_heat_is_blame_for_the_number_of_jobs() -> None:
    blamed = {
        "busy": (1000, 10),
        "even": (100, 1),
        "two": (100, 3),
        "hot": (100, 30),
        "idle": (1, 0),
    }
    nodes = [Node(host, jobs, count, 0, "r") for host, (jobs, count) in blamed.items()]
    nodes += [Node(f"n{n:02d}", 100, 1, 0, "r") for n in range(60)]
    (rack,) = html.racks(replace(EMPTY, nodes=nodes))
    heat = {cell.tip.partition(":")[0]: cell.heat for cell in rack.cells}
    assert {name: heat[name] for name in blamed} == {
        "busy": 1, "even": 1, "two": 2, "hot": 4, "idle": 0,
    }  # fmt: skip


def test_there_is_no_map_without_racks_or_blame() -> None:
    nodes = [Node(f"n{n}", 10, 0, 0, "r") for n in range(4)]
    assert html.racks(replace(EMPTY, nodes=nodes)) == []
    assert html.racks(replace(EMPTY, nodes=[Node("n", 10, 5, 0)])) == []
    many = [Node(f"n{n}", 1, 1, 0, "r") for n in range(html.MAX_CELLS + 1)]
    assert html.racks(replace(EMPTY, nodes=many)) == []


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    folder = tmp_path_factory.mktemp("fleet")
    rng = np.random.default_rng(3)
    write(rng, folder, plant(rng, "rack", 15, 20_000, 20_000, 512), SHAPES["training"], 512)
    where = read_topology(folder / "topology.csv")
    return summarise(read(folder), catalog=load_catalog(), topology=where)


@pytest.mark.slow
def test_the_page_shows_the_bad_rack(fleet: Fleet) -> None:
    page = html.render(fleet)
    (unit,) = fleet.nodes.units
    row = page.partition(f"<p><b>{unit.name}</b>")[2].partition("</p>")[0]
    assert row.count("<i") == 16
    assert row.count("heat-4") > 8
    assert "<h3>Nodes by rack</h3>" in page


@pytest.mark.slow
def test_names_in_the_map_are_escaped_and_the_page_stays_small(fleet: Fleet) -> None:
    evil = '"><script>alert(1)</script>' + "x" * 500
    nodes = [Node(f"{evil}{n}", 10, n % 3, 0, f"<b>{n // 16}") for n in range(10_000)]
    page = html.render(replace(fleet, nodes=replace(fleet.nodes, nodes=nodes)))
    assert page.count("<i") >= 10_000
    assert "<script>alert" not in page
    assert "<b><b>" not in page
    assert len(page.encode()) < 5 << 20


def test_without_a_topology_nothing_is_drawn(fleet: Fleet) -> None:
    bare = [replace(node, unit=None) for node in fleet.nodes.nodes]
    page = html.render(replace(fleet, nodes=replace(fleet.nodes, nodes=bare, level=None)))
    assert 'class="racks"' not in page
