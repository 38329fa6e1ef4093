"""Many calls: what they answer is joined, what fails is a line each."""

from __future__ import annotations

import gzip
import io
import json
import time
from pathlib import Path
from threading import Event, Timer

import pytest

from diagnose.collect.reach import gather as module
from diagnose.collect.reach.frames import send
from diagnose.collect.reach.gather import Call, Limits, Plan, Reached, gather
from tests.collect.reach.test_unpack import member, stream

LIMITS = Limits(20.0, 1 << 20, 4)


def node(host: str, **more: object) -> bytes:
    document = {"diagnose": "node/1", "host": host, "processes": [], **more}
    return stream(member(f"nodes/{host}/node.json", json.dumps(document).encode()))


def answers(tmp_path: Path, name: str, data: bytes, tail: str = "") -> Call:
    """A call that answers with these bytes."""
    path = tmp_path / f"{name}.answer"
    path.write_bytes(data)
    return Call(name, ("sh", "-c", f"cat {path}; {tail}"))


def joined(tmp_path: Path, *calls: Call, limits: Limits = LIMITS) -> tuple[list[Reached], Path]:
    folder = tmp_path / "bundle"
    folder.mkdir()
    return gather(Plan("ssh", list(calls)), folder, limits), folder


def problems(reached: list[Reached]) -> list[str]:
    return [line for one in reached for line in one.problems]


def test_nodes_are_joined_in_the_order_of_the_calls(tmp_path: Path) -> None:
    reached, folder = joined(
        tmp_path,
        Call("n1", ("sh", "-c", f"sleep 0.4; cat {tmp_path}/n2.answer")),
        answers(tmp_path, "n2", gzip.compress(node("h"))),
        answers(tmp_path, "n3", node("other")),
    )
    assert problems(reached) == []
    assert [one.name for one in reached] == ["n1", "n2", "n3"]
    # Two containers may have the same name for their host; the first to come has it.
    assert [one.nodes[0]["host"] for one in reached] == ["h-2", "h", "other"]
    for name in ("h", "h-2", "other"):
        document = json.loads((folder / "nodes" / name / "node.json").read_text())
        assert document["host"] == name
    assert sorted(path.name for path in folder.iterdir()) == ["nodes"]
    assert (reached[2].files, reached[2].size) == (1, 56)
    assert reached[0].seconds >= 0.4


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("echo 'ssh: connect to host n1 port 22: Connection refused' >&2; exit 255",
         "n1: ssh: connect to host n1 port 22: Connection refused"),
        ("echo 'no Python 3.10 or newer was found there' >&2; exit 127",
         "n1: no Python 3.10 or newer was found there"),
        ("exit 3", "n1: ended with exit status 3"),
        ("true", "n1: no answer"),
        ("kill -9 $$", "n1: ended with exit status -9"),
        ("echo 'Welcome to node1'", "n1: no answer"),
        ("exec sleep 60", "n1: no end in 0.4 s"),
        ("exec cat /dev/zero", "n1: more than 1048576 bytes"),
    ],
)  # fmt: skip
def test_a_node_that_does_not_answer_is_one_line(script: str, line: str, tmp_path: Path) -> None:
    limits = Limits(0.4 if "sleep" in script else 20.0, 1 << 20)
    reached, folder = joined(tmp_path, Call("n1", ("sh", "-c", script)), limits=limits)
    assert problems(reached) == [line]
    assert (reached[0].nodes, list(folder.iterdir())) == ([], [])


def test_what_came_before_the_end_of_the_time_is_kept(tmp_path: Path) -> None:
    data = stream(member("nodes/h/node.json", b'{"host": "h"}'), member("nodes/h/x", b"y" * 4000))
    reached, folder = joined(
        tmp_path, answers(tmp_path, "n1", data[:3000], "exec sleep 60"), limits=Limits(0.4, 1 << 20)
    )
    assert problems(reached) == ["n1: no end in 0.4 s, what had come is kept"]
    assert (folder / "nodes" / "h" / "x").stat().st_size == 1464


def test_a_truncated_answer_is_one_line(tmp_path: Path) -> None:
    data = stream(member("nodes/h/node.json", b'{"host": "h"}'), member("nodes/h/x", b"y" * 4000))
    reached, _ = joined(
        tmp_path,
        answers(tmp_path, "n1", data[:3000]),
        answers(tmp_path, "n2", data[:3000], "echo 'connection reset' >&2; exit 1"),
    )
    incomplete = "its answer is incomplete: it ends inside of nodes/h/x"
    assert problems(reached) == [
        f"n1: {incomplete}", f"n2: {incomplete}", "n2: connection reset"
    ]  # fmt: skip


def test_a_node_says_why_it_ended_early_and_is_no_problem_of_reaching_it(tmp_path: Path) -> None:
    reached, _ = joined(
        tmp_path, answers(tmp_path, "n1", node("h"), "echo 'diagnose: no end in 5 s' >&2")
    )
    assert problems(reached) == []


@pytest.mark.parametrize(
    "document", [b"", b"{", b"[1]", b"[" * 100_000, b'{"a":' * 90 + b"1" + b"}" * 90, None]
)
def test_a_node_without_its_document(document: bytes | None, tmp_path: Path) -> None:
    name = "node.json" if document is not None else "other"
    data = stream(member(f"nodes/h/{name}", document or b""), member("nodes/h/kept", b"kept"))
    reached, folder = joined(tmp_path, answers(tmp_path, "n1", data))
    why = "its node.json is missing or damaged"
    assert problems(reached) == [f"h: {why}"]
    (found,) = reached[0].nodes
    assert (found["diagnose"], found["host"], found["problems"]) == ("node/1", "h", [why])
    assert json.loads((folder / "nodes" / "h" / "node.json").read_text()) == found
    assert (folder / "nodes" / "h" / "kept").read_bytes() == b"kept"


