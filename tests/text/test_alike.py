"""What is left of a line without what differs from run to run."""

from __future__ import annotations

import time

import pytest

from diagnose.text.alike import alike

HOSTS = frozenset({"n1", "gpu-07.corp.example", "gpu-07", "head", "fe80::1"})


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("n1 waits for gpu-07.corp.example", "<host> waits for <host>"),
        ("gpu-07.other: lost gpu-07", "<host>.other: lost <host>"),
        ("n1-eth0, xn1, x.n1 and n1_2 stay", "n<n>-eth<n>, xn<n>, x.n<n> and n<n>_<n> stay"),
        ("[head]:29500 via fe80::1", "[<host>]:<n> via <host>"),
    ],
)
def test_names_of_hosts(text: str, left: str) -> None:
    assert alike(text, HOSTS) == left


def test_thousands_of_hosts_cost_no_more_than_one() -> None:
    hosts = frozenset(f"gpu-{number:05}" for number in range(10_000))
    alike("", hosts)
    began = time.process_time()
    for number in range(200):
        assert alike(f"gpu-{number:05} is up", hosts) == "<host> is up"
    assert time.process_time() - began < 1.0
