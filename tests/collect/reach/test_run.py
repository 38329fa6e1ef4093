"""A bundle from beginning to end: where it goes, and what is in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest

from diagnose import __version__
from diagnose.collect import bundle
from diagnose.collect import node as module
from diagnose.collect.bundle import Manifest, NodeOptions
from diagnose.collect.reach.gather import Call, Limits, Plan
from diagnose.collect.reach.run import collect
from diagnose.errors import InputError
from tests.collect.reach.test_gather import answers, node
from tests.collect.reach.test_remote import quick, slow

LIMITS = Limits(20.0, 1 << 20)


def manifest(folder: Path) -> dict[str, object]:
    found = json.loads((folder / "manifest.json").read_text())
    assert isinstance(found, dict)
    return found


def without_kind(document: dict[str, object]) -> dict[str, object]:
    """The document of a node as it is in the manifest."""
    return {name: value for name, value in document.items() if name != "diagnose"}


def test_the_bundle_of_some_nodes(tmp_path: Path) -> None:
    plan = Plan(
        "ssh",
        [answers(tmp_path, "n1", node("h1")), Call("n2", ("sh", "-c", "echo refused >&2; exit 9"))],
        ["pod x is pending: not reached"],
    )
    found = collect(plan, NodeOptions(), LIMITS, tmp_path / "bundle")
    assert found.problems == ["pod x is pending: not reached", "n2: refused"]
    assert not found.interrupted
    told = manifest(tmp_path / "bundle")
    assert told.pop("started") <= told.pop("ended")  # type: ignore[operator]
    assert told == {
        "schema": "diagnose-bundle/1",
        "tool": __version__,
        "via": "ssh",
        "nodes": [{"host": "h1", "processes": []}],
        "problems": found.problems,
    }
    files = [path for path in (tmp_path / "bundle").rglob("*") if path.is_file()]
    assert found.size == sum(path.stat().st_size for path in files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "n1.answer"]


def test_this_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "collect_node", quick)
    found = collect(None, NodeOptions(job="j"), LIMITS, tmp_path / "bundle")
    told = manifest(tmp_path / "bundle")
    assert (told["via"], told["problems"]) == ("here", [])
    assert told["nodes"] == [without_kind(one) for one in found.nodes]
    assert (tmp_path / "bundle" / "nodes" / "h" / "kernel.log").is_file()


def test_this_node_when_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "collect_node", slow)
    found = collect(None, NodeOptions(), Limits(0.3, 1 << 20), tmp_path / "bundle")
    assert found.problems == ["this node: ended early: no end in 0.3 s"]
    assert not found.interrupted
    assert [one["problems"] for one in found.nodes] == [["ended early: no end in 0.3 s"]]


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz"])
def test_an_archive(suffix: str, tmp_path: Path) -> None:
    plan = Plan("ssh", [answers(tmp_path, "n1", node("h1"))])
    collect(plan, NodeOptions(), LIMITS, tmp_path / f"b{suffix}")
    with tarfile.open(tmp_path / f"b{suffix}") as archive:
        assert sorted(archive.getnames()) == ["b/manifest.json", "b/nodes/h1/node.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"b{suffix}", "n1.answer"]


def test_nothing_that_exists_is_replaced_unless_that_is_wanted(tmp_path: Path) -> None:
    plan = Plan("ssh", problems=["ssh is not installed here"])
    for name in ("b", "b.tar"):
        target = tmp_path / name
        collect(plan, NodeOptions(), LIMITS, target)
        with pytest.raises(InputError) as error:
            collect(plan, NodeOptions(), LIMITS, target)
        assert str(error.value) == f"{target} exists (--force replaces it)"
        (target / "old" if target.is_dir() else target).write_bytes(b"old")
        collect(plan, NodeOptions(), LIMITS, target, replace=True)
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["manifest.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "b.tar"]


@pytest.mark.parametrize("replace", [False, True])
def test_a_folder_that_is_no_bundle_is_never_replaced(replace: bool, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "thesis.tex").write_text("years")
    for name, why in (
        ("work", "is a folder, but no bundle: it is not replaced"), ("work/x.tar", "is a folder")
    ):  # fmt: skip
        target = tmp_path / name
        if name.endswith(".tar"):
            target.mkdir()
        with pytest.raises(InputError) as error:
            collect(Plan("ssh"), NodeOptions(), LIMITS, target, replace=replace)
        assert str(error.value) == f"{target} {why}"
    assert (tmp_path / "work" / "thesis.tex").read_text() == "years"


def test_a_target_that_cannot_be(tmp_path: Path) -> None:
    for name, why in (
        ("no/bundle", "its folder does not exist"), ("x" * 300, "file name too long")
    ):  # fmt: skip
        with pytest.raises(InputError) as error:
            collect(Plan("ssh"), NodeOptions(), LIMITS, tmp_path / name)
        assert str(error.value) == f"cannot write {tmp_path / name}: {why}"


def test_nothing_is_left_where_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle, "add_folder", full)
    plan = Plan("ssh", [answers(tmp_path, "n1", node("h1"))])
    with pytest.raises(InputError) as error:
        collect(plan, NodeOptions(), LIMITS, tmp_path / "b.tar")
    assert str(error.value) == f"cannot write {tmp_path / 'b.tar'}: no space left on device"
    assert [path.name for path in tmp_path.iterdir()] == ["n1.answer"]


def test_a_full_disk_leaves_a_short_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bundle.write_manifest

    def full(folder: Path, document: Manifest) -> None:
        if document.nodes and len(document.nodes[0]) > 1:
            raise OSError(28, "No space left on device")
        real(folder, document)

    monkeypatch.setattr(bundle, "write_manifest", full)
    plan = Plan("ssh", [answers(tmp_path, "n1", node("h1"))])
    collect(plan, NodeOptions(), LIMITS, tmp_path / "b")
    told = manifest(tmp_path / "b")
    assert told["nodes"] == [{"host": "h1"}]
    assert told["problems"] == ["a short manifest: no space left on device"]


def test_outside_of_the_main_thread_signals_are_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "collect_node", quick)
    done = []

    def work() -> None:
        done.append(collect(None, NodeOptions(), LIMITS, tmp_path / "a"))
        plan = Plan("ssh", [answers(tmp_path, "n1", node("h1"))])
        done.append(collect(plan, NodeOptions(), LIMITS, tmp_path / "b"))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert [len(one.nodes) for one in done] == [1, 1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_what_came(number: int, tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from diagnose.collect.bundle import NodeOptions\n"
        "from diagnose.collect.reach.gather import Call, Limits, Plan\n"
        "from diagnose.collect.reach.run import collect\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "calls = [Call('n1', ('cat', f'{folder}/n1.answer')), Call('n2', ('sleep', '60'))]\n"
        "found = collect(\n"
        "    Plan('ssh', calls), NodeOptions(), Limits(60, 1 << 20), folder / 'b',\n"
        "    done=lambda one: print(one.name, flush=True),\n"
        ")\n"
        "print(found.interrupted, found.problems)\n"
    )
    answers(tmp_path, "n1", node("h1"))
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "n1\n"
    began = time.monotonic()
    process.send_signal(number)
    rest, _ = process.communicate(timeout=30)
    assert rest.splitlines() == ["n2", "True ['n2: interrupted']"]
    assert time.monotonic() - began < 15
    assert [one["host"] for one in manifest(tmp_path / "b")["nodes"]] == ["h1"]  # type: ignore[attr-defined]


def test_a_signal_during_the_probes_of_this_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "collect_node", slow)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    found = collect(None, NodeOptions(), LIMITS, tmp_path / "b")
    assert found.interrupted
    assert found.problems == ["this node: ended early: interrupted"]
    assert manifest(tmp_path / "b")["nodes"] == [without_kind(one) for one in found.nodes]


@pytest.mark.slow
def test_who_asks_twice_does_not_want_to_wait(tmp_path: Path) -> None:
    script = (
        "import os, signal, threading\n"
        "from pathlib import Path\n"
        "from diagnose.collect.bundle import NodeOptions\n"
        "from diagnose.collect.reach import run\n"
        "from diagnose.collect.reach.gather import Call, Limits, Plan\n"
        "for after in (0.5, 1.0):\n"
        "    threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "call = Call('n1', ('sh', '-c', \"trap '' TERM; while :; do sleep 0.1; done\"))\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "run.collect(Plan('ssh', [call]), NodeOptions(), Limits(60, 1 << 20), folder / 'b')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert list(tmp_path.iterdir()) == []
