from __future__ import annotations

import pytest

from diagnose.diagnosis import Collective, Culprits, Diagnosis, Evidence, JobFacts, RootCause
from diagnose.fingerprint import fingerprint, normalised

ROOT = RootCause("net.fabric", "Fabric failed", "It did.", "high", "nccl.ib.retry-exceeded")


def diagnosis(line: str, **changes: object) -> Diagnosis:
    known: dict[str, object] = {
        "verdict": "failed", "root_cause": ROOT, "phase": "training",
        "evidence": [Evidence("rank_0.log", 7, line, "says so")],
        "job": JobFacts(hosts=["gpu-a1", "login.example.org"]),
    }  # fmt: skip
    return Diagnosis(**(known | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "normal"),
    [
        ("2025-11-03 08:30:10,123 ERROR train: died at step 512", "train: died at step <n>"),
        ("free(): invalid pointer 0x7f3a12bc", "free(): invalid pointer <hex>"),
        ("cannot open '/data/run 7/x.pt' (errno 5)", "cannot open '<path> <n>/x.pt' (errno <n>)"),
        ("gpu-a1 lost contact with login.example.org", "<host> lost contact with <host>"),
        ("peer 10.20.0.7:4791 and 192.168.1.1<0>", "peer <ip> and <ip>"),
        ("see https://e.org/x?y=1, please", "see <url>, please"),
        ("id 123e4567-e89b-12d3-a456-426614174000 deadbeef12", "id <id> <hex>"),
        ("ranks [0, 1, 2] took 1.5e-3 s", "ranks <n> took <n> s"),
        ("decade facade", "decade facade"),
    ],
)
def test_what_differs_from_run_to_run_goes(line: str, normal: str) -> None:
    assert normalised(line, ["gpu-a1", "login.example.org"]) == normal


def test_the_same_failure_elsewhere_is_the_same() -> None:
    one = diagnosis("gpu-a1:41:99 [0] NCCL WARN NET/IB : Got completion 12 from 10.0.0.1")
    other = diagnosis(
        "gpu-b7:802:1 [3] NCCL WARN NET/IB : Got completion 4 from 10.9.8.7",
        job=JobFacts(hosts=["gpu-b7"]), culprits=Culprits([3], ["gpu-b7"]),
    )  # fmt: skip
    assert fingerprint(one) == fingerprint(other)
    assert len(fingerprint(one)) == 16


def test_what_matters_makes_another() -> None:
    stop = Collective("default", "ALLREDUCE", 7)
    found = [
        diagnosis("it broke"),
        diagnosis("it burst"),
        diagnosis("it broke", phase="checkpoint"),
        diagnosis("it broke", root_cause=RootCause("net.fabric", "t", "s", "high", "other")),
        diagnosis("it broke", root_cause=RootCause("hw.gpu", "t", "s", "high", ROOT.signature)),
        diagnosis("it broke", verdict="hung", collective=stop),
        diagnosis("it broke", verdict="hung", collective=Collective("g", "BROADCAST", 7)),
    ]
    assert len({fingerprint(one) for one in found}) == len(found)


def test_all_healthy_jobs_are_one() -> None:
    assert fingerprint(diagnosis("a", verdict="healthy")) == fingerprint(
        diagnosis("b", verdict="healthy", phase=None)
    )


def test_a_fingerprint_never_changes() -> None:
    assert fingerprint(diagnosis("it broke")) == "442c2b127b5ff53c"


def test_a_long_hostile_line_takes_no_time() -> None:
    for line in ("/a" * 50_000, "a." * 50_000, "[1," * 50_000, "0x" * 50_000, "-" * 100_000):
        assert len(normalised(line)) <= 300
