"""The samples of other detectors' rows: whom they blame, and that healthy reports blame nobody."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import diagnose
from diagnose.formats import detector_rows
from diagnose.formats.detector_rows import id_of, made, rows, written
from diagnose.parse.detectors import hosts_in, logs_of, read_report

TOOLS = written()
SAMPLES = [
    pytest.param(name, sample, id=f"{name}-{sample.get('row', 'calls')}-{number}")
    for name, tool in TOOLS.items()
    for number, sample in enumerate(tool["samples"])
]
REFUSED = [
    pytest.param(one, id=f"{name}-{number}")
    for name, tool in TOOLS.items()
    for number, one in enumerate(tool["refused"])
]


def _written(folder: Path, sample: dict[str, Any]) -> Path:
    files = sample.get("files") or {sample.get("file", "job.log"): sample["text"]}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(("name", "sample"), SAMPLES)
def test_the_stated_culprit_is_named(name: str, sample: dict[str, Any], tmp_path: Path) -> None:
    result = diagnose.diagnose(diagnose.load(_written(tmp_path, sample)))
    if hosts := sample.get("hosts"):
        assert result.culprits.hosts == hosts
    assert result.culprits.ranks == sample.get("ranks", [])
    assert result.verdict in ("hung", "failed")
    if "row" in sample:
        (row,) = [one for one in TOOLS[name]["rows"] if one["name"] == sample["row"]]
        assert result.root_cause.cause == row["class"]
        assert result.root_cause.signature == id_of(name, row)
        if row.get("hang") and row["class"] != "data.loader":  # which ends a job as well
            assert result.verdict == "hung"
        weak = row.get("strength") == "weak"
        assert result.root_cause.confidence == ("low" if weak else "medium")


@pytest.mark.parametrize("one", REFUSED)
def test_what_blames_nobody(one: str | dict[str, str], tmp_path: Path) -> None:
    sample = {"text": one} if isinstance(one, str) else one
    result = diagnose.diagnose(diagnose.load(_written(tmp_path, sample)))
    assert not (result.root_cause.signature or "").startswith("detector.")
    if isinstance(one, str):
        return  # other entries may know the line
    assert result.verdict not in ("hung", "failed")
    assert result.culprits.ranks == result.culprits.hosts == []


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize(
    ("name", "number"), [("gpud", 0), ("npd", 0), ("npd", 4), ("ncclras", 2), ("torchcomms", 1)]
)
def test_a_byte_order_mark_hides_no_document(
    name: str, number: int, encoding: str, tmp_path: Path
) -> None:
    sample = TOOLS[name]["samples"][number]
    folder = _written(tmp_path, sample)
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_text(path.read_text(encoding="utf-8"), encoding=encoding)
    result = diagnose.diagnose(diagnose.load(folder))
    assert result.culprits.hosts == sample.get("hosts", [])
    assert result.culprits.ranks == sample.get("ranks", [])


def test_every_row_has_a_sample() -> None:
    shown = {(name, sample.get("row")) for name, sample in (one.values[:2] for one in SAMPLES)}
    blaming = (
        (name, row) for name, tool in TOOLS.items() for row in tool["rows"] if "class" in row
    )
    needed = {(name, row["name"]) for name, row in blaming}
    assert needed <= shown


def test_the_table_is_that_of_the_files() -> None:
    """Else `python -m diagnose.formats.detector_rows` was not run."""
    assert rows() == made()
    assert detector_rows.DETECTORS.with_suffix(".json").is_file()


EVENT = (
    '{"checkName": "GpuMemWatch", "isHealthy": false, "isFatal": true, "nodeName": "node-7", '
    '"message": "memory failure"}'
)


def test_what_is_captured() -> None:
    (claim,) = read_report(f"[\n{EVENT}]".encode(), "events.json").claims
    assert claim.signature == "detector.nvsentinel.gpu"
    assert claim.fields == {"host": "node-7", "name": "GpuMemWatch", "message": "memory failure"}
    assert (claim.source, claim.line, claim.text) == ("events.json", 2, EVENT)


def test_the_same_twice_is_one_claim() -> None:
    assert len(read_report(f"{EVENT}\n{EVENT}\n".encode(), "events.json").claims) == 1


def test_a_document_without_a_host_is_of_its_own() -> None:
    data = b'[{"component": "accelerator-nvidia-ecc", "states": [{"health": "Unhealthy"}]}]'
    (claim,) = read_report(data, "gpud.json", "node-7").claims
    assert claim.fields == {"host": "node-7"}
    assert read_report(data, "gpud.json").claims[0].fields == {}


def test_what_is_cut_off_is_read_so_far() -> None:
    report = read_report(f"{EVENT}\n{EVENT[:60]}".encode(), "events.json")
    assert len(report.claims) == 1
    with pytest.raises(ValueError, match="not valid JSON"):
        read_report(f"[{EVENT}, ".encode(), "events.json")


@pytest.mark.parametrize("inner", ["[" * 100_000, '{"a":' * 100_000, "[" * 60 + "]" * 60])
def test_deep_documents_end_in_time(inner: str) -> None:
    data = f'{{"checkName": 1, "nodeName": 2, "isHealthy": {inner or 0}'.encode()
    with pytest.raises(ValueError, match="not valid JSON"):
        read_report(data, "deep.json")


def test_claims_of_a_document_are_bounded() -> None:
    events = (EVENT.replace("node-7", f"node-{number}") for number in range(5_000))
    report = read_report("\n".join(events).encode(), "many.json")
    assert len(report.claims) == 2_000


@pytest.mark.slow
def test_millions_of_empty_parts_take_no_memory_beside_the_document() -> None:
    data = b'[{"checkName": 1, "nodeName": 2, "isHealthy": [' + b"[]," * 300_000 + b"1]}]"
    tracemalloc.start()
    read_report(data, "wide.json")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 40 << 20  # 28 MiB of lists and the text itself; each as a task had taken 50 more


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node-7", ["node-7"]),
        ("node-7, node-8", ["node-7", "node-8"]),
        ("node-[08-10,12],gpu3", ["node-08", "node-09", "node-10", "node-12", "gpu3"]),
        ("rack1-[1-2].x", ["rack1-1.x", "rack1-2.x"]),
        ("odd[a-b]", ["odd[a-b]"]),
        ("", []),
    ],
)
def test_hosts_of_a_list(text: str, hosts: list[str]) -> None:
    assert hosts_in(text) == hosts


def test_lists_of_hosts_are_bounded() -> None:
    assert len(hosts_in("n[0-999999999]," * 20)) == 2_000


def _kept(*lines: str, name: str = "plog-parser-11-1.log") -> bytes:
    process = {
        "base": {"phy_device_id": "0", "server_id": "10.0.0.5", "rank_map": {}},
        "error": {"first_error_module": "HCCL", "timeout_error_events_list": []},
        "show_logs": {"normal": list(lines[:1]), "error": list(lines[1:])},
        "plog_parsed_name": name,
    }
    return json.dumps({"11": process}).encode()


def test_lines_that_a_document_keeps_are_a_log_in_the_order_of_their_times() -> None:
    late, early = (f"[ERROR] HCCL(11,python3):2031-02-03-04:05:0{n}.000.000 x\n" for n in (7, 6))
    assert [*logs_of(_kept(late, early, late), "a.json")] == [
        ("plog-parser-11-1.log", early + late)
    ]


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[" * 5000, _kept()[:-9], b'{"rank_map": 1, "first_error_module": [}']
)
def test_a_document_that_cannot_be_read_keeps_no_log(data: bytes) -> None:
    assert [*logs_of(data, "a.json")] == []


def test_a_kept_log_is_a_source_of_its_process_beside_the_document(tmp_path: Path) -> None:
    path = tmp_path / "worker-1" / "ascend-rc-parser.json"
    path.parent.mkdir()
    path.write_bytes(_kept("[ERROR] HCCL(11,python3):2031-02-03-04:05:06.000.000 [a.cc:1] x\n"))
    sources = diagnose.load(tmp_path).sources
    assert [(one.name.partition("!")[2], one.kind, one.host) for one in sources] == [
        ("", "detector", "worker-1"), ("plog-parser-11-1.log", "text", "worker-1"),
    ]  # fmt: skip


def test_a_rank_table_alone_is_no_job(tmp_path: Path) -> None:
    table = TOOLS["ascend-ranktable"]["samples"][0]["files"]["rank_table.json"]
    (tmp_path / "hccl.json").write_text(table)
    with pytest.raises(diagnose.InputError):
        diagnose.load(tmp_path)


def test_a_rank_table_of_many_nodes_is_read_to_its_end() -> None:
    servers = [
        {
            "server_id": f"10.0.{node // 250}.{node % 250}",
            "device": [
                {
                    "device_id": str(number),
                    "device_ip": "10.1.0.1",
                    "rank_id": str(8 * node + number),
                }
                for number in range(8)
            ],
        }
        for node in range(500)
    ]
    claims = read_report(json.dumps({"server_list": servers}).encode(), "hccl.json").claims
    assert claims[-1].fields["rank"] == "3999"


def test_the_devices_of_ranks_that_other_lines_name_are_those_of_the_table(tmp_path: Path) -> None:
    table = TOOLS["ascend-ranktable"]["samples"][0]["files"]["rank_table.json"]
    (tmp_path / "hccl.json").write_text(table)
    (tmp_path / "job.log").write_text(
        "[rank3]: RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 1; 60.97 GiB "
        "total capacity; 57.12 GiB already allocated)\n[rank0]: waiting\n"
    )
    found = diagnose.diagnose(diagnose.load(tmp_path)).culprits
    assert (found.ranks, found.hosts) == ([3], ["10.0.0.6"])
    assert [(one.host, one.number) for one in found.devices] == [("10.0.0.6", 1)]


def test_logs_of_one_name_are_one_and_their_number_is_bounded() -> None:
    one = json.loads(_kept("a", "b"))["11"]
    twice = json.dumps({"rank_map": 0, "first_error_module": 0, "x": [one, one]}).encode()
    assert [*logs_of(twice, "a.json")] == [("plog-parser-11-1.log", "a\nb\n")]
    many = [{**one, "plog_parsed_name": f"plog-{number}_1.log"} for number in range(3000)]
    assert len([*logs_of(json.dumps(many).encode(), "a.json")]) == 2000
