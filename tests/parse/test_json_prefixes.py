from __future__ import annotations

import json
from typing import Any

import pytest

from diagnose.parse.prefix import peel

from .said import MS, NS, US, said, stamp

NOON = "2024-05-01 12:00:00"
SECONDS = 1714564800


@pytest.mark.parametrize(
    ("record", "message", "expected"),
    [
        # docker; what it wraps is peeled too
        (
            {"log": "[rank3]: boom\n", "stream": "stderr",
             "time": "2024-05-01T12:00:00.123456789Z"},
            "boom",
            {"stamp": stamp(NOON + ".123456789", NS, 0), "stream": "stderr", "rank": 3,
             "names": ["docker", "rank"]},
        ),
        (
            {"ts": SECONDS + 0.5, "level": "error", "msg": "Traceback\n  File", "rank": 3,
             "hostname": "n1"},
            "Traceback\n  File",
            {"stamp": stamp(NOON + ".5", US, 0), "level": "ERROR", "rank": 3, "host": "n1",
             "names": ["json"]},
        ),
        (
            {"asctime": NOON + ",123", "levelname": "WARN", "message": "x",
             "process_index": "5", "LOCAL_RANK": 1, "process": 77},
            "x",
            {"stamp": stamp(NOON + ".123", MS), "level": "WARNING", "rank": 5, "local_rank": 1,
             "pid": 77, "names": ["json"]},
        ),
        (
            {"timestamp": SECONDS * 1000 + 7, "message": "x"},
            "x",
            {"stamp": stamp(NOON + ".007", MS, 0), "names": ["json"]},
        ),
        (
            {"__REALTIME_TIMESTAMP": str(SECONDS * 1_000_000), "_HOSTNAME": "n1", "_PID": "12",
             "MESSAGE": "NVRM: Xid", "PRIORITY": "3"},
            "NVRM: Xid",
            {"stamp": stamp(NOON, US, 0), "host": "n1", "pid": 12, "level": "ERROR",
             "names": ["journal"]},
        ),
        (
            {"message": "x", "nodeName": "n", "podName": "train-worker-0", "containerName": "c"},
            "x",
            {"host": "train-worker-0", "pod": True, "names": ["stern"]},
        ),
        # Google Cloud Logging, fluentd and filebeat on Kubernetes
        (
            {"textPayload": "x", "severity": "ERROR",
             "resource": {"type": "k8s_container", "labels": {"pod_name": "trainer-3"}},
             "labels": {"k8s-pod/rank": "3", "compute.googleapis.com/resource_name": "gke-1"}},
            "x",
            {"host": "trainer-3", "pod": True, "rank": 3, "level": "ERROR", "names": ["json"]},
        ),
        (
            {"log": "x\n", "stream": "stdout", "kubernetes": {"pod_name": "w-1", "host": "n7"}},
            "x",
            {"host": "w-1", "pod": True, "stream": "stdout", "names": ["docker"]},
        ),
        (
            {"message": "x", "kubernetes": {"pod": {"name": "w-1"}, "node": {"name": "n7"},
                                            "labels": {"rank": "1"}}},
            "x",
            {"host": "w-1", "pod": True, "rank": 1, "names": ["json"]},
        ),
        # values that are no rank, time, level or priority
        (
            {"msg": "x", "rank": True, "ts": "soon", "level": 30, "PRIORITY": "12", "pid": -1},
            "x",
            {"names": ["json"]},
        ),
        ({"msg": "", "rank": 0}, "", {"rank": 0, "names": ["json"]}),
    ],
)  # fmt: skip
def test_says(record: dict[str, Any], message: str, expected: dict[str, Any]) -> None:
    prefix = peel(json.dumps(record))

    assert said(prefix) == expected
    assert prefix.message == message


@pytest.mark.parametrize(
    "line",
    [
        "{'loss': 0.5, 'epoch': 1.0}",
        '{"loss": 0.5}',
        '{"msg": 5}',
        '{"msg": "cut',
        '{"msg": "x"} and more',
        "{}",
        '{"msg":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"msg": "x", "rank": ' + "9" * 10_000 + "}",
    ],
)
def test_leaves_alone(line: str) -> None:
    prefix = peel(line)

    assert prefix.message == line
    assert said(prefix) == {}


def test_a_prefix_may_stand_before_the_record() -> None:
    prefix = peel('[pod/w-0/c] {"msg": "x", "rank": 2}')

    assert (prefix.message, prefix.host, prefix.rank) == ("x", "w-0", 2)
