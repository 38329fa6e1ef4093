"""Where a job ran is hidden from strangers; what explains it stays."""

from __future__ import annotations

import pytest

from diagnose.redact.places import Places

HOSTS = ["gpu-017.cluster.example", "n1", "trainer", "localhost", "10.0.0.7", "gpu_node_7"]


@pytest.mark.parametrize(
    ("given", "masked"),
    [
        ("gpu-017:71:71 [0] NCCL INFO", "[host-1]:71:71 [0] NCCL INFO"),
        ("on gpu-017.cluster.example, n1", "on [host-1], [host-2]"),
        ("NET/Socket : Using [0]eth0:10.0.0.1<0> 10.0.0.1 10.0.0.2", "NET/Socket : Using "
         "[0]eth0:[address-1]<0> [address-1] [address-2]"),
        ("fe80::a6bf:1ff:fe2d:3b4c and 2001:db8::1", "[address-1] and [address-2]"),
        ("MASTER_ADDR=head SLURM_JOB_NODELIST=x[1-4,7]", "MASTER_ADDR=[host-1] "
         "SLURM_JOB_NODELIST=[host-2]"),
        ("NodeList=alpha,beta[1-3],gamma Id=7", "NodeList=[host-1] Id=7"),
        ("--export=ALL,MASTER_ADDR=head,MASTER_PORT=29500",
         "--export=ALL,MASTER_ADDR=[host-1],MASTER_PORT=29500"),
        ("ip-10-1-2-3.ec2.internal: ip-10-1-2-3", "[address-1]: [address-2]"),
        ("gpu_node_7 and gpu\\_node\\_7", "[host-1] and [host-1]"),
        ("PYTHONPATH=/home/a/proj/lib:/srv/b/proj/src", "PYTHONPATH=…/proj/lib:…/proj/src"),
        ("gpu-017 is gpu-017.cluster.example is gpu-017.corp.example.com",
         "[host-1] is [host-1] is [host-1]"),
        ("Connection from store.corp.example.com<41522> failed",
         "Connection from [host-1]<41522> failed"),
        ("/mnt/lustre/secret/code/train.py:12", "…/code/train.py:12"),
        ('File "/a/venv/lib/python3.11/site-packages/torch/nn/m.py"',
         'File "…/site-packages/torch/nn/m.py"'),
    ],
)  # fmt: skip
def test_hidden(given: str, masked: str) -> None:
    places = Places(HOSTS)
    assert places.text(given) == masked
    assert places.text(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "the trainer waits on localhost:29500 and 127.0.0.1", "step 3/8/64 of 10:20:30.125",
        "NVRM: Xid (PCI:0000:3b:00): 79", "https://github.com/a/b/c/d", "v1.2.3.4.5 torch==2.8.0.1",
        "/dev/shm/a/b/c /usr/lib/x/y.so", "python -m a.b.c", "n10 nodes",
    ],
)  # fmt: skip
def test_stays(text: str) -> None:
    assert Places(HOSTS).text(text) == text
