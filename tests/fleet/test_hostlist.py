"""Host lists as Slurm writes and reads them."""

import pytest

from diagnose.text.hosts import fold


@pytest.mark.parametrize(
    ("hosts", "folded"),
    [
        ([], ""),
        (["node001"], "node001"),
        (["node007", "node001"], "node[001,007]"),
        (["node009", "node010", "node011", "node100"], "node[009-011,100]"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["n1", "n01"], "n01,n1"),
        (["rack1-n03", "rack2-n03", "login"], "login,rack1-n03,rack2-n03"),
        (["n1.cluster", "10.0.0.7"], "10.0.0.7,n1.cluster"),
        (["n1", "$(rm -rf)", "a b", "x;y", "-w", "[n]", "n1"], "n1"),
    ],
)
def test_fold(hosts: list[str], folded: str) -> None:
    assert fold(hosts) == folded
