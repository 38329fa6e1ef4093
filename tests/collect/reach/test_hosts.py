"""Lists of hosts, as sites keep them."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from diagnose.collect.reach.hosts import Host, read_hosts
from diagnose.errors import InputError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("node1", [Host("node1")]),
        ("node1,node2,node1", [Host("node1"), Host("node2")]),
        ("alice@node1", [Host("node1", "alice")]),
        ("DOMAIN\\alice@node1", [Host("node1", "DOMAIN\\alice")]),
        ("alice@corp@node1", [Host("node1", "alice@corp")]),
        ("node1:2222", [Host("node1", None, 2222)]),
        ("node1:22", [Host("node1", None, 22)]),
        ("node1:8", [Host("node1")]),  # slots of MPICH
        ("ssh://alice@node1:2222", [Host("node1", "alice", 2222)]),
        ("ssh://node1", [Host("node1")]),
        ("fd00::7", [Host("fd00::7")]),
        ("[fd00::7]:2222", [Host("fd00::7", None, 2222)]),
        ("bob@[fd00::7]", [Host("fd00::7", "bob")]),
        ("10.0.0.3", [Host("10.0.0.3")]),
        ("n[1-3]", [Host("n1"), Host("n2"), Host("n3")]),
        ("n[08-10,20],login", [Host("n08"), Host("n09"), Host("n10"), Host("n20"), Host("login")]),
        ("r[1-2]-n[1-2]", [Host("r1-n1"), Host("r1-n2"), Host("r2-n1"), Host("r2-n2")]),
        ("ip-10-0-0-1.ec2.internal", [Host("ip-10-0-0-1.ec2.internal")]),
    ],
)
def test_a_list_on_the_command_line(given: str, expected: list[Host]) -> None:
    assert read_hosts(given) == expected


def test_a_hostfile(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(
        "# nodes of the job\n"
        "\n"
        "worker-0 slots=8   # DeepSpeed, Open MPI\n"
        "worker-1 slots=8 max_slots=8\n"
        "alice@worker-2 port=2222\n"
        "worker-3:8\n"
        "node1\nnode1\nnode1\n"  # PBS, a line for each slot
        "[fd00::7]:2222 slots=4\n"
    )
    assert read_hosts(str(path)) == [
        Host("worker-0"), Host("worker-1"), Host("worker-2", "alice", 2222), Host("worker-3"),
        Host("node1"), Host("fd00::7", None, 2222),
    ]  # fmt: skip


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"node1\nnode2 slots=8\n")))
    assert read_hosts("-") == [Host("node1"), Host("node2")]
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InputError, match="standard input is closed"):
        read_hosts("-")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("-oProxyCommand=id", "no hosts in it"),  # a word with = is a setting
        ("-oProxyCommand", "1: '-oProxyCommand' is no host"),
        ("node1\n-l@node2", "2: '-l@node2' is no host"),
        ("a b;c", "1: 'b;c' is no host"),
        ("$(id)", "1: '$(id)' is no host"),
        ("node1:x", "1: 'node1:x': a port or a number of slots was expected behind the colon"),
        ("node1:99999", "1: '99999' is no port"),
        ("node1 port=ssh", "1: 'ssh' is no port"),
        ("node[1-", "1: 'node[1-' is no host"),
        ("node[3-1]", "1: [3-1] is no range of numbers"),
        ("node[1-99999999]", "1: [1-99999999] is no range of numbers"),
        ("node[1-a]", "1: 'node[1-a]' is no host"),
        ("node[,]", "1: [,] is no range of numbers"),
        ("a[1-999]b[1-999]", " more than 20000 hosts"),
        ("ssh://node1:99999", "1: Port out of range 0-65535"),
        ("# nothing", "no hosts in it"),
    ],
)
@pytest.mark.slow
def test_what_is_no_list_of_hosts(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_hosts(str(path))
    assert str(error.value) in (f"{path}:{problem}", f"{path}: {problem}")


@pytest.mark.parametrize("given", ["hosts.txt", "./hosts", "/nowhere/hosts"])
def test_a_file_that_is_not_there(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"no such file$"):
        read_hosts(given)


def test_a_file_that_is_no_list(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (5 << 20))
    with pytest.raises(InputError, match="more than 4194304 bytes"):
        read_hosts(str(path))
    with pytest.raises(InputError, match="is no host"):
        read_hosts(str(tmp_path)[1:].replace("/", "|"))
