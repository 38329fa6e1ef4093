"""One small fleet whose report is compared word by word, and one made of hostile text."""

from typing import Any

import pandas as pd

from .frames import failed, frame, row

OLD, NEW = {"torch": "2.6.0+cu124", "nccl": "2.21.5"}, {"torch": "2.7.1+cu128", "nccl": "2.21.5"}
HOSTS = [f"node{number:03d}" for number in range(1, 13)]


def _pair(number: int) -> list[str]:
    return [HOSTS[number % 12], HOSTS[(number + 1 + number // 12 % 5) % 12]]


def small() -> pd.DataFrame:
    """12 nodes in 4 weeks: node004 is bad, torch 2.7.1 brings a failure, three end unexplained."""
    rows: list[dict[str, Any]] = []
    for number in range(120):
        hosts, day = _pair(number), number / 4.3
        versions = NEW if day >= 14 else OLD
        common: dict[str, Any] = {
            "hosts": hosts, "versions": versions, "ranks": 16,
            "labels": {"user": ("alice", "bruno", "chen")[number % 3]},
            "frameworks": ["megatron"] if number % 2 else ["accelerate"],
        }  # fmt: skip
        job = f"job-{number:03d}"
        if "node004" in hosts and number % 5:
            rows.append(
                failed(
                    job, day, **common, **{"class": "hw.gpu"}, verdict="hung",
                    signature="gpu.xid79", culprit_hosts=["node004"], gpu_hours_lost=12.5,
                    fingerprint="a1b2c3", title="A GPU fell off the bus",
                )
            )  # fmt: skip
        elif versions is NEW and number % 7 == 0:
            rows.append(
                failed(
                    job, day, **common, **{"class": "crash.cuda_error"}, gpu_hours_lost=1.25,
                    fingerprint="d4e5f6", title="Illegal memory access in a kernel",
                )
            )  # fmt: skip
        elif number % 31 == 0:
            note = (
                f"the last line is: shard {number} of /data/c4/{number}.bin gave up on {hosts[0]}"
            )
            rows.append(
                row(job, day, **common, verdict="unknown", title="The cause is not known",
                    notes=[note], **{"class": "unknown"})
            )  # fmt: skip
        elif number == 50:
            rows.append(
                row(job, day, verdict=None, **{"class": None}, title=None,
                    error="job-050.tar.gz: member 7 is truncated")
            )  # fmt: skip
        else:
            rows.append(row(job, day, **common))
    return frame(*rows)


def hostile() -> pd.DataFrame:
    """Markup, escape codes, formulas and secrets in every text."""
    nasty = "<script>hacked=1</script>\x1b]0;owned\x07[red]&\u202e token=hf_" + "a" * 34
    rows = [
        failed(
            f"../../{number}<b>", number, title=nasty, fingerprint=f"</script>{number % 2}",
            hosts=["<img src=x onerror=hacked=1>", "=cmd()"], culprit_hosts=["=cmd()"],
            labels={"user": '=HYPERLINK("http://x")', "</script>": "x"}, notes=[nasty],
            versions={nasty: nasty}, frameworks=[nasty], **{"class": "<b>hw.gpu"},
        )
        for number in range(6)
    ]  # fmt: skip
    rows += [row("u", 1, verdict="unknown", title=nasty, notes=[nasty], **{"class": "unknown"})]
    rows += [row("e", 1, verdict=None, error=nasty)]
    return frame(*rows)
