"""Which unit of a topology explains an excess of blame."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.make_fleet import SHAPES, plant, write
from diagnose.catalog.load import load_catalog
from diagnose.fleet import read
from diagnose.fleet.blame import Tally, chance
from diagnose.fleet.nodes import Nodes, nodes
from diagnose.fleet.units import _Level
from diagnose.job.topology import read_topology
from diagnose.report.fleet import words

CAUSES = load_catalog().node_causes


def planted(tmp_path: Path, kind: str, times: float, seed: int) -> tuple[str, Nodes]:
    rng = np.random.default_rng(seed)
    one = plant(rng, kind, times, 20_000, 20_000, 512)
    write(rng, tmp_path / "r", one, SHAPES["training"], 512)
    where = read_topology(tmp_path / "r" / "topology.csv")
    return one.unit, nodes(read(tmp_path / "r"), CAUSES, where)


@pytest.mark.parametrize(("kind", "times"), [("rack", 15), ("leaf", 8)])
@pytest.mark.slow
def test_the_smallest_unit_that_explains_it(tmp_path: Path, kind: str, times: float) -> None:
    unit, found = planted(tmp_path, kind, times, 11)
    assert [(one.level, one.name) for one in found.units] == [(kind, unit)]
    assert found.suspects == []  # its nodes are no suspects of their own
    assert found.units[0].nodes == {"rack": 16, "leaf": 64}[kind]
    assert found.units[0].ratio > 3
    assert found.units[0].p < 1e-6


def test_a_bad_node_is_not_its_rack(tmp_path: Path) -> None:
    host, found = planted(tmp_path, "node", 60, 12)
    assert found.units == []
    assert [one.host for one in found.suspects] == [host]


@pytest.mark.parametrize(
    ("kind", "times", "level"), [("rail", 12, "pod"), ("nvlink", 20, "nvlink")]
)
@pytest.mark.slow
def test_a_rail_is_not_its_pod_nor_an_nvlink_domain_its_rack(
    tmp_path: Path, kind: str, times: float, level: str
) -> None:
    unit, found = planted(tmp_path, kind, times, 14)
    name, _, rail = unit.partition("-rail")
    assert [(one.level, one.name, one.rail) for one in found.units] == [
        (level, name, int(rail) if rail else None)
    ]
    assert words.unit_name(found.units[0]) == (f"{name} rail {rail}" if rail else f"nvlink {name}")


@pytest.mark.slow
def test_an_adapter_of_a_bad_node(tmp_path: Path) -> None:
    unit, found = planted(tmp_path, "nic", 300, 15)
    assert [f"{one.host}-rail{one.rail}" for one in found.suspects] == [unit]
    assert f"nearly all on GPU {unit[-1]} or its adapter" in words.suspect_more(found.suspects[0])


@pytest.mark.slow
def test_a_unit_of_one_node_is_that_node(tmp_path: Path) -> None:
    host, _ = planted(tmp_path, "node", 60, 12)
    path = tmp_path / "r" / "topology.csv"
    head, *rows = path.read_text().splitlines()
    serials = [f"{row},S{n:04}" for n, row in enumerate(rows)]
    path.write_text("\n".join([f"{head},serial", *serials]))
    found = nodes(read(tmp_path / "r"), CAUSES, read_topology(path))
    assert (found.units, [one.host for one in found.suspects]) == ([], [host])


@pytest.mark.slow
def test_hosts_of_the_logs_may_lack_the_domain(tmp_path: Path) -> None:
    unit, _ = planted(tmp_path, "rack", 15, 11)
    path = tmp_path / "r" / "topology.csv"
    head, *rows = path.read_text().splitlines()
    path.write_text("\n".join([head, *(row.replace(",", ".example.org,", 1) for row in rows)]))
    found = nodes(read(tmp_path / "r"), CAUSES, read_topology(path))
    assert [one.name for one in found.units] == [unit]


def test_addresses_have_no_domain() -> None:
    level = _Level("rack", ["10.0.0.3", "n1"], {"10.0.0.1": "r1", "n1.a.org": "r1", "n2": "r2"})
    assert [level.names[at] for at in level.of] == ["", "r1"]


def test_who_has_no_place_or_all_of_them_is_not_blamed_by_chance() -> None:
    places, blamed = np.array([[0, 0], [2, 5]]), np.array([[0, 0], [2, 1]])
    assert [chance(Tally(places, blamed), node) for node in (0, 1)] == [1.0, pytest.approx(1.0)]


@pytest.mark.parametrize("kind", ["none", "team"])
def test_nothing_is_blamed_for_chance_or_a_team(tmp_path: Path, kind: str) -> None:
    _, found = planted(tmp_path, kind, 10, 13)
    assert (found.units, found.suspects) == ([], [])
