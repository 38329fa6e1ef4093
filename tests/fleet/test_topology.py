"""Where nodes are, and which unit explains an excess of blame."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.make_fleet import SHAPES, plant, write
from diagnose.catalog.load import load_catalog
from diagnose.errors import InputError
from diagnose.fleet import read
from diagnose.fleet.blame import Tally, chance
from diagnose.fleet.nodes import Nodes, nodes
from diagnose.fleet.topology import expanded, read_topology
from diagnose.fleet.units import _Level

CAUSES = load_catalog().node_causes


def topology(tmp_path: Path, text: str) -> dict[str, dict[str, str]]:
    path = tmp_path / "topology"
    path.write_text(text)
    return read_topology(path).levels


def test_a_csv_small_units_first(tmp_path: Path) -> None:
    rows = [f"n{n},leaf{n // 4},rack{n // 2},all" for n in range(8)]
    found = topology(tmp_path, "\n".join(["host,leaf,rack,site", *rows]))
    assert list(found) == ["rack", "leaf"]  # one site for all says nothing
    assert (found["rack"]["n5"], found["leaf"]["n5"]) == ("rack2", "leaf1")


def test_switches_of_slurm(tmp_path: Path) -> None:
    text = (
        "# tree\nSwitchName=l[1] Nodes=ignored\nSwitchName=leaf1 Nodes=n[01-04],x7\n"
        "SwitchName=leaf2 Nodes=n[05-08]\nSwitchName=leaf3 Nodes=n[09-12] LinkSpeed=1\n"
        "SwitchName=s1 Switches=leaf[1-2]\nSwitchName=s2 Switches=leaf3\n"
        "SwitchName=top Switches=s[1-2]\n"
    )
    found = topology(tmp_path, text)
    assert list(found) == ["leaf", "switch level 2"]
    assert (found["leaf"]["n04"], found["leaf"]["x7"]) == ("leaf1", "leaf1")
    assert (found["switch level 2"]["n08"], found["switch level 2"]["n09"]) == ("s1", "s2")
    blocks = topology(tmp_path, "BlockName=b1 Nodes=a[1-2]\nBlockName=b2 Nodes=a[3-4]\n")
    assert blocks == {"block": {"a1": "b1", "a2": "b1", "a3": "b2", "a4": "b2"}}


def test_nodes_of_kubernetes(tmp_path: Path) -> None:
    def node(name: str, **labels: str) -> dict[str, object]:
        return {"metadata": {"name": name, "labels": labels}}

    zone, clique = "topology.kubernetes.io/zone", "nvidia.com/gpu.clique"
    items = [node(f"n{n}", **{zone: f"z{n // 4}", clique: f"c{n // 2}"}) for n in range(8)]
    found = topology(tmp_path, json.dumps({"kind": "List", "items": items}))
    assert list(found) == ["nvlink", "zone"]
    assert (found["nvlink"]["n3"], found["zone"]["n3"]) == ("c1", "z0")


@pytest.mark.parametrize(
    "text", ["", "hello", "host\na\n", "{", "[" * 10_000, '{"items": 3}', "host,rack\na,r\nb,r\n"]
)
def test_what_is_no_topology_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="no topology"):
        topology(tmp_path, text)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_topology_may_come_from_any_editor(tmp_path: Path, encoding: str) -> None:
    zone = "topology.kubernetes.io/zone"
    nodes_ = [{"metadata": {"name": f"n{n}", "labels": {zone: f"z{n}"}}} for n in range(2)]
    items = [*nodes_, {"metadata": {"name": "new"}}]  # one without labels hides no other
    for text in ("Host, zone\r\nn0, z0\r\nn1, z1\r\n", json.dumps({"items": items})):
        path = tmp_path / "topology"
        path.write_bytes(text.encode(encoding))
        assert read_topology(path).levels == {"zone": {"n0": "z0", "n1": "z1"}}


def test_what_a_topology_lists_is_bounded(tmp_path: Path) -> None:
    wide = "SwitchName=a Nodes=n[1-200000]\nSwitchName=b Nodes=m\n"
    again = "".join(f"SwitchName=up{n} Switches=a,a,a,a\n" for n in range(20))
    with pytest.raises(InputError, match="more than"):
        topology(tmp_path, wide + again)
    assert len(topology(tmp_path, wide + again[:60])["leaf"]) == 200_001


def test_host_lists_are_bounded() -> None:
    assert [*expanded(f"a[1-{'9' * 5000}],a[-3],a[3-],a[4-3],b")] == ["b"]
    assert [*expanded("a[1-3,07],b,c[9]-x")] == ["a1", "a2", "a3", "a07", "b", "c9-x"]
    assert [*expanded("a[1-999999999]")] == []
    assert sum(1 for _ in expanded("a[1-150000],b[1-150000]")) == 200_000


def planted(tmp_path: Path, kind: str, times: float, seed: int) -> tuple[str, Nodes]:
    rng = np.random.default_rng(seed)
    one = plant(rng, kind, times, 20_000, 20_000, 512)
    write(rng, tmp_path / "r", one, SHAPES["training"], 512)
    where = read_topology(tmp_path / "r" / "topology.csv")
    return one.unit, nodes(read(tmp_path / "r"), CAUSES, where)


@pytest.mark.parametrize(("kind", "times"), [("rack", 15), ("leaf", 8)])
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


def test_a_unit_of_one_node_is_that_node(tmp_path: Path) -> None:
    host, _ = planted(tmp_path, "node", 60, 12)
    path = tmp_path / "r" / "topology.csv"
    head, *rows = path.read_text().splitlines()
    serials = [f"{row},S{n:04}" for n, row in enumerate(rows)]
    path.write_text("\n".join([f"{head},serial", *serials]))
    found = nodes(read(tmp_path / "r"), CAUSES, read_topology(path))
    assert (found.units, [one.host for one in found.suspects]) == ([], [host])


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
