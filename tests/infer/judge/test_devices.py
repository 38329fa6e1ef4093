"""Who holds up Ascend devices, by what HCCL prints of links, notifies and addresses."""

from __future__ import annotations

import json
from pathlib import Path

import diagnose
from diagnose.diagnosis import Culprits, Device, Diagnosis

_WORLD = "10.0.0.5%eth0_60000_0_17"


def _plog(pid: int, second: int, text: str, level: str = "ERROR") -> str:
    return (
        f"[{level}] HCCL({pid},python3):2031-02-03-04:05:{second:02}.000.000 [a.cc:12] [7]{text}\n"
    )


def _agent(pid: int, rank: int, host: int, device: int, size: int = 4) -> str:
    text = (
        f"[HCCL_TRACE]SetupAgent rankNum[{size}], rank[{rank}], rootInfo identifier[{_WORLD}], "
        f"server[10.0.0.{host}%eth0], logicDevId[{device}], phydevId[{device}], "
        f"deviceIp[10.1.{host}.{device}]"
    )
    return _plog(pid, 1, text, "INFO")


def _no_answer(pid: int, second: int, own: str, peer: str) -> str:
    row = f"   |  {peer}(1)   |  16666  |   {own}(0)   |  28  |  client  | time out |"
    return _plog(pid, second, row)


def _job(tmp_path: Path, logs: dict[str, str]) -> Diagnosis:
    for name, text in logs.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.read_text() + text if path.exists() else text)
    return diagnose.diagnose(diagnose.load(tmp_path))


def _log(worker: int, pid: int) -> str:
    return f"worker-{worker}/debug/plog/plog-{pid}_20310203040500000.log"


def test_the_device_at_the_end_of_all_waits_is_named(tmp_path: Path) -> None:
    """By address between hosts, by physical number within one; it printed no error itself."""
    found = _job(
        tmp_path,
        {
            _log(0, 11): _agent(11, 0, 5, 0) + _no_answer(11, 40, "10.1.5.0", "10.1.6.0"),
            _log(1, 21): _agent(21, 1, 6, 0)
            + _plog(
                21,
                30,
                "connected p2p timeout, timeout:30 s. local logicDevid:0, remote physic id:1.",
            ),
            _log(1, 22): _agent(22, 2, 6, 1),
        },
    )
    assert found.culprits == Culprits(
        [2], ["worker-1"], "missing", "all waits end there", [Device("worker-1", 1)]
    )
    assert found.root_cause.summary.startswith(
        "worker-0 device 0 waited for worker-1 device 0, that for worker-1 device 1, which shows no"
    )


def test_a_circle_names_all_of_it(tmp_path: Path) -> None:
    found = _job(
        tmp_path,
        {
            _log(0, 11): _agent(11, 0, 5, 0) + _no_answer(11, 41, "10.1.5.0", "10.1.6.0"),
            _log(1, 21): _agent(21, 1, 6, 0) + _no_answer(21, 40, "10.1.6.0", "10.1.5.0"),
        },
    )
    assert found.root_cause.cause == "desync.mismatch"
    assert found.culprits.devices == [Device("worker-0", 0), Device("worker-1", 0)]
    assert found.root_cause.summary == (
        "worker-1 device 0 waited for worker-0 device 0, that for worker-1 device 0: a circle, in "
        "which each waits for the next."
    )


def test_a_notify_wait_names_the_rank_of_the_group_of_its_process(tmp_path: Path) -> None:
    text = "[TaskExceptionHandler][Callback]Task run failed, para information is notify id:[0x7], "
    found = _job(
        tmp_path,
        {
            _log(0, 11): _agent(11, 0, 5, 0, 2),
            _log(1, 21): _agent(21, 1, 6, 3, 2)
            + _plog(21, 30, f"{text}stage:[ffffffff], remote rank:[0]."),
        },
    )
    assert found.culprits.devices == [Device("worker-0", 0)]


def test_addresses_that_nobody_has_name_no_device(tmp_path: Path) -> None:
    """What the links share is their own host, if they lead to different ends."""
    broken = "[Heartbeat]cqe err status[12], time:[2031-02-03 04:05:30.1], ip:[{}]"
    logs = {
        _log(0, pid): _agent(pid, pid, 5, pid) + _plog(pid, 30, broken.format(f"10.9.0.{pid}"))
        for pid in (1, 2)
    }
    found = _job(tmp_path, logs)
    assert (found.root_cause.cause, found.culprits.devices) == ("net.fabric", [])
    assert found.culprits.hosts == ["worker-0"]


