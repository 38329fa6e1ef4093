"""Make the results of a scan of many jobs: `python benchmarks/make_results.py OUT [--count N]`.

No job is diagnosed: rows and texts are drawn at random (with a seed) in the shape of real ones.
4,000 nodes, of which three are bad; a few thousand fingerprints, one of
them begun by a version; every tenth troubled job is unexplained, with a text of its own.
"""

from __future__ import annotations

import argparse
import json
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from diagnose.batch.results import open_results
from diagnose.batch.work import Result

NODES = [f"gpu{number:04d}" for number in range(4000)]
BAD = NODES[47], NODES[1112], NODES[3163]
CAUSES = (
    "crash.exception", "crash.gpu_oom", "crash.native", "desync.mismatch", "desync.missing_rank",
    "data.loader", "hw.gpu", "hw.node", "net.fabric", "slow.storage", "slow.straggler",
)  # fmt: skip
NODE_CAUSES = CAUSES[6:]
VERSIONS = [
    json.dumps({"cuda": f"12.{cuda}", "nccl": f"2.2{nccl}.5", "torch": f"2.{torch}.0"})
    for torch in range(4, 9)
    for cuda in (1, 4, 6, 8)
    for nccl in range(1, 7)
]
BEGIN = datetime(2025, 6, 2)
WIDTHS = (1, 1, 1, 2, 2, 4, 4, 8, 16, 32)
ENDINGS = (
    "shard {n} of /data/c4/{n}.bin gave up on {host} after {m} tries",
    "worker {m} said good-bye to {host} at 0x{n:x}",
    "step {n}: the loss is not what it was",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with open_results(options.out, resume=False) as results:
        for at in range(options.count):
            one = row(rng, at, options.count)
            text = json.dumps(document(rng, one)) if one["class"] == "unknown" else ""
            results.add(Result(one, text))


def row(rng: random.Random, at: int, count: int) -> dict[str, Any]:
    """A job: three of five end well, the others have a cause, a cost and mostly a culprit."""
    user, hosts = f"user{rng.randrange(300):03d}", rng.sample(NODES, rng.choice(WIDTHS))
    began = BEGIN + timedelta(minutes=525_600 * at / count)
    ended = began + timedelta(seconds=rng.randrange(100, 400_000))
    version = rng.choice(VERSIONS[: 24 * (1 + 5 * at // count)])
    found: dict[str, Any] = {
        "job": f"job-{at:07d}", "source": f"/archive/{user}/2025/job-{at:07d}.tar.gz",
        "labels": json.dumps({"team": f"team{hash_of(user) % 20}", "user": user}),
        "verdict": "healthy", "class": "none", "confidence": "high", "phase": "training",
        "culprit_ranks": [], "culprit_hosts": [], "duration_hung_s": 0.0, "gpu_hours_lost": 0.0,
        "title": "No failure found", "hosts": [] if rng.random() < 0.1 else hosts,
        "ranks": 8 * len(hosts), "versions": version, "frameworks": [rng.choice(("a", "b"))],
        "started": began, "ended": ended, "size": 200_000,
        "mtime": (ended - datetime(1970, 1, 1)).total_seconds() + rng.random() * 9e4,
        "tag": f"{at:x}", "catalog": "c1", "notes": [],
    }  # fmt: skip
    ill = [host for host in hosts if host in BAD]
    if ill or rng.random() < 0.4:
        found |= trouble(rng, hosts, ill)
        if found["gpu_hours_lost"] is not None:
            found["onset"] = ended - timedelta(seconds=found["duration_hung_s"])
    if rng.random() < 0.002:
        found |= {"verdict": None, "class": None, "title": None,
                  "error": f"job-{at:07d}.tar.gz: member {at % 9} is truncated"}  # fmt: skip
    return found


def trouble(rng: random.Random, hosts: list[str], ill: list[str]) -> dict[str, Any]:
    if rng.random() < 0.1:
        return {"verdict": "unknown", "class": "unknown", "title": "The cause is not known",
                "gpu_hours_lost": None, "notes": ["no line explains it"]}  # fmt: skip
    cause = "hw.gpu" if ill else rng.choice(CAUSES)
    hung = rng.random() * 4000
    kind = min(int(rng.expovariate(1 / 60)), 400)
    return {
        "verdict": rng.choice(("hung", "failed")), "class": cause,
        "confidence": rng.choice(("high", "medium", "low")), "signature": f"{cause}.{kind}",
        "culprit_hosts": ill or ([rng.choice(hosts)] if cause in NODE_CAUSES else []),
        "duration_hung_s": hung, "gpu_hours_lost": hung * 8 * len(hosts) / 3600,
        "fingerprint": f"{hash_of(cause):08x}{kind:04x}", "title": f"{cause} of kind {kind}",
    }  # fmt: skip


def hash_of(text: str) -> int:
    """The same in every process."""
    return int.from_bytes(text.encode()[-4:], "big")


def document(rng: random.Random, one: dict[str, Any]) -> dict[str, Any]:
    text = rng.choice(ENDINGS).format(n=rng.randrange(10**6), m=rng.randrange(9), host=NODES[7])
    return {"evidence": [{"text": text}], "root_cause": {"summary": one["title"]}}


if __name__ == "__main__":
    main()
