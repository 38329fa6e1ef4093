"""What Prometheus reads."""

from __future__ import annotations

import builtins
from typing import Any
from urllib.request import urlopen

import pytest

from diagnose.errors import InputError
from diagnose.watch.outlets import Metrics, View, parsed
from diagnose.watch.pulse import State


def read(port: int) -> list[str]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return [line for line in answer.read().decode().splitlines() if not line.startswith("#")]


def test_all_of_them() -> None:
    metrics = Metrics("127.0.0.1:0")
    try:
        first = read(metrics.port)
        metrics.view = View(
            State.STALLED, 2, 1, "checkpoint", 1.5, 9.0, 12.25, 40, 3, 100, {"rank 0": 12.25}
        )
        assert read(metrics.port) == [
            'diagnose_watch_state{state="starting"} 0.0',
            'diagnose_watch_state{state="running"} 0.0',
            'diagnose_watch_state{state="stalled"} 1.0',
            'diagnose_watch_state{state="ended"} 0.0',
            'diagnose_watch_phase{phase="checkpoint"} 1.0',
            "diagnose_watch_stalls_total 2.0",
            "diagnose_watch_restarts_total 1.0",
            "diagnose_watch_heartbeat_seconds 1.5",
            "diagnose_watch_limit_seconds 9.0",
            "diagnose_watch_progress_age_seconds 12.25",
            "diagnose_watch_step 40.0",
            "diagnose_watch_files 3.0",
            "diagnose_watch_missed_bytes 100.0",
            'diagnose_watch_rank_progress_age_seconds{rank="rank 0"} 12.25',
        ]
    finally:
        metrics.close()
    assert 'diagnose_watch_state{state="starting"} 1.0' in first
    assert not [line for line in first if "heartbeat" in line]


def test_addresses() -> None:
    assert parsed(":9400") == ("0.0.0.0", 9400)
    assert parsed("9400") == ("0.0.0.0", 9400)
    assert parsed("[::1]:9400") == ("::1", 9400)


@pytest.mark.parametrize("address", ["", "host", ":x", ":99999"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(InputError, match="an address such as :9400 is needed"):
        Metrics(address)


def test_a_port_in_use() -> None:
    metrics = Metrics("127.0.0.1:0")
    try:
        with pytest.raises(InputError, match="Address already in use"):
            Metrics(f"127.0.0.1:{metrics.port}")
    finally:
        metrics.close()


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *given: Any) -> Any:
        if name == "prometheus_client":
            raise ImportError(name)
        return real(name, *given)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"pip install 'prometheus-client"):
        Metrics(":0")
