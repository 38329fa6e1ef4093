"""What is sent to a node runs there with a bare Python, also an older one."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from diagnose.collect.bundle import NodeOptions
from diagnose.collect.reach import older, program, ways
from diagnose.collect.reach.gather import unpack
from diagnose.collect.reach.hosts import Host
from diagnose.collect.reach.program import Start, installed, sent
from diagnose.collect.reach.remote import arguments
from tests.collect.reach.running import ranks
from tests.report.corpus import INNOCENT, SECRETS

ROOT = Path(__file__).parents[3]
WORDS = arguments(NodeOptions(job="of-the-program-test", apart_s=0.1), 30)


def pythons(pattern: str) -> list[str]:
    """Interpreters of a version on this machine."""
    places = [*Path.home().glob(f".pyenv/versions/{pattern}*/bin/python3"),
              *Path("/usr/bin").glob(f"python{pattern}"),
              *Path("/usr/local/bin").glob(f"python{pattern}")]  # fmt: skip
    return [str(path) for path in places if path.is_file()]


def elsewhere(folder: Path, *tools: str) -> dict[str, str]:
    """An environment in which these are the only commands."""
    folder.mkdir()
    for tool in tools:
        place = shutil.which(tool)
        assert place
        (folder / tool).symlink_to(place)
    return {"PATH": str(folder), "TMPDIR": str(folder.parent)}


def run(
    start: Start, environment: dict[str, str], here: str = "/nowhere/python"
) -> subprocess.CompletedProcess[bytes]:
    """As over there, where our own Python is not."""
    words = [here if word == sys.executable else word for word in start.words]
    return subprocess.run(
        words, input=start.stdin, env=environment, capture_output=True, check=False, timeout=60
    )


@pytest.mark.slow
def test_it_is_a_zip_of_our_modules_that_is_always_the_same() -> None:
    data = program.program()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        assert {"__main__.py", "diagnose/__init__.py", "diagnose/collect/node.py"} <= set(names)
        assert "diagnose/formats/secrets/hubs.json" in names
        assert not [name for name in names if name.startswith(("diagnose/infer", "diagnose/cli"))]
        about = json.loads(archive.read("bin/about.json"))
        assert about == {"machine": os.uname().machine if "bin/py-spy" in names else None}
    program.program.cache_clear()
    assert program.program() == data


@pytest.mark.slow
def test_it_needs_nothing_but_the_standard_library() -> None:
    import ast

    for name, path in program.modules("diagnose.collect.reach.remote").items():
        tree = ast.parse(path.read_bytes())
        for node in tree.body:  # what is imported at once
            found = []
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found = [node.module or ""]
            for module in found:
                top = module.partition(".")[0]
                assert top == "diagnose" or top in sys.stdlib_module_names, f"{name}: {module}"


def check_sent(environment: dict[str, str], here: str, tmp_path: Path) -> None:
    start = sent(WORDS, program.program())
    with ranks("of-the-program-test", 2, tmp_path):
        done = run(start, environment, here)
    assert (done.returncode, done.stderr) == (0, b"")
    found = unpack(io.BytesIO(done.stdout), tmp_path / "out", 1 << 28)
    assert (len(found.hosts), found.complete, found.problems) == (1, True, [])
    document = json.loads(next((tmp_path / "out").glob("nodes/*/node.json")).read_text())
    assert [one["rank"] for one in document["processes"] if one["role"] == "rank"] == [0, 1]
    failed = {
        probe["name"]: probe["problem"]
        for probe in document["probes"]
        if probe["status"] == "failed" and not probe["name"].endswith(("stack-1", "stack-2"))
    }
    assert failed == {}
    # Neither the program nor its files are left behind.
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("diagnose-")]


@pytest.mark.slow
def test_it_runs_with_this_python(tmp_path: Path) -> None:
    check_sent(elsewhere(tmp_path / "bin", "sh", "readlink"), sys.executable, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13", "3.14"])
def test_it_runs_with_other_pythons(version: str, tmp_path: Path) -> None:
    found = pythons(version)
    if not found:
        pytest.skip(f"no Python {version} here")
    check_sent(elsewhere(tmp_path / "bin", "sh"), found[0], tmp_path)


@pytest.mark.slow
def test_py_spy_is_sent_where_it_is_missing(tmp_path: Path) -> None:
    if (
        not pythons("3.10")
        or "bin/py-spy" not in zipfile.ZipFile(io.BytesIO(program.program())).namelist()
    ):
        pytest.skip("no other Python, or no py-spy")
    start = sent(WORDS, program.program())
    with ranks("of-the-program-test", 1, tmp_path):
        done = run(start, elsewhere(tmp_path / "bin", "sh"), pythons("3.10")[0])
    unpack(io.BytesIO(done.stdout), tmp_path / "out", 1 << 28)
    (stack,) = (tmp_path / "out").glob("nodes/*/rank-0/stack-1.txt")
    assert "<module> (<string>:1)" in stack.read_text()


@pytest.mark.slow
def test_a_python_is_found_by_what_runs_there(tmp_path: Path) -> None:
    """In a container whose shell has none in PATH, the job's own is taken; elsewhere it is not."""
    environment = elsewhere(tmp_path / "bin", "sh", "readlink")
    with ranks("of-the-program-test", 1, tmp_path):
        done = run(sent(["--help"], program.program(), contained=True), environment)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"--node-only" in done.stdout
        done = run(sent(["--help"], program.program()), environment)
    said = b"no Python 3.10 or newer was found there\n"
    assert (done.returncode, done.stdout, done.stderr) == (127, b"", said)


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "tcsh", "fish", "zsh"])
@pytest.mark.slow
def test_any_login_shell_takes_the_command_as_it_is(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    start = sent(["--help"], program.program())
    command = ways.ssh([Host("n1")], start).calls[0].command[-1]
    done = subprocess.run(
        [shell, "-c", command], input=start.stdin, capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"--node-only" in done.stdout


@pytest.mark.slow
def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    environment = elsewhere(tmp_path / "bin", "sh")
    old = tmp_path / "bin" / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    done = run(sent(["--help"], program.program()), environment)
    assert (done.returncode, b"--node-only" in done.stdout) == (0, True)


def test_a_program_that_does_not_arrive_in_full(tmp_path: Path) -> None:
    start = sent(WORDS, program.program())
    cut = Start(start.words, start.stdin[:1000])
    done = run(cut, elsewhere(tmp_path / "bin", "sh"), sys.executable)
    size, load = len(program.program()), len(program._LOAD)
    assert (done.returncode, done.stdout) == (1, b"")
    said = f"the program did not arrive: {1000 - load} of {size} bytes\n"
    assert done.stderr.decode() == said


def test_what_is_installed_there() -> None:
    assert installed(["collect"]) == Start((sys.executable, "-P", "-m", "diagnose", "collect"))
    assert installed(["collect"], "'/a b/diagnose' -x") == Start(("/a b/diagnose", "-x", "collect"))
    assert Start(("a",), b"b").also("c") == Start(("a", "c"), b"b")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"a++b*+c?+d{2,}+e{3}+", r"a+b*c?d{2,}e{3}"),
        (r"[a+]++[]+]*+[^]+]+", r"[a+]+[]+]*[^]+]+"),
        (r"\+\++\[a++\]", r"\+\++\[a+\]"),
        (r"a\\++", r"a\\+"),
        (r"(?:a|b)++(c)", r"(?:a|b)+(c)"),
        (r"a+?b*?", r"a+?b*?"),
        (r"a{x}+", r"a{x}+"),
    ],
)
def test_a_pattern_for_an_older_python(pattern: str, expected: str) -> None:
    assert older.greedy(pattern) == expected
    assert older.greedy(pattern.encode()) == expected.encode()
    re.compile(pattern)