def test_two_ends_accuse_nobody(tmp_path: Path) -> None:
    found = _job(
        tmp_path,
        {
            _log(0, 11): _agent(11, 0, 5, 0) + _no_answer(11, 40, "10.1.5.0", "10.1.6.0"),
            _log(0, 12): _agent(12, 1, 5, 1) + _no_answer(12, 40, "10.1.5.1", "10.1.6.1"),
            _log(1, 21): _agent(21, 2, 6, 0),
            _log(1, 22): _agent(22, 3, 6, 1),
        },
    )
    assert found.culprits.devices == []
    assert found.culprits.ranks == []


def _refused(pid: int, minute: int) -> str:
    """A process reached nobody, and does not say whom."""
    return (
        f"[ERROR] HCCL({pid},python3):2031-02-03-04:{minute:02}:00.000.000 [a.cc:12] [7]the "
        "connection failure between this device and target device may be due to the following "
        "reasons:\n"
    )


def _patience(pid: int) -> str:
    return _plog(pid, 1, "HCCL_CONNECT_TIMEOUT set by environment to [120]s", "INFO")


def test_one_that_came_when_others_had_given_up_is_named(tmp_path: Path) -> None:
    logs = {
        _log(0, pid): _patience(pid) + _agent(pid, pid, 5, pid) + _refused(pid, 7 + 9 * (pid == 2))
        for pid in (0, 1, 2)
    }
    found = _job(tmp_path, logs)
    assert found.culprits == Culprits(
        [2], ["worker-0"], "missing", "it came when others had given up", [Device("worker-0", 2)]
    )
    assert "came more than 120 s later" in found.root_cause.summary


def test_within_the_timeout_nobody_is_late(tmp_path: Path) -> None:
    logs = {
        _log(0, pid): _patience(pid) + _agent(pid, pid, 5, pid) + _refused(pid, 7 + (pid == 2))
        for pid in (0, 1, 2)
    }
    found = _job(tmp_path, logs)
    assert (found.culprits.ranks, found.culprits.devices) == ([], [])


def test_one_with_a_log_and_no_wait_is_named(tmp_path: Path) -> None:
    logs = {_log(0, pid): _agent(pid, pid, 5, pid) + _refused(pid, 7) for pid in (0, 1)}
    found = _job(tmp_path, logs | {_log(1, 2): _agent(2, 2, 6, 0)})
    assert found.culprits.devices == [Device("worker-1", 0)]
    assert found.root_cause.summary == (
        "2 devices waited for a connection, worker-1 device 0 shows no wait in its log."
    )


def test_as_many_without_a_wait_as_with_one_accuse_nobody(tmp_path: Path) -> None:
    logs = {_log(0, 0): _agent(0, 0, 5, 0) + _refused(0, 7), _log(0, 1): _agent(1, 1, 5, 1)}
    found = _job(tmp_path, logs)
    assert found.culprits.devices == []


def test_the_port_with_another_tls_setting_is_named(tmp_path: Path) -> None:
    logs = {
        _log(0, pid): _agent(pid, pid, 5, pid)
        + _plog(pid, 2, f"TLS SWITCH ({int(pid != 1)})", "EVENT")
        + _refused(pid, 7)
        for pid in (0, 1, 2)
    }
    found = _job(tmp_path, logs)
    assert (found.root_cause.cause, found.culprits.devices) == (
        "env.config",
        [Device("worker-0", 1)],
    )
    assert found.root_cause.summary == (
        "TLS is off on the port of worker-0 device 1 and not on those of the others: no link is "
        "made."
    )


def test_tls_that_differs_explains_no_failure_without_a_link(tmp_path: Path) -> None:
    text = "[TaskExceptionHandler][Callback]Task run failed, para information is notify id:[0x7], "
    logs = {
        _log(0, pid): _agent(pid, pid, 5, pid)
        + _plog(pid, 2, f"TLS SWITCH ({int(pid != 1)})", "EVENT")
        + _plog(pid, 30, f"{text}stage:[ffffffff], remote rank:[{(pid + 1) % 3}].")
        for pid in (0, 1, 2)
    }
    found = _job(tmp_path, logs)
    assert (found.root_cause.cause, found.culprits.devices) != (
        "env.config",
        [Device("worker-0", 1)],
    )


def test_a_ring_inside_a_call_accuses_nobody(tmp_path: Path) -> None:
    text = "[TaskExceptionHandler][Callback]Task run failed, para information is notify id:[0x7], "
    logs = {
        _log(0, pid): _agent(pid, pid, 5, pid, 3)
        + _plog(pid, 30, f"{text}stage:[ffffffff], remote rank:[{(pid + 1) % 3}].")
        for pid in (0, 1, 2)
    }
    found = _job(tmp_path, logs)
    assert (found.culprits.ranks, found.culprits.devices) == ([], [])


