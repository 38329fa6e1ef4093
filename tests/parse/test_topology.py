"""Where nodes are, by the files of schedulers, clusters and fabrics."""

import json
import time
from pathlib import Path
from zlib import crc32

import pytest
import yaml

from diagnose.errors import InputError
from diagnose.job.topology import read_topology
from diagnose.parse.topology import expanded


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


CONF = "SwitchName=l1 Nodes=n[1-2]\nSwitchName=l2 Nodes=n[3-4]\n"
SLURM_YAML = """# two fabrics
---
- topology: tree
  cluster_default: true
  tree:
    switches:
      - switch: root
        children: s[1-2]
      - switch: s1
        nodes: n[1-2]
      - switch: s2
        nodes: n[3-4]
- topology: blocks
  cluster_default: false
  block:
    block_sizes: [2, 4]
    blocks:
      - block: b1
        nodes: n[1-3]
      - {block: b2, nodes: n4}
- topology: small
  flat: true
"""


def test_topology_yaml_of_slurm(tmp_path: Path) -> None:
    assert topology(tmp_path, SLURM_YAML) == {
        "leaf": {"n1": "s1", "n2": "s1", "n3": "s2", "n4": "s2"},
        "block": {"n1": "b1", "n2": "b1", "n3": "b1", "n4": "b2"},
    }
    other = (
        SLURM_YAML[4:].replace("s1", "t1").replace("true", "false").partition("- topology: b")[0]
    )
    found = topology(tmp_path, SLURM_YAML + other.partition("---\n")[2])
    assert found["leaf"]["n1"] == "s1"  # the default of the cluster has the last word


@pytest.mark.parametrize("text", [CONF, SLURM_YAML])
def test_a_configmap_of_topograph(tmp_path: Path, text: str) -> None:
    one = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "slurm-config"}}
    one["data"] = {"slurm.conf": "NodeName=n[1-4]", "topology": text}  # type: ignore[assignment]
    whole = [json.dumps(one), yaml.safe_dump(one), json.dumps({"items": [one], "kind": "List"})]
    assert [{*topology(tmp_path, form)["leaf"]} for form in whole] == [{"n1", "n2", "n3", "n4"}] * 3


def test_a_configmap_in_a_configmap_is_not_read(tmp_path: Path) -> None:
    inner = json.dumps({"metadata": {}, "data": {"topology.conf": CONF}})
    with pytest.raises(InputError, match="no topology"):
        topology(tmp_path, json.dumps({"metadata": {}, "data": {"a": inner}}))


def test_instances_of_topograph(tmp_path: Path) -> None:
    rows = [
        {"id": f"I{n}", "type": "H100", "network_layers": [f"leaf-{n // 2}", f"spine-{n // 4}"],
         "attributes": {"nvlink": f"nvl-{n}"}}
        for n in range(8)
    ]  # fmt: skip
    found = topology(tmp_path, json.dumps({"instances": [*rows, {"id": "new"}]}))
    assert list(found) == ["nvlink", "leaf", "spine"]
    assert (found["nvlink"]["I3"], found["leaf"]["I3"], found["spine"]["I7"]) == (
        "nvl-3", "leaf-1", "spine-1",
    )  # fmt: skip


def test_labels_of_clouds(tmp_path: Path) -> None:
    layer = "topology.k8s.aws/network-node-layer-{}"
    items = [
        {"metadata": {"name": f"n{n}", "labels": {
            layer.format(3): f"nn-{n}", layer.format(2): f"nn-{n // 2}", layer.format(1): "nn-0"}}}
        for n in range(4)
    ]  # fmt: skip
    for text in (json.dumps({"items": items}), yaml.safe_dump({"items": items})):
        assert list(topology(tmp_path, text)) == ["leaf", "spine"]


def fabric(*switches: tuple[str, list[str]]) -> str:
    """As ibnetdiscover prints it: each switch and what is at its ports."""
    lines = ["#", "# Topology file: generated on Wed Aug  6 16:11:23 2025", "#"]
    for name, ends in switches:
        number = f"{crc32(name.encode()):016x}"
        lines += ["", "vendid=0x2c9", f"switchguid=0x{number}({number})"]
        lines.append(
            f'Switch\t65 "S-{number}"\t\t# "MF0;{name}:MQM9701/U1" enhanced port 0 lid 73 lmc 0'
        )
        for port, end in enumerate(ends, 1):
            to = f"{crc32(end.encode()):016x}"
            if end.startswith("SPINE"):
                lines.append(f'[{port}]\t"S-{to}"[31]\t\t# "MF0;{end}:MQM9701/U1" lid 236 4xNDR')
            else:
                lines.append(f'[{port}]\t"H-{to}"[1]({to}) \t\t# "{end}" lid 647 4xNDR')
    return "\n".join([*lines, "", 'Ca\t1 "H-00"\t\t# "n1 mlx5_0"', ""])