def test_an_older_python_is_adapted(monkeypatch: pytest.MonkeyPatch) -> None:
    import datetime

    monkeypatch.setattr(re, "compile", re.compile)
    monkeypatch.setattr(datetime, "UTC", datetime.UTC)
    before = re.compile
    older.adapt((3, 11))
    assert re.compile is before
    older.adapt((3, 10))
    assert re.compile("a++b").pattern == "a+b"
    assert re.compile(re.compile("a")).pattern == "a"
    assert datetime.UTC is datetime.timezone.utc  # noqa: UP017


@pytest.mark.slow
def test_secrets_are_masked_alike_by_an_older_python(tmp_path: Path) -> None:
    found = pythons("3.10")
    if not found:
        pytest.skip("no Python 3.10 here")
    texts = [text for pair in SECRETS for text in pair] + INNOCENT
    assert len(texts) > 800
    script = (
        "import json, sys\n"
        "from diagnose.collect.reach import older\n"
        "older.adapt()\n"
        "from diagnose.redact.redactor import Redactor\n"
        "texts = json.load(sys.stdin)\n"
        "print(json.dumps([Redactor(people=False, numbers=False).text(one) for one in texts]))\n"
    )
    answers = [
        json.loads(
            subprocess.run(
                [python, "-c", script], input=json.dumps(texts), cwd=ROOT, capture_output=True,
                text=True, check=True, timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)},
            ).stdout
        )
        for python in (sys.executable, found[0])
    ]  # fmt: skip
    assert answers[0] == answers[1]