def test_one_that_waits_for_a_rank_without_a_log_is_no_end(tmp_path: Path) -> None:
    text = "[TaskExceptionHandler][Callback]Task run failed, para information is notify id:[0x7], "
    logs = {
        _log(0, pid): _agent(pid, pid, 5, pid, 8)
        + _plog(pid, 30, f"{text}stage:[ffffffff], remote rank:[{pid + 1}].")
        for pid in (0, 1)
    }
    found = _job(tmp_path, logs)
    assert (found.culprits.ranks, found.culprits.devices) == ([], [])


def test_a_device_that_its_peers_name_is_named(tmp_path: Path) -> None:
    line = (
        "[TaskExecStage][HeartbeatAbnormal]Cluster Exception Location[IP/ID]:[10.0.0.6/1], Arrival "
        "Time:[Mon Feb 3 04:05:00 2031], Discoverer:[10.0.0.5/0], ExceptionType:[Heartbeat Lost "
        "Occurred], Possible Reason:1. Process has exited, 2. Network Disconnected"
    )
    logs = {
        _log(0, 11): _agent(11, 0, 5, 0) + _plog(11, 30, line),
        _log(1, 21): _agent(21, 1, 6, 1),
    }
    found = _job(tmp_path, logs)
    assert (found.root_cause.cause, found.culprits.ranks) == ("desync.missing_rank", [1])
    assert found.culprits.devices == [Device("worker-1", 1)]


def test_ranks_whose_calls_differ_are_named_with_their_devices(tmp_path: Path) -> None:
    """The number of a call in a group is compared as that of any other library."""
    text = "[TaskExceptionHandler][Callback]Task run failed, base information is streamID:[3], "
    logs = {
        _log(0, pid): _agent(pid, pid, 5, pid, 3)
        + _plog(
            pid,
            30,
            f"{text}taskID[7], taskType[Notify Wait], tag[AllReduce_{_WORLD}], "
            f"index[{3 - (pid == 1)}], AlgType(level 0-1-2):[null-null-ring].",
        )
        for pid in (0, 1, 2)
    }
    found = _job(tmp_path, logs)
    assert (found.culprits.ranks, found.culprits.devices) == ([1], [Device("worker-0", 1)])


def test_links_that_break_one_after_the_other_make_nobody_late(tmp_path: Path) -> None:
    broken = "[Heartbeat]cqe err status[12], time:[2031-02-03 04:05:30.1], ip:[10.9.{}.7]"
    logs = {
        _log(pid, pid): _patience(pid)
        + _agent(pid, pid, 5 + pid, pid)
        + _plog(pid, 30, broken.format(pid)).replace("04:05:30", f"04:{5 + 9 * (pid == 2):02}:30")
        for pid in (0, 1, 2)
    }
    found = _job(tmp_path, logs)
    assert (found.root_cause.cause, found.culprits.devices) == ("net.fabric", [])


def test_one_without_a_wait_is_not_named_where_others_wait_for_an_address_without_a_log(
    tmp_path: Path,
) -> None:
    logs = {
        _log(0, pid): _agent(pid, pid, 5, pid) + _no_answer(pid, 40, f"10.1.5.{pid}", "10.1.9.9")
        for pid in (0, 1)
    }
    found = _job(tmp_path, logs | {_log(1, 2): _agent(2, 2, 6, 0)})
    assert (found.culprits.ranks, found.culprits.devices) == ([], [])


def test_links_that_mindie_names_by_address_lead_to_a_device_of_the_rank_table(
    tmp_path: Path,
) -> None:
    servers = []
    for node in (5, 6, 7):
        own = {"device_id": "0", "device_ip": f"10.1.{node}.0", "rank_id": str(node - 5)}
        servers.append({"server_id": f"10.0.0.{node}", "device": [own]})
    line = (
        "[2031-02-03 04:05:06,789] [134] [2814] [llm] [ERROR] [logging.py-56] : Link from "
        "10.1.{}.0 to 10.1.{}.0 failed, error code is MIE05E01001B.\n"
    )
    table = json.dumps({"server_list": servers})
    logs = {"mindie.log": line.format(5, 6) + line.format(6, 7), "ranktable.json": table}
    found = _job(tmp_path, logs)
    assert (found.culprits.ranks, found.culprits.devices) == ([2], [Device("10.0.0.7", 0)])