def test_a_fabric_by_ibnetdiscover(tmp_path: Path) -> None:
    noise = ["Mellanox Technologies Aggregation Node", "MT4129 ConnectX7   Mellanox Technologies"]
    found = topology(tmp_path, fabric(
        ("LEAF-1", ["n1 mlx5_0", "n2 HCA-1", *noise, "SPINE-1"]),
        ("LEAF-2", ["n3 mlx5_0", "n4 mlx5_0", "SPINE-1"]),
        ("LEAF-3", ["n5 mlx5_0", "n6 mlx5_0", "SPINE-2"]),
        ("SPINE-1", []), ("SPINE-2", []),
    ))  # fmt: skip
    assert found["leaf"] == {
        "n1": "LEAF-1", "n2": "LEAF-1", "n3": "LEAF-2", "n4": "LEAF-2", "n5": "LEAF-3",
        "n6": "LEAF-3",
    }  # fmt: skip
    assert [found["spine"][f"n{n}"] for n in (1, 4, 5)] == ["SPINE-1", "SPINE-1", "SPINE-2"]


def test_leaf_switches_of_the_same_nodes_are_one_unit(tmp_path: Path) -> None:
    rails = [(f"L{unit}-{rail}", [f"n{unit}{node} mlx5_{rail}" for node in range(4)])
             for unit in range(2) for rail in range(4)]  # fmt: skip
    found = topology(tmp_path, fabric(*rails))
    assert found == {"leaf": {f"n{u}{n}": f"L{u}-0 + 3" for u in range(2) for n in range(4)}}


BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nkind: [*b, *b]\n"


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "kind: " + "[" * 100_000,
        "kind: List\nitems: 3\n",
        "data: {a: 1}\n",
        "topology: 3",
        "- topology: a\n  tree: {switches: 3}\n",
        '{"instances": {"id": 3}}',
        '{"data": 1}',
        "- topology: !!python/object/apply:os.system [ls]\n",
        'Switch 1 "S-1" # "a"\n[1]',
        "",
        "hello",
        "host\na\n",
        "{",
        "[" * 10_000,
        '{"items": 3}',
        "host,rack\na,r\nb,r\n",
    ],
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


@pytest.mark.parametrize(
    "text",
    [
        f"SwitchName=a Nodes=n\nSwitchName=b Nodes=m\nSwitchName=c Nodes={'a' * 20_000}[\n",
        f"SwitchName=a Nodes=n\n{'a' * 100_000}\nSwitchName=b Nodes=m\n",
    ],
    ids=["hosts", "words"],
)
def test_a_long_line_of_a_topology_takes_no_long_time(tmp_path: Path, text: str) -> None:
    started = time.process_time()
    assert topology(tmp_path, text) == {"leaf": {"n": "a", "m": "b"}}
    assert time.process_time() - started < 2


@pytest.mark.slow
def test_switches_of_switches_are_bounded(tmp_path: Path) -> None:
    many = "".join(f"SwitchName=up{n} Switches=s{n}x[1-200000]\n" for n in range(20))
    with pytest.raises(InputError, match="more than"):
        topology(tmp_path, f"SwitchName=a Nodes=n\n{many}")


def test_columns_of_a_csv_may_be_many_and_rows_short(tmp_path: Path) -> None:
    head = ",".join(f"c{n}" for n in range(10_000))
    rows = "".join(f"n{n},r{n // 2}\n" for n in range(10_000))
    started = time.process_time()
    found = topology(tmp_path, f"host , rack ,{head}\n{rows} ,r\nx\n")
    assert time.process_time() - started < 2
    assert list(found) == ["rack"]
    assert found["rack"] == {f"n{n}": f"r{n // 2}" for n in range(10_000)}


def test_host_lists_are_bounded() -> None:
    assert [*expanded(f"a[1-{'9' * 5000}],a[-3],a[3-],a[4-3],b")] == ["b"]
    assert [*expanded("a[1-3,07],b,c[9]-x")] == ["a1", "a2", "a3", "a07", "b", "c9-x"]
    assert [*expanded("a[1-999999999]")] == []
    assert sum(1 for _ in expanded("a[1-150000],b[1-150000]")) == 200_000