def test_so_many_at_a_time_and_no_more(tmp_path: Path) -> None:
    script = f"touch {tmp_path}/$$.run; ls {tmp_path} | grep -c run > {tmp_path}/$$.seen; "
    script += f"sleep 0.1; rm {tmp_path}/$$.run"
    calls = [Call(f"n{n}", ("sh", "-c", script)) for n in range(9)]
    joined(tmp_path, *calls, limits=Limits(20.0, 1 << 20, 3))
    seen = [int(path.read_text()) for path in tmp_path.glob("*.seen")]
    assert len(seen) == 9
    assert max(seen) <= 3


def test_after_an_interrupt_what_came_is_kept(tmp_path: Path) -> None:
    stop, done = Event(), []
    Timer(0.6, stop.set).start()
    folder = tmp_path / "bundle"
    folder.mkdir()
    plan = Plan("ssh", [
        answers(tmp_path, "n1", node("h1")),
        answers(tmp_path, "n2", node("h2"), "exec sleep 60"),
        Call("n3", ("sleep", "60")),
    ])  # fmt: skip
    began = time.monotonic()
    reached = gather(plan, folder, Limits(60.0, 1 << 20, 2), stop=stop, done=done.append)
    assert time.monotonic() - began < 20
    assert sorted(one.name for one in done) == ["n1", "n2", "n3"]
    assert [len(one.nodes) for one in reached] == [1, 1, 0]
    assert problems(reached) == ["n3: interrupted"]  # the second had said all
    reached = gather(plan, folder, LIMITS, stop=stop)
    assert problems(reached) == [f"n{n}: not reached: interrupted" for n in (1, 2, 3)]


def lines(tmp_path: Path, data: bytes) -> bytes:
    path = tmp_path / "lines"
    with path.open("wb") as out:
        send(out.fileno(), io.BytesIO(data))
    return path.read_bytes()


def launcher(tmp_path: Path, data: bytes, tail: str = "") -> Call:
    call = answers(tmp_path, "mpirun", data, tail)
    return Call("mpirun", call.command, lines=True)


def test_nodes_of_one_launcher(tmp_path: Path) -> None:
    one, two = (lines(tmp_path, gzip.compress(node(host))) for host in ("h1", "h2"))
    reached, folder = joined(tmp_path, launcher(tmp_path, b"hello\n" + one + two))
    assert problems(reached) == []
    assert [found["host"] for found in reached[0].nodes] == ["h1", "h2"]
    assert sorted(path.name for path in (folder / "nodes").iterdir()) == ["h1", "h2"]


@pytest.mark.parametrize(
    ("data", "tail", "expected"),
    [
        (b"", "exit 1", "mpirun: ended with exit status 1"),
        (b"", "echo 'mpirun: no slots' >&2; exit 1", "mpirun: mpirun: no slots"),
        (b"All nodes are allocated already\n", "exit 1", "mpirun: All nodes are allocated already"),
        (b"", "true", "mpirun: no node answered"),
        (b"bash: diagnose: command not found\n", "true",
         "mpirun: no node answered: bash: diagnose: command not found"),
        (b"", "exec sleep 60", "mpirun: no end in 0.4 s"),
    ],
)  # fmt: skip
def test_a_launcher_that_brings_no_node_is_one_line(
    data: bytes, tail: str, expected: str, tmp_path: Path
) -> None:
    limits = Limits(0.4 if "sleep" in tail else 20.0, 1 << 20)
    reached, _ = joined(tmp_path, launcher(tmp_path, data, tail), limits=limits)
    assert (problems(reached), reached[0].nodes) == ([expected], [])


def test_lost_lines_are_one_line(tmp_path: Path) -> None:
    import random

    noise = random.Random(1).randbytes(9000)
    data = stream(member("nodes/h/node.json", b'{"host": "h"}'), member("nodes/h/x", noise))
    whole = lines(tmp_path, data).splitlines(keepends=True)
    reached, folder = joined(
        tmp_path, launcher(tmp_path, b"".join(whole[:6] + whole[8:]), "exit 5")
    )
    assert problems(reached) == [
        "h: 2 lines of its answer lost on the way", "mpirun: ended with exit status 5"
    ]  # fmt: skip
    assert noise.startswith((folder / "nodes" / "h" / "x").read_bytes())


def test_a_disk_of_ours_that_is_full_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.unpack

    def full(source, place: Path, size: int):  # type: ignore[no-untyped-def]
        found = real(source, place, size)
        if found.hosts == ["h1"]:
            raise OSError(28, "No space left on device")
        return found

    monkeypatch.setattr(module, "unpack", full)
    reached, folder = joined(
        tmp_path, answers(tmp_path, "n1", node("h1")), answers(tmp_path, "n2", node("h2"))
    )
    assert problems(reached) == ["n1: its answer could not be kept: no space left on device"]
    assert [path.name for path in (folder / "nodes").iterdir()] == ["h2"]


def test_an_error_of_ours_ends_what_runs(tmp_path: Path) -> None:
    def done(_: Reached) -> None:
        raise RuntimeError("a bug")

    folder = tmp_path / "bundle"
    folder.mkdir()
    began = time.monotonic()
    plan = Plan("ssh", [answers(tmp_path, "n1", node("h")), Call("n2", ("sleep", "60"))])
    with pytest.raises(RuntimeError):
        gather(plan, folder, Limits(60.0, 1 << 20), done=done)
    assert time.monotonic() - began < 20
